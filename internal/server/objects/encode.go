// Encoding: the domain's rows to the structs of the schema.

package objects

import (
	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// fieldWriter collects the first error of several setters.
type fieldWriter struct{ err error }

func (w *fieldWriter) do(err error) {
	if w.err == nil {
		w.err = err
	}
}

// text sets a field unless it is empty: an absent text reads as "".
func (w *fieldWriter) text(set func(string) error, v string) {
	if w.err == nil && v != "" {
		w.err = set(v)
	}
}

func (w *fieldWriter) data(set func([]byte) error, v []byte) {
	if w.err == nil && len(v) > 0 {
		w.err = set(v)
	}
}

// list sets a list of texts, unless it is empty.
func (w *fieldWriter) list(make func(int32) (capnp.TextList, error), texts []string) {
	if len(texts) == 0 || w.err != nil {
		return
	}
	list, err := make(int32(len(texts)))
	w.do(err)
	for i, text := range texts {
		w.do(list.Set(i, text))
	}
}

func encodeEvent(to wire.Event, e *session.Event) error {
	var w fieldWriter
	to.SetCursor(e.Cursor)
	to.SetSchema(e.Schema)
	to.SetAt(e.At)
	if to.SetHidden(e.Hidden); e.Hidden {
		return to.SetHash(e.Hash[:])
	}
	to.SetPurged(e.Payload == nil)
	w.text(to.SetMethod, e.Method)
	w.text(to.SetKey, e.Key)
	w.text(to.SetRef, e.Ref)
	w.text(to.SetActor, e.Actor)
	w.text(to.SetOp, e.Op)
	w.text(to.SetBatch, e.Batch)
	w.text(to.SetOutbox, e.Outbox)
	w.data(to.SetHash, e.Hash[:])
	w.do(setBytes(capnp.Struct(to), eventPayloadPointer, e.Payload))
	return w.err
}

// Pointer fields whose JSON is copied from bytes into text.
const (
	eventPayloadPointer = 2
	entryPayloadPointer = 1 // of Entry and EntryInfo
)

// setBytes writes bytes as a text field without converting them to a string.
func setBytes(s capnp.Struct, pointer uint16, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	t, err := capnp.NewTextFromBytes(s.Segment(), text)
	if err != nil {
		return err
	}
	return s.SetPtr(pointer, t.ToPtr())
}

func encodeEvents(to wire.Event_List, events []*session.Event) error {
	for i, e := range events {
		if err := encodeEvent(to.At(i), e); err != nil {
			return err
		}
	}
	return nil
}

// encodeShown encodes the parameters of the call of a sink, once for all sinks that are sent the events: a
// *rpc.EncodedParams, or the error.
func encodeShown(events []*session.Event) any {
	params, err := rpc.EncodeParams(methods.EventSinkEvents.Params, func(s capnp.Struct) error {
		list, err := wire.EventSink_events_Params(s).NewEvents(int32(len(events)))
		if err != nil {
			return err
		}
		return encodeEvents(list, events)
	})
	if err != nil {
		return err
	}
	return params
}

// encodeSums adds the payload hashes of the chain, which cannot be computed from purged payloads.
func encodeSums(to wire.Event_List, events []*session.Event) error {
	for i, e := range events {
		if err := to.At(i).SetSum(e.Sum[:]); err != nil {
			return err
		}
	}
	return nil
}

func encodeEntry(to wire.Entry, e *session.Entry) error {
	to.SetCursor(e.Cursor)
	to.SetSchema(e.Schema)
	to.SetOrd(e.Ord.At)
	to.SetOrdIndex(e.Ord.Index)
	var w fieldWriter
	w.do(to.SetKey(e.Key))
	encodeClaim(&w, to.NewClaim, e.Claim)
	w.do(setBytes(capnp.Struct(to), entryPayloadPointer, e.Payload))
	return w.err
}

// encodeClaim encodes a claim into a new struct, unless there is none.
func encodeClaim(w *fieldWriter, make func() (wire.Claim, error), c *session.Claim) {
	if c == nil || w.err != nil {
		return
	}
	to, err := make()
	if w.do(err); err != nil {
		return
	}
	to.SetCursor(c.Cursor)
	to.SetRenewed(c.Renewed)
	to.SetUntil(c.Until)
	w.text(to.SetOutbox, session.OutboxOf(c.Outbox))
	w.text(to.SetWorker, c.Worker)
	w.text(to.SetRef, c.Ref)
	w.text(to.SetActor, c.Actor)
}

// encodeEntryInfo encodes an entry and who changed it last.
func encodeEntryInfo(to wire.EntryInfo, e *session.EntryInfo) error {
	var w fieldWriter
	to.SetCursor(e.Change.Cursor)
	to.SetSchema(e.Schema)
	to.SetOrd(e.Ord.At)
	to.SetOrdIndex(e.Ord.Index)
	to.SetBytes(e.Bytes)
	to.SetAt(e.Change.At)
	w.text(to.SetKey, e.Key)
	w.text(to.SetRef, e.Change.Ref)
	w.text(to.SetActor, e.Change.Actor)
	encodeClaim(&w, to.NewClaim, e.Claim)
	w.do(setBytes(capnp.Struct(to), entryPayloadPointer, e.Payload))
	return w.err
}

func encodeTurn(to wire.Turn, t *session.Turn) error {
	to.SetStatus(uint8(t.Status))
	to.SetBegun(t.Begun)
	to.SetEnded(t.Ended)
	if err := to.SetOutbox(session.OutboxOf(t.Outbox)); err != nil {
		return err
	}
	if err := to.SetRef(t.Ref); err != nil {
		return err
	}
	return to.SetMessage_(t.Message)
}

func encodeSessionInfo(to wire.SessionInfo, row *session.Row, title string) error {
	var w fieldWriter
	to.SetCursor(row.Cursor)
	to.SetCreated(row.Created)
	to.SetUpdated(row.Updated)
	to.SetEpoch(row.Epoch)
	to.SetBase(row.Base)
	to.SetDeleted(row.Life == session.Deleted)
	w.text(to.SetId, row.ID)
	w.text(to.SetExternal, row.External)
	w.text(to.SetTitle, title)
	w.text(to.SetOrder, row.Order.String())
	if from := row.Origin; from.Session != "" && w.err == nil {
		origin, err := to.NewOrigin()
		if err != nil {
			return err
		}
		origin.SetCursor(from.Cursor)
		w.text(origin.SetSession, from.Session)
		w.text(origin.SetMessage_, from.Message)
	}
	if of := row.Parent; of.Session != "" && w.err == nil {
		parent, err := to.NewParent()
		if err != nil {
			return err
		}
		w.text(parent.SetSession, of.Session)
		w.text(parent.SetKey, of.Key)
	}
	if r := row.Revert; r.Cursor > 0 && w.err == nil {
		reverted, err := to.NewReverted()
		if err != nil {
			return err
		}
		reverted.SetCursor(r.Cursor)
		reverted.SetAt(r.At)
		w.text(reverted.SetTo, r.To)
		w.text(reverted.SetActor, r.Actor)
	}
	if w.err == nil {
		w.err = encodeCompacted(to.NewCompacted, new(row.Compacted()))
	}
	return w.err
}

// encodeCompacted encodes up to where a session is compacted, if it is.
func encodeCompacted(make func() (wire.Compacted, error), c *session.Compaction) error {
	if !c.InForce() {
		return nil
	}
	to, err := make()
	if err != nil {
		return err
	}
	var w fieldWriter
	to.SetCursor(c.Cursor)
	to.SetAt(c.At)
	to.SetOrd(c.Ord.At)
	to.SetOrdIndex(c.Ord.Index)
	to.SetPlace(c.Place.At)
	to.SetPlaceIndex(c.Place.Index)
	w.text(to.SetUpto, c.Upto)
	w.text(to.SetSummary, c.Summary)
	w.text(to.SetActor, c.Actor)
	return w.err
}

// encodeSessions encodes a page of sessions.
func encodeSessions(page *session.ListPage, make func(int32) (wire.SessionInfo_List, error)) error {
	list, err := make(int32(len(page.Sessions)))
	if err != nil {
		return err
	}
	for i, one := range page.Sessions {
		if err := encodeSessionInfo(list.At(i), &one.Row, one.Title); err != nil {
			return err
		}
	}
	return nil
}

// encodeGrantInfo encodes a grant and whether it is dead, at time now (Unix ms) and epoch.
func encodeGrantInfo(to wire.GrantInfo, g *capability.Grant, epoch uint64, now int64) error {
	var w fieldWriter
	to.SetOwner(g.Owner)
	to.SetEpoch(g.Epoch)
	to.SetRights(uint16(g.Rights))
	to.SetChildren(uint16(g.Children))
	to.SetExpires(g.Expires)
	to.SetFrom(g.VisibleFrom)
	to.SetLimit(g.MaxRedemptions)
	to.SetUsed(g.Redemptions)
	to.SetCut(g.Cut)
	if dead := capability.Check(g, epoch, now, 0, ""); dead != nil {
		to.SetDead(uint16(dead.Code))
	}
	w.text(to.SetId, g.ID)
	w.text(to.SetTarget, g.Target)
	w.text(to.SetMessage_, g.Message)
	w.text(to.SetLabel, g.Label)
	w.text(to.SetActor, g.Actor)
	w.data(to.SetSeal, g.Seal)
	w.list(to.NewMethods, g.Methods)
	w.list(to.NewReadKeys, g.ReadKeys)
	w.list(to.NewWriteKeys, g.WriteKeys)
	w.list(to.NewAsk, g.AskKinds)
	w.list(to.NewAnswer, g.AnswerKinds)
	return w.err
}
