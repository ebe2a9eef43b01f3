package e2e

// What real processes show of themselves to everybody on their machine: their
// command lines, their output, their sockets' metrics. What they write is looked
// at, in every spelling and on both databases, in cmd/mooring. Command lines are
// read from /proc, so this is for Linux.

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

func TestNoProcessShowsASecret(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverConfig{Args: []string{"--verbose", "--metrics-listen", "127.0.0.1:0"}})
	owner, agent := newHome(t), newHome(t)
	secrets := map[string][]byte{"the owner's ref": s.owner().Secret.Reveal()}
	learn := func(name, file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := capability.ParseRef(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = ref.Secret.Reveal()
		return "@" + file
	}
	id := strings.TrimSpace(owner.do("session", "import", "../../testdata/opencode/a-edit-1.18.33.jsonl", "--owner", "@"+filepath.Join(s.data, "owner.ref")))
	key := strings.TrimSpace(agent.do("key"))
	plainFile, sealedFile := filepath.Join(t.TempDir(), "plain.ref"), filepath.Join(t.TempDir(), "sealed.ref")
	owner.do("share", id, "--rights", "read", "--to", plainFile)
	owner.do("share", id, "--rights", "read,append", "--seal", key, "--to", sealedFile)
	plain, sealed := learn("the ref", plainFile), learn("the sealed ref", sealedFile)
	seed, err := os.ReadFile(filepath.Join(agent.dir, "seal.key"))
	if err != nil {
		t.Fatal(err)
	}
	if secrets["the seal key"], err = base64.RawURLEncoding.DecodeString(strings.TrimSpace(string(seed))); err != nil {
		t.Fatal(err)
	}

	shown := map[string][]byte{}
	var running []*process
	for _, ref := range []string{plain, sealed} {
		p := agent.follow("session", "tail", ref, "--follow", "--json")
		if _, ok := p.out.await(p.done, func(string) bool { return true }); !ok {
			t.Fatalf("tail says nothing: %s", p.err.text())
		}
		running = append(running, p)
	}
	agent.feed(`{"method":"put","key":"message/msg_s","payload":{}}`, "session", "append", sealed, "--wait")
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lines {
		if line, err := os.ReadFile(name); err == nil { // else it has ended, or is none of our business
			shown[name] = line
		}
	}
	var followed bool
	for _, line := range shown {
		followed = followed || bytes.Contains(line, []byte(sealed))
	}
	if !followed {
		t.Error("the processes that run were not seen")
	}
	// A wrong ref of every kind, told at length.
	thief := newHome(t)
	thief.do("key")
	wrong := filepath.Join(t.TempDir(), "wrong.ref")
	for _, file := range []string{plainFile, sealedFile} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(wrong, append(bytes.TrimSpace(text)[:len(text)-3], "AA"...), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{"@" + wrong, sealed} {
			said := thief.try("", "redeem", ref, "--json")
			if said.code != 1 {
				t.Errorf("redeem %s: %d", ref, said.code)
			}
			shown["the refusal of "+ref+" for "+file] = []byte(said.out + said.err)
		}
	}
	owner.do("revoke", sealed)
	for _, p := range running {
		p.kill()
		shown["a tail"] = []byte(p.out.text() + p.err.text())
	}
	server := s.current()
	shown["the server"] = []byte(server.out.text() + server.err.text())

	for whose, secret := range secrets {
		for _, spelling := range []string{string(secret), hex.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret)} {
			for where, what := range shown {
				if bytes.Contains(what, []byte(spelling)) {
					t.Errorf("%s: the secret of %s", where, whose)
				}
			}
		}
	}
}
