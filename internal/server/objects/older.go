// Space.removeOlder: the sessions of a space in which nothing has changed for a while are deleted, or a key of
// each is purged, a page at a time.

package objects

import (
	"context"
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// Bounds of one transaction that removes: others' commits wait for it on SQLite, and for its sessions
// elsewhere. A session beyond them has one of its own.
const (
	maxOlderSessions = 64
	maxOlderEvents   = 4000
	maxOlderBytes    = 8 << 20
)

// Removed is what one call of removeOlder has done.
type Removed struct {
	Before          int64 // Unix ms: the last events of the sessions are from before
	Done, Unchanged uint32
	Sessions        []LeftSession // listed, or not done
	Next            string        // where the next page begins; "": there is none
	Stopped         *fault.Error  // why the page was not finished
}

// LeftSession is an old session, and why nothing was done to it.
type LeftSession struct {
	session.OldSession
	Why *fault.Error
}

func (o *space) removeOlder(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Space_removeOlder_Params(s)
	var r codec.FieldReader
	q := session.OlderQuery{
		Remove: session.OlderRemoval{Method: r.Text(p.Method()), Key: r.Text(p.Key()), Before: p.Before()},
		Age:    int64(min(p.Age(), 1<<53+1)), After: r.Text(p.After()), Limit: int(min(p.Limit(), maxList)),
	}
	refused := r.Fault("the call")
	var done *Removed
	if refused == nil {
		done, refused = o.removeOld(ctx, q)
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		return o.service.encodeRemoved(wire.Space_removeOlder_Results(s), done)
	})
}

func (s *Service) encodeRemoved(to wire.Space_removeOlder_Results, done *Removed) error {
	var w codec.FieldWriter
	to.SetBefore(done.Before)
	to.SetDone(done.Done)
	to.SetUnchanged(done.Unchanged)
	w.Text(to.SetNext, done.Next)
	w.Do(codec.EncodeList(to.NewSessions, done.Sessions, func(one wire.OldSession, left LeftSession) error {
		one.SetUpdated(left.Updated)
		one.SetEvents(left.Events)
		one.SetBytes(uint64(max(left.Bytes, 0)))
		w.Text(one.SetId, left.ID)
		w.Do(s.setRefusal(one.NewRefusal, left.Why))
		return w.Err()
	}))
	w.Do(s.setRefusal(to.NewStopped, done.Stopped))
	return w.Err()
}

// removeOld does what q says to a page of the space's old sessions. When ctx ends, it stops after the
// transaction that is under way.
func (o *space) removeOld(ctx context.Context, q session.OlderQuery) (*Removed, *fault.Error) {
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	if refused := session.CheckFeatures(session.FeatureManage, o.service.cfg.Features()); refused != nil {
		return nil, refused
	}
	if q.Limit <= 0 || q.Limit > maxList {
		q.Limit = maxList
	}
	reading, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	page, err := o.service.cfg.Store.ListOlder(reading, o.id, q, []string{o.ref})
	if err != nil {
		return nil, fault.From(o.conn.log, err, "list the old sessions")
	}
	grant, refused := o.check(&page.Access, capability.Manage, "removeOlder")
	if refused != nil {
		return nil, refused
	}
	q.Remove.Before = page.Before
	done := &Removed{Before: page.Before, Next: page.Next}
	if q.Remove.Method == "" {
		for _, one := range page.Sessions {
			done.Sessions = append(done.Sessions, LeftSession{one, one.RefuseRunning()})
		}
		o.service.cfg.Usage.Record(o.conn.peer, grant, "list", 0)
		return done, nil
	}
	before := q.After
	for todo := page.Sessions; len(todo) > 0 && done.Stopped == nil; {
		if ctx.Err() != nil {
			done.stop(before, fault.Canceled.With("the call was given up"))
			break
		}
		var pieces []*olderPiece
		var removing sync.WaitGroup
		for len(pieces) < o.service.cfg.Transactions && len(todo) > 0 {
			n := pieceOf(todo)
			p := &olderPiece{old: todo[:n]}
			pieces, todo = append(pieces, p), todo[n:]
			removing.Go(func() {
				if crashed := admission.CatchPanic(o.conn.log, "remove sessions", func() { p.refused = o.removePiece(p.old, &q.Remove, &p.done) }); crashed != nil {
					p.refused = crashed
				}
			})
		}
		removing.Wait()
		for _, p := range pieces {
			done.add(p, before)
			before = p.old[len(p.old)-1].ID
		}
	}
	if done.Done > 0 {
		o.service.cfg.Usage.Add(o.conn.peer, 0, decide.Use{Ref: grant.ID, Actor: grant.Actor, Method: q.Remove.Method, Count: done.Done})
	}
	return done, nil
}

// stop ends the page after a session.
func (r *Removed) stop(after string, why *fault.Error) { r.Next, r.Stopped = after, why }

// olderPiece is what one transaction, or one after the other, removes.
type olderPiece struct {
	old     []session.OldSession
	done    Removed
	refused *fault.Error
}

// add adds a piece, and stops after the session before it if it was refused. What pieces behind that one have removed counts;
// what they have left is met again.
func (r *Removed) add(p *olderPiece, before string) {
	r.Done += p.done.Done
	if r.Stopped == nil {
		r.Unchanged += p.done.Unchanged
		r.Sessions = append(r.Sessions, p.done.Sessions...)
		if p.refused != nil {
			r.stop(before, p.refused)
		}
	}
}

// pieceOf returns how many of the sessions share a transaction.
func pieceOf(todo []session.OldSession) (n int) {
	events, bytes := uint64(0), int64(0)
	for n < len(todo) && n < maxOlderSessions {
		events, bytes = events+todo[n].Events, bytes+todo[n].Bytes
		if n > 0 && (events > maxOlderEvents || bytes > maxOlderBytes) {
			break
		}
		n++
	}
	return n
}

// removePiece does what remove says to sessions in one transaction or, if that fails, one after the other. The error
// ends the call.
func (o *space) removePiece(old []session.OldSession, remove *session.OlderRemoval, done *Removed) *fault.Error {
	answers, err := o.commitOlder(old, remove)
	switch {
	case err == nil:
		return o.addRemoved(old, answers, done)
	case len(old) > 1 && !hopeless(err):
		for i := range old {
			if refused := o.removePiece(old[i:i+1], remove, done); refused != nil {
				return refused
			}
		}
		return nil
	}
	refused := fault.From(o.conn.log, err, "remove in the session")
	if hopeless(err) {
		return refused
	}
	done.Sessions = append(done.Sessions, LeftSession{old[0], refused})
	return nil
}

// hopeless reports that other transactions would fail in the same way.
func hopeless(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable, fault.DiskFull, fault.Draining, fault.Canceled:
		return true
	}
	return false
}

func (o *space) commitOlder(old []session.OldSession, remove *session.OlderRemoval) (answers []decide.Answer, err error) {
	subs := make([]decide.Submission, len(old))
	for i := range old {
		subs[i] = decide.Submission{Batch: ledger.Batch{Session: old[i].ID}, Ref: o.ref, Manage: true, Outer: o.attenuated,
			Direct: &decide.Direct{Older: remove}, Peer: o.conn.peer}
	}
	ctx, cancel := o.service.commitContext()
	defer cancel()
	var published *session.Published
	err = o.service.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer admission.RecoverPanic(&err)
		answers, published, err = decide.Commit(ctx, tx, subs, decide.Config{Limits: o.service.cfg.Limits, Features: o.service.cfg.Features})
		return err
	})
	if err != nil {
		return nil, err
	}
	o.service.notify(published)
	return answers, nil
}

// addRemoved adds the answers of sessions. The error is that the ref may not any more.
func (o *space) addRemoved(old []session.OldSession, answers []decide.Answer, done *Removed) *fault.Error {
	for i, a := range answers {
		switch {
		case a.Err == nil && a.Cut == 0:
			done.Unchanged++
		case a.Err == nil:
			done.Done++
		case a.Err.Code == fault.SessionDeleted: // by somebody else, meanwhile
		case a.Err.Code.Authority():
			o.service.cfg.Audit.Deny(o.conn.peer, o.ref, nil, "removeOlder", a.Err)
			return a.Err
		default:
			done.Sessions = append(done.Sessions, LeftSession{old[i], a.Err})
		}
	}
	return nil
}

// RemoveOlder does what q says to a page of the old sessions of a space. It needs the right manage.
func (h *Capability) RemoveOlder(ctx context.Context, q session.OlderQuery) (*Removed, error) {
	if h.space == nil {
		return nil, fault.BadArgument.With("the ref is one of a session: name a space's")
	}
	done, refused := h.space.removeOld(ctx, q)
	if refused != nil {
		return nil, refused
	}
	return done, nil
}
