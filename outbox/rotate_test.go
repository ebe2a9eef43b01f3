package outbox

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// TestRotationKeepsTheQueue: batches of before, of the time between and of after
// go out once each; what was not sent before the rotation goes under the new ref,
// also what was sent and not answered, and what still names the old one.
func TestRotationKeepsTheQueue(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		session := newSession()
		old := testRef(t, b, session, RefMeta{Role: SessionOwner, External: "ext", Label: "mine"})
		srv := newFakeServer()
		lost := make(chan struct{})
		srv.after = func(*ledger.Batch) bool { // applied, and the answer is lost
			select {
			case <-lost:
				return false
			default:
				close(lost)
				go srv.setDown(fault.Unavailable.With("on request"))
				return true
			}
		}
		run(t, b, srv)
		tickets := []Ticket{commit(t, b, Batch{Session: session, Via: old.ID, Ops: []Op{put("1")}})}
		<-lost
		eventually(t, "it is down", func() bool { srv.mu.Lock(); defer srv.mu.Unlock(); return srv.down != nil && len(srv.links) == 0 })
		tickets = append(tickets, commit(t, b, Batch{Session: session, Ops: []Op{put("2")}}))

		next, err := b.beginRotation(ctx, old.ID, old.New(session))
		if err != nil {
			t.Fatal(err)
		}
		b.drainRef(ctx, old.ID)
		srv.setDown(nil)
		b.Wake()
		tickets = append(tickets, commit(t, b, Batch{Session: session, Via: old.ID, Ops: []Op{put("3")}}))
		other := withSession(t, b)
		wait(t, b, commit(t, b, Batch{Session: other, Ops: []Op{put("9")}})) // others are not held
		if st, err := b.Ref(ctx, old.ID); err != nil || st.ID != old.ID {
			t.Errorf("while it is pending the old one is %v, %v", st.ID, err)
		}
		if n := len(srv.log(session)); n != 1 {
			t.Errorf("%d batches arrived while a rotation was pending", n)
		}
		if err := b.finishRotation(ctx, old.ID); err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, commit(t, b, Batch{Session: session, Via: old.ID, Ops: []Op{put("4")}}),
			commit(t, b, Batch{Session: session, Via: next.ID, Ops: []Op{put("5")}}))
		for _, ticket := range tickets {
			if got := statuses(wait(t, b, ticket)); !slices.Equal(got, []ledger.Status{ledger.Applied}) {
				t.Errorf("%v", got)
			}
		}
		checkLog(t, srv.log(session), tickets)
		var last StreamRequest
		for _, req := range srv.openings() {
			if req.Session == session {
				last = req
			}
		}
		if last.Ref.ID != next.ID || !last.Ref.Secret.Equal(next.Secret) || last.Redemptions[next.ID] == "" {
			t.Errorf("opened with %v", last.Ref)
		}
		saved, err := b.RefFor(ctx, "ext", 0)
		if err != nil || saved.ID != next.ID || saved.Role != SessionOwner || saved.Label != "mine" {
			t.Errorf("the ref that is kept: %v %+v, %v", saved.Ref, saved.RefMeta, err)
		}
		if err := b.finishRotation(ctx, old.ID); err != nil {
			t.Errorf("finished again: %v", err)
		}
	})
}

// begunRotation has another ref begin to take the place of a session's owner's.
func begunRotation(t *testing.T, b *Box) (session string, old, next capability.Ref) {
	t.Helper()
	session = newSession()
	old = testRef(t, b, session, RefMeta{Role: SessionOwner})
	next, err := b.beginRotation(limited(t), old.ID, old.New(session))
	if err != nil {
		t.Fatal(err)
	}
	return session, old, next
}

// TestRotationSurvivesACrash: what was begun is there for the next process, with
// the same new ref, and each rotation after another leads every old id to the last.
func TestRotationSurvivesACrash(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		one := p.open(t, quick())
		session, old, first := begunRotation(t, one)
		two := p.open(t, quick())
		if pending, err := two.Rotations(ctx); err != nil || len(pending) != 1 || pending[old.ID].Text() != first.Text() {
			t.Fatalf("pending: %v, %v", pending, err)
		}
		again, err := two.beginRotation(ctx, old.ID, old.New(session))
		if err != nil || again.Text() != first.Text() {
			t.Fatalf("begun again with %v, %v, it was %v", again, err, first)
		}
		if err := two.finishRotation(ctx, old.ID); err != nil {
			t.Fatal(err)
		}
		last, err := two.beginRotation(ctx, first.ID, old.New(session))
		if err != nil {
			t.Fatal(err)
		}
		if err := two.finishRotation(ctx, first.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := two.beginRotation(ctx, old.ID, old.New(session)); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("of one whose place is taken: %v", err)
		}
		three := p.open(t, quick())
		for _, id := range []string{old.ID, first.ID, last.ID} {
			if got, err := three.Ref(ctx, id); err != nil || got.ID != last.ID {
				t.Errorf("%s leads to %v, %v", id, got.Ref, err)
			}
		}
		refs, err := three.Refs(ctx)
		if err != nil || len(refs) != 1 {
			t.Errorf("%d refs, %v", len(refs), err)
		}
		// The first process sends, and hears of it.
		srv := newFakeServer()
		run(t, one, srv)
		wait(t, one, commit(t, one, Batch{Session: session, Via: old.ID, Ops: []Op{put("1")}}))
		if req := srv.openings()[0]; req.Ref.ID != last.ID {
			t.Errorf("opened with %v", req.Ref)
		}
	})
}

// TestRotationThatIsRefused: what was held goes out under the old one.
func TestRotationThatIsRefused(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		session := newSession()
		old := testRef(t, b, session, RefMeta{})
		srv := newFakeServer()
		run(t, b, srv)
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
		if _, err := b.beginRotation(ctx, old.ID, testAddress.New(newSession())); fault.CodeOf(err) != fault.BadRefText {
			t.Errorf("to a ref for something else: %v", err)
		}
		next, err := b.beginRotation(ctx, old.ID, old.New(session))
		if err != nil {
			t.Fatal(err)
		}
		b.drainRef(ctx, old.ID)
		ticket := commit(t, b, Batch{Session: session, Ops: []Op{put("2")}})
		if err := b.abandonRotation(ctx, old.ID); err != nil {
			t.Fatal(err)
		}
		wait(t, b, ticket)
		for _, req := range srv.openings() {
			if req.Ref.ID != old.ID {
				t.Errorf("opened with %v", req.Ref)
			}
		}
		if _, err := b.Ref(ctx, next.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("the refused one: %v", err)
		}
	})
}

// TestRotationOfASpace: a session that is yet to be made is made through the new
// ref of its space.
func TestRotationOfASpace(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		space := testRef(t, b, newSpace(), RefMeta{})
		session := newSession()
		owner := testRef(t, b, session, RefMeta{Role: SessionOwner})
		srv := newFakeServer()
		srv.sessions[session] = &fakeSession{managed: true}
		ticket := commit(t, b, Batch{Session: session, Via: space.ID, Ops: []Op{{Method: "create",
			Args: []ledger.Arg{{Name: "ref", JSON: []byte(`"` + owner.ID + `"`)}, {Name: "hash", JSON: []byte(`"x"`)}}}}})
		next, err := b.beginRotation(ctx, space.ID, space.New(space.Target()))
		if err != nil {
			t.Fatal(err)
		}
		run(t, b, srv)
		if err := b.finishRotation(ctx, space.ID); err != nil {
			t.Fatal(err)
		}
		wait(t, b, ticket)
		if got, err := b.RefFor(context.Background(), "", 0); err != nil || got.ID != next.ID || got.Role != SpaceOwner {
			t.Errorf("the space's ref: %v, %v", got.Ref, err)
		}
		for _, req := range srv.openings() {
			if req.SpaceRef == nil || req.SpaceRef.ID != next.ID || capability.Target(req.OwnerRef) != session {
				t.Errorf("opened with %+v", req)
			}
		}
	})
}

// TestADroppedRefLeavesNoSecret: a ref that took another's place takes its secret
// along when it is dropped, from the rows of those whose place it had as well.
func TestADroppedRefLeavesNoSecret(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		session := newSession()
		old := testRef(t, b, session, RefMeta{Role: SessionOwner})
		last := old
		for range 2 {
			next, err := b.beginRotation(ctx, last.ID, old.New(session))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.finishRotation(ctx, last.ID); err != nil {
				t.Fatal(err)
			}
			last = next
		}
		// Put again by who repeats what it did before, it stays what it has become.
		if err := b.PutRef(ctx, old, RefMeta{Role: SessionOwner}); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Ref(ctx, old.ID); err != nil || got.ID != last.ID {
			t.Errorf("the first one's id leads to %v, %v", got.Ref, err)
		}
		if err := b.DropRef(ctx, last.ID, false); err != nil {
			t.Fatal(err)
		}
		left := 0
		err := b.read(ctx, "count", func(ctx context.Context, q sqlstore.Querier) error {
			return q.Query(ctx, `SELECT count(*) FROM mooring_outbox_ref WHERE box = $1 AND ref = $2`, []any{b.t.Box, last.Text()},
				func(scan sqlstore.Scanner) error { return scan(&left) })
		})
		if err != nil || left != 0 {
			t.Errorf("%d rows still have the secret, %v", left, err)
		}
		if _, err := b.Ref(ctx, old.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("the first one's id still leads somewhere: %v", err)
		}
	})
}

// TestARefIsNotDroppedInARotation: the one that is to take its place may be the
// owner's already, and would never be found again.
func TestARefIsNotDroppedInARotation(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		session, old, next := begunRotation(t, b)
		if err := b.DropRef(ctx, old.ID, false); fault.CodeOf(err) != fault.InUse {
			t.Errorf("dropped in the middle: %v", err)
		}
		if err := b.PutRef(ctx, next, RefMeta{}); err != nil {
			t.Fatal(err)
		}
		if pending, err := b.Rotations(ctx); err != nil || pending[old.ID].ID != next.ID {
			t.Errorf("the rotation that was begun: %v, %v", pending, err)
		}
		for what, id := range map[string]string{"one that is to take another's place": next.ID, "one that is not there": old.New(session).ID} {
			if _, err := b.beginRotation(ctx, id, old.New(session)); fault.CodeOf(err) != fault.NotFound {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := b.abandonRotation(ctx, old.ID); err != nil {
			t.Fatal(err)
		}
		if err := b.DropRef(ctx, old.ID, false); err != nil {
			t.Error(err)
		}
		if _, err := b.beginRotation(ctx, old.ID, old.New(session)); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("one that was dropped: %v", err)
		}
	})
}

// TestSecretOfTheOneBefore: who names a ref by the id that it had is still to have the
// secret that it had.
func TestSecretOfTheOneBefore(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		session, old, next := begunRotation(t, b)
		if err := b.finishRotation(ctx, old.ID); err != nil {
			t.Fatal(err)
		}
		batch := Batch{Session: session, Via: old.ID, Ops: []Op{put("1")}}
		for _, secret := range []capability.Secret{next.Secret, capability.NewSecret()} {
			batch.ViaSecret = secret
			if _, err := b.Commit(ctx, batch); fault.CodeOf(err) != fault.UnknownRef {
				t.Errorf("another secret: %v", err)
			}
		}
		batch.ViaSecret = old.Secret
		commit(t, b, batch)
	})
}

// TestRotationOfOneThatIsGone: sweeping may forget a ref while another is about to take
// its place. That one, which a server has, is found under its own id.
func TestRotationOfOneThatIsGone(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		_, old, next := begunRotation(t, b)
		err := b.w.Do(ctx, func(_ context.Context, q sqlstore.Querier) error {
			b.t.DropRef(q, old.ID, 1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.finishRotation(ctx, old.ID); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Ref(ctx, next.ID); err != nil || got.ID != next.ID || got.Role != Shared {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestInFlight has been sent under the ref, and not been answered.
func TestInFlight(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		session := newSession()
		ref, other := testRef(t, b, session, RefMeta{}), testRef(t, b, session, RefMeta{})
		for i, c := range []struct {
			via   string
			set   string
			count int
		}{
			{ref.ID, "state = 1, first_seq = 1", 1},
			{ref.ID, "state = 1, first_seq = 2", 2},
			{other.ID, "state = 1, first_seq = 3", 2},
			{ref.ID, "state = 0, first_seq = 4", 2}, // a takeover will send it again
			{ref.ID, "state = 0, first_seq = NULL", 2},
			{ref.ID, "state = 1, first_seq = NULL", 2},
			{ref.ID, "state = 2, first_seq = 5", 2},
		} {
			x := commit(t, b, Batch{Session: session, Via: c.via, Ops: []Op{put("1")}})
			err := b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
				_, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET "+c.set+" WHERE batch = $1", x.Batch)
				if err == nil && i == 0 {
					_, err = q.Exec(ctx, "UPDATE mooring_outbox SET low = (SELECT num FROM mooring_outbox_batch WHERE batch = $1) WHERE box = $2", x.Batch, b.t.Box)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := b.inFlightVia(ctx, ref.ID); n != c.count {
				t.Errorf("with %q: %d, want %d", c.set, n, c.count)
			}
		}
	})
}

// What another process has on its way is waited for as well.
func TestRotationWaitsForTheSender(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		sender, b := p.open(t, quick()), p.open(t, quick())
		session := newSession()
		old := testRef(t, sender, session, RefMeta{Role: SessionOwner})
		srv := newFakeServer()
		arrived, answer := make(chan struct{}), make(chan struct{})
		srv.after = func(*ledger.Batch) bool {
			close(arrived)
			<-answer
			return false
		}
		run(t, sender, srv)
		ticket := commit(t, sender, Batch{Session: session, Via: old.ID, Ops: []Op{put("1")}})
		<-arrived
		if _, err := b.beginRotation(ctx, old.ID, old.New(session)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(200*time.Millisecond, func() { close(answer) })
		b.drainRef(ctx, old.ID)
		select {
		case <-answer:
		default:
			t.Error("it was not waited for")
		}
		if got := statuses(wait(t, sender, ticket)); !slices.Equal(got, []ledger.Status{ledger.Applied}) {
			t.Errorf("%v", got)
		}
	})
}

// TestRotate: what becomes of a rotation by the server's answer, and going on with one.
func TestRotate(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		session := newSession()
		old := testRef(t, b, session, RefMeta{Role: SessionOwner})
		fresh, away, no := old.New(session), fault.Unavailable.With("on request"), fault.Rejected.With("on request")
		asked := 0
		answer := func(refused bool, err error) func(context.Context, capability.Ref) (bool, error) {
			return func(ctx context.Context, ref capability.Ref) (bool, error) {
				asked++
				if pending, err := b.Rotations(ctx); err != nil || pending[old.ID].Text() != ref.Text() || ref.Text() != fresh.Text() {
					t.Errorf("asked for %v, and %v is stored: %v", ref, pending, err)
				}
				return refused, err
			}
		}
		for _, c := range []struct {
			what    string
			made    capability.Ref
			ask     func(context.Context, capability.Ref) (bool, error)
			asks    bool
			pending bool
			err     error
		}{
			{"none to go on with", capability.Ref{}, answer(false, nil), false, false, nil},
			{"refused", fresh, answer(true, no), true, false, no},
			{"none after a refusal", capability.Ref{}, answer(false, nil), false, false, nil},
			{"not answered", fresh, answer(false, away), true, true, away},
			{"begun again, with the same ref", old.New(session), answer(false, away), true, true, away},
			{"gone on with, and not answered", capability.Ref{}, answer(false, away), true, true, away},
			{"gone on with", capability.Ref{}, answer(false, nil), true, false, nil},
			{"replaced before", old.New(session), answer(false, nil), false, false, fault.NotFound},
		} {
			if c.what == "not answered" { // the refused one was dropped
				fresh = old.New(session)
				c.made = fresh
			}
			asked = 0
			pending, err := b.Rotate(ctx, old.ID, c.made, c.ask)
			if pending != c.pending || !errors.Is(err, c.err) || (asked == 1) != c.asks {
				t.Errorf("%s: pending %t, %v, asked %d times", c.what, pending, err, asked)
			}
		}
		if got, err := b.Ref(ctx, old.ID); err != nil || got.Text() != fresh.Text() || got.Role != SessionOwner {
			t.Errorf("in its place is %v, %v", got.Ref, err)
		}
		last := fresh.New(session)
		if pending, err := b.Rotate(ctx, fresh.ID, last, func(context.Context, capability.Ref) (bool, error) { return false, away }); !pending {
			t.Error(err)
		}
		if err := b.DropRef(ctx, fresh.ID, true); err != nil {
			t.Error(err)
		}
		if all, err := b.Refs(ctx); err != nil || len(all) != 0 {
			t.Errorf("dropped with its successor: %v, %v", all, err)
		}
	})
}
