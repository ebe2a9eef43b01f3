//go:build unix

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

// From outside, over sockets: who guesses is slow, and then cut off; who has the
// right secret, at the same address and in the same moment, is not held up.
func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := startOn(t, sqliteStore(t), func(c *Config) { c.WrongTries, c.WrongTryInterval = 10, time.Hour }, ln)
	dial := func() *peer {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return newPeer(t, rpc.NewStreamTransport(c))
	}
	guesser, other := dial(), dial()
	forged := r.owner.With(r.owner.ID, capability.NewSecret())
	for range 10 {
		wantCode(t, "one of the first", guesser.restoreErr(forged, ""), fault.UnknownRef)
	}
	var guesses []*rpc.Promise
	for range 10 {
		guesses = append(guesses, guesser.restoring(forged, ""))
	}
	// The guesser's own calls that are right are answered too, behind guesses that wait.
	for _, p := range []*peer{guesser, other} {
		if err := p.restoreErr(r.owner, "x"); err != nil {
			t.Errorf("the right secret: %v", err)
		}
	}
	// Restores are answered in no order: the last guesses may still be looked up.
	until.True(t, "ten answers wait", func() bool { return r.hits("wrong_tries") == "10" })
	for i, p := range guesses {
		select {
		case <-p.Done():
			t.Errorf("guess %d is answered", i)
		default:
		}
	}
	for range 100 {
		guesses = append(guesses, guesser.restoring(forged, ""))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, p := range guesses {
		if _, _, err := p.Wait(ctx); !rpc.IsDisconnected(err) {
			t.Fatalf("a guess ends with %v", err)
		}
	}
	if err := other.restoreErr(r.owner, "y"); err != nil {
		t.Errorf("the right secret, after it: %v", err)
	}
}

// Answers to wrong refs are delayed in process too, and a caller that leaves delays nobody.
func TestGuessingInProcess(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.WrongTries, c.WrongTryInterval = 1, time.Hour })
	forged := r.owner.With(r.owner.ID, capability.NewSecret())
	if _, err := r.server.Caller(t.Context(), "127.0.0.1:1").Restore(forged, ""); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("the first: %v", err)
	}
	wait := func(address string, n int) {
		t.Helper()
		until.True(t, fmt.Sprintf("%d wait", n), func() bool {
			return r.server.authThrottle.Waiting(address) >= n
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	second := make(chan error, 1)
	go func() {
		_, err := r.server.Caller(ctx, "127.0.0.1:2").Restore(forged, "")
		second <- err
	}()
	wait("127.0.0.1", 1)
	cancel()
	if err := <-second; !errors.Is(err, fault.UnknownRef) {
		t.Errorf("the second: %v", err)
	}
	if _, err := r.server.Caller(t.Context(), "127.0.0.1:3").Restore(r.owner, ""); err != nil {
		t.Errorf("the right one: %v", err)
	}
	if err := r.server.Caller(t.Context(), "127.0.0.2:1").ThrottleFailure(); err != nil {
		t.Errorf("another address: %v", err)
	}

	// Many at once are not answered any sooner.
	hang, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range 64 + 10 {
		waiting.Go(func() {
			if err := r.server.Caller(hang, fmt.Sprintf("127.0.0.2:%d", i+2)).ThrottleFailure(); err != nil && !errors.Is(err, fault.Overloaded) {
				t.Error(err)
			}
		})
	}
	wait("127.0.0.2", 64)
	if _, err := r.server.Caller(t.Context(), "127.0.0.2:3").Restore(forged, ""); !errors.Is(err, fault.Overloaded) {
		t.Errorf("one more: %v", err)
	}
	leave()
	waiting.Wait()
}
