package decide

// compact, and what ends a compaction.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
)

// compactResult is the result of compact.
type compactResult struct {
	changeResult
	Upto    string `json:"upto"`
	Summary string `json:"summary"`
}

func (o *opCompact) apply(a *applier) (result, *fault.Error) {
	if err := a.coversAll("compact"); err != nil {
		return nil, err
	}
	upto, err := a.messageThere(o.upto)
	if err != nil {
		return nil, err
	}
	summary, err := a.messageThere(o.summary)
	if err != nil {
		return nil, err
	}
	if session.CompareEntries(summary, upto) < 0 {
		return nil, fault.BadArgument.With("the summary %s comes before %s in the session's order: give a message that is at or after it", fault.Clip(summary.Key), fault.Clip(upto.Key))
	}
	t, err := a.v.Turn(a.s, o.summary.Message)
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
