package e2e

// What users and strangers get wrong: a clear error with what to do, nothing
// lost, nothing kept of what was refused, and the server stays up.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

func TestBadOpLines(t *testing.T) {
	t.Parallel()
	srv := startServer(t, serverConfig{})
	ref := "@" + writeRef(t, makeSession(t, srv))
	h := newHome(t)
	good := `{"method":"put","key":"message/m1","payload":{"n":1}}` + "\n"
	for _, bad := range []struct {
		line, code string
		words      []string
	}{
		{`{"method":"put","key":`, "malformed", []string{"line 3"}},
		{`["put"]`, "malformed", []string{"line 3"}},
		{`{"key":"session","payload":{}}`, "malformed", []string{"line 3", "method"}},
		{`{"method":"putt","key":"session","payload":{}}`, "unknown_method", []string{"line 3", "putt", "put"}},
		{`{"method":"put","key":"message","payload":{}}`, "bad_key", []string{"line 3", "message/ID"}},
		{`{"method":"put","key":"session","payload":[]}`, "bad_payload", []string{"line 3", "object"}},
		{`{"method":"put","key":"session"}`, "bad_argument", []string{"line 3", "payload"}},
		{`{"method":"put","key":"session","payload":{"a":"` + strings.Repeat("x", 5<<20) + `"}}`, "too_large", []string{"line 3", "limit"}},
		{`{"method":"put","key":"session","payload":{},"depends_on":["nobody"]}`, "malformed", []string{"line 3", "nobody"}},
		{"\xff\xfe", "malformed", []string{"line 3"}},
	} {
		got := h.refused(good+"\n"+bad.line+"\n"+good, bad.code, bad.words, "session", "append", ref, "-")
		if len(got.err) > 2000 {
			t.Errorf("a refusal of %d bytes", len(got.err))
		}
	}
	for state, n := range h.outboxStates() {
		if n != 0 {
			t.Errorf("what was refused left %d ops %s", n, state)
		}
	}
	h.feed(good, "session", "append", ref, "-", "--wait")
	srv.healthy()
}

func TestWrongRefs(t *testing.T) {
	t.Parallel()
	srv := startServer(t, serverConfig{})
	ref := makeSession(t, srv)
	h := newHome(t)
	text := ref.Text()
	wrong := ref.With(ref.ID, capability.NewSecret()).Text()
	for _, bad := range []struct {
		ref, code string
		words     []string
	}{
		{wrong, "unknown_ref", []string{"mistyped"}},
		{ref.New(ref.Target()).Text(), "not_yet_known", []string{"arrived"}},
		{text[:len(text)-5], "bad_ref_text", []string{"cut off"}},
		{strings.SplitN(text, "#", 2)[0], "bad_ref_text", []string{"#SECRET"}},
		{"http" + strings.TrimPrefix(text, "mooring"), "bad_ref_text", []string{"mooring://"}},
		{"ses_01ARZ3NDEKTSV4RRFFQ69G5FAV", "not_found", []string{"home"}},
		{"@" + filepath.Join(t.TempDir(), "none.ref"), "bad_ref_text", []string{"file"}},
	} {
		for _, args := range [][]string{{"redeem", bad.ref}, {"session", "tail", bad.ref}} {
			exit := 1
			if bad.code == "bad_ref_text" && bad.ref[0] != '@' {
				exit = 2 // the command line alone shows it
			}
			got := h.refusedWith(exit, "", bad.code, bad.words, args...)
			for _, secret := range []string{ref.Secret.RevealText(), text[len(text)-20 : len(text)-5]} {
				if strings.Contains(got.err+got.out, secret) {
					t.Errorf("mooring %s tells the secret", args[0])
				}
			}
		}
	}
	h.refused(`{"method":"put","key":"session","payload":{}}`, "unknown_ref", nil, "session", "append", wrong, "-")
	if log := readLog(t, view(t, openClient(t), ref)); len(log) != 1 {
		t.Errorf("%d events", len(log))
	}
	srv.healthy()
}

func TestPlaintextToAForeignHost(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	address, err := capability.ParseAddress("mooring://example.com")
	if err != nil {
		t.Fatal(err)
	}
	ref := address.New("ses_01ARZ3NDEKTSV4RRFFQ69G5FAV").Text()
	for _, args := range [][]string{{"redeem", ref}, {"session", "tail", ref, "--follow"}, {"session", "export", ref}} {
		h.refused("", "plaintext", []string{"example.com", "moorings://"}, args...)
	}
	h.refused(`{"method":"put","key":"session","payload":{}}`, "plaintext", []string{"example.com"}, "session", "append", ref, "-", "--wait")
}

func TestSecondServerOnOneDataFolder(t *testing.T) {
	t.Parallel()
	srv := startServer(t, serverConfig{})
	second := newHome(t)
	second.refused("", "in_use", []string{"another"}, "serve", "--listen", "127.0.0.1:0", "--data", srv.data)
	srv.healthy()
	ref := makeSession(t, srv)
	if log := readLog(t, view(t, openClient(t), ref)); len(log) != 1 {
		t.Errorf("%d events", len(log))
	}
	// The folder is free again as soon as its server is gone, however it went.
	srv.restart()
	srv.healthy()
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, args := range [][]string{
		{"sesion"}, {"session", "tail"}, {"session", "tail", "x", "--form", "3"}, {"share", "x"}, {"share", "x", "--rights", "write"},
		{"serve", "--listen", "7600"}, {"serve", "--advertise", "ftp://x"}, {"serve", "--tls-cert", "x"}, {"revoke", "nothing"},
	} {
		if got := h.try("", args...); got.code != 2 || len(got.err) == 0 || got.out != "" {
			t.Errorf("mooring %s: exit code %d, want 2\n%s%s", strings.Join(args, " "), got.code, got.out, got.err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(`{"info":]`), 0o600); err != nil {
		t.Fatal(err)
	}
	h.refused("", "malformed", []string{"line 1"}, "session", "import", file)
}
