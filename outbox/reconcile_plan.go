package outbox

// The plan of a reconciliation: the ops whose events a session's log lacks, computed from the
// outbox's rows and the log, without database or server. Ops that applied once and whose events
// are no longer in the log are committed again under new ids, in the order in which they were
// committed, in the same batches, keeping references to each other.

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// sessionLog is the content of a session's log, as its server shows it. newLog makes one, before
// the log is read.
type sessionLog struct {
	// Ops are the cursors of the events made by ops, by op id.
	Ops map[string]uint64
	// Base is the cursor up to which events have been pruned from the log: their ops count as
	// in the log.
	Base uint64
	// Gone reports that the server does not know the session.
	Gone bool

	// fenceIncarnation is the incarnation under which the session's stream was opened before
	// the log was read; 0: no sender was fenced. With streamMatches, the server has this
	// outbox's batches of the stream up to lastSeq, and nothing else.
	fenceIncarnation int64
	lastSeq          uint64
	streamMatches    bool

	// answered are the batches that had outcomes before the log was read: later ones need not
	// be in it. nil: all.
	answered map[string]bool
}

// Fate is the result of a reconciliation for one op.
type Fate uint8

// The fates of an op.
const (
	SentAgain Fate = 1 + iota // it applied and is not in the log: it is committed again, as another op
	Waits                     // it is unfinished, and goes on waiting, behind the ops that are sent again
	HeldBack                  // it was not sent again, or is not sent any more; Reason says why
	InLog                     // it was not answered, but the log has it
	Lost                      // its row is damaged, or no longer has its arguments
)

var fateNames = [...]string{"", "sent_again", "waits", "held_back", "in_log", "lost"}

// String returns the fate's name: sent_again, waits, held_back, in_log, lost.
func (f Fate) String() string {
	if int(f) < len(fateNames) {
		return fateNames[f]
	}
	return "unknown"
}

// Reconciled is the fate of one op; of an unreadable row, of the batch.
type Reconciled struct {
	Op, Batch string
	Method    string
	Key       string // the argument key or message, if it has one
	Fate      Fate
	NewOp     string // SentAgain: the op that replaces it
	NewBatch  string // … and its batch
	Reason    string
}

// ReconcileOptions are the options of Reconcile.
type ReconcileOptions struct {
	// WithExpectations also sends ops with an expected cursor, of the session or a key, a claim of a key, or a text offset. They were meant
	// for the session as it was.
	WithExpectations bool
	// DryRun reports what would be done, and changes nothing.
	DryRun bool
}

// resentID derives the id under which an op is committed again. Copies of an outbox derive the
// same.
func resentID(op string) string { return deriveID(op, op).String() }

// resentBatchID derives the batch id for the ops of a batch that are committed again, from op
// on.
func resentBatchID(batch, op string) string {
	id := deriveID(batch, batch+" "+op)
	id[14], id[15] = 0, 0
	return id.String()
}

// deriveID makes a ULID of a hash of text, with the time of the ULID from.
func deriveID(from, text string) (id ulid.ULID) {
	id, _ = ulid.ParseStrict(from) // zero time if it is not a ULID
	sum := sha256.Sum256([]byte("mooring reconcile v1\x00" + text))
	copy(id[6:], sum[:])
	return id
}

// maxResends bounds how often copies of this outbox can have committed an op again and still be
// recognized.
const maxResends = 8

// has reports whether the log has an op, or the op that a copy of this outbox has committed in
// its place.
func (l *sessionLog) has(op string) bool {
	for range maxResends {
		if _, there := l.Ops[op]; there {
			return true
		}
		op = resentID(op)
	}
	return false
}

// isMissing reports whether an op that applied is missing: by its seq in the session's present
// stream, if that decides, else by its event, which may have been pruned from the log.
func (l *sessionLog) isMissing(o *ledger.Outcome, seq uint64) bool {
	switch {
	case l.streamMatches && seq > 0 && seq <= l.lastSeq:
		return false
	case l.streamMatches && seq > 0:
		return !l.has(o.OpID) // perhaps as another op
	}
	return o.Cursor > l.Base && !l.has(o.OpID)
}

// resendBatch is a batch that is to be committed again.
type resendBatch struct {
	old  *sqlstore.BatchRow
	id   string
	body *intent.Batch
}

// plan is the set of changes that reconcile a session.
type plan struct {
	ops     []Reconciled
	resend  []resendBatch
	pending []pendingRow
}

// pendingRow is a row without outcomes, and its fate.
type pendingRow struct {
	row  *sqlstore.BatchRow
	body *intent.Batch // nil if it is damaged
	err  error         // why it is damaged
	// recorded: the log has some of its ops, so all have outcomes.
	recorded []ledger.Outcome
}

// planner makes a plan. Its rows come in the order in which they were committed.
type planner struct {
	log       *sessionLog
	opts      ReconcileOptions
	lookup    intent.Lookup // finds ops of other sessions, and older ones
	retriedAs func(op string) (string, error)
	plan      plan
	missing   []missingRow
	resentAs  map[string]string // new op ids, by the op that is committed again
	heldBack  map[string]bool   // ops that are not committed again, though the log lacks them; unreadable batches
}

// missingRow is a finished row with ops that the log does not have.
type missingRow struct {
	row     *sqlstore.BatchRow
	body    *intent.Batch
	indexes []int
	cursor  uint64 // of the first missing op
}

func newPlanner(log *sessionLog, o ReconcileOptions, find intent.Lookup, next func(op string) (string, error)) *planner {
	return &planner{log: log, opts: o, lookup: find, retriedAs: next, resentAs: make(map[string]string), heldBack: make(map[string]bool)}
}

// reconciledOp returns an op as the plan shows it.
func reconciledOp(r *sqlstore.BatchRow, op *intent.Op, f Fate) Reconciled {
	c := Reconciled{Op: op.ID, Batch: r.ID, Method: op.Method, Fate: f}
	for _, a := range op.Args {
		if (a.Name == "key" || a.Name == "message") && a.Ref == nil {
			c.Key = intent.JSONString(a.JSON)
		}
	}
	return c
}

// addFinished adds the missing ops of a row that has outcomes; planResend plans them.
func (p *planner) addFinished(r *sqlstore.BatchRow) error {
	if p.log.answered != nil && !p.log.answered[r.ID] {
		return nil
	}
	bd, err := r.Decode()
	var outs []ledger.Outcome
	if err == nil {
		outs, err = r.ReadOutcomes(bd)
	}
	if fault.CodeOf(err) == fault.Incompatible {
		return err
	}
	if err != nil {
		p.plan.ops = append(p.plan.ops, Reconciled{Batch: r.ID, Fate: Lost, Reason: "what it had is damaged"})
		p.heldBack[r.ID] = true
		return nil
	}
	l := missingRow{row: r, body: bd}
	seqs := r.Seqs(bd)
	for i := range bd.Ops {
		o := &outs[i]
		if o.Status != ledger.Applied || gjson.GetBytes(o.Result, "unchanged").Bool() || !p.log.isMissing(o, seqs[i]) {
			continue
		}
		next, err := p.retriedAs(o.OpID)
		if err != nil {
			return err
		}
		if next == "" {
			l.indexes = append(l.indexes, i)
			l.cursor = cmp.Or(l.cursor, o.Cursor)
		}
	}
	if len(l.indexes) > 0 {
		p.missing = append(p.missing, l)
	}
	return nil
}

// planResend plans the rows that addFinished found, in the order in which they applied.
func (p *planner) planResend() error {
	slices.SortStableFunc(p.missing, func(x, y missingRow) int { return cmp.Compare(x.cursor, y.cursor) })
	for i := range p.missing {
		if err := p.planResendRow(&p.missing[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) planResendRow(l *missingRow) (err error) {
	r, bd := l.row, l.body
	out := resendBatch{old: r, body: &intent.Batch{Atomic: bd.Atomic, NoDigest: bd.NoDigest}}
	first := len(p.plan.ops)
	why := ""
	for _, i := range l.indexes {
		op := bd.Ops[i]
		c := reconciledOp(r, &op, SentAgain)
		c.NewOp = resentID(op.ID)
		if bd.Compacted {
			c.Fate, c.Reason = Lost, "its arguments were not kept"
		} else if c.Reason, err = p.renewOp(&op, c.NewOp); err != nil {
			return err
		} else if c.Reason != "" {
			c.Fate = HeldBack
		}
		if c.Fate != SentAgain {
			c.NewOp, why = "", c.Reason
			p.heldBack[c.Op] = true
		} else {
			p.resentAs[c.Op] = c.NewOp
			out.body.Ops = append(out.body.Ops, op)
		}
		p.plan.ops = append(p.plan.ops, c)
	}
	if bd.Atomic && why != "" { // all or nothing
		for i := range p.plan.ops[first:] {
			c := &p.plan.ops[first+i]
			if delete(p.resentAs, c.Op); c.Fate == SentAgain {
				c.Fate, c.NewOp, c.Reason = HeldBack, "", "another op of its atomic batch is: "+why
				p.heldBack[c.Op] = true
			}
		}
		return nil
	}
	if len(out.body.Ops) == 0 {
		return nil
	}
	out.id = resentBatchID(r.ID, out.body.Ops[0].Retries)
	for i := range p.plan.ops[first:] {
		if c := &p.plan.ops[first+i]; c.Fate == SentAgain {
			c.NewBatch = out.id
		}
	}
	p.plan.resend = append(p.plan.resend, out)
	return nil
}

// renewOp turns an op that applied once into one that is to be committed again; why is the
// reason if it must not be.
func (p *planner) renewOp(op *intent.Op, id string) (why string, err error) {
	if why := op.Expectation(); why != "" && !p.opts.WithExpectations {
		return why, nil
	}
	// now returns the op that replaces a needed op.
	now := func(op string) (id, as, why string, err error) {
		for range sqlstore.MaxRetryChain {
			next, err := p.retriedAs(op)
			if err != nil {
				return "", "", "", err
			}
			if next == "" {
				break
			}
			op = next
		}
		if p.heldBack[op] || p.heldBack[opid.BatchOf(op)] {
			why = "it needs op " + op + ", which is not sent again"
		}
		return op, p.resentAs[op], why, nil
	}
	var deps []string
	for _, d := range op.Deps {
		_, as, why, err := now(d)
		if err != nil || why != "" {
			return why, err
		}
		if as != "" { // its other dependencies are there
			deps = append(deps, as)
		}
	}
	value := func(r *ledger.Ref) (v []byte, to *ledger.Ref, why string, err error) {
		op, as, why, err := now(r.Op)
		if err != nil || why != "" {
			return nil, nil, why, err
		}
		if as != "" {
			return nil, &ledger.Ref{Op: as, Path: r.Path}, "", nil
		}
		e, err := p.lookup(op)
		if err != nil {
			return nil, nil, "", err
		}
		if e != nil && e.Outcome != nil {
			if v, ok := ledger.Resolve(e.Outcome.Result, r.Path); ok {
				return v, nil, "", nil
			}
		}
		return nil, nil, "what op " + r.Op + " gave, which it needs, is not known here any more", nil
	}
	args := make([]ledger.Arg, len(op.Args))
	for i, a := range op.Args {
		if args[i] = a; a.Ref == nil {
			continue
		}
		v, to, why, err := value(a.Ref)
		if err != nil || why != "" {
			return why, err
		}
		args[i].JSON, args[i].Ref = v, to
	}
	if r := op.Expected.Ref; r != nil {
		v, to, why, err := value(r)
		if err != nil || why != "" {
			return why, err
		}
		if op.Expected.Ref = to; to == nil {
			if _, err := fmt.Sscan(string(v), &op.Expected.Cursor); err != nil {
				return "what it expects is no cursor", nil
			}
		}
	}
	op.Deps, op.Args = deps, args
	op.Retries, op.ID, op.LocalOutcome, op.Void, op.DropRequested = op.ID, id, nil, false, false
	return "", nil
}

// addUnfinished plans a row that has no outcomes.
func (p *planner) addUnfinished(r *sqlstore.BatchRow) error {
	bd, err := r.Decode()
	if fault.CodeOf(err) == fault.Incompatible {
		return err
	}
	if err != nil {
		p.plan.ops = append(p.plan.ops, Reconciled{Batch: r.ID, Fate: Lost, Reason: "what it had is damaged"})
		p.plan.pending = append(p.plan.pending, pendingRow{row: r, err: err})
		return nil
	}
	pr := pendingRow{row: r, body: bd}
	if r.Sequenced() {
		pr.recorded = p.recorded(bd, uint64(*r.FirstSeq))
	}
	if pr.recorded == nil {
		bd.VoidRequestedDrops()
		for i := range bd.Ops {
			if op := &bd.Ops[i]; op.LocalOutcome == nil && op.Expectation() != "" && !p.opts.WithExpectations {
				v := intent.VoidOutcome(op.ID)
				v.Message = "held back: " + op.Expectation() + ", and its stream was left (mooring outbox retry commits it again)"
				bd.SetLocalOutcome(i, v)
			}
		}
		bd.SkipDependents()
	}
	for i := range bd.Ops {
		op := &bd.Ops[i]
		c := reconciledOp(r, op, Waits)
		switch {
		case pr.recorded != nil && pr.recorded[i].Status == ledger.Applied:
			c.Fate = InLog
		case pr.recorded != nil:
			c.Fate, c.Reason = HeldBack, pr.recorded[i].Message
		case op.LocalOutcome != nil:
			c.Fate, c.Reason = HeldBack, op.LocalOutcome.Message
		}
		p.plan.ops = append(p.plan.ops, c)
	}
	p.plan.pending = append(p.plan.pending, pr)
	return nil
}

// recorded returns the outcomes of a batch that was sent, if the server has its seqs or the log
// any of its ops: then the server has decided them all.
func (p *planner) recorded(bd *intent.Batch, first uint64) []ledger.Outcome {
	outs, any := make([]ledger.Outcome, len(bd.Ops)), p.log.streamMatches && first <= p.log.lastSeq
	for i := range bd.Ops {
		op := &bd.Ops[i]
		cursor, there := p.log.Ops[op.ID]
		switch any = any || there; {
		case there:
			outs[i] = ledger.Outcome{OpID: op.ID, Status: ledger.Applied, Cursor: cursor, Result: fmt.Appendf(nil, `{"cursor":%d}`, cursor)}
		case op.LocalOutcome != nil:
			outs[i] = *op.LocalOutcome
		default:
			outs[i] = ledger.Outcome{OpID: op.ID, Status: ledger.Rejected, Reason: fault.Pruned,
				Message: "the server has decided its batch, and the log has no event of it: it was refused, or changed nothing, or its event has left the log"}
		}
	}
	if !any {
		return nil
	}
	return outs
}
