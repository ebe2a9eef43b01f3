package storetest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// family is a session, and what is made below it.
type family struct {
	*fixture
	root *capability.Grant
	top  *author
}

func newFamily(t *testing.T, fresh Fresh) *family {
	f := &family{fixture: begin(t, fresh)}
	f.root = f.space()
	f.top = f.open(newAuthor(f.root.ID))
	f.applied(f.top.batch(false, f.top.create()))
	return f
}

func (f *family) open(a *author) *author {
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: a.session, Outbox: a.outbox}, hash(), 1)
	f.must("open stream", err)
	return a
}

// unborn is a child of p's that is about to be made, by the submission.
func (f *family) unborn(p *author) (*author, session.Submission) {
	c := f.open(newAuthor(f.root.ID))
	c.with = []string{p.ref}
	return c, c.batch(false, c.create("parent", p.session, "via", p.ref))
}

func (f *family) born(p *author) *author {
	c, sub := f.unborn(p)
	f.applied(sub)
	return c
}

// share makes a ref of the top session that reaches what is below.
func (f *family) share() string {
	ref := clientRef(f.top.session)
	f.applied(f.top.batch(false, newIntent(session.MethodShare, "ref", ref, "hash", hashText(), "rights", []string{"read", "append"}, "children", []string{"read", "append"})))
	return ref
}

// write puts a key in a child under a ref of the top session.
func (f *family) write(c *author, ref string) ledger.Outcome {
	w := f.open(&author{session: c.session, outbox: newAuthor(f.root.ID).outbox, ref: ref})
	sub := w.batch(false, newIntent(session.MethodPut, "key", "message/m", "payload", json.RawMessage(`{}`)))
	sub.Space, sub.Reach, sub.PassedRefs = "", true, nil
	answers, _ := f.commit(sub)
	if answers[0].Err != nil {
		f.Fatalf("write: %v", answers[0].Err)
	}
	return answers[0].Outcomes[0]
}

// lastOf is a session's last event.
func (f *family) lastOf(id string) *session.Event {
	events := f.log(id).Events
	return events[len(events)-1]
}

// testReach: a ref acts in what is below its session, and its end is an event in each.
func testReach(t *testing.T, fresh Fresh) {
	f := newFamily(t, fresh)
	a, b := f.born(f.top), f.born(f.top)
	grand := f.born(a)
	stranger := f.open(newAuthor(f.root.ID))
	f.applied(stranger.batch(false, stranger.create()))
	ref, other := f.share(), f.share()
	all := []*author{a, b, grand}
	for _, c := range all {
		if o := f.write(c, ref); o.Status != ledger.Applied {
			t.Errorf("below it: %+v", o)
		}
	}
	if o := f.write(stranger, ref); o.Status != ledger.Denied {
		t.Errorf("elsewhere: %+v", o)
	}
	access, err := f.ReadAccess(f.ctx, grand.session, []string{ref, f.top.ref, grand.ref, f.root.ID})
	f.must("read access", err)
	if len(access.Others) != 1 || access.Others[f.top.session].ID != f.top.session || access.Grants[ref].Children != capability.Read|capability.Append {
		t.Errorf("a read has %+v", access)
	}
	rows := f.load(&session.ReadSet{Below: map[string]bool{f.top.session: false, a.session: false, b.session: true}, Others: []string{f.top.session}})
	want := []string{a.session, b.session, grand.session}
	slices.Sort(want)
	same(f.fixture, "below", rows.Below, map[string][]string{f.top.session: want})
	same(f.fixture, "those of refs that reach", len(rows.Grants), 2)
	same(f.fixture, "read without a lock", rows.Others[f.top.session].ID, f.top.session)
	same(f.fixture, "below a child, if it says so", f.load(&session.ReadSet{Below: map[string]bool{a.session: true}}).Below, map[string][]string{a.session: {grand.session}})

	f.applied(f.top.batch(false, newIntent(session.MethodRevoke, "ref", ref)))
	for _, c := range all {
		if e := f.lastOf(c.session); e.Method != session.MethodRevoke || e.Key != "ref/"+ref {
			t.Errorf("the cut is %s of %s", e.Method, e.Key)
		}
		if o := f.write(c, ref); o.Status != ledger.Denied {
			t.Errorf("after it: %+v", o)
		}
		if o := f.write(c, other); o.Status != ledger.Applied {
			t.Errorf("under another: %+v", o)
		}
	}
	f.applied(b.batch(false, newIntent(session.MethodDelete)))
	trees := f.load(&session.ReadSet{Trees: []string{f.root.ID}}).Trees[f.root.ID]
	for _, c := range []*author{f.top, a, grand, stranger} {
		if _, there := trees[c.session]; !there {
			t.Errorf("%s is not in the tree of the space's ref", c.session)
		}
	}
	same(f.fixture, "in the ref's own tree", f.load(&session.ReadSet{Trees: []string{other}}).Trees[other], map[string]uint64{f.top.session: 1, a.session: 0, grand.session: 0})
	f.applied(f.top.batch(false, newIntent(session.MethodBumpEpoch)))
	same(f.fixture, "below, in another epoch", len(f.load(&session.ReadSet{Below: map[string]bool{f.top.session: false}}).Below), 0)
}

// lookTx tells when a transaction has looked for what it is to lock.
type lookTx struct {
	session.Tx
	looked func()
}

func (t lookTx) Load(ctx context.Context, w *session.ReadSet) (*session.Rows, error) {
	rows, err := t.Tx.Load(ctx, w)
	if w.Below != nil && len(w.Sessions) == 0 {
		t.looked()
	}
	return rows, err
}

// testReachLocks: a session that is made below while a ref that reaches it is revoked gets its cut, and none is
// made while the revoke is decided and not committed.
func testReachLocks(t *testing.T, fresh Fresh) {
	f := newFamily(t, fresh)
	child := f.born(f.top)
	for _, parent := range []*author{f.top, child} { // the new one is a child, or a grandchild
		ref := f.share()
		late, create := f.unborn(parent)
		looked, revoked := make(chan struct{}, 100), make(chan error, 1)
		revoke := f.top.batch(false, newIntent(session.MethodRevoke, "ref", ref))
		err := f.Update(f.ctx, func(tx session.Tx) error {
			if _, _, err := session.Commit(f.ctx, tx, []session.Submission{create}, session.DefaultConfig()); err != nil {
				return err
			}
			go func() {
				revoked <- f.Update(f.ctx, func(tx session.Tx) error {
					_, _, err := session.Commit(f.ctx, lookTx{tx, func() { looked <- struct{}{} }}, []session.Submission{revoke}, session.DefaultConfig())
					return err
				})
			}()
			select {
			case <-looked:
			case <-time.After(100 * time.Millisecond): // one transaction at a time
			}
			select {
			case err := <-revoked:
				t.Errorf("it is revoked while a child is made: %v", err)
			default:
			}
			return nil
		})
		f.must("make the child", err)
		f.must("revoke", <-revoked)
		if e := f.lastOf(late.session); e.Method != session.MethodRevoke || e.Key != "ref/"+ref {
			t.Errorf("the late one's last event is %s of %s", e.Method, e.Key)
		}
		if o := f.write(late, ref); o.Status != ledger.Denied {
			t.Errorf("in the late one: %+v", o)
		}
	}

	ref := f.share()
	late, create := f.unborn(child)
	err := f.Update(f.ctx, func(tx session.Tx) error {
		if _, _, err := session.Commit(f.ctx, tx, []session.Submission{f.top.batch(false, newIntent(session.MethodRevoke, "ref", ref))}, session.DefaultConfig()); err != nil {
			return err
		}
		for _, sub := range []session.Submission{create, child.batch(false, newIntent(session.MethodPut, "key", "message/x", "payload", json.RawMessage(`{}`)))} {
			waiting, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
			if f.Update(waiting, func(tx session.Tx) error {
				_, _, err := session.Commit(waiting, tx, []session.Submission{sub}, session.DefaultConfig())
				return err
			}) == nil {
				t.Error("something is committed below, while a revoke is decided")
			}
			cancel()
		}
		return nil
	})
	f.must("revoke", err)
	f.applied(create)
	if o := f.write(late, ref); o.Status != ledger.Denied {
		t.Errorf("in one made after it: %+v", o)
	}
}

// testReachRace: while sessions are made below one another and written to, refs that reach them are made and
// revoked. Every event under such a ref comes before that session's cut, if it was there then.
func testReachRace(t *testing.T, fresh Fresh) {
	f := newFamily(t, fresh)
	var mu sync.Mutex
	made, ref := []*author{f.born(f.top)}, f.share()
	pick := func(i int) (*author, string) {
		mu.Lock()
		defer mu.Unlock()
		return made[i%len(made)], ref
	}
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			for i := range 12 {
				p, _ := pick(i*7 + n)
				c, sub := f.unborn(p)
				answers, _ := f.commit(sub)
				if o := answers[0].Outcomes[0]; o.Status == ledger.Applied { // else it would be too deep
					mu.Lock()
					made = append(made, c)
					mu.Unlock()
				}
				to, under := pick(i*5 + n)
				f.write(to, under)
			}
		})
	}
	var dead []string
	for range 12 {
		_, old := pick(0)
		f.applied(f.top.batch(false, newIntent(session.MethodRevoke, "ref", old)))
		dead = append(dead, old)
		next := f.share()
		mu.Lock()
		ref = next
		mu.Unlock()
	}
	wg.Wait()
	cuts := 0
	for _, c := range made {
		ended := map[string]bool{}
		for _, e := range f.log(c.session).Events {
			if e.Method == session.MethodRevoke {
				cuts++
				ended[e.Key] = true
			}
			if ended["ref/"+e.Ref] {
				t.Errorf("event %d of %s is under %s, after its cut", e.Cursor, c.session, e.Ref)
			}
		}
		for _, ref := range dead {
			if o := f.write(c, ref); o.Status != ledger.Denied {
				t.Errorf("under a dead ref: %+v", o)
			}
		}
	}
	if cuts < len(dead) {
		t.Errorf("%d cuts by %d revokes", cuts, len(dead))
	}
}

// testReachBytes: what a ref has written in the sessions below counts for it as what it has written in its own, and is
// given back as exactly: when it is purged, by whomever, when the session is deleted, when the log is trimmed and when
// the session is forgotten. Measuring one session forgets nothing of the others.
func testReachBytes(t *testing.T, fresh Fresh) {
	f := newFamily(t, fresh)
	a, b := f.born(f.top), f.born(f.top)
	grand := f.born(a)
	all := []*author{f.top, a, b, grand}
	ref, other := f.share(), f.share()
	writer := func(c *author, ref string) func(ops ...ledger.Intent) session.Submission {
		w := f.open(&author{session: c.session, outbox: newAuthor(f.root.ID).outbox, ref: ref})
		return func(ops ...ledger.Intent) session.Submission {
			sub := w.batch(false, ops...)
			sub.Space, sub.Reach, sub.PassedRefs = "", c != f.top, nil
			return sub
		}
	}
	value := func(key string, size int) ledger.Intent {
		return newIntent(session.MethodPut, "key", key, "payload", map[string]string{"x": strings.Repeat("x", size)})
	}
	counted := func(what string) (total int64) {
		t.Helper()
		rows := f.load(&session.ReadSet{Grants: []string{ref, other}})
		for _, id := range []string{ref, other} {
			sum := int64(0)
			for _, c := range all {
				for _, e := range f.log(c.session).Events {
					if e.Ref == id {
						sum += int64(len(e.Payload)) + session.EventCost
					}
				}
			}
			total += sum
			if got := rows.Grants[id].Bytes; got != sum {
				t.Errorf("%s: %d bytes count for a ref, and %d are there", what, got, sum)
			}
		}
		return total
	}
	for i, c := range all {
		for j, id := range []string{ref, other} {
			write := writer(c, id)
			f.applied(write(value("message/m"+string(rune('1'+j)), 100+i), value("message/n", 1000*(j+1)), value("message/gone", 10)))
			f.applied(write(newIntent(session.MethodRemove, "key", "message/gone")))
		}
	}
	before := counted("written")
	// Many at once: of both refs and in two sessions.
	answers, _ := f.commit(a.batch(false, newIntent(session.MethodPurge, "key", "message/n")), grand.batch(false, newIntent(session.MethodPurge, "key", "message/n")),
		writer(b, ref)(value("message/p", 1)))
	for _, got := range answers {
		if got.Err != nil || got.Outcomes[0].Status != ledger.Applied {
			t.Fatalf("purge: %+v", got)
		}
	}
	if after := counted("purged"); after > before-5000 {
		t.Errorf("%d bytes after the purge of two sessions, %d before", after, before)
	}
	own := writer(a, ref)
	f.applied(own(value("message/q", 500)))
	rewrite := a.batch(false, newIntent(session.MethodPurge, "key", "message/q"))
	f.commit(own(value("message/q", 700)), rewrite) // in the group that has written it
	counted("written and purged at once")
	manager := f.open(&author{session: b.session, outbox: newAuthor(f.root.ID).outbox, ref: f.root.ID})
	managed := manager.batch(false, newIntent(session.MethodPurge, "key", "message/n"), value("message/mine", 300))
	managed.Manage = true
	f.applied(managed)
	counted("purged by who manages the space")
	f.applied(a.batch(false, newIntent(session.MethodRevert, "to", "message/m1")))
	f.applied(own(value("message/z", 10))) // which settles it: what was hidden leaves the state, and not the log
	counted("reverted")
	for _, c := range all {
		if _, err := f.Measure(f.ctx, c.session); err != nil {
			t.Fatal(err)
		}
		counted("measured")
	}
	f.applied(b.batch(false, newIntent(session.MethodDelete)))
	counted("deleted")
	f.trim(a.session, keepNothing, 5)
	counted("trimmed")
	forget := func(c *author, most int) {
		t.Helper()
		for more := true; more; { // its events are gone from the log at once, and from the count as they are removed
			var err error
			more, err = f.Forget(f.ctx, c.session, keepNothing, most)
			f.must("forget", err)
		}
		counted("forgotten")
	}
	forget(b, 3)
	f.applied(grand.batch(false, newIntent(session.MethodDelete)))
	forget(grand, 1000)
}

// testReachPastForgotten: what is below a session that was deleted, and removed, is reached as before, and is cut off as
// before: by the ref's end, and by that of its space's.
func testReachPastForgotten(t *testing.T, fresh Fresh) {
	f := newFamily(t, fresh)
	middle := f.born(f.top)
	low := f.born(middle)
	lowest := f.born(low)
	ref := f.share()
	f.applied(middle.batch(false, newIntent(session.MethodDelete)))
	for _, forgotten := range []bool{false, true} {
		if forgotten {
			if more, err := f.Forget(f.ctx, middle.session, keepNothing, 1000); more || err != nil {
				t.Fatalf("forget: %v, %v", more, err)
			}
		}
		trees := f.load(&session.ReadSet{Trees: []string{f.root.ID}}).Trees[f.root.ID]
		for _, c := range []*author{low, lowest} {
			if o := f.write(c, ref); o.Status != ledger.Applied {
				t.Errorf("it is not reached: %+v", o)
			}
			if _, there := trees[c.session]; !there {
				t.Error("it is not in the tree of the space's ref")
			}
		}
		f.applied(f.top.batch(false, newIntent(session.MethodRevoke, "ref", ref)))
		for _, c := range []*author{low, lowest} {
			if e := f.lastOf(c.session); e.Method != session.MethodRevoke || e.Key != "ref/"+ref {
				t.Errorf("forgotten: %v: the last event is %s of %s", forgotten, e.Method, e.Key)
			}
		}
		ref = f.share()
	}
}

// lockedTx keeps which sessions a transaction locks.
type lockedTx struct {
	session.Tx
	locked *[]string
}

func (t lockedTx) Load(ctx context.Context, w *session.ReadSet) (*session.Rows, error) {
	*t.locked = append(*t.locked, w.Sessions...)
	return t.Tx.Load(ctx, w)
}

// testReachSpares: what ends no ref that reaches the sessions below locks none of them; what ends one locks all.
func testReachSpares(t *testing.T, fresh Fresh) {
	f := newFamily(t, fresh)
	a := f.born(f.top)
	b := f.born(a)
	all := []string{f.top.session, a.session, b.session}
	slices.Sort(all)
	top := []string{f.top.session}
	share := func(args ...any) string {
		ref := clientRef(f.top.session)
		f.applied(f.top.batch(false, newIntent(session.MethodShare, append([]any{"ref", ref, "hash", hashText(), "rights", []string{"read", "share"}}, args...)...)))
		return ref
	}
	f.share()
	above := share("children", []string{"read"})
	under := clientRef(f.top.session)
	sharer := f.open(&author{session: f.top.session, outbox: newAuthor(f.root.ID).outbox, ref: above})
	f.applied(sharer.batch(false, newIntent(session.MethodShare, "ref", under, "hash", hashText(), "rights", []string{"read"}, "children", []string{"read"})))
	revoke := func(ref string) ledger.Intent { return newIntent(session.MethodRevoke, "ref", ref) }
	fresher := clientRef(f.top.session)
	named := newIntent(session.MethodShare, "ref", clientRef(f.top.session), "hash", hashText(), "rights", []string{"read"})
	for _, c := range []struct {
		what   string
		ops    []ledger.Intent
		locked []string
		cut    bool
	}{
		{"one that reaches nothing", []ledger.Intent{revoke(share())}, top, false},
		{"several such", []ledger.Intent{revoke(share()), revoke(share())}, top, false},
		{"one that is made at once", []ledger.Intent{newIntent(session.MethodShare, "ref", fresher, "hash", hashText(), "rights", []string{"read"}), revoke(fresher)}, all, false},
		{"one that is named by a reference", []ledger.Intent{named, {OpID: newOp(), Method: session.MethodRevoke, Args: []ledger.Arg{{Name: "ref", Ref: &ledger.Ref{Op: named.OpID, Path: "ref"}}}}}, all, false},
		{"one, while another is made at once that reaches", []ledger.Intent{newIntent(session.MethodShare, "ref", clientRef(f.top.session), "hash", hashText(), "rights", []string{"read"}, "children", []string{"read"}), revoke(share())}, all, false},
		{"one above one that reaches", []ledger.Intent{revoke(above)}, all, true},
		{"one that has ended with it", []ledger.Intent{revoke(under)}, all, false},
		{"one, and one that reaches nothing", []ledger.Intent{revoke(share()), revoke(f.share())}, all, true},
		{"another epoch", []ledger.Intent{revoke(share()), newIntent(session.MethodBumpEpoch)}, all, true},
	} {
		before := f.lastOf(b.session).Cursor
		var locked []string
		f.must("commit", f.Update(f.ctx, func(tx session.Tx) error {
			locked = nil
			answers, _, err := session.Commit(f.ctx, lockedTx{tx, &locked}, []session.Submission{f.top.batch(false, c.ops...)}, session.DefaultConfig())
			if err == nil && answers[0].Err != nil {
				err = answers[0].Err
			}
			return err
		}))
		slices.Sort(locked)
		same(f.fixture, c.what, slices.Compact(locked), c.locked)
		same(f.fixture, c.what+": a cut", f.lastOf(b.session).Cursor > before, c.cut)
	}
}
