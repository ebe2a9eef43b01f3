// Redeeming a ref: a read where nothing is to be counted, else a transaction, which
// redemptions that come while one of them runs share.

package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// Redeem has admit decide on a ref and a redemption id. If admit returns nil
// for a ref that is there and a redemption id that was not counted before, it
// is counted (Grant.Used), for the ref and for those with a limit that it was
// minted from, and an audit row is written, with the address of peer. Where there is no
// limit that is so for capability.MostCounted of them, and nothing is written of further
// ones: anybody who holds a public link may make any number. admit may run twice,
// the second time on the rows under lock, and then with those above it too; its
// error comes back as it is, with nothing changed. A redemption id that was
// counted costs a read of one ref, and so does one that is refused at once: the
// line above a ref may be long.
func (s *Store) Redeem(ctx context.Context, ref, redemption, peer string, admit func(*session.Redemption) error) error {
	if capability.Target(ref) == "" {
		return admit(&session.Redemption{}) // no id at all, so nobody's
	}
	if err := sound(redemption); err != nil {
		return err
	}
	r := &redeeming{ctx: ctx, ref: ref, redemption: redemption, peer: peer, admit: admit, counted: []string{ref}, word: make(chan func(), 1)}
	r.target, r.tail = split(ref)
	var seen []*session.Redemption
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		seen = findRedemptions(run, readGrants, []*redeeming{r})
		return nil
	})
	if err != nil {
		return naming("redeem", err)
	}
	if err := r.decide(seen[0]); err != nil || seen[0].Grant == nil || seen[0].Known {
		return err
	}
	// The line above a ref leaves its target for the space's, and does not come back.
	if capability.Target(seen[0].Grant.Parent) == r.target {
		if err := s.findLimits(ctx, r); err != nil {
			return naming("redeem", err)
		}
	}
	switch {
	case r.uncounted(seen[0]):
		return nil
	case len(r.counted) > 1:
		s.count(ctx, []*redeeming{r}, lockGrants)
	default:
		s.redeemer.count(s, r)
	}
	if r.refused != nil {
		return r.refused
	}
	return naming("redeem", r.err)
}

// redeeming is one redemption on its way.
type redeeming struct {
	ctx               context.Context
	ref, target, tail string
	redemption, peer  string
	admit             func(*session.Redemption) error
	counted           []string    // the ref and those with a limit that it was minted from, in order
	word              chan func() // gets one, if it waits: what is to be done next
	refused           error       // admit's
	err               error
	missed            bool // somebody else had its row
}

// decide has admit decide on what was found. A defect in it is its own caller's alone.
func (r *redeeming) decide(found *session.Redemption) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if found.Grant != nil {
		found.Grants[found.Grant.ID] = found.Grant
	}
	return r.admit(found)
}

// uncounted says whether nothing is kept of it.
func (r *redeeming) uncounted(found *session.Redemption) bool {
	found.Uncounted = len(r.counted) == 1 && found.Grant.Limit == 0 && found.Grant.Used >= capability.MostCounted
	return found.Uncounted
}

// findLimits finds the refs with a limit that r's was minted from.
func (s *Store) findLimits(ctx context.Context, r *redeeming) error {
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(readLineages, refs([]string{r.ref}), nil, func(row Scanner) error {
			g, err := scanGrant(row)
			if err == nil && g.ID != r.ref && g.Limit != 0 && g.Target == r.target {
				r.counted = append(r.counted, g.ID)
			}
			return err
		})
		return nil
	})
	slices.Sort(r.counted)
	return err
}

// findRedemptions queues what redemptions are decided on. The refs' rows are got by grants.
func findRedemptions(run Runner, grants *Statement, group []*redeeming) []*session.Redemption {
	found := make([]*session.Redemption, len(group))
	each := func(is func(*redeeming) bool, then func(*session.Redemption)) (some bool) {
		for i, r := range group {
			if is(r) {
				then(found[i])
				some = true
			}
		}
		return some
	}
	var sessions, ids []string
	asked := make([][]any, len(group))
	for i, r := range group {
		found[i] = &session.Redemption{Sight: session.Sight{Grants: map[string]*capability.Grant{}}}
		sessions, ids = append(sessions, r.target), append(ids, r.counted...)
		asked[i] = []any{r.target, r.tail, r.redemption}
	}
	slices.Sort(sessions)
	slices.Sort(ids)
	run.QueueNow(func(now, _ int64) {
		for _, f := range found {
			f.Now = now
		}
	})
	run.Queue(readSessions, texts(slices.Compact(sessions)), nil, func(row Scanner) error {
		at, err := scanSession(row)
		if err == nil {
			each(func(r *redeeming) bool { return r.target == at.ID }, func(f *session.Redemption) { f.Row = at })
		}
		return err
	})
	run.Queue(grants, refs(slices.Compact(ids)), nil, func(row Scanner) error {
		g, err := scanGrant(row)
		if err == nil && !each(func(r *redeeming) bool { return r.ref == g.ID }, func(f *session.Redemption) { f.Grant = g }) {
			found[0].Above = append(found[0].Above, g) // who has any is alone
		}
		return err
	})
	run.Queue(readRedemptions, asked, nil, func(row Scanner) error {
		var target, tail, redemption string
		err := row.Scan(&target, &tail, &redemption)
		each(func(r *redeeming) bool { return r.tail == tail && r.redemption == redemption && r.target == target },
			func(f *session.Redemption) { f.Known = true })
		return err
	})
	return found
}

// count counts redemptions in one transaction, one after the other, and tells each what that
// came to. Of several none has a ref with a limit above its own.
func (s *Store) count(ctx context.Context, group []*redeeming, lock *Statement) {
	for _, r := range group {
		r.refused, r.missed = nil, false
	}
	err := s.update(ctx, func(t *tx) error {
		// One grant's row is locked alone. Several of one redemption are locked under the
		// row that all changes of authority go through, so that nobody holds one of them and
		// waits for another. Those of several redemptions are not waited for.
		switch r := group[0]; {
		case len(r.counted) == 1:
		case capability.IsSession(r.target):
			t.run.Queue(lockSessions, texts([]string{r.target}), nil, nil)
		default:
			t.run.Queue(lockSpace, nil, []any{r.target}, nil)
		}
		found := findRedemptions(t.run, lock, group)
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		var redemptions [][]any
		var audit []*capability.AuditRow
		times := map[string]int64{} // counted now, by ref
		known := map[[2]string]bool{}
		for i, r := range group {
			f, id := found[i], [2]string{r.ref, r.redemption}
			t.now = f.Now
			if r.missed = f.Grant == nil && lock == lockFreeGrants; r.missed {
				continue
			}
			if n := times[r.ref]; n > 0 {
				g := *f.Grant
				g.Used += uint32(n)
				f.Grant, f.Known = &g, f.Known || known[id]
			}
			if r.refused = r.decide(f); r.refused != nil || f.Grant == nil || f.Known || r.uncounted(f) {
				continue
			}
			known[id] = true
			for _, ref := range r.counted {
				times[ref]++
			}
			redemptions = append(redemptions, []any{r.target, r.tail, r.redemption, t.now})
			row := &capability.AuditRow{Target: r.target, Act: capability.AuditRedeem, Ref: r.ref, Actor: f.Grant.Actor, Peer: r.peer}
			if f.Row != nil {
				row.Cursor = f.Row.Cursor
			}
			audit = append(audit, row)
		}
		switch {
		case len(redemptions) > 0:
		case len(group) == 1:
			return group[0].refused
		default:
			return nil
		}
		t.run.Queue(insertRedemptions, redemptions, nil, nil)
		counted := refs(sortedKeys(times))
		for i, ref := range sortedKeys(times) {
			counted[i] = append(counted[i], times[ref])
		}
		t.run.Queue(countRedemptions, counted, nil, nil)
		return t.Save(ctx, &session.Changes{Audit: audit})
	})
	for _, r := range group {
		r.err = err
	}
}

// redeemer has redemptions that wait share a transaction, mostly one at a time. It is safe for
// concurrent use.
type redeemer struct {
	mu      sync.Mutex // guards what follows
	busy    bool
	waiting []*redeeming
}

const (
	redeemMost     = 128                    // redemptions that share a transaction
	redeemPause    = 100 * time.Millisecond // after so long, another one begins beside it
	redeemPatience = 2 * time.Second        // after so long, each goes alone
)

// count counts r, alone or with others, and returns when that is over.
func (c *redeemer) count(s *Store, r *redeeming) {
	c.mu.Lock()
	if !c.busy {
		c.busy = true
		c.mu.Unlock()
		c.lead(s, r)
		return
	}
	c.waiting = append(c.waiting, r)
	c.mu.Unlock()
	select {
	case do := <-r.word:
		do()
	case <-r.ctx.Done():
		if c.leave(r) {
			r.err = fault.GivenUp(context.Cause(r.ctx), nil)
			return
		}
		(<-r.word)()
	}
}

// lead runs the next transaction, of r and those that wait. The one after it is led by one
// of those that have come meanwhile; at once, if this one hangs on what somebody has locked.
func (c *redeemer) lead(s *Store, r *redeeming) {
	pass := sync.OnceFunc(func() { c.pass(s) })
	group := c.gather(r)
	late := time.AfterFunc(redeemPause, pass)
	s.together(group, lockFreeGrants, func() {
		late.Stop()
		pass()
	})
}

// together counts a group in one transaction, in the goroutine of its first. Then over is
// called, and each does what is left to do for it.
func (s *Store) together(group []*redeeming, lock *Statement, over func()) {
	for _, r := range group {
		r.err = errUncounted
	}
	var own func()
	func() {
		defer func() {
			over()
			todo := s.left(group)
			own = todo[0]
			for i, do := range todo[1:] {
				if do != nil {
					group[i+1].word <- do
				}
			}
		}()
		ctx, cancel := whileAny(group)
		defer cancel()
		s.count(ctx, group, lock)
	}()
	own()
}

// left is what is left to do by each of a group: those whose row somebody had wait for it
// together, which the first of them does, and of several that failed each goes alone. It is
// nil for whom another does it.
func (s *Store) left(group []*redeeming) []func() {
	todo, missed := make([]func(), len(group)), map[string][]*redeeming{}
	for _, r := range group {
		if r.err == nil && r.missed {
			missed[r.ref] = append(missed[r.ref], r)
		}
	}
	for i, r := range group {
		switch {
		case r.err == nil && !r.missed, r.err != nil && len(group) == 1:
			todo[i] = func() {}
		case r.err != nil:
			todo[i] = func() { s.count(r.ctx, []*redeeming{r}, lockGrants) }
		case missed[r.ref][0] == r:
			todo[i] = func() { s.together(missed[r.ref], lockGrants, func() {}) }
		}
	}
	return todo
}

// errUncounted is what a panic leaves.
var errUncounted = errors.New("the transaction was not run to its end")

// gather takes those of the next transaction.
func (c *redeemer) gather(r *redeeming) []*redeeming {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.waiting), redeemMost-1)
	group := append([]*redeeming{r}, c.waiting[:n]...)
	c.waiting = slices.Delete(c.waiting, 0, n)
	return group
}

// pass has another lead the next transaction.
func (c *redeemer) pass(s *Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy = len(c.waiting) > 0; c.busy {
		next := c.waiting[0]
		c.waiting = slices.Delete(c.waiting, 0, 1)
		next.word <- func() { c.lead(s, next) }
	}
}

// whileAny is a context that ends when those of all of a group have, or a group of several
// has waited for long.
func whileAny(group []*redeeming) (context.Context, context.CancelFunc) {
	if len(group) == 1 {
		return group[0].ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(group[0].ctx))
	late := time.AfterFunc(redeemPatience, func() { cancel(context.DeadlineExceeded) })
	var left atomic.Int64
	left.Store(int64(len(group)))
	var stops []func() bool
	for _, r := range group {
		stops = append(stops, context.AfterFunc(r.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(r.ctx))
			}
		}))
	}
	return ctx, func() {
		late.Stop()
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// leave takes r out of those that wait, if it is still there.
func (c *redeemer) leave(r *redeeming) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiting, r)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	return i >= 0
}
