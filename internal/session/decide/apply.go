package decide

// The applier: a session's implementation of ledger.Effects for one submission. It authorizes on
// rows read under lock, runs the op over the view, and writes the event. One rule is implemented
// only here: an op of a stream ends the interruption of that stream's own turns, and an event of
// its own records it.

import (
	"cmp"
	"strconv"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
	"github.com/mooring-rpc/mooring/ledger"
)

var _ ledger.Effects = (*applier)(nil)

// applier implements ledger.Effects.
type applier struct {
	v          *view.View
	s          *view.Session
	cfg        *Config
	sub        *Submission
	outbox     string               // the proven outbox's stream; "" for a direct call
	op         *ledger.Intent       // the current op; nil for a direct call
	grant      *capability.Grant    // the grant that authorized the op; nil before
	authorized bool                 // some op was authorized: the stream is alive
	renewed    bool                 // its turns' leases were renewed for that
	fork       *session.ForkRequest // to be begun or asked for, though the op is not decided
	args       opargs.Decoder
	diverged   *divergences // of the group
	sync       *syncRun     // of the batch, once a put of one has applied
}

// changeResult is the minimal result of an op.
type changeResult struct {
	Cursor    uint64 `json:"cursor"`              // of its event, or the session's if there is none
	Unchanged bool   `json:"unchanged,omitempty"` // the state was the same already, and no event was made
}

func (r changeResult) cursor() uint64 { return r.Cursor }

// result is an op's result; references read its JSON form.
type result interface{ cursor() uint64 }

// encodeResult returns an op's result as references read it.
func encodeResult(r result) []byte {
	if r, ok := r.(changeResult); ok { // the common case
		return r.encode()
	}
	return rawjson.Encode(r)
}

// encode returns the same JSON as encoding/json.
func (r changeResult) encode() []byte {
	b := append(make([]byte, 0, 32), `{"cursor":`...)
	b = strconv.AppendUint(b, r.Cursor, 10)
	if r.Unchanged {
		b = append(b, `,"unchanged":true`...)
	}
	return append(b, '}')
}

func (a *applier) changed() changeResult { return changeResult{Cursor: a.s.Row.Cursor} }
func (a *applier) unchanged() changeResult {
	return changeResult{Cursor: a.s.Row.Cursor, Unchanged: true}
}

// Cursor is the session's, this batch included; 0 if the ref may create sessions but has no
// authority over this one, which exists already.
func (a *applier) Cursor() uint64 {
	if a.sub.Space != "" && !a.refAlive() {
		return 0
	}
	return a.s.Row.Cursor
}

// refAlive reports whether the submission's ref is alive in the session.
func (a *applier) refAlive() bool { return a.authorizeRef(opargs.Method{}, "", 0) == nil }

// Savepoint returns a savepoint for RollbackTo.
func (a *applier) Savepoint() any { return a.v.Savepoint() }

// RollbackTo undoes all changes since m.
func (a *applier) RollbackTo(m any) {
	a.v.Rollback(m.(view.Savepoint))
	a.renewed = false
}

// Authorize returns the reason to deny op to the submission's ref. The first authorized op renews
// the leases of the stream's turns.
func (a *applier) Authorize(op *ledger.Intent) *fault.Error {
	m, other := opargs.Needed(op)
	making := op.Method == session.MethodCreate || op.Method == session.MethodFork
	if making || a.sub.Space != "" && a.s.Row.Life == session.Absent {
		return a.authorizeSpace()
	}
	if err := a.authorizeRef(m, op.Method, other); err != nil {
		return err
	}
	a.authorized = true
	return a.renewLeases() // before the op's event, which may continue the stream's turns
}

// authorizeSpace authorizes by the space's ref: create and fork, and later ops if these have not
// applied.
func (a *applier) authorizeSpace() *fault.Error {
	if !capability.IsSpace(capability.Target(a.sub.Space)) {
		return fault.MissingRight.With("sessions are made through their space: ask it for the session first")
	}
	g, err := a.v.Grant(a.sub.Space)
	if err != nil {
		return err
	}
	acting, err := capability.CheckLive(g, a.sub.Outer, 0, a.v.Now, capability.Create, "")
	if err != nil {
		return err
	}
	a.grant = acting
	return nil
}

// authorizeRef authorizes by the submission's own ref: by the right that the method needs, or by
// another one, if that is not 0.
func (a *applier) authorizeRef(m opargs.Method, name string, other capability.Rights) *fault.Error {
	id, ok := ActingRef(&a.s.Row, a.sub.Ref, a.sub.Space, a.outbox)
	if !ok {
		return fault.UnknownRef.With("this session was made by another outbox: restore its own ref")
	}
	g, err := a.v.Grant(id)
	if err != nil {
		return err
	}
	switch {
	case a.sub.Manage:
		if g, err = view.Managing(&a.s.Row, g, a.sub.Outer, a.v.Now); err != nil {
			return err
		}
	case a.sub.Reach:
		if g, err = view.Reaching(a.s.Row.ID, &a.s.Row, a.v.RowOf(capability.Target(id)), g, a.sub.Outer, a.v.Now); err != nil {
			return err
		}
	case g != nil && (g.Target != a.s.Row.ID || a.sub.Space != "" && !g.Owner):
		g = nil // of another session, or named by its creator and not held
	}
	acting, err := capability.CheckLive(g, a.sub.Attenuated, a.s.Row.Epoch, a.v.Now, m.Need, name)
	if err != nil && other != 0 {
		if by, no := capability.CheckLive(g, a.sub.Attenuated, a.s.Row.Epoch, a.v.Now, other, ""); no == nil {
			acting, err = by, nil
		}
	}
	switch {
	case err != nil:
		return err
	case m.Owner && !acting.Owner:
		return fault.NotAnOwner.With("only the session's owner ref may do this")
	}
	a.grant = acting
	return nil
}

// ActingRef returns the ref that an object acts under in a session: its own (ref) if it was
// restored. An object from a space ref's create (space not "") acts as the owner ref it names only
// for the stream whose create made the session: naming an owner ref is not holding it. stream is a
// stream that the object has opened.
func ActingRef(row *session.Row, ref, space, stream string) (id string, ok bool) {
	if space != "" && (stream == "" || row.Creator != stream) {
		return "", false
	}
	return ref, true
}

// Apply applies op, whose arguments are all values.
func (a *applier) Apply(op *ledger.Intent) (uint64, []byte, *fault.Error) {
	if err := a.cfg.checkFeatures(op); err != nil {
		return 0, nil, err
	}
	do, err := a.args.Decode(op, a.cfg.Limits)
	if err != nil {
		return 0, nil, err
	}
	if err := a.mayChangeSchema(do); err != nil {
		return 0, nil, err
	}
	if err := a.inScope(do); err != nil {
		return 0, nil, err
	}
	a.op = op
	r, err := a.apply(do)
	if err != nil {
		return 0, nil, err
	}
	return r.cursor(), encodeResult(r), nil
}

// apply decides an op and changes the view. If it fails it has changed nothing.
func (a *applier) apply(do opargs.Op) (result, *fault.Error) {
	switch o := do.(type) {
	case *opargs.Create:
		return a.applyCreate(o)
	case *opargs.Fork:
		return a.applyFork(o)
	case *opargs.Put:
		return a.applyPut(o)
	case *opargs.Remove:
		return a.applyRemove(o)
	case *opargs.Patch:
		return a.applyPatch(o)
	case *opargs.Add:
		return a.applyAdd(o)
	case *opargs.Claim:
		return a.applyClaim(o)
	case *opargs.Release:
		return a.applyRelease(o)
	case *opargs.Ask:
		return a.applyAsk(o)
	case *opargs.Answer:
		return a.applyAnswer(o)
	case *opargs.Withdraw:
		return a.applyWithdraw(o)
	case *opargs.Begin:
		return a.applyBegin(o)
	case *opargs.AppendText:
		return a.applyAppendText(o)
	case *opargs.Finalize:
		return a.applyFinalize(o)
	case *opargs.Share:
		return a.applyShare(o)
	case *opargs.Revoke:
		return a.applyRevoke(o)
	case *opargs.BumpEpoch:
		return a.applyBumpEpoch()
	case *opargs.Revert:
		return a.applyRevert(o)
	case *opargs.Unrevert:
		return a.applyUnrevert()
	case *opargs.Compact:
		return a.applyCompact(o)
	case *opargs.Purge:
		return a.applyPurge(o)
	case *opargs.Delete:
		return a.applyDelete()
	}
	return nil, fault.Internal.With("method %T has no rule", do)
}

// requireLive returns an error unless the session is live.
func (a *applier) requireLive() *fault.Error {
	switch a.s.Row.Life {
	case session.Absent:
		return fault.NotFound.With("there is no session %s: create it first", a.s.Row.ID)
	case session.Deleted:
		return fault.SessionDeleted.With("the session was deleted")
	}
	return nil
}

// emit writes the op's event at the next cursor. payload is kept, not copied.
func (a *applier) emit(name, key string, schema uint32, payload []byte) *session.Event {
	return a.emitWithSum(name, key, schema, payload, session.SumOf(payload))
}

// emitWithSum is emit with the payload's hash.
func (a *applier) emitWithSum(name, key string, schema uint32, payload []byte, sum session.Hash) *session.Event {
	e := a.s.NewEvent()
	*e = session.Event{Method: name, Key: key, Schema: schema, Payload: payload, Sum: sum, Ref: a.grant.ID, Outbox: session.OutboxOf(a.outbox),
		Actor: cmp.Or(a.grant.Actor, capability.DefaultOwnerActor)} // a space's root ref has no actor
	if a.op != nil {
		e.Op, e.Batch = a.op.OpID, a.op.BatchID
	}
	if needs := session.EventFeatures(e) &^ a.s.Row.Needs; needs != 0 {
		a.require(needs)
	}
	a.v.Emit(a.s, e)
	return e
}

// require records that readers of the session need features. Subscriptions are checked anew, before
// they are sent the event that needs them.
func (a *applier) require(needs session.Features) {
	row := a.v.ChangeRow(a.s)
	row.Needs |= needs
	row.AuthGen++
}

func (a *applier) leaseEnd() int64 { return a.v.Now + a.cfg.Lease.Milliseconds() }

// renewLeases renews the leases of the stream's open turns, as any op does, and ends interruptions:
// each turn's own event says so, to every reader who may see the turn.
func (a *applier) renewLeases() *fault.Error {
	if a.renewed || a.outbox == "" || a.s.Row.Life != session.Live {
		return nil
	}
	a.renewed = true
	turns, err := a.v.OpenTurns(a.s, a.outbox)
	if err != nil {
		return err
	}
	for _, t := range turns {
		if !t.Orphan {
			a.renewLease(t)
		}
	}
	return nil
}

// renewLease renews the lease of one open turn of the stream.
func (a *applier) renewLease(t *session.Turn) {
	next, end := *t, a.leaseEnd()
	if t.Status == session.Interrupted {
		next.Status, _ = t.Status.Next(session.StepResume)
		a.v.Emit(a.s, &session.Event{Method: session.MethodResumed, Key: session.MessageKey(t.Message), Schema: 1, Payload: emptyPayload})
	} else if end-t.Lease < a.cfg.Lease.Milliseconds()/10 {
		return // the lease is nearly new: not worth a write
	}
	next.Lease = end
	a.v.SetTurn(a.s, next)
}
