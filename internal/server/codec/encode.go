// Encoding: the domain's rows to the structs of the schema.

package codec

import (
	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

func encodeEvent(to wire.Event, e *session.Event) error {
	var w FieldWriter
	to.SetCursor(e.Cursor)
	to.SetSchema(e.Schema)
	to.SetAt(e.At)
	if to.SetHidden(e.Hidden); e.Hidden {
		return to.SetHash(e.Hash[:])
	}
	to.SetPurged(e.Payload == nil)
	w.Text(to.SetMethod, e.Method)
	w.Text(to.SetKey, e.Key)
	w.Text(to.SetRef, e.Ref)
	w.Text(to.SetActor, e.Actor)
	w.Text(to.SetOp, e.Op)
	w.Text(to.SetBatch, e.Batch)
	w.Text(to.SetOutbox, e.Outbox)
	w.Data(to.SetHash, e.Hash[:])
	w.Do(setBytes(capnp.Struct(to), eventPayloadPointer, e.Payload))
	return w.err
}

// Pointer fields whose JSON is copied from bytes into text.
const (
	eventPayloadPointer = 2
	entryPayloadPointer = 1 // of Entry and EntryInfo
)

// EncodeShown encodes the parameters of the call of a sink, once for all sinks that are sent the events: a
// *rpc.EncodedParams, or the error.
func EncodeShown(events []*session.Event) any {
	params, err := rpc.EncodeParams(methods.EventSinkEvents.Params, func(s capnp.Struct) error {
		return EncodeList(wire.EventSink_events_Params(s).NewEvents, events, encodeEvent)
	})
	if err != nil {
		return err
	}
	return params
}

// EncodeLogged encodes an event with its payload's hash in the chain, which cannot be computed from a purged payload.
func EncodeLogged(to wire.Event, e *session.Event) error {
	if err := encodeEvent(to, e); err != nil {
		return err
	}
	return to.SetSum(e.Sum[:])
}

// EncodeEntry encodes an entry of a state.
func EncodeEntry(to wire.Entry, e *session.Entry) error {
	to.SetCursor(e.Cursor)
	to.SetSchema(e.Schema)
	to.SetOrd(e.Ord.At)
	to.SetOrdIndex(e.Ord.Index)
	var w FieldWriter
	w.Do(to.SetKey(e.Key))
	encodeClaim(&w, to.NewClaim, e.Claim)
	w.Do(setBytes(capnp.Struct(to), entryPayloadPointer, e.Payload))
	return w.err
}

// encodeClaim encodes a claim into a new struct, unless there is none.
func encodeClaim(w *FieldWriter, make func() (wire.Claim, error), c *session.Claim) {
	if c == nil || w.err != nil {
		return
	}
	to, err := make()
	if w.Do(err); err != nil {
		return
	}
	to.SetCursor(c.Cursor)
	to.SetRenewed(c.Renewed)
	to.SetUntil(c.Until)
	w.Text(to.SetOutbox, session.OutboxOf(c.Outbox))
	w.Text(to.SetWorker, c.Worker)
	w.Text(to.SetRef, c.Ref)
	w.Text(to.SetActor, c.Actor)
}

// encodeEntryInfo encodes an entry and who changed it last.
func encodeEntryInfo(to wire.EntryInfo, e *session.EntryInfo) error {
	var w FieldWriter
	to.SetCursor(e.Change.Cursor)
	to.SetSchema(e.Schema)
	to.SetOrd(e.Ord.At)
	to.SetOrdIndex(e.Ord.Index)
	to.SetBytes(e.Bytes)
	to.SetAt(e.Change.At)
	w.Text(to.SetKey, e.Key)
	w.Text(to.SetRef, e.Change.Ref)
	w.Text(to.SetActor, e.Change.Actor)
	encodeClaim(&w, to.NewClaim, e.Claim)
	w.Do(setBytes(capnp.Struct(to), entryPayloadPointer, e.Payload))
	return w.err
}

// EncodeTurn encodes a turn of a state.
func EncodeTurn(to wire.Turn, t *session.Turn) error {
	to.SetStatus(uint8(t.Status))
	to.SetBegun(t.Begun)
	to.SetEnded(t.Ended)
	var w FieldWriter
	w.Do(to.SetOutbox(session.OutboxOf(t.Outbox)))
	w.Do(to.SetRef(t.Ref))
	w.Do(to.SetMessage_(t.Message))
	return w.err
}

// EncodeSessionInfo encodes a session's row.
func EncodeSessionInfo(to wire.SessionInfo, row *session.Row, title string) error {
	var w FieldWriter
	to.SetCursor(row.Cursor)
	to.SetCreated(row.Created)
	to.SetUpdated(row.Updated)
	to.SetEpoch(row.Epoch)
	to.SetBase(row.Base)
	to.SetDeleted(row.Life == session.Deleted)
	w.Text(to.SetId, row.ID)
	w.Text(to.SetExternal, row.External)
	w.Text(to.SetTitle, title)
	w.Text(to.SetOrder, row.Order.String())
	if from := row.Origin; from.Session != "" && w.err == nil {
		origin, err := to.NewOrigin()
		if err != nil {
			return err
		}
		origin.SetCursor(from.Cursor)
		w.Text(origin.SetSession, from.Session)
		w.Text(origin.SetMessage_, from.Message)
	}
	if of := row.Parent; of.Session != "" && w.err == nil {
		parent, err := to.NewParent()
		if err != nil {
			return err
		}
		w.Text(parent.SetSession, of.Session)
		w.Text(parent.SetKey, of.Key)
	}
	if r := row.Revert; r.Cursor > 0 && w.err == nil {
		reverted, err := to.NewReverted()
		if err != nil {
			return err
		}
		reverted.SetCursor(r.Cursor)
		reverted.SetAt(r.At)
		w.Text(reverted.SetTo, r.To)
		w.Text(reverted.SetActor, r.Actor)
	}
	if w.err == nil {
		w.err = EncodeCompacted(to.NewCompacted, new(row.Compacted()))
	}
	return w.err
}

// EncodeCompacted encodes up to where a session is compacted, if it is.
func EncodeCompacted(make func() (wire.Compacted, error), c *session.Compaction) error {
	if !c.InForce() {
		return nil
	}
	to, err := make()
	if err != nil {
		return err
	}
	var w FieldWriter
	to.SetCursor(c.Cursor)
	to.SetAt(c.At)
	to.SetOrd(c.Ord.At)
	to.SetOrdIndex(c.Ord.Index)
	to.SetPlace(c.Place.At)
	to.SetPlaceIndex(c.Place.Index)
	w.Text(to.SetUpto, c.Upto)
	w.Text(to.SetSummary, c.Summary)
	w.Text(to.SetActor, c.Actor)
	return w.err
}

// EncodeSessions encodes a page of sessions.
func EncodeSessions(page *session.ListPage, make func(int32) (wire.SessionInfo_List, error)) error {
	return EncodeList(make, page.Sessions, func(to wire.SessionInfo, one *session.Listing) error {
		return EncodeSessionInfo(to, &one.Row, one.Title)
	})
}

// EncodeEntryInfos encodes entries and who changed each last.
func EncodeEntryInfos(list func(int32) (wire.EntryInfo_List, error), entries []*session.EntryInfo) error {
	return EncodeList(list, entries, encodeEntryInfo)
}

// EncodeFound encodes an entry that a search has found.
func EncodeFound(to wire.Found, found *session.Found) error {
	entry, err := to.NewEntry()
	if err != nil {
		return err
	}
	if err := encodeEntryInfo(entry, found.EntryInfo); err != nil {
		return err
	}
	var w FieldWriter
	w.Text(to.SetPlace, found.Place)
	pieces, err := to.NewExcerpt(int32(len(found.Excerpt)))
	w.Do(err)
	for i := 0; w.err == nil && i < len(found.Excerpt); i++ {
		w.Do(pieces.Set(i, found.Excerpt[i]))
	}
	return w.err
}

// EncodeWebhook encodes a webhook without its secret.
func EncodeWebhook(to wire.WebhookInfo, w *session.Webhook) error {
	var f FieldWriter
	to.SetCreated(w.Created)
	to.SetCursor(w.Cursor)
	to.SetDelivered(w.Delivered)
	to.SetFailingSince(w.Since)
	to.SetFailures(uint32(w.Failures))
	to.SetNext(w.NextAt)
	to.SetRestarted(w.Restarted)
	to.SetEndedAt(w.EndedAt)
	f.Text(to.SetId, w.ID)
	f.Text(to.SetUrl, w.URL)
	f.Text(to.SetRef, w.Ref)
	f.Text(to.SetError, w.Error)
	f.Text(to.SetEnded, w.Ended)
	f.List(to.NewKinds, w.Kinds)
	return f.err
}

// EncodeRefusal encodes f; a nil f leaves the refusal empty.
func EncodeRefusal(to wire.Refusal, f *fault.Error) error {
	if f == nil {
		return nil
	}
	to.SetCode(uint16(f.Code))
	to.SetAt(f.At)
	return to.SetMessage_(f.Message)
}
