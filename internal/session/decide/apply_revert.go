package decide

// revert, unrevert, and how a revert is settled.

import (
	"maps"
	"math"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// revertResult is the result of revert and unrevert.
type revertResult struct {
	changeResult
	To string `json:"to,omitempty"` // the message or part that the session is, or was, reverted to, which a ref that may not read has to have named
}

// reverted returns the result of what was done by the op, of a revert to r.
func (a *applier) reverted(done changeResult, r *session.Revert, named bool) revertResult {
	if !named && !a.grant.Rights.Has(capability.Read) {
		return revertResult{changeResult: done}
	}
	return revertResult{done, r.To}
}

func (a *applier) applyRevert(o *opargs.Revert) (result, *fault.Error) {
	if err := a.coversAll("revert"); err != nil {
		return nil, err
	}
	r, err := a.revertTarget(o)
	if err != nil {
		return nil, err
	}
	if at := &a.s.Row.Revert; at.To == r.To && at.Ord == r.Ord && at.Part == r.Part {
		return a.reverted(a.unchanged(), &r, !o.ByCursor), nil
	}
	if err := a.abortTurns(&r); err != nil {
		return nil, err
	}
	if err := a.withdrawHidden(&r); err != nil {
		return nil, err
	}
	ev := a.emit(session.MethodRevert, "", 1, rawjson.Encode(r.Payload(&a.s.Row.Revert)))
	r.Cursor, r.Actor, r.At = ev.Cursor, ev.Actor, ev.At
	a.v.ChangeRow(a.s).Revert = r
	return a.reverted(a.changed(), &r, !o.ByCursor), nil
}

func (a *applier) applyUnrevert() (result, *fault.Error) {
	if err := a.coversAll("revert"); err != nil {
		return nil, err
	}
	r := a.s.Row.Revert
	if !r.InForce() {
		return nil, fault.NotReverted.With("the session is not reverted, or something new was said since, which settled it: there is nothing to take back")
	}
	a.emit(session.MethodUnrevert, "", 1, rawjson.Encode(session.RevertPayload{To: r.To}))
	a.v.ChangeRow(a.s).Revert = session.Revert{}
	return a.reverted(a.changed(), &r, false), nil
}

// coversAll refuses what is to be done to all messages of sessions that are not live, and under refs of a part of
// the session: what they would hide is not theirs to see.
func (a *applier) coversAll(verb string) *fault.Error {
	if err := a.requireLive(); err != nil {
		return err
	}
	if !session.ShowsAll(a.grant) || a.grant.WriteKeys != nil {
		return fault.MissingRight.With("a ref of a part of the session does not %s it: ask for one that covers all", verb)
	}
	return nil
}

// revertTarget returns what the op reverts to, without its event.
func (a *applier) revertTarget(o *opargs.Revert) (r session.Revert, err *fault.Error) {
	if o.ByCursor {
		head, err := a.firstAfter(o)
		if err != nil {
			return r, err
		}
		return session.Revert{To: head.Key, Ord: head.Ord}, nil
	}
	r.To = o.To.String()
	head, err := a.v.EntryMeta(a.s, session.MessageKey(o.To.Message))
	if err != nil {
		return r, err
	}
	at, err := a.v.EntryMeta(a.s, r.To)
	if err != nil {
		return r, err
	}
	if head.Entry == nil || at.Entry == nil {
		return r, fault.NotFound.With("there is no %s with its message: revert to one that is there", fault.Clip(r.To))
	}
	if r.Ord = head.Entry.Ord; o.To.Kind == session.KeyPart {
		r.Part = at.Entry.Ord
	}
	return r, nil
}

// firstAfter returns the first message that was put after the op's cursor.
func (a *applier) firstAfter(o *opargs.Revert) (*session.Entry, *fault.Error) {
	if a.s.Row.Order != session.ByLog {
		return nil, fault.BadArgument.With("this session is in the order of its messages' times, not of its log: name the message to revert to")
	}
	var first *session.Entry
	for key, slot := range a.s.Entries { // of this group too, which the database does not have yet
		if k, bad := session.ParseKey(key); bad == nil && k.Kind == session.KeyMessage && slot.Entry != nil && slot.Entry.Ord.At > o.Cursor && (first == nil || session.CompareEntries(slot.Entry, first) < 0) {
			first = slot.Entry
		}
	}
	for after := (session.KeyPosition{Ord: session.Ord{At: o.Cursor, Index: math.MaxInt64}}); ; {
		rows, err := a.v.LoadBounded(&session.ReadSet{FirstMessage: map[string]session.KeyPosition{a.s.Row.ID: after}})
		if err != nil {
			return nil, err
		}
		found := slices.Collect(maps.Values(rows.Entries[a.s.Row.ID]))
		if len(found) == 0 || first != nil && session.CompareEntries(first, found[0]) <= 0 {
			break
		}
		slot, err := a.v.EntryMeta(a.s, found[0].Key)
		if err != nil {
			return nil, err
		}
		if slot.Entry != nil && slot.Entry.Ord == found[0].Ord {
			first = slot.Entry
			break
		}
		after = session.PositionOf(found[0]) // removed, and perhaps put again: then it is among those of the group
	}
	if first == nil {
		return nil, fault.NotFound.With("no message was put after cursor %d: there is nothing to revert", o.Cursor)
	}
	return first, nil
}

// abortTurns ends the open turns that r hides, or hides a part of: as aborted, with events of their own, so
// that their text does not depend on its deltas.
func (a *applier) abortTurns(r *session.Revert) *fault.Error {
	open, err := a.v.AllOpenTurns(a.s)
	if err != nil {
		return err
	}
	for _, t := range open {
		head, err := a.v.EntryMeta(a.s, session.MessageKey(t.Message))
		if err != nil {
			return err
		}
		if head.Entry == nil || !r.HidesTurn(t, head.Entry) && t.Message != r.Message() {
			continue
		}
		end := &opargs.Finalize{Message: t.Message, Step: session.StepAbort, Status: session.Aborted.String()}
		if err := a.aside(func() *fault.Error { return a.endTurn(end, t, session.Aborted) }); err != nil {
			return err
		}
	}
	return nil
}

// aside runs what makes an event beside the op's own: such an event names no op.
func (a *applier) aside(do func() *fault.Error) *fault.Error {
	op := a.op
	a.op = nil
	defer func() { a.op = op }()
	return do()
}

// notHidden returns Reverted if a message, or a part of it, is hidden. key is what the op is about.
func (a *applier) notHidden(key string) *fault.Error {
	r := &a.s.Row.Revert
	if !r.InForce() {
		return nil
	}
	head, err := a.v.EntryMeta(a.s, session.HeadOf(key))
	if err != nil || head.Entry == nil {
		return err
	}
	e := head.Entry
	if key != e.Key {
		slot, err := a.v.EntryMeta(a.s, key)
		if err != nil {
			return err
		}
		if e = slot.Entry; e == nil { // it would come last
			e = &session.Entry{Key: key, Ord: session.Ord{At: math.MaxUint64, Index: math.MaxUint64}}
		}
	}
	if r.Hides(e, head.Entry) {
		return errReverted(key, r, a.grant)
	}
	return nil
}

// settle ends a revert that is in force, before something new is said: what it hid leaves the state.
func (a *applier) settle() *fault.Error {
	r := a.s.Row.Revert
	if !r.InForce() {
		return nil
	}
	left := &session.Left{}
	if of := a.s.Row.Left; of != nil {
		left.Reverts = slices.Clone(of.Reverts)
	}
	if len(left.Reverts) >= session.MaxLeft {
		return fault.Overloaded.With("what %d reverts hid is being removed: the op waits until some of it is", session.MaxLeft)
	}
	heads, err := a.v.Heads(a.s, r.To) // before the row says that they have left
	if err != nil {
		return err
	}
	return a.aside(func() *fault.Error {
		ev := a.emit(session.MethodSettle, "", 1, rawjson.Encode(session.RevertPayload{To: r.To}))
		r.Settled = ev.Cursor
		left.Reverts = append(left.Reverts, r)
		row := a.v.ChangeRow(a.s)
		if r.Crosses(&row.Compaction) {
			row.Compaction = session.Compaction{}
		}
		row.Revert, row.Left = session.Revert{}, left
		a.v.Leave(a.s, &r, heads)
		return nil
	})
}

// errReverted refuses an op on a key that is hidden. Where the session was reverted to it says to who is shown all of it.
func errReverted(key string, r *session.Revert, g *capability.Grant) *fault.Error {
	if !session.ShowsAll(g) || !g.Rights.Has(capability.Read) {
		return fault.Reverted.With("%s is hidden: the session was reverted; wait until that is taken back (unrevert), or until a new message begins", fault.Clip(key))
	}
	return fault.Reverted.With("%s is hidden: the session was reverted to %s; take that back (unrevert), or go on with a new message", fault.Clip(key), r.To)
}

// compactResult is the result of compact.
type compactResult struct {
	changeResult
	Upto    string `json:"upto"`
	Summary string `json:"summary"`
}

func (a *applier) applyCompact(o *opargs.Compact) (result, *fault.Error) {
	if err := a.coversAll("compact"); err != nil {
		return nil, err
	}
	upto, err := a.messageThere(o.Upto)
	if err != nil {
		return nil, err
	}
	summary, err := a.messageThere(o.Summary)
	if err != nil {
		return nil, err
	}
	if session.CompareEntries(summary, upto) < 0 {
		return nil, fault.BadArgument.With("the summary %s comes before %s in the session's order: give a message that is at or after it", fault.Clip(summary.Key), fault.Clip(upto.Key))
	}
	t, err := a.v.Turn(a.s, o.Summary.Message)
	if err != nil {
		return nil, err
	}
	if t != nil && t.Status.Open() {
		return nil, fault.TurnOpen.With("the turn of the summary is %s: finalize it first", t.Status)
	}
	c := session.Compaction{Upto: upto.Key, Ord: upto.Ord, Summary: summary.Key, Place: summary.Ord}
	if r := &a.s.Row.Revert; r.Crosses(&c) {
		return nil, errReverted(c.Summary, r, a.grant)
	}
	if at := a.s.Row.Compacted(); at.InForce() && at.Payload() == c.Payload() {
		return compactResult{a.unchanged(), c.Upto, c.Summary}, nil
	}
	ev := a.emit(session.MethodCompact, "", 1, rawjson.Encode(c.Payload()))
	c.Cursor, c.Actor, c.At = ev.Cursor, ev.Actor, ev.At
	a.v.ChangeRow(a.s).Compaction = c
	return compactResult{a.changed(), c.Upto, c.Summary}, nil
}

// messageThere returns a message, without its payload, that is there; it may be hidden.
func (a *applier) messageThere(key session.Key) (*session.Entry, *fault.Error) {
	text := key.String()
	slot, err := a.v.EntryMeta(a.s, text)
	if err != nil {
		return nil, err
	}
	if slot.Entry == nil {
		return nil, fault.NotFound.With("there is no %s: compact with messages that are there", fault.Clip(text))
	}
	return slot.Entry, nil
}

// endCompaction ends the compaction whose summary a key is, which leaves the state.
func (a *applier) endCompaction(key string) {
	if a.s.Row.Compaction.Summary == key {
		a.v.ChangeRow(a.s).Compaction = session.Compaction{}
	}
}
