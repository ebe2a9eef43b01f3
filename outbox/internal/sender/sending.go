package sender

// The sender's transactions: allocating seqs, resolving drops, ending a refused stream, storing outcomes.

import (
	"context"
	"errors"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// loadResult is the result of load.
type loadResult struct {
	rows            []sequencedRow
	unsequenced     *sqlstore.BatchRow // the first row without a seq, if none was to be allocated
	unsequencedBody *intent.Batch
	incompatible    error // why only a newer binary can go on: unsequenced is then the row in question
	more            bool
	blockedOn       []string // batches of other sessions that the first row waits for
	st              sqlstore.StreamRow
	decided         []Decided
	seqs            *writer.StreamSeqs
	stopErr         *fault.Error // why no row was denied
}

// addDecided adds a row that needs no server.
func (ld *loadResult) addDecided(d Decided) {
	if d.createRoute.Space != "" {
		ld.st.SpaceRef, ld.st.OwnerRef = d.createRoute.Space, d.createRoute.Ref
	}
	ld.decided = append(ld.decided, d)
}

// sequencedRow is a row that has its seqs now.
type sequencedRow struct {
	row    *sqlstore.BatchRow
	body   *intent.Batch
	pinSeq uint64 // the lowest seq of its stream that it still refers to
}

// Decided is a row that needs no server.
type Decided struct {
	id         string
	outs       []ledger.Outcome
	ops        int
	refUpdates []refs.Update
	// damaged: the row could not be read and was quarantined.
	damaged bool
	// createRoute is how its session is reached, if the row was its create.
	createRoute machine.Route
}

// peekRows is how many rows a peek reads at once: the first ones may all be decided.
const peekRows = 8

// load processes the session's rows without a seq, in order: it replaces references to finished
// ops, finishes batches that cannot apply, and gives the next batches their seqs, up to batches
// and bytes; with 0 the first is only reported. It stops where a batch is blocked on another
// stream. With no, rows get no seqs, lose those they have, and are denied if they go under no's
// refs, up to the first that does not. then is called when it is durable, before anything else
// is written.
func (s *Sender) load(term int, session string, batches, bytes int, no *machine.Refusal, then func(loadResult, error)) {
	var ld loadResult
	run := func(ctx context.Context, q sqlstore.Querier) error {
		ld = loadResult{}
		s.W.WriteHighWater(q)
		row, leads, err := s.Lease.Confirm(ctx, q, term)
		switch {
		case err != nil:
			return err
		case !leads:
			return sqlstore.ErrFenced
		}
		if no != nil {
			if ok, err := s.clearRefusedSeqs(ctx, q, session); err != nil || !ok {
				ld.stopErr = no.Err
				return err
			}
		}
		return s.loadRows(ctx, q, &ld, row.LowWater, session, batches, bytes, no)
	}
	s.W.Submit(&writer.Job{Run: run, Done: func(err error, ambiguous bool) {
		if err == nil {
			if no != nil && ld.stopErr == nil {
				s.W.Seqs.Forget(session)
			}
			s.loadDone(&ld)
		} else if ambiguous && batches > 0 && no == nil {
			s.EndTerm(fault.Unavailable.Because(err, "it is not known whether seqs were given"))
		}
		then(ld, err)
	}})
}

func (s *Sender) loadRows(ctx context.Context, q sqlstore.Querier, ld *loadResult, low int64, session string, batches, bytes int, no *machine.Refusal) (err error) {
	if ld.st, err = s.T.Stream(ctx, q, session); err != nil {
		return err
	}
	if ld.seqs = s.W.Seqs.AddStream(session, ld.st.LastSeq+1); ld.seqs == nil {
		return sqlstore.ErrFenced
	}
	var rows []*sqlstore.BatchRow
	if rows, ld.more, err = s.T.LockUnsequenced(ctx, q, session, max(batches, peekRows), bytes); err != nil {
		return err
	}
	given := make(map[string]*intent.Target) // by op, of this transaction
	for _, r := range rows {
		stored := s.T.OpLookup(ctx, q, r.Num)
		find := func(op string) (*intent.Target, error) {
			if e := given[op]; e != nil {
				return e, nil
			}
			return stored(op)
		}
		var res intent.Resolution
		bd, err := r.Decode()
		if err == nil {
			res, err = intent.Resolve(bd, session, find, false)
		}
		switch {
		case errors.Is(err, fault.Incompatible):
			ld.unsequenced, ld.incompatible, ld.more = r, err, true
			return nil
		case bd == nil:
			ld.decided = append(ld.decided, s.Quarantine(q, r, err))
			continue
		case err != nil:
			return err
		}
		if bd.Decided() {
			ld.addDecided(s.FinishLocally(ctx, q, r, bd))
			continue
		}
		if len(res.BlockedOn) > 0 {
			for _, e := range res.BlockedOn {
				ld.blockedOn = append(ld.blockedOn, e.Batch)
			}
			ld.more = true
			return nil
		}
		if no != nil {
			to, err := s.Refs.ResolverIn(q, false).RouteOf(ctx, session, r.Via, bd)
			if err != nil || !no.Route.Serves(to) {
				ld.more = true
				return nil
			}
			ld.addDecided(s.denyRow(ctx, q, r, bd, no))
			continue
		}
		data, other := r.Body, []byte(nil)
		if res.Changed {
			other = bd.Encode(r.Session, r.ID)
			data = other
		}
		if batches == 0 {
			if res.Changed {
				s.T.SetBody(q, r.Num, data, bd.Tally(), false)
			}
			ld.unsequenced, ld.unsequencedBody, ld.more = r, bd, true
			return nil
		}
		if n := len(ld.rows); n > 0 && (n >= batches || len(data) > bytes) {
			ld.more = true
			return nil
		}
		bytes -= len(data)
		if len(ld.rows) == 0 {
			crashpoint.Hit(crashpoint.OutboxSeqBefore)
		}
		first := int64(s.W.Seqs.Allocate(ld.seqs, bd.SeqCount()))
		s.T.SetSeq(q, r.Num, first, other, bd.Tally())
		if r.Num < low {
			s.T.LowerLowWater(q, r.Num)
			low = r.Num
		}
		r.FirstSeq, r.State, r.Body = &first, sqlstore.RowInFlight, data
		for k := range bd.Ops {
			e, err := sqlstore.FoundOp{Row: r, Body: bd, Index: k}.Target()
			if err != nil {
				return err
			}
			given[e.ID] = e
		}
		ld.rows = append(ld.rows, sequencedRow{r, bd, res.PinSeq})
	}
	return nil
}

// FinishLocally finishes a row all of whose ops have local outcomes: no server need see it.
func (s *Sender) FinishLocally(ctx context.Context, q sqlstore.Querier, r *sqlstore.BatchRow, bd *intent.Batch) Decided {
	d := Decided{id: r.ID, outs: bd.Outcomes(nil), ops: r.Ops}
	if intent.CreatesSession(bd.Ops[0].Method) {
		// Nothing creates the session; later batches still have to reach a server that says so.
		if to, err := s.Refs.ResolverIn(q, false).RouteOf(ctx, r.Session, r.Via, bd); err == nil {
			s.T.SetCreateRefs(q, r.Num, to.Space, to.Ref)
			d.createRoute = to
			d.refUpdates = []refs.Update{refs.RefusedOwner(to.Ref, &d.outs[0])}
			s.T.WriteRefStatus(q, d.refUpdates)
		}
	}
	s.T.Finish(q, r.Num, s.Now().UnixMilli(), bd.Count(d.outs), r.Attempts, intent.EncodeOutcomes(d.outs, bd.Ops), bd.Encode(r.Session, r.ID))
	return d
}

// Quarantine finishes a row that cannot be read, so that it does not block others. It stays
// without outcomes, which Wait reports.
func (s *Sender) Quarantine(q sqlstore.Querier, r *sqlstore.BatchRow, err error) Decided {
	s.Logger.Error("a row of the outbox is damaged and was set aside", "outbox", s.Outbox, "batch", r.ID, "error", err)
	s.T.RecordAttempt(q, r.Num, r.Attempts, 0, err.Error())
	s.T.Finish(q, r.Num, s.Now().UnixMilli(), intent.Tally{Failed: r.Ops}, r.Attempts, nil, nil)
	return Decided{id: r.ID, ops: r.Ops, damaged: true}
}

// AnnounceDecided notifies the waiters of rows that were decided and are stored, and the
// sender, if there is one.
func (s *Sender) AnnounceDecided(rows []Decided) {
	if len(rows) == 0 {
		return
	}
	for _, d := range rows {
		s.Refs.ApplyUpdates(d.refUpdates)
		s.Stored.Add(int64(d.ops))
		if d.damaged {
			s.Damage.NoteQuarantined(d.id)
		}
		s.Hub.Publish(d.id, d.outs, true)
	}
	s.withLoop(func(l *loop) {
		l.postAsync(func(now time.Time) {
			for _, d := range rows {
				l.m.Finished(d.id, now)
			}
		})
	})
}

func (s *Sender) loadDone(ld *loadResult) {
	for _, r := range ld.rows {
		s.W.Seqs.Confirm(ld.seqs, uint64(*r.row.FirstSeq)+uint64(r.body.SeqCount()), r.row.ID, len(r.row.Body))
	}
	if len(ld.rows) > 0 {
		crashpoint.Hit(crashpoint.OutboxSeqAfter)
	}
	s.AnnounceDecided(ld.decided)
}

// storeOutcomes stores the outcomes of a batch, in a transaction with other writes. making is
// how its session is reached if the batch was its create and that did not apply, and news are
// the answer's updates of refs. then is called when they are stored, or with the error if they
// never will be. ErrFenced says that they are stored, but that this Box must not acknowledge
// them: the lease's holder may have sent batches that refer to them.
func (s *Sender) storeOutcomes(e *machine.Entry, incarnation int64, outs []ledger.Outcome, news []refs.Update, making machine.Route, then func(error)) {
	data := intent.EncodeOutcomes(outs, e.Body.Ops)
	n := e.Body.Count(outs)
	at := s.Now().UnixMilli()
	var isHolder *bool
	s.W.Submit(&writer.Job{Lazy: true, Stream: e.Session,
		Run: func(ctx context.Context, q sqlstore.Querier) error {
			isHolder = s.W.ShareLease(q, false)
			s.W.Seqs.MarkStoring(e.Session, e.ID)
			if intent.CreatesSession(e.Body.Ops[0].Method) {
				s.T.SetCreateRefs(q, e.Num, making.Space, making.Ref)
			}
			s.T.Finish(q, e.Num, at, n, e.Attempts+1, data, nil)
			s.T.WriteRefStatus(q, news)
			s.W.Seqs.RaiseHighWater(e.Session, writer.HighWater{Seq: e.LastSeq(), Incarnation: incarnation})
			return nil
		},
		Done: func(err error, _ bool) {
			if err == nil {
				crashpoint.Hit(crashpoint.OutboxAckAfter)
				s.Refs.ApplyUpdates(news)
				s.W.Seqs.MarkStored(e.Session, e.ID)
				s.Stored.Add(int64(len(e.Body.Ops)))
				s.Hub.MarkStored(e.ID)
				if !*isHolder {
					err = sqlstore.ErrFenced
				}
			}
			then(err)
		}})
}

// resolveDrops decides the ops that were to be dropped after they had a seq: ops beyond the
// server's last seq become voids, durably, before anything is sent; the others stand. then gets
// the batches as they are now.
func (s *Sender) resolveDrops(term int, session string, entries []*machine.Entry, drops map[int64]*fault.Error, lastSeq uint64, then func(map[int64]*intent.Batch, error)) {
	var bodies map[int64]*intent.Batch
	var fenced bool
	s.W.Submit(&writer.Job{Lazy: true, Stream: session,
		Run: func(ctx context.Context, q sqlstore.Querier) error {
			bodies, fenced = make(map[int64]*intent.Batch), false
			_, leads, err := s.Lease.Confirm(ctx, q, term)
			if err != nil {
				return err
			}
			if fenced = !leads; fenced { // no error: others' jobs are written all the same
				return nil
			}
			for _, e := range entries {
				r, err := s.T.BatchNum(ctx, q, e.Num, s.W.DB.LockRows())
				if err != nil {
					return err
				}
				if r == nil || r.State == sqlstore.RowFinished {
					continue
				}
				bd, err := r.Decode()
				if err != nil {
					return err
				}
				bd.ResolveDrop(e.FirstSeq > lastSeq, drops[e.Num])
				s.T.SetBody(q, e.Num, bd.Encode(r.Session, r.ID), bd.Tally(), false)
				bodies[e.Num] = bd
			}
			return nil
		},
		Done: func(err error, _ bool) {
			if err == nil && fenced {
				err = sqlstore.ErrFenced
			}
			then(bodies, err)
		}})
}

// endRefused denies the batches that a names. For batches that name no ref, a better one may be
// stored already.
func (l *loop) endRefused(a machine.Action) {
	l.postAsync(func(time.Time) { // an event of its own, since it reads the database
		_, _ = l.Refs.Refresh(l.ctx) // else the row's ref is the one that was refused
		win := l.Window
		l.load(l.term, a.Session, machine.WindowsAhead*win.Batches, machine.WindowsAhead*win.Bytes, &machine.Refusal{Route: a.Route, Err: a.Err}, func(ld loadResult, err error) {
			if err != nil {
				l.postAsync(func(time.Time) { l.handleDBError(err) })
				l.afterFunc(l.ctx, l.RetryAfter, func() { l.endRefused(a) })
				return
			}
			l.postAsync(func(time.Time) { l.m.StreamRefused(a.Session, ld.stopErr) })
			if ld.stopErr == nil {
				l.postLoaded(a.Session, ld, nil)
			}
		})
	})
}

// clearRefusedSeqs clears a session's seqs, before its rows are loaded. It reports false if
// outcomes of the session are stored: the server had created the stream.
func (s *Sender) clearRefusedSeqs(ctx context.Context, q sqlstore.Querier, session string) (bool, error) {
	st, err := s.T.Stream(ctx, q, session)
	if err != nil || st.LastSeq > 0 {
		return false, err
	}
	return true, s.T.ClearSeqs(ctx, q, session)
}

// denyRow finishes a row whose ops the server would record as denied.
func (s *Sender) denyRow(ctx context.Context, q sqlstore.Querier, r *sqlstore.BatchRow, bd *intent.Batch, no *machine.Refusal) Decided {
	bd.Deny(no.Err)
	d := s.FinishLocally(ctx, q, r, bd)
	if !intent.CreatesSession(bd.Ops[0].Method) {
		d.refUpdates = s.Refs.Updates(&machine.Entry{Route: no.Route, Body: bd}, d.outs, s.Now())
		s.T.WriteRefStatus(q, d.refUpdates)
	}
	return d
}

// FinishWithOutcomes finishes a row all of whose ops have local outcomes. If it was never sent,
// the session that it creates does not exist.
func (s *Sender) FinishWithOutcomes(ctx context.Context, q sqlstore.Querier, r *sqlstore.BatchRow, bd *intent.Batch) Decided {
	if !r.Sequenced() {
		return s.FinishLocally(ctx, q, r, bd)
	}
	d := Decided{id: r.ID, outs: bd.Outcomes(nil), ops: r.Ops}
	s.T.Finish(q, r.Num, s.Now().UnixMilli(), bd.Count(d.outs), r.Attempts, intent.EncodeOutcomes(d.outs, bd.Ops), bd.Encode(r.Session, r.ID))
	return d
}
