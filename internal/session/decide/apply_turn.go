package decide

// begin, appendText and finalize: a message while it is being written.

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
	"github.com/mooring-rpc/mooring/ledger"
)

func (a *applier) applyBegin(o *opargs.Begin) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	if err := a.notHidden(session.MessageKey(o.Message)); err != nil {
		return nil, err
	}
	t, err := a.v.Turn(a.s, o.Message)
	if err != nil {
		return nil, err
	}
	status, err := statusOf(t).Next(session.StepBegin)
	if err != nil {
		return nil, err
	}
	if err := a.checkTurnLimits(); err != nil {
		return nil, err
	}
	key := session.MessageKey(o.Message)
	if _, err := a.v.EntryMeta(a.s, key); err != nil {
		return nil, err
	}
	if err := a.settle(); err != nil {
		return nil, err
	}
	ev := a.emit(session.MethodBegin, key, o.Schema, o.Payload)
	a.v.Put(a.s, &session.Entry{Session: a.s.Row.ID, Key: key, Cursor: ev.Cursor, Since: ev.Cursor, Schema: o.Schema, Sum: ev.Sum, Payload: o.Payload}, ev, 0, view.WriteInEvent)
	a.v.SetTurn(a.s, session.Turn{Session: a.s.Row.ID, Message: o.Message, Status: status, Outbox: a.outbox, Ref: a.grant.ID, Lease: a.leaseEnd(), Begun: ev.Cursor})
	a.v.MarkOrphans(a.s)
	return a.changed(), nil
}

// statusOf returns the state of a turn, 0 where none was begun.
func statusOf(t *session.Turn) session.TurnStatus {
	if t == nil {
		return 0
	}
	return t.Status
}

// textResult is the result of appendText.
type textResult struct {
	changeResult
	Length uint64 `json:"length"` // of the text now, in UTF-8 bytes
}

// The cost of a delta is proportional to its length: it reads only the part's entry without payload
// and its turn, and writes only these and one event.
func (a *applier) applyAppendText(o *opargs.AppendText) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	if err := a.notHidden(o.Key.String()); err != nil {
		return nil, err
	}
	t, err := a.v.Turn(a.s, o.Key.Message)
	if err != nil {
		return nil, err
	}
	if _, err := statusOf(t).Next(session.StepResume); err != nil {
		return nil, err
	}
	if t.Outbox != a.outbox {
		return nil, fault.NotYourTurn.With("the turn of this message belongs to another stream")
	}
	key := o.Key.String()
	slot, err := a.v.EntryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	switch e := slot.Entry; {
	case e == nil:
		return nil, fault.NotFound.With("there is no part %s: put it first", key)
	case a.predatesRef(e):
		return nil, a.errNotShown(key)
	case e.TextLen == session.NoText:
		return nil, fault.BadPayload.With("the text of part %s is not a string", key)
	case o.Offset != e.TextLen:
		return nil, fault.WrongOffset.With("the text of part %s has %d bytes, not %d: continue from there", key, e.TextLen, o.Offset).Pos(e.TextLen)
	case o.Text == "":
		return textResult{a.unchanged(), e.TextLen}, nil
	case e.TextLen+uint64(len(o.Text)) > uint64(a.cfg.Limits.TextBytes):
		return nil, fault.TooLarge.With("the text of part %s would have %d bytes, the limit is %d: continue in another part", key, e.TextLen+uint64(len(o.Text)), a.cfg.Limits.TextBytes)
	}
	if t.Orphan { // other ops of the stream do not renew it
		a.renewLease(t)
	}
	ev := a.emit(session.MethodAppendText, key, slot.Entry.Schema, rawjson.Encode(deltaPayload{o.Offset, o.Text}))
	a.v.AppendText(a.s, key, slot, o.Text, ev.Cursor)
	return textResult{a.changed(), o.Offset + uint64(len(o.Text))}, nil
}

// finalResult is the result of finalize.
type finalResult struct {
	changeResult
	Status string `json:"status"`
}

func (a *applier) applyFinalize(o *opargs.Finalize) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	t, err := a.v.Turn(a.s, o.Message)
	if err != nil {
		return nil, err
	}
	status, err := statusOf(t).Next(o.Step)
	switch {
	case err != nil && t != nil && t.Final == o.Digest:
		return finalResult{a.unchanged(), t.Status.String()}, nil
	case err != nil:
		return nil, err
	case t.Outbox != a.outbox && (o.Step != session.StepAbort || !a.grant.Rights.Has(capability.Revoke)):
		return nil, fault.NotYourTurn.With("the turn of this message belongs to another stream: only a ref with revoke may end it, as aborted")
	case !o.EndsOnly() && capability.Check(a.grant, a.s.Row.Epoch, a.v.Now, capability.Append, session.MethodFinalize) != nil:
		return nil, fault.MissingRight.With("this ref may end the turn but not write to it: give only the message and the status")
	}
	if err := a.notHidden(session.MessageKey(o.Message)); err != nil {
		return nil, err
	}
	if err := a.endTurn(o, t, status); err != nil {
		return nil, err
	}
	return finalResult{a.changed(), o.Status}, nil
}

// endTurn ends a turn with the op's values.
func (a *applier) endTurn(o *opargs.Finalize, t *session.Turn, status session.TurnStatus) *fault.Error {
	entries, err := a.finalEntries(o)
	if err != nil {
		return err
	}
	payload := session.FinalizePayload{Status: o.Status}
	for _, e := range entries {
		payload.Entries = append(payload.Entries, session.EntryPayload{Key: e.Key, Schema: e.Schema, JSON: string(e.Payload), Since: e.Since})
	}
	if next := a.s.Row.Cursor + 1; payload.EmbedsOlder(next) {
		payload.Salt = a.salt(next)
	}
	text := rawjson.Encode(payload)
	if len(text) > a.cfg.Limits.EventBytes {
		return fault.TooLarge.With("ending the turn would write %d bytes, the limit is %d: put or remove some of its parts first", len(text), a.cfg.Limits.EventBytes)
	}
	ev := a.emit(session.MethodFinalize, session.MessageKey(o.Message), 1, text)
	for i := range entries {
		e := &entries[i]
		e.Cursor = ev.Cursor
		a.v.Put(a.s, e, ev, i, view.WriteWhole)
	}
	end := *t
	end.Status, end.Ended, end.Final = status, ev.Cursor, o.Digest
	a.v.SetTurn(a.s, end)
	return a.withdrawOfTurn(o.Message)
}

// finalEntries returns the new values of the message and of the parts that the end of the turn changes,
// the message first, then by key. The Since of each is that of the value it continues, or this
// event's cursor if the value was given whole.
func (a *applier) finalEntries(o *opargs.Finalize) ([]session.Entry, *fault.Error) {
	now := a.s.Row.Cursor + 1
	message := session.Entry{Session: a.s.Row.ID, Key: session.MessageKey(o.Message), Since: now, Schema: o.Schema, Payload: o.Payload}
	if _, err := a.v.EntryMeta(a.s, message.Key); err != nil {
		return nil, err
	}
	if o.Payload == nil {
		old, err := a.v.Value(a.s, message.Key)
		if err != nil {
			return nil, err
		}
		if old == nil {
			return nil, fault.NotFound.With("message %s does not exist: give its payload", o.Message)
		}
		if a.predatesRef(old) {
			return nil, a.errNotShown(message.Key)
		}
		message.Payload, message.Schema, message.Since = old.Payload, old.Schema, old.Since
	}
	message.Payload = finalizeMessage(message.Payload, o, a.v.Now)
	message.Sum = session.SumOf(message.Payload)
	entries := []session.Entry{message}

	keys, err := a.v.KeysWithPrefix(a.s, session.PartPrefix(o.Message))
	if err != nil {
		return nil, err
	}
	given := make(map[string]*opargs.Part, len(o.Parts))
	for i := range o.Parts {
		key := session.PartKey(o.Message, o.Parts[i].ID)
		given[key] = &o.Parts[i]
		keys = append(keys, key)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	at := o.Completed
	if at == 0 {
		at = uint64(a.v.Now)
	}
	olds, err := a.v.Values(a.s, keys)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		if e, changed := finalPart(o, key, olds[i], given[key], at); changed {
			if given[key] == nil && a.predatesRef(olds[i]) {
				return nil, a.errNotShown(key)
			}
			if e.Session = a.s.Row.ID; given[key] != nil {
				e.Since = now
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// finalPart returns one part at the end of the turn, and whether it differs from old (nil if there
// was none).
func finalPart(o *opargs.Finalize, key string, old *session.Entry, given *opargs.Part, at uint64) (e session.Entry, changed bool) {
	grew := old != nil && old.LastAppend != 0
	if given != nil {
		e = session.Entry{Key: key, Schema: given.Schema, Payload: closePart(given.Payload, false, o.Status, at)}
	} else {
		e = session.Entry{Key: key, Since: old.Since, Schema: old.Schema, Payload: closePart(old.Payload, grew, o.Status, at)}
	}
	e.Sum, e.TextLen = session.SumOf(e.Payload), session.TextLen(e.Payload)
	return e, old == nil || grew || old.Sum != e.Sum || old.Schema != e.Schema
}

// deltaPayload is the payload of an appendText event.
type deltaPayload struct {
	Offset uint64 `json:"offset"`
	Text   string `json:"text"`
}

// finalizeMessage returns the message's payload at the end of its turn: with the time of its end
// (unless it has one and none is given), usage as "tokens", and the failure as "error".
func finalizeMessage(payload []byte, o *opargs.Finalize, now int64) []byte {
	payload = bytes.TrimSpace(payload)
	end := cmp.Or(o.Completed, uint64(now))
	if o.Completed != 0 || rawjson.At(payload, "time", "completed") == nil {
		payload = rawjson.SetIfObject(payload, strconv.AppendUint(nil, end, 10), "time", "completed")
	}
	if o.Usage != nil {
		payload = rawjson.Set(payload, bytes.TrimSpace(o.Usage), "tokens")
	}
	if o.Failure != nil {
		payload = rawjson.Set(payload, bytes.TrimSpace(o.Failure), "error")
	}
	return payload
}

// closePart returns a part's payload at the end of its turn: a tool call still pending or running
// becomes an error, and a streaming part gets the time of its end. grew means that deltas were
// folded into it.
func closePart(payload []byte, grew bool, status string, now uint64) []byte {
	end := strconv.AppendUint(nil, now, 10)
	if grew && rawjson.At(payload, "time", "start") != nil && rawjson.At(payload, "time", "end") == nil {
		payload = rawjson.SetIfObject(bytes.TrimSpace(payload), end, "time", "end")
	}
	switch ledger.Unquote(rawjson.At(payload, "state", "status")) {
	case "pending", "running":
		payload = rawjson.Set(bytes.TrimSpace(payload), rawjson.Encode("error"), "state", "status")
		payload = rawjson.Set(payload, rawjson.Encode(fmt.Sprintf("turn %s", status)), "state", "error")
		if rawjson.At(payload, "state", "time", "start") != nil && rawjson.At(payload, "state", "time", "end") == nil {
			payload = rawjson.Set(payload, end, "state", "time", "end")
		}
	}
	return payload
}
