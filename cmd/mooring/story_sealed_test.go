//go:build unix

// A ref that is bound to a key: stolen, it is worth nothing.

package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
)

// A ref that an op line seals is one that only its key redeems.
func TestAnAppendedShareIsSealed(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_sealed_line")
	key := strings.TrimSpace(r.okAs(r.otherHome("mine"), "", "key"))
	out := r.okIn(`{"method":"share","rights":["read"],"message":"m","seal":"`+key+`"}`, "session", "append", id, "--wait", "--json")
	var made struct{ Ref, Text, Outcome string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Outcome != "applied" || !capability.Sealed(made.Ref) || !strings.Contains(made.Text, "/"+made.Ref+"#") {
		t.Fatalf("appended %s, %v", out, err)
	}
	if out := r.okAs(r.otherHome("mine"), "", "redeem", made.Text); !strings.Contains(out, "yes, to "+key) || !strings.Contains(out, "m alone") {
		t.Errorf("redeem: %s", out)
	}
	r.refusedAs(r.otherHome("thief"), "", []string{"sealed"}, "redeem", made.Text)
}

func TestASealedRefIsWorthNothingElsewhere(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_sealed")
	agent, thief := r.otherHome("agent"), r.otherHome("thief")
	key := strings.TrimSpace(r.okAs(agent, "", "key"))
	if len(key) != 43 {
		t.Fatalf("the key is %q", key)
	}
	var shown struct{ Key string }
	if err := json.Unmarshal([]byte(r.okAs(agent, "", "key", "--json")), &shown); err != nil || shown.Key != key {
		t.Errorf("a second time it is %q, %v", shown.Key, err)
	}
	if info, err := os.Stat(filepath.Join(agent, home.SealKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(agent, "."+home.SealKeyFile+"-*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}

	ref := r.shareTo("sealed", id, "--rights", "read,append,share", "--seal", key, "--actor", "owner/agent")
	const todo = "give its sharer the public key of this place (mooring key"
	r.refusedAs(thief, "", []string{"sealed", "there is none here", todo}, "redeem", ref)
	r.okAs(thief, "", "key")
	r.refusedAs(thief, "", []string{"sealed", "bound to another key", todo}, "redeem", ref)
	r.refusedAs(thief, putLine("stolen"), []string{"sealed", todo}, "session", "append", ref, "--wait")

	if got := r.okAs(agent, "", "redeem", ref); !strings.Contains(got, "sealed") || !strings.Contains(got, "yes, to "+key) {
		t.Errorf("redeem: %s", got)
	}
	var redeemed struct{ Seal string }
	if err := json.Unmarshal([]byte(r.okAs(agent, "", "redeem", ref, "--json")), &redeemed); err != nil || redeemed.Seal != key {
		t.Errorf("redeem --json: %q, %v", redeemed.Seal, err)
	}
	r.okAs(agent, putLine("mine"), "session", "append", ref, "--wait")
	if got := r.okAs(agent, "", "session", "tail", ref); !strings.Contains(got, "message/mine") || strings.Contains(got, "stolen") {
		t.Errorf("tail: %s", got)
	}
	r.refusedAs(agent, "", []string{"widening", "its parent is sealed"}, "share", ref, "--rights", "read")
	r.okAs(agent, "", "share", ref, "--rights", "read", "--seal", shown.Key)
	r.fails(cli.ExitUsage, "--seal", "share", id, "--rights", "read", "--seal", key[1:])

	// A key that is no key is told, and not shown.
	if err := os.WriteFile(filepath.Join(thief, home.SealKeyFile), []byte("not-a-key"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := r.runAs(thief, "", "redeem", ref)
	if got.code != cli.ExitUsage || !strings.Contains(got.err, home.SealKeyFile) || strings.Contains(got.err, "not-a-key") {
		t.Errorf("a broken key file: %d %s", got.code, got.err)
	}
}

// Whoever makes the key at the same time gets the same one: a ref may be bound to it.
func TestOneKeyAHome(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	keys := make([]string, 8)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() { _, keys[i], _ = command(t, "key", "--home", home) })
	}
	all.Wait()
	if len(slices.Compact(keys)) != 1 || len(keys[0]) != 44 {
		t.Errorf("there are different keys: %q", keys)
	}
}

// A sealed ref can be redeemed at every address at which the server knows itself,
// and elsewhere the owner is told what to do.
func TestSealedRefAtOtherAddresses(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_addressed")
	key := strings.TrimSpace(r.okAs(r.otherHome("agent"), "", "key"))
	file := strings.TrimPrefix(r.shareTo("sealed", id, "--rights", "read", "--seal", key), "@")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "[::ffff:127.0.0.1]"} {
		_, port, _ := net.SplitHostPort(r.proxy.Addr())
		at := strings.Replace(string(text), r.proxy.Addr(), host+":"+port, 1)
		if err := os.WriteFile(file, []byte(at), 0o600); err != nil {
			t.Fatal(err)
		}
		r.refusedAs(r.otherHome("agent"), "", []string{"sealed", "--advertise"}, "redeem", "@"+file)
	}
}

// From outside: one address guesses a hundred times, slowly; the right ref, from
// the same address at the same moment, is answered at once.
func TestWrongRefsOverSockets(t *testing.T) {
	t.Parallel()
	const every = 15 * time.Millisecond
	r := newCLI(t, "", "--max-wrong-tries", "10", "--wrong-try-interval", every.String())
	id := r.create("ses_guessed")
	ref := r.shareTo("good", id, "--rights", "read")
	guess := guesser(t, strings.TrimPrefix(ref, "@"))
	began := time.Now()
	answered, done := make(chan struct{}), make(chan time.Duration)
	go func() {
		var guesses time.Duration
		for n := 0; ; n++ {
			if n == 100 {
				guesses = time.Since(began)
			}
			select {
			case <-answered:
				if n >= 100 {
					done <- guesses
					return
				}
			default:
			}
			guess()
		}
	}()
	for range 3 { // they do not wait for the guesses to end
		r.okAs(r.otherHome("reader"), "", "redeem", ref)
	}
	close(answered)
	if took := <-done; took < 90*every {
		t.Errorf("100 guesses took %v", took)
	}
}

// guesser tries wrong secrets for the ref in a file, over a connection of its own.
func guesser(t *testing.T, file string) (guess func()) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := capability.ParseRef(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir()), Offline: true, RetryTimeout: servePatience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	// A server's id: a client would see itself that the secret of its own kind does not fit.
	id := ref.Target() + ".s01J00000000000000000000000"
	return func() {
		if _, err := c.Redeem(t.Context(), ref.With(id, capability.NewSecret())); fault.CodeOf(err) != fault.UnknownRef {
			t.Errorf("a guess: %v", err)
		}
	}
}
