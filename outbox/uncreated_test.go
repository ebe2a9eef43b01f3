package outbox

// Sessions that do not come to be, and forks that name nothing: what follows is
// still answered, and the queue goes on.

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// A create that needs a failed op is skipped without a server, in Commit, if the
// failure is known by then. The server has to say what that means for later batches.
func TestCreateSkippedInCommitLeavesTheSessionWithinReach(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, s := p.open(t, quick()), newFakeServer()
		defer run(t, b, s)()
		space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
		failed := commit(t, b, Batch{Session: withSession(t, b), Ops: []Op{{Method: "reject"}}})
		wait(t, b, failed)

		session := newSession()
		owner := testRef(t, b, session, RefMeta{Role: SessionOwner})
		s.mu.Lock()
		s.session(session).managed = true
		s.mu.Unlock()
		create := Op{Method: "create", Args: []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)}}}
		skipped := create
		skipped.DependsOn = failed.Ops
		if o := wait(t, b, commit(t, b, Batch{Session: session, Via: space.ID, Ops: []Op{skipped}}))[0]; o.Status != ledger.Skipped {
			t.Fatalf("the create: %+v", o)
		}
		if o := wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))[0]; o.Status != ledger.Denied {
			t.Errorf("a put after it: %+v", o)
		}
		for i, o := range wait(t, b, commit(t, b, Batch{Session: session, Via: space.ID, Ops: []Op{create, put("2")}})) {
			if o.Status != ledger.Applied {
				t.Errorf("op %d of another create: %+v", i, o)
			}
		}
	})
}

// … and so when it becomes known only later, with what follows it queued already.
func TestCreateSkippedInItsTurnLeavesTheSessionWithinReach(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, s := p.open(t, quick()), newFakeServer()
		space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
		session := newSession()
		owner := testRef(t, b, session, RefMeta{Role: SessionOwner})
		s.session(session).managed = true
		fails := commit(t, b, Batch{Session: withSession(t, b), Ops: []Op{{Method: "reject"}}})
		create := commit(t, b, Batch{Session: session, Via: space.ID, Ops: []Op{{Method: "create", DependsOn: fails.Ops,
			Args: []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)}}}}})
		after := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		defer run(t, b, s)()
		if o := wait(t, b, create)[0]; o.Status != ledger.Skipped {
			t.Fatalf("the create: %+v", o)
		}
		if o := wait(t, b, after)[0]; o.Status != ledger.Denied {
			t.Errorf("a put after it: %+v", o)
		}
	})
}

// A reference in place of a fork's via may turn out to be no ref at all. That is
// for the server to reject: no ref will ever be stored under such an id.
func TestForkWhoseViaIsNoRefIsSent(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, s := p.open(t, quick()), newFakeServer()
		space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
		value := commit(t, b, Batch{Session: withSession(t, b), Ops: []Op{put(`"owner"`)}})
		session := newSession()
		owner := testRef(t, b, session, RefMeta{Role: SessionOwner})
		fork := commit(t, b, Batch{Session: session, Via: space.ID, Ops: []Op{{Method: "fork", Args: []ledger.Arg{
			{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)},
			{Name: "via", Ref: &ledger.Ref{Op: value.Ops[0], Path: "args.v"}},
		}}}})
		defer run(t, b, s)()
		wait(t, b, fork)
		log := s.log(session)
		if len(log) != 1 || log[0].method != "fork" {
			t.Errorf("the server got %+v", log)
		}
		for _, o := range s.openings() {
			if o.Session == session && len(o.LiveRefs) > 0 {
				t.Errorf("the stream was opened with %v", o.LiveRefs)
			}
		}
	})
}

// The one argument that cannot be a reference is the ref that create and fork make:
// the outbox has to know the session's owner's ref before anything is sent.
func TestCreateWhoseRefIsAReferenceIsRefused(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
		value := commit(t, b, Batch{Session: withSession(t, b), Ops: []Op{put(`"owner"`)}})
		for _, method := range []string{intent.MethodCreate, intent.MethodFork} {
			_, err := b.Commit(t.Context(), Batch{Session: newSession(), Via: space.ID, Ops: []Op{{Method: method,
				Args: []ledger.Arg{{Name: "ref", Ref: &ledger.Ref{Op: value.Ops[0], Path: "args.v"}}}}}})
			if !errors.Is(err, fault.BadArgument) {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
}
