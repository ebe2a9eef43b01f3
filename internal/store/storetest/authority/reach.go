package authority

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
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// family is a session, and what is made below it.
type family struct {
	*harness.Fixture
	root *capability.Grant
	top  *harness.Author
}

func newFamily(t *testing.T, fresh harness.Fresh) *family {
	f := &family{Fixture: harness.Begin(t, fresh)}
	f.root = f.Space()
	f.top = f.open(harness.NewAuthor(f.root.ID))
	f.Applied(f.top.Batch(false, f.top.Create()))
	return f
}

func (f *family) open(a *harness.Author) *harness.Author {
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: a.Session, Outbox: a.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	return a
}

// unborn is a child of p's that is about to be made, by the submission.
func (f *family) unborn(p *harness.Author) (*harness.Author, decide.Submission) {
	c := f.open(harness.NewAuthor(f.root.ID))
	c.With = []string{p.Ref}
	return c, c.Batch(false, c.Create("parent", p.Session, "via", p.Ref))
}

func (f *family) born(p *harness.Author) *harness.Author {
	c, sub := f.unborn(p)
	f.Applied(sub)
	return c
}

// share makes a ref of the top session that reaches what is below.
func (f *family) share() string {
	ref := harness.ClientRef(f.top.Session)
	f.Applied(f.top.Batch(false, harness.NewIntent(session.MethodShare, "ref", ref, "hash", harness.HashText(), "rights", []string{"read", "append"}, "children", []string{"read", "append"})))
	return ref
}

// write puts a key in a child under a ref of the top session.
func (f *family) write(c *harness.Author, ref string) ledger.Outcome {
	w := f.open(&harness.Author{Session: c.Session, Outbox: harness.NewAuthor(f.root.ID).Outbox, Ref: ref})
	sub := w.Batch(false, harness.NewIntent(session.MethodPut, "key", "message/m", "payload", json.RawMessage(`{}`)))
	sub.Space, sub.Reach, sub.PassedRefs = "", true, nil
	answers, _ := f.Commit(sub)
	if answers[0].Err != nil {
		f.Fatalf("write: %v", answers[0].Err)
	}
	return answers[0].Outcomes[0]
}

// lastOf is a session's last event.
func (f *family) lastOf(id string) *session.Event {
	events := f.LogOf(id).Events
	return events[len(events)-1]
}

// testReach: a ref acts in what is below its session, and its end is an event in each.
func testReach(t *testing.T, fresh harness.Fresh) {
	f := newFamily(t, fresh)
	a, b := f.born(f.top), f.born(f.top)
	grand := f.born(a)
	stranger := f.open(harness.NewAuthor(f.root.ID))
	f.Applied(stranger.Batch(false, stranger.Create()))
	ref, other := f.share(), f.share()
	all := []*harness.Author{a, b, grand}
	for _, c := range all {
		if o := f.write(c, ref); o.Status != ledger.Applied {
			t.Errorf("below it: %+v", o)
		}
	}
	if o := f.write(stranger, ref); o.Status != ledger.Denied {
		t.Errorf("elsewhere: %+v", o)
	}
	access, err := f.ReadAccess(f.Ctx, grand.Session, []string{ref, f.top.Ref, grand.Ref, f.root.ID})
	f.Must("read access", err)
	if len(access.Others) != 1 || access.Others[f.top.Session].ID != f.top.Session || access.Grants[ref].Children != capability.Read|capability.Append {
		t.Errorf("a read has %+v", access)
	}
	rows := f.Load(&session.ReadSet{Below: map[string]bool{f.top.Session: false, a.Session: false, b.Session: true}, Others: []string{f.top.Session}})
	want := []string{a.Session, b.Session, grand.Session}
	slices.Sort(want)
	harness.Same(f.Fixture, "below", rows.Below, map[string][]string{f.top.Session: want})
	harness.Same(f.Fixture, "those of refs that reach", len(rows.Grants), 2)
	harness.Same(f.Fixture, "read without a lock", rows.Others[f.top.Session].ID, f.top.Session)
	harness.Same(f.Fixture, "below a child, if it says so", f.Load(&session.ReadSet{Below: map[string]bool{a.Session: true}}).Below, map[string][]string{a.Session: {grand.Session}})

	f.Applied(f.top.Batch(false, harness.NewIntent(session.MethodRevoke, "ref", ref)))
	for _, c := range all {
		if e := f.lastOf(c.Session); e.Method != session.MethodRevoke || e.Key != "ref/"+ref {
			t.Errorf("the cut is %s of %s", e.Method, e.Key)
		}
		if o := f.write(c, ref); o.Status != ledger.Denied {
			t.Errorf("after it: %+v", o)
		}
		if o := f.write(c, other); o.Status != ledger.Applied {
			t.Errorf("under another: %+v", o)
		}
	}
	f.Applied(b.Batch(false, harness.NewIntent(session.MethodDelete)))
	trees := f.Load(&session.ReadSet{Trees: []string{f.root.ID}}).Trees[f.root.ID]
	for _, c := range []*harness.Author{f.top, a, grand, stranger} {
		if _, there := trees[c.Session]; !there {
			t.Errorf("%s is not in the tree of the space's ref", c.Session)
		}
	}
	harness.Same(f.Fixture, "in the ref's own tree", f.Load(&session.ReadSet{Trees: []string{other}}).Trees[other], map[string]uint64{f.top.Session: 1, a.Session: 0, grand.Session: 0})
	f.Applied(f.top.Batch(false, harness.NewIntent(session.MethodBumpEpoch)))
	harness.Same(f.Fixture, "below, in another epoch", len(f.Load(&session.ReadSet{Below: map[string]bool{f.top.Session: false}}).Below), 0)
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
func testReachLocks(t *testing.T, fresh harness.Fresh) {
	f := newFamily(t, fresh)
	child := f.born(f.top)
	for _, parent := range []*harness.Author{f.top, child} { // the new one is a child, or a grandchild
		ref := f.share()
		late, create := f.unborn(parent)
		looked, revoked := make(chan struct{}, 100), make(chan error, 1)
		revoke := f.top.Batch(false, harness.NewIntent(session.MethodRevoke, "ref", ref))
		err := f.Update(f.Ctx, func(tx session.Tx) error {
			if _, _, err := decide.Commit(f.Ctx, tx, []decide.Submission{create}, decide.DefaultConfig()); err != nil {
				return err
			}
			go func() {
				revoked <- f.Update(f.Ctx, func(tx session.Tx) error {
					_, _, err := decide.Commit(f.Ctx, lookTx{tx, func() { looked <- struct{}{} }}, []decide.Submission{revoke}, decide.DefaultConfig())
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
		f.Must("make the child", err)
		f.Must("revoke", <-revoked)
		if e := f.lastOf(late.Session); e.Method != session.MethodRevoke || e.Key != "ref/"+ref {
			t.Errorf("the late one's last event is %s of %s", e.Method, e.Key)
		}
		if o := f.write(late, ref); o.Status != ledger.Denied {
			t.Errorf("in the late one: %+v", o)
		}
	}

	ref := f.share()
	late, create := f.unborn(child)
	err := f.Update(f.Ctx, func(tx session.Tx) error {
		if _, _, err := decide.Commit(f.Ctx, tx, []decide.Submission{f.top.Batch(false, harness.NewIntent(session.MethodRevoke, "ref", ref))}, decide.DefaultConfig()); err != nil {
			return err
		}
		for _, sub := range []decide.Submission{create, child.Batch(false, harness.NewIntent(session.MethodPut, "key", "message/x", "payload", json.RawMessage(`{}`)))} {
			waiting, cancel := context.WithTimeout(f.Ctx, 100*time.Millisecond)
			if f.Update(waiting, func(tx session.Tx) error {
				_, _, err := decide.Commit(waiting, tx, []decide.Submission{sub}, decide.DefaultConfig())
				return err
			}) == nil {
				t.Error("something is committed below, while a revoke is decided")
			}
			cancel()
		}
		return nil
	})
	f.Must("revoke", err)
	f.Applied(create)
	if o := f.write(late, ref); o.Status != ledger.Denied {
		t.Errorf("in one made after it: %+v", o)
	}
}

// testReachRace: while sessions are made below one another and written to, refs that reach them are made and
// revoked. Every event under such a ref comes before that session's cut, if it was there then.
func testReachRace(t *testing.T, fresh harness.Fresh) {
	f := newFamily(t, fresh)
	var mu sync.Mutex
	made, ref := []*harness.Author{f.born(f.top)}, f.share()
	pick := func(i int) (*harness.Author, string) {
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
				answers, _ := f.Commit(sub)
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
		f.Applied(f.top.Batch(false, harness.NewIntent(session.MethodRevoke, "ref", old)))
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
		for _, e := range f.LogOf(c.Session).Events {
			if e.Method == session.MethodRevoke {
				cuts++
				ended[e.Key] = true
			}
			if ended["ref/"+e.Ref] {
				t.Errorf("event %d of %s is under %s, after its cut", e.Cursor, c.Session, e.Ref)
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
func testReachBytes(t *testing.T, fresh harness.Fresh) {
	f := newFamily(t, fresh)
	a, b := f.born(f.top), f.born(f.top)
	grand := f.born(a)
	all := []*harness.Author{f.top, a, b, grand}
	ref, other := f.share(), f.share()
	writer := func(c *harness.Author, ref string) func(ops ...ledger.Intent) decide.Submission {
		w := f.open(&harness.Author{Session: c.Session, Outbox: harness.NewAuthor(f.root.ID).Outbox, Ref: ref})
		return func(ops ...ledger.Intent) decide.Submission {
			sub := w.Batch(false, ops...)
			sub.Space, sub.Reach, sub.PassedRefs = "", c != f.top, nil
			return sub
		}
	}
	value := func(key string, size int) ledger.Intent {
		return harness.NewIntent(session.MethodPut, "key", key, "payload", map[string]string{"x": strings.Repeat("x", size)})
	}
	counted := func(what string) (total int64) {
		t.Helper()
		rows := f.Load(&session.ReadSet{Grants: []string{ref, other}})
		for _, id := range []string{ref, other} {
			sum := int64(0)
			for _, c := range all {
				for _, e := range f.LogOf(c.Session).Events {
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
			f.Applied(write(value("message/m"+string(rune('1'+j)), 100+i), value("message/n", 1000*(j+1)), value("message/gone", 10)))
			f.Applied(write(harness.NewIntent(session.MethodRemove, "key", "message/gone")))
		}
	}
	before := counted("written")
	// Many at once: of both refs and in two sessions.
	answers, _ := f.Commit(a.Batch(false, harness.NewIntent(session.MethodPurge, "key", "message/n")), grand.Batch(false, harness.NewIntent(session.MethodPurge, "key", "message/n")),
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
	f.Applied(own(value("message/q", 500)))
	rewrite := a.Batch(false, harness.NewIntent(session.MethodPurge, "key", "message/q"))
	f.Commit(own(value("message/q", 700)), rewrite) // in the group that has written it
	counted("written and purged at once")
	manager := f.open(&harness.Author{Session: b.Session, Outbox: harness.NewAuthor(f.root.ID).Outbox, Ref: f.root.ID})
	managed := manager.Batch(false, harness.NewIntent(session.MethodPurge, "key", "message/n"), value("message/mine", 300))
	managed.Manage = true
	f.Applied(managed)
	counted("purged by who manages the space")
	f.Applied(a.Batch(false, harness.NewIntent(session.MethodRevert, "to", "message/m1")))
	f.Applied(own(value("message/z", 10))) // which settles it: what was hidden leaves the state, and not the log
	counted("reverted")
	for _, c := range all {
		if _, err := f.Measure(f.Ctx, c.Session); err != nil {
			t.Fatal(err)
		}
		counted("measured")
	}
	f.Applied(b.Batch(false, harness.NewIntent(session.MethodDelete)))
	counted("deleted")
	f.TrimAll(a.Session, harness.KeepNothing, 5)
	counted("trimmed")
	forget := func(c *harness.Author, most int) {
		t.Helper()
		for more := true; more; { // its events are gone from the log at once, and from the count as they are removed
			var err error
			more, err = f.Forget(f.Ctx, c.Session, harness.KeepNothing, most)
			f.Must("forget", err)
		}
		counted("forgotten")
	}
	forget(b, 3)
	f.Applied(grand.Batch(false, harness.NewIntent(session.MethodDelete)))
	forget(grand, 1000)
}

// testReachPastForgotten: what is below a session that was deleted, and removed, is reached as before, and is cut off as
// before: by the ref's end, and by that of its space's.
func testReachPastForgotten(t *testing.T, fresh harness.Fresh) {
	f := newFamily(t, fresh)
	middle := f.born(f.top)
	low := f.born(middle)
	lowest := f.born(low)
	ref := f.share()
	f.Applied(middle.Batch(false, harness.NewIntent(session.MethodDelete)))
	for _, forgotten := range []bool{false, true} {
		if forgotten {
			if more, err := f.Forget(f.Ctx, middle.Session, harness.KeepNothing, 1000); more || err != nil {
				t.Fatalf("forget: %v, %v", more, err)
			}
		}
		trees := f.Load(&session.ReadSet{Trees: []string{f.root.ID}}).Trees[f.root.ID]
		for _, c := range []*harness.Author{low, lowest} {
			if o := f.write(c, ref); o.Status != ledger.Applied {
				t.Errorf("it is not reached: %+v", o)
			}
			if _, there := trees[c.Session]; !there {
				t.Error("it is not in the tree of the space's ref")
			}
		}
		f.Applied(f.top.Batch(false, harness.NewIntent(session.MethodRevoke, "ref", ref)))
		for _, c := range []*harness.Author{low, lowest} {
			if e := f.lastOf(c.Session); e.Method != session.MethodRevoke || e.Key != "ref/"+ref {
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
func testReachSpares(t *testing.T, fresh harness.Fresh) {
	f := newFamily(t, fresh)
	a := f.born(f.top)
	b := f.born(a)
	all := []string{f.top.Session, a.Session, b.Session}
	slices.Sort(all)
	top := []string{f.top.Session}
	share := func(args ...any) string {
		ref := harness.ClientRef(f.top.Session)
		f.Applied(f.top.Batch(false, harness.NewIntent(session.MethodShare, append([]any{"ref", ref, "hash", harness.HashText(), "rights", []string{"read", "share"}}, args...)...)))
		return ref
	}
	f.share()
	above := share("children", []string{"read"})
	under := harness.ClientRef(f.top.Session)
	sharer := f.open(&harness.Author{Session: f.top.Session, Outbox: harness.NewAuthor(f.root.ID).Outbox, Ref: above})
	f.Applied(sharer.Batch(false, harness.NewIntent(session.MethodShare, "ref", under, "hash", harness.HashText(), "rights", []string{"read"}, "children", []string{"read"})))
	revoke := func(ref string) ledger.Intent { return harness.NewIntent(session.MethodRevoke, "ref", ref) }
	fresher := harness.ClientRef(f.top.Session)
	named := harness.NewIntent(session.MethodShare, "ref", harness.ClientRef(f.top.Session), "hash", harness.HashText(), "rights", []string{"read"})
	for _, c := range []struct {
		what   string
		ops    []ledger.Intent
		locked []string
		cut    bool
	}{
		{"one that reaches nothing", []ledger.Intent{revoke(share())}, top, false},
		{"several such", []ledger.Intent{revoke(share()), revoke(share())}, top, false},
		{"one that is made at once", []ledger.Intent{harness.NewIntent(session.MethodShare, "ref", fresher, "hash", harness.HashText(), "rights", []string{"read"}), revoke(fresher)}, all, false},
		{"one that is named by a reference", []ledger.Intent{named, {OpID: harness.NewOp(), Method: session.MethodRevoke, Args: []ledger.Arg{{Name: "ref", Ref: &ledger.Ref{Op: named.OpID, Path: "ref"}}}}}, all, false},
		{"one, while another is made at once that reaches", []ledger.Intent{harness.NewIntent(session.MethodShare, "ref", harness.ClientRef(f.top.Session), "hash", harness.HashText(), "rights", []string{"read"}, "children", []string{"read"}), revoke(share())}, all, false},
		{"one above one that reaches", []ledger.Intent{revoke(above)}, all, true},
		{"one that has ended with it", []ledger.Intent{revoke(under)}, all, false},
		{"one, and one that reaches nothing", []ledger.Intent{revoke(share()), revoke(f.share())}, all, true},
		{"another epoch", []ledger.Intent{revoke(share()), harness.NewIntent(session.MethodBumpEpoch)}, all, true},
	} {
		before := f.lastOf(b.Session).Cursor
		var locked []string
		f.Must("commit", f.Update(f.Ctx, func(tx session.Tx) error {
			locked = nil
			answers, _, err := decide.Commit(f.Ctx, lockedTx{tx, &locked}, []decide.Submission{f.top.Batch(false, c.ops...)}, decide.DefaultConfig())
			if err == nil && answers[0].Err != nil {
				err = answers[0].Err
			}
			return err
		}))
		slices.Sort(locked)
		harness.Same(f.Fixture, c.what, slices.Compact(locked), c.locked)
		harness.Same(f.Fixture, c.what+": a cut", f.lastOf(b.Session).Cursor > before, c.cut)
	}
}
