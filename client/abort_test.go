// Turns that nobody ends.

package client_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// guest is another home's session, under a ref that was just made from s.
func (r *rig) guest(t *testing.T, s *client.Session, name string, o client.ShareOptions) *client.Session {
	t.Helper()
	ref, ticket, err := s.Share(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := waited(t, ticket).Err(); err != nil {
		t.Fatal(err)
	}
	g, err := r.open(t, name).Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// begins opens turns of messages that are named after what.
func begins(t *testing.T, s *client.Session, what string, n int) {
	t.Helper()
	b := s.Batch()
	for i := range n {
		b.Begin(fmt.Sprintf("%s%d", what, i), object{"role": "assistant"})
	}
	applied(t, b)
}

// open are the messages of open turns.
func open(t *testing.T, s *client.Session) string {
	t.Helper()
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, turn := range state.Turns {
		if turn.Open() {
			open = append(open, turn.Message)
		}
	}
	slices.Sort(open)
	return strings.Join(open, " ")
}

func wantAborted(t *testing.T, what string, got client.AbortedTurns, err error, want client.AbortedTurns) {
	t.Helper()
	if err != nil || got != want {
		t.Fatalf("%s: %+v, %v; want %+v", what, got, err, want)
	}
}

func TestAbortTurns(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.newSession(t, r.open(t, "owner"))
	all := capability.Read | capability.Append | capability.Share | capability.Revoke
	alive := r.guest(t, owner, "alive", client.ShareOptions{Rights: all})
	gone := r.guest(t, owner, "gone", client.ShareOptions{Rights: all})
	below := r.guest(t, alive, "below", client.ShareOptions{Rights: all})
	begins(t, owner, "o", 1)
	begins(t, alive, "a", 2)
	begins(t, gone, "g", 3)
	begins(t, below, "b", 1)
	for _, dead := range []*client.Session{gone, below} {
		if _, err := owner.Revoke(t.Context(), dead.Ref().ID); err != nil {
			t.Fatal(err)
		}
	}
	// A ref is told of those below it alone.
	got, err := alive.AbortTurns(t.Context(), client.AbortOptions{DeadOnly: true})
	wantAborted(t, "those that one ref is told of", got, err, client.AbortedTurns{Aborted: 1, Skipped: 6})
	var shown []int
	got, err = owner.AbortTurns(t.Context(), client.AbortOptions{DeadOnly: true, Progress: func(done, total int) {
		if shown = append(shown, done, total); done == 0 { // another is faster
			b := owner.Batch()
			b.Finalize("g1", client.Aborted).Arg("usage", object{"tokens": 1})
			applied(t, b)
		}
	}})
	wantAborted(t, "those of dead refs", got, err, client.AbortedTurns{Aborted: 2, AlreadyEnded: 1, Skipped: 3})
	if !slices.Equal(shown, []int{0, 3, 3, 3}) {
		t.Errorf("progress: %v", shown)
	}
	if got := open(t, owner); got != "a0 a1 o0" {
		t.Errorf("open are %s", got)
	}
	// A rotation leaves the owner's former ref dead, which is in no tree.
	owner, _, err = owner.Rotate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err = owner.AbortTurns(t.Context(), client.AbortOptions{DeadOnly: true})
	wantAborted(t, "after a rotation", got, err, client.AbortedTurns{Aborted: 1, Skipped: 2})
	// Who may not revoke may not.
	for name, c := range map[string]struct {
		rights capability.Rights
		code   fault.Code
	}{"writer": {capability.Read | capability.Append, fault.NotYourTurn}, "reader": {capability.Read, fault.MissingRight}} {
		refused := r.guest(t, owner, name, client.ShareOptions{Rights: c.rights})
		if got, err := refused.AbortTurns(t.Context(), client.AbortOptions{}); !errors.Is(err, c.code) || got != (client.AbortedTurns{Refused: 2}) ||
			!regexp.MustCompile(` \(batch [0-9A-Z]{26}\)$`).MatchString(err.Error()) {
			t.Errorf("by a %s: %+v, %v", name, got, err)
		}
		if got, err := refused.AbortTurns(t.Context(), client.AbortOptions{DeadOnly: true}); !errors.Is(err, fault.MissingRight) || got.Aborted != 0 {
			t.Errorf("dead ones by a %s: %+v, %v", name, got, err)
		}
	}
	// A ref for one message ends that one's.
	one := r.guest(t, owner, "one", client.ShareOptions{Rights: capability.Read | capability.Revoke, Message: "a1"})
	got, err = one.AbortTurns(t.Context(), client.AbortOptions{})
	wantAborted(t, "of one message", got, err, client.AbortedTurns{Aborted: 1})
	got, err = owner.AbortTurns(t.Context(), client.AbortOptions{})
	wantAborted(t, "all", got, err, client.AbortedTurns{Aborted: 1})
	got, err = owner.AbortTurns(t.Context(), client.AbortOptions{})
	wantAborted(t, "none", got, err, client.AbortedTurns{})
	// Whose turn it was is told so.
	end := alive.Batch()
	end.Finalize("a0", client.Completed)
	if got := brief(outcomes(t, end)); got != "rejected/turn_ended" {
		t.Errorf("after its turn was aborted: %s", got)
	}
}

// What is too much to be read for one batch ends turn by turn.
func TestAbortLargeTurns(t *testing.T) {
	t.Parallel()
	r := testRig(t, func(c *node.Config) {
		c.Session = decide.DefaultConfig()
		c.Session.Limits.EventBytes = 16 << 10 // a batch reads four times as much
	})
	s := r.newSession(t, r.open(t, "a"))
	b := s.Batch()
	for i := range 10 {
		b.Begin(fmt.Sprintf("m%d", i), object{"text": strings.Repeat("x", 10_000)})
	}
	applied(t, b)
	got, err := s.AbortTurns(t.Context(), client.AbortOptions{})
	wantAborted(t, "large ones", got, err, client.AbortedTurns{Aborted: 10})
}

// Turns end in batches, over a link that breaks, and who waited for room goes on, the outbox
// of who made it as well.
func TestAbortTurnsMakesRoom(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.newSession(t, r.open(t, "owner"))
	all := capability.Read | capability.Append | capability.Share | capability.Revoke
	parent := r.guest(t, owner, "parent", client.ShareOptions{Rights: all})
	below := r.guest(t, parent, "below", client.ShareOptions{Rights: all})
	begins(t, below, "b", session.MaxOpenTurns)
	b := parent.Batch()
	b.Begin("waits", object{"role": "assistant"})
	ticket, err := b.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	got, err := parent.AbortTurns(t.Context(), client.AbortOptions{Progress: func(done, total int) {
		if steps++; total != session.MaxOpenTurns {
			t.Errorf("%d of %d", done, total)
		}
		r.proxy.Cut()
	}})
	wantAborted(t, "all", got, err, client.AbortedTurns{Aborted: session.MaxOpenTurns})
	if steps < 3 {
		t.Errorf("it was told of %d steps", steps)
	}
	if err := waited(t, ticket).Err(); err != nil {
		t.Error(err)
	}
	if got := open(t, owner); got != "waits" {
		t.Errorf("open are %s", got)
	}
}
