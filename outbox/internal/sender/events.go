package sender

// Events for the loop from streams and the database.

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// openStream opens a stream in a goroutine of its own, which lives as long as the stream.
func (l *loop) openStream(a machine.Action) {
	ctx, cancel := context.WithCancel(l.ctx)
	c := &streamConn{id: a.ConnID, cancel: cancel}
	l.conns[a.Session] = c
	incarnation := l.incarnation
	l.tasks.Go(func() {
		defer cancel()
		s, last, err := l.dial(ctx, a, incarnation)
		if err != nil {
			err = l.checkNotKnown(a.Session, a.ConnID, a.Route, err)
			l.post(func(now time.Time) { l.m.StreamOpened(a.Session, a.ConnID, 0, err, now) })
			return
		}
		l.post(func(now time.Time) {
			if l.conns[a.Session] != c {
				return
			}
			c.stream = s
			l.W.Seqs.SetOpen(a.Session, true)
			l.m.StreamOpened(a.Session, a.ConnID, last, nil, now)
		})
		select {
		case <-s.Done():
			l.post(func(now time.Time) { l.m.LinkBroken(a.Session, a.ConnID, now) })
		case <-ctx.Done():
		}
		<-ctx.Done()
		s.Close()
	})
}

// dial opens a stream; to resolve drops it also waits for the server's last seq.
func (l *loop) dial(ctx context.Context, a machine.Action, incarnation int64) (s Stream, last uint64, err error) {
	req, err := l.Request(ctx, a.Session, a.Route, incarnation)
	if err != nil {
		return nil, 0, err
	}
	if s, err = l.link.OpenStream(ctx, req); err != nil {
		return nil, 0, err
	}
	if a.AwaitLastSeq {
		if last, err = s.Opened(ctx); err != nil {
			s.Close()
			return nil, 0, err
		}
	}
	return s, last, nil
}

// closeStream closes an opening.
func (l *loop) closeStream(session string, c *streamConn) {
	if l.conns[session] == c {
		delete(l.conns, session)
		l.W.Seqs.SetOpen(session, false)
	}
	c.cancel()
}

func (l *loop) send(a machine.Action) {
	c := l.conns[a.Session]
	if c == nil || c.id != a.ConnID || c.stream == nil {
		return
	}
	out := *a.Entry.WireBatch
	out.Outbox, out.Incarnation, out.AckedThrough = l.Outbox, uint64(l.incarnation), a.Through
	to := a.Entry.Route // a later turn may change it
	c.stream.Apply(&out, func(r Reply) {
		answered := func(now time.Time) {
			r.Err = l.checkNotKnown(a.Session, a.ConnID, to, r.Err)
			r = l.checkPruned(a.Entry, r)
			l.m.Replied(a.Session, a.ConnID, r.Outcomes, r.Err, now)
		}
		switch {
		case to.Space != "" || r.Err != nil || isPruned(r): // may query the database
			l.postAsync(answered)
		case l.enqueue(answered):
			l.handleEvents(1)
		}
	})
	crashpoint.Hit(crashpoint.OutboxSendAfter)
}

// checkPruned reads the database for an answer that says only that there was one. The server
// forgets an outcome when this outbox has acknowledged it, which it does when the outcome is
// stored. So either a former holder of the lease has stored it just now, and it is the answer;
// or another outbox file has: this one is a copy or was restored.
func (l *loop) checkPruned(e *machine.Entry, r Reply) Reply {
	if !isPruned(r) {
		return r
	}
	var row *sqlstore.BatchRow
	err := l.W.DB.Read(l.ctx, func(q sqlstore.Querier) (err error) {
		row, err = l.T.BatchNum(l.ctx, q, e.Num, "")
		return err
	})
	switch {
	case err != nil:
		return Reply{Err: fault.Unavailable.Because(err, "the outbox's database does not tell whether batch %s is finished", e.ID)}
	case row == nil:
		return r // swept: nobody waits for it
	case row.State != sqlstore.RowFinished:
		return Reply{Err: fault.OutboxDiverged.With("seq %d is done and its answer was stored, but not here: this outbox is a copy, or was restored from one: send what the session lacks in a new stream (mooring outbox reconcile)", e.FirstSeq).Pos(e.FirstSeq)}
	}
	if outs, err := intent.DecodeOutcomes(row.Outcomes, e.Body.Ops); err == nil {
		r.Outcomes = nil
		for i := range outs {
			if e.Body.Ops[i].TakesSeq() {
				r.Outcomes = append(r.Outcomes, outs[i])
			}
		}
	}
	return r
}

// isPruned reports that the answer is pruned: the ops have outcomes, but the server no longer
// has them.
func isPruned(r Reply) bool {
	return r.Err == nil && len(r.Outcomes) > 0 && r.Outcomes[0].Reason == fault.Pruned
}

// checkNotKnown checks the answer that a ref is not known yet. If the session's create made the
// ref, and that create was answered, then the server has lost it, and waiting would be in vain.
// But the create may have been answered after this answer, and a server that was started while
// another's last commit ran may see it late: so it must be repeated on notKnownTries openings.
func (l *loop) checkNotKnown(session string, conn int, to machine.Route, err error) error {
	if fault.CodeOf(err) != fault.NotYetKnown || to.Space != "" {
		return err
	}
	ref, unread := l.Refs.Resolver().Ref(l.ctx, to.Ref)
	if unread != nil || ref.Role != refs.SessionOwner {
		return err
	}
	var st sqlstore.StreamRow
	unread = l.W.DB.Read(l.ctx, func(q sqlstore.Querier) (err error) {
		st, err = l.T.Stream(l.ctx, q, session)
		return err
	})
	if unread != nil || st.LastSeq == 0 || st.SpaceRef != "" || !l.countNotKnown(session, conn) {
		return err
	}
	return fault.ServerBehind.With("the server does not know session %s, whose creation it has answered: %s", session, machine.RestoredAdvice)
}

// notKnownTries is the number of openings of a stream on which a server must deny knowing a
// session that it has created.
const notKnownTries = 3

// countNotKnown counts the openings with that answer, and reports whether they suffice.
func (l *loop) countNotKnown(session string, conn int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.notKnown[session]; !slices.Contains(of, conn) {
		l.notKnown[session] = append(of, conn)
	}
	return len(l.notKnown[session]) >= notKnownTries
}

// postLoaded posts the result of a transaction to the machine.
func (l *loop) postLoaded(session string, ld loadResult, err error) {
	l.postAsync(func(now time.Time) {
		if err != nil {
			l.handleDBError(err)
			l.afterFunc(l.ctx, l.RetryAfter, func() {
				l.post(func(now time.Time) { l.m.Loaded(session, nil, nil, true, nil, machine.Route{}, now) })
			})
			return
		}
		var entries []*machine.Entry
		for _, s := range ld.rows {
			entries = append(entries, l.routedEntry(s.row, s.body, s.pinSeq))
			l.Hub.NoteSent(s.row.ID)
		}
		var head *machine.Entry
		switch {
		case ld.incompatible != nil:
			head = l.damagedEntry(ld.unsequenced, ld.incompatible)
		case ld.unsequenced != nil:
			head = l.unsequencedEntry(ld.unsequenced, ld.unsequencedBody)
		}
		l.m.Loaded(session, entries, head, ld.more, ld.blockedOn, ld.st.CreateRoute(), now)
	})
}

// afterFunc calls f after d, unless ctx ends first.
func (s *Sender) afterFunc(ctx context.Context, d time.Duration, f func()) {
	t := time.AfterFunc(d, f)
	context.AfterFunc(ctx, func() { t.Stop() })
}

// handleDBError ends the term if the error says that the lease is another's.
func (l *loop) handleDBError(err error) {
	if errors.Is(err, sqlstore.ErrFenced) {
		l.cancel(sqlstore.ErrFenced)
		return
	}
	l.Logger.Warn("the outbox's database fails the sender", "outbox", l.Outbox, "error", err)
}

func (l *loop) resolveDrops(a machine.Action) {
	l.Sender.resolveDrops(l.term, a.Session, a.Entries, a.Drops, a.Through, func(bodies map[int64]*intent.Batch, err error) {
		l.postAsync(func(now time.Time) {
			if errors.Is(err, sqlstore.ErrFenced) {
				l.cancel(sqlstore.ErrFenced)
				return
			}
			if err != nil {
				l.storeFailed(a.Session, err, now)
				return
			}
			l.m.DropsResolved(a.Session, a.ConnID, machine.WithBodies(a.Entries, bodies), now)
		})
	})
}

// storeFailed reports to the machine that the database rejects a stream's outcomes, though it
// may accept others.
func (l *loop) storeFailed(session string, err error, now time.Time) {
	l.m.StoreFailed(session, fault.Internal.Because(err, "the outbox's database does not store what became of its ops: mend it and start the sender anew"), now)
}

// scan reads what other processes have committed, dropped or stored. The database's watch calls
// it.
func (l *loop) scan() {
	var sessions []string
	var row sqlstore.BoxRow
	var drops []sqlstore.Drop
	var dropped bool
	var found sqlstore.RefsSince
	reading := l.Refs.BeginReading()
	err := l.W.DB.Read(l.ctx, func(q sqlstore.Querier) (err error) {
		if row, err = l.T.ReadBox(l.ctx, q, ""); err != nil {
			return err
		}
		if sessions, err = l.T.UnsequencedSessions(l.ctx, q); err != nil {
			return err
		}
		drops, dropped = nil, row.Drops != l.seenDrops.Load()
		if dropped {
			if drops, err = l.T.Dropping(l.ctx, q, row.LowWater); err != nil {
				return err
			}
		}
		if reading.Incremental { // else no route was found through refs that could be old
			found, err = l.T.RefsSince(l.ctx, q, reading.Since)
		}
		return err
	})
	if err != nil {
		if l.ctx.Err() == nil {
			l.post(func(time.Time) { l.handleDBError(err) })
		}
		return
	}
	l.seenDrops.Store(row.Drops)
	var targets []string
	if reading.Incremental {
		targets = l.Refs.MergeFound(reading, found)
	}
	l.post(func(now time.Time) {
		if row.Holder != l.T.HolderID {
			l.cancel(sqlstore.ErrFenced)
			return
		}
		l.m.BacklogFound(sessions, now)
		for _, d := range drops {
			l.m.DropRequested(d.Session, d.Num, now)
		}
		if dropped {
			l.m.UnsequencedDropped(now)
		}
		for session, s := range l.m.Streams {
			if s.UsesTargets(targets) {
				l.rerouteStream(s, now)
				l.resumeIfRerouted(session, now)
			}
		}
	})
}

// resumeIfRerouted resumes a stopped stream if its route has changed since it stopped.
func (l *loop) resumeIfRerouted(session string, now time.Time) {
	s := l.m.Streams[session]
	if s == nil || s.Stopped == nil {
		return
	}
	lost := s.Next() == nil || s.Next().RouteErr != nil
	for _, e := range s.Queue {
		l.setRoute(e)
	}
	if s.Unsequenced != nil {
		l.setRoute(s.Unsequenced)
	}
	if e := s.Next(); e == nil || e.RetryRoute || e.RouteErr == nil && (lost || e.Route.Fingerprint != s.OpenRoute.Fingerprint) {
		l.m.Resume(session, now)
	}
}

// submitWrite submits f as a write of this term; it is not run if the term is over by then.
func (l *loop) submitWrite(f func(q sqlstore.Querier)) { l.W.Submit(l.termJob(f)) }

func (l *loop) termJob(f func(q sqlstore.Querier)) *writer.Job {
	return &writer.Job{Lazy: true, Done: func(error, bool) {}, Run: func(_ context.Context, q sqlstore.Querier) error {
		if l.W.Seqs.LeadsTerm(l.term) {
			f(q)
		}
		return nil
	}}
}
