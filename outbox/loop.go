package outbox

// What reaches the sender's loop from streams, the database and other
// goroutines of this process.

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
)

// open opens a stream in a goroutine of its own, which stays for as long as the
// stream does.
func (l *loop) open(a action) {
	ctx, cancel := context.WithCancel(l.ctx)
	c := &conn{number: a.conn, cancel: cancel}
	l.conns[a.session] = c
	incarnation := l.incarnation
	l.tasks.Go(func() {
		defer cancel()
		s, last, err := l.box.openStream(ctx, l.link, a, incarnation)
		if err != nil {
			err = l.missing(a.session, a.conn, a.route, err)
			l.post(func(now time.Time) { l.m.openedStream(a.session, a.conn, 0, err, now) })
			return
		}
		l.post(func(now time.Time) {
			if l.conns[a.session] != c {
				return
			}
			c.stream = s
			l.box.w.lanes.setOpen(a.session, true)
			l.m.openedStream(a.session, a.conn, last, nil, now)
		})
		select {
		case <-s.Done():
			l.post(func(now time.Time) { l.m.broken(a.session, a.conn, now) })
		case <-ctx.Done():
		}
		<-ctx.Done()
		s.Close()
	})
}

// openStream opens a stream; with a drop to settle it also waits for the
// server's last seq.
func (b *Box) openStream(ctx context.Context, link Link, a action, incarnation int64) (s Stream, last uint64, err error) {
	req, err := b.request(ctx, a.session, a.route, incarnation)
	if err != nil {
		return nil, 0, err
	}
	if s, err = link.OpenStream(ctx, req); err != nil {
		return nil, 0, err
	}
	if a.settle {
		if last, err = s.Opened(ctx); err != nil {
			s.Close()
			return nil, 0, err
		}
	}
	return s, last, nil
}

// drop lets go of an opening.
func (l *loop) drop(session string, c *conn) {
	if l.conns[session] == c {
		delete(l.conns, session)
		l.box.w.lanes.setOpen(session, false)
	}
	c.cancel()
}

func (l *loop) send(a action) {
	c := l.conns[a.session]
	if c == nil || c.number != a.conn || c.stream == nil {
		return
	}
	out := *a.entry.wire
	out.Outbox, out.Incarnation, out.AckedThrough = l.box.id, uint64(l.incarnation), a.through
	to := a.entry.route // a later turn may change it
	c.stream.Apply(&out, func(r Reply) {
		answered := func(now time.Time) {
			r.Err = l.missing(a.session, a.conn, to, r.Err)
			l.m.replied(a.session, a.conn, l.checked(a.entry, r), now)
		}
		switch {
		case to.space != "" || r.Err != nil || pruned(r): // may have the database asked
			l.hand(answered)
		case l.add(answered):
			l.take(1)
		}
	})
	crashpoint.Hit(crashpoint.OutboxSendAfter)
}

// checked looks twice at an answer that says only that there was one. The server
// forgets an outcome when this outbox has acknowledged it, and it does so when
// the outcome is stored. So either a former holder of the lease has stored it
// just now, and it is the answer; or it was another outbox file: this one is a
// copy or was restored.
func (l *loop) checked(e *entry, r Reply) Reply {
	if !pruned(r) {
		return r
	}
	var row *batchRow
	err := l.box.db.read(l.ctx, func(q querier) (err error) {
		row, err = l.box.t.batchNum(l.ctx, q, e.num, "")
		return err
	})
	switch {
	case err != nil:
		return Reply{Err: fault.Unavailable.Because(err, "the outbox's database does not tell whether batch %s is finished", e.id)}
	case row == nil:
		return r // swept: nobody waits for it
	case row.state != rowFinished:
		return Reply{Err: fault.OutboxDiverged.With("seq %d is done and its answer was stored, but not here: this outbox is a copy, or was restored from one: what the session lacks goes out in a new stream (mooring outbox reconcile)", e.first).Pos(e.first)}
	}
	if outs, err := decodeOutcomes(row.outcomes, e.body.ops); err == nil {
		r.Outcomes = nil
		for i := range outs {
			if e.body.ops[i].travels() {
				r.Outcomes = append(r.Outcomes, outs[i])
			}
		}
	}
	return r
}

// pruned says that there was an answer, and no more.
func pruned(r Reply) bool {
	return r.Err == nil && len(r.Outcomes) > 0 && r.Outcomes[0].Reason == fault.Pruned
}

// missing looks twice at an answer that a ref is not known yet. If the ref is the
// one that the session's create made, and that create was answered, then the
// server has forgotten it, and waiting would be in vain. But the create may have been
// answered after this was said, and a server that was started while another's last
// commit ran may be late to see it: so it is to be said on doubtful openings.
func (l *loop) missing(session string, conn int, to route, err error) error {
	if fault.CodeOf(err) != fault.NotYetKnown || to.space != "" {
		return err
	}
	ref, unread := l.box.shelf().ref(l.ctx, to.ref)
	if unread != nil || ref.Role != SessionOwner {
		return err
	}
	var st streamRow
	unread = l.box.db.read(l.ctx, func(q querier) (err error) {
		st, err = l.box.t.stream(l.ctx, q, session)
		return err
	})
	if unread != nil || st.lastSeq == 0 || st.spaceRef != "" || !l.doubt(session, conn) {
		return err
	}
	return fault.ServerBehind.With("the server does not know session %s, whose creation it has answered: %s", session, restored)
}

// doubtful is on how many openings of a stream a server has to say that it does not
// know a session that it has made.
const doubtful = 3

// doubt notes that a server said so on an opening, and says whether that is enough.
func (l *loop) doubt(session string, conn int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.doubts[session]; !slices.Contains(of, conn) {
		l.doubts[session] = append(of, conn)
	}
	return len(l.doubts[session]) >= doubtful
}

// handLoaded hands what a transaction found to the machine.
func (l *loop) handLoaded(session string, ld loaded, err error) {
	l.hand(func(now time.Time) {
		if err != nil {
			l.failed(err)
			l.box.after(l.ctx, l.box.cfg.Backoff.Initial, func() {
				l.post(func(now time.Time) { l.m.looked(session, nil, nil, true, nil, route{}, now) })
			})
			return
		}
		var entries []*entry
		for _, s := range ld.rows {
			entries = append(entries, l.entry(s.row, s.body, s.hold))
			l.box.told.sent(s.row.id)
		}
		var head *entry
		switch {
		case ld.newer != nil:
			head = l.unreadable(ld.head, ld.newer)
		case ld.head != nil:
			head = l.headOf(ld.head, ld.hbody)
		}
		l.m.looked(session, entries, head, ld.more, ld.owed, l.making(ld.st), now)
	})
}

// after calls f later, unless ctx ends first.
func (b *Box) after(ctx context.Context, d time.Duration, f func()) {
	t := time.AfterFunc(d, f)
	context.AfterFunc(ctx, func() { t.Stop() })
}

// failed ends the term if an error means that the lease is another's.
func (l *loop) failed(err error) {
	if errors.Is(err, errFenced) {
		l.cancel(errFenced)
		return
	}
	l.box.cfg.Logger.Warn("the outbox's database fails the sender", "outbox", l.box.id, "error", err)
}

func (l *loop) settle(a action) {
	l.box.settleDrops(l.term, a.session, a.entries, a.drops, a.through, func(bodies map[int64]*body, err error) {
		l.hand(func(now time.Time) {
			if errors.Is(err, errFenced) {
				l.cancel(errFenced)
				return
			}
			if err != nil {
				l.unstorable(a.session, err, now)
				return
			}
			l.m.settled(a.session, a.conn, withBodies(a.entries, bodies), now)
		})
	})
}

// withBodies are those of entries that have a body in bodies, by num, with that.
func withBodies(entries []*entry, bodies map[int64]*body) (changed []*entry) {
	for _, e := range entries {
		if bd := bodies[e.num]; bd != nil {
			n := *e
			n.body = bd
			n.wire = wire(&n)
			changed = append(changed, &n)
		}
	}
	return changed
}

// unstorable says that the database does not take what was to be stored of a
// stream, whatever it takes of others.
func (l *loop) unstorable(session string, err error, now time.Time) {
	l.m.unstorable(session, fault.Internal.Because(err, "the outbox's database does not store what became of its ops: mend it and start the sender anew"), now)
}

// scan looks for what other processes have committed, dropped or stored. The
// database's watch calls it.
func (l *loop) scan() {
	var sessions []string
	var row boxRow
	var drops []drop
	var dropped bool
	var found refsSince
	refs := l.box.refs.begin()
	err := l.box.db.read(l.ctx, func(q querier) (err error) {
		if row, err = l.box.t.readBox(l.ctx, q, ""); err != nil {
			return err
		}
		if sessions, err = l.box.t.waitingSessions(l.ctx, q); err != nil {
			return err
		}
		drops, dropped = nil, row.drops != l.seen.Load()
		if dropped {
			if drops, err = l.box.t.dropping(l.ctx, q, row.low); err != nil {
				return err
			}
		}
		if refs.known { // else nothing was found through refs that could be old
			found, err = l.box.t.refsSince(l.ctx, q, refs.mark)
		}
		return err
	})
	if err != nil {
		if l.ctx.Err() == nil {
			l.post(func(time.Time) { l.failed(err) })
		}
		return
	}
	l.seen.Store(row.drops)
	var targets []string
	if refs.known {
		targets = l.box.took(refs, found)
	}
	l.post(func(now time.Time) {
		if row.holder != l.box.me {
			l.cancel(errFenced)
			return
		}
		l.m.found(sessions, now)
		for _, d := range drops {
			l.m.dropAsked(d.session, d.num, now)
		}
		if dropped {
			l.m.headsDropped(now)
		}
		for session, s := range l.m.streams {
			if s.concerns(targets) {
				l.rerouteStream(s, now)
				l.reconsider(session, now)
			}
		}
	})
}

// concerns says whether the stream may be opened with refs for one of these targets.
func (s *stream) concerns(targets []string) bool {
	for _, t := range targets {
		if t == s.session || capability.IsSpace(t) {
			return true
		}
	}
	return false
}

// reconsider lets a stream that stands still go on if it would be opened with
// other refs than those it stopped with.
func (l *loop) reconsider(session string, now time.Time) {
	s := l.m.streams[session]
	if s == nil || s.stopped == nil {
		return
	}
	lost := s.next() == nil || s.next().problem != nil
	for _, e := range s.queue {
		l.find(e)
	}
	if s.head != nil {
		l.find(s.head)
	}
	if e := s.next(); e == nil || e.passing || e.problem == nil && (lost || e.route.proof != s.opened.proof) {
		l.m.resume(session, now)
	}
}

// write has f write something of this term's, sooner or later: not at all if the
// term is over by then.
func (l *loop) write(f func(q querier)) { l.box.w.submit(l.job(f)) }

func (l *loop) job(f func(q querier)) *job {
	return &job{lazy: true, done: func(error, bool) {}, run: func(_ context.Context, q querier) error {
		if l.box.w.lanes.leads(l.term) {
			f(q)
		}
		return nil
	}}
}

// What other parts of the Box tell the sender, if there is one.

func (b *Box) withLoop(f func(l *loop)) {
	b.mu.Lock()
	l := b.loop
	b.mu.Unlock()
	if l != nil {
		f(l)
	}
}

// sendCommitted says that a batch was committed with its seqs, and how it is to be
// sent. If the sender has nothing else to do it is sent by whoever committed it,
// when the next transaction may run.
func (b *Box) sendCommitted(r *batchRow, bd *body, hold uint64, to route) {
	b.withLoop(func(l *loop) {
		mine := l.add(func(now time.Time) {
			e := newEntry(r, bd, hold)
			e.route = to
			if to.seen != b.refs.now() { // it may have been found before a rotation began
				l.refind(e)
			}
			l.m.sequenced(e, now)
		})
		if mine && !b.w.then(func() { l.take(1) }) {
			l.more <- struct{}{}
		}
	})
}

// backlog says that the session has a row without a seq.
func (b *Box) backlog(session string) {
	b.withLoop(func(l *loop) {
		l.hand(func(now time.Time) { l.m.found([]string{session}, now) })
	})
}

// lost says that it is not known which seqs were given: the term ends, and the
// next begins by reading them. It is called where a transaction ends; none gives
// seqs from then on, whenever the loop hears of it.
func (b *Box) lost(err *fault.Error) {
	b.w.lanes.lead(false)
	b.withLoop(func(l *loop) { l.cancel(err) })
}

// refStored has streams to a target look again how they are sent, and lets those
// go on that stood still.
func (b *Box) refStored(target string) {
	b.withLoop(func(l *loop) {
		l.hand(func(now time.Time) {
			for session, s := range l.m.streams {
				switch {
				case !s.concerns([]string{target}):
				case s.stopped == nil:
					l.rerouteStream(s, now)
				case session == target || s.next() == nil || s.next().route.space != "":
					for _, e := range s.queue {
						l.find(e)
					}
					l.m.resume(session, now)
				}
			}
		})
	})
}

// Wake says that the link is back: whatever waits to be tried again is tried now.
func (b *Box) Wake() {
	b.withLoop(func(l *loop) { l.hand(l.m.wake) })
}
