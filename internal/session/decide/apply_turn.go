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
	"github.com/mooring-rpc/mooring/internal/session/view"
	"github.com/mooring-rpc/mooring/ledger"
)

func (o *opBegin) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	if err := a.notHidden(session.MessageKey(o.message)); err != nil {
		return nil, err
	}
	t, err := a.v.Turn(a.s, o.message)
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
	key := session.MessageKey(o.message)
	if _, err := a.v.EntryMeta(a.s, key); err != nil {
		return nil, err
	}
	if err := a.settle(); err != nil {
		return nil, err
	}
	ev := a.emit(session.MethodBegin, key, o.schema, o.payload)
	a.v.Put(a.s, &session.Entry{Session: a.s.Row.ID, Key: key, Cursor: ev.Cursor, Since: ev.Cursor, Schema: o.schema, Sum: ev.Sum, Payload: o.payload}, ev, 0, view.WriteInEvent)
	a.v.SetTurn(a.s, session.Turn{Session: a.s.Row.ID, Message: o.message, Status: status, Outbox: a.outbox, Ref: a.grant.ID, Lease: a.leaseEnd(), Begun: ev.Cursor})
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
func (o *opAppendText) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	if err := a.notHidden(o.key.String()); err != nil {
		return nil, err
	}
	t, err := a.v.Turn(a.s, o.key.Message)
	if err != nil {
		return nil, err
	}
	if _, err := statusOf(t).Next(session.StepResume); err != nil {
		return nil, err
	}
	if t.Outbox != a.outbox {
		return nil, fault.NotYourTurn.With("the turn of this message belongs to another stream")
	}
	key := o.key.String()
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
	case o.offset != e.TextLen:
		return nil, fault.WrongOffset.With("the text of part %s has %d bytes, not %d: continue from there", key, e.TextLen, o.offset).Pos(e.TextLen)
	case o.text == "":
		return textResult{a.unchanged(), e.TextLen}, nil
	case e.TextLen+uint64(len(o.text)) > uint64(a.cfg.Limits.TextBytes):
		return nil, fault.TooLarge.With("the text of part %s would have %d bytes, the limit is %d: continue in another part", key, e.TextLen+uint64(len(o.text)), a.cfg.Limits.TextBytes)
	}
	if t.Orphan { // other ops of the stream do not renew it
		a.renewLease(t)
	}
	ev := a.emit(session.MethodAppendText, key, slot.Entry.Schema, rawjson.Encode(deltaPayload{o.offset, o.text}))
	a.v.AppendText(a.s, key, slot, o.text, ev.Cursor)
	return textResult{a.changed(), o.offset + uint64(len(o.text))}, nil
}

// finalResult is the result of finalize.
type finalResult struct {
	changeResult
	Status string `json:"status"`
}

func (o *opFinalize) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	t, err := a.v.Turn(a.s, o.message)
	if err != nil {
		return nil, err
	}
	status, err := statusOf(t).Next(o.step)
	switch {
	case err != nil && t != nil && t.Final == o.digest:
		return finalResult{a.unchanged(), t.Status.String()}, nil
	case err != nil:
		return nil, err
	case t.Outbox != a.outbox && (o.step != session.StepAbort || !a.grant.Rights.Has(capability.Revoke)):
		return nil, fault.NotYourTurn.With("the turn of this message belongs to another stream: only a ref with revoke may end it, as aborted")
	case !o.endsOnly() && capability.Check(a.grant, a.s.Row.Epoch, a.v.Now, capability.Append, session.MethodFinalize) != nil:
		return nil, fault.MissingRight.With("this ref may end the turn but not write to it: give only the message and the status")
	}
	if err := a.notHidden(session.MessageKey(o.message)); err != nil {
		return nil, err
	}
	if err := o.end(a, t, status); err != nil {
		return nil, err
	}
	return finalResult{a.changed(), o.status}, nil
}

// end ends a turn with the op's values.
func (o *opFinalize) end(a *applier, t *session.Turn, status session.TurnStatus) *fault.Error {
	entries, err := o.entries(a)
	if err != nil {
		return err
	}
	payload := session.FinalizePayload{Status: o.status}
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
	ev := a.emit(session.MethodFinalize, session.MessageKey(o.message), 1, text)
	for i := range entries {
		e := &entries[i]
		e.Cursor = ev.Cursor
		a.v.Put(a.s, e, ev, i, view.WriteWhole)
	}
	end := *t
	end.Status, end.Ended, end.Final = status, ev.Cursor, o.digest
	a.v.SetTurn(a.s, end)
	return a.withdrawOfTurn(o.message)
}

// endsOnly reports whether the op only ends the turn and changes no entry.
func (o *opFinalize) endsOnly() bool {
	return o.payload == nil && len(o.parts) == 0 && o.usage == nil && o.failure == nil && o.completed == 0
}

// entries returns the new values of the message and of the parts that the end of the turn changes,
// the message first, then by key. The Since of each is that of the value it continues, or this
// event's cursor if the value was given whole.
func (o *opFinalize) entries(a *applier) ([]session.Entry, *fault.Error) {
	now := a.s.Row.Cursor + 1
	message := session.Entry{Session: a.s.Row.ID, Key: session.MessageKey(o.message), Since: now, Schema: o.schema, Payload: o.payload}
	if _, err := a.v.EntryMeta(a.s, message.Key); err != nil {
		return nil, err
	}
	if o.payload == nil {
		old, err := a.v.Value(a.s, message.Key)
		if err != nil {
			return nil, err
		}
		if old == nil {
			return nil, fault.NotFound.With("message %s does not exist: give its payload", o.message)
		}
		if a.predatesRef(old) {
			return nil, a.errNotShown(message.Key)
		}
		message.Payload, message.Schema, message.Since = old.Payload, old.Schema, old.Since
	}
	message.Payload = finalizeMessage(message.Payload, o, a.v.Now)
	message.Sum = session.SumOf(message.Payload)
	entries := []session.Entry{message}

	keys, err := a.v.KeysWithPrefix(a.s, session.PartPrefix(o.message))
	if err != nil {
		return nil, err
	}
	given := make(map[string]*terminalPart, len(o.parts))
	for i := range o.parts {
		key := session.PartKey(o.message, o.parts[i].id)
		given[key] = &o.parts[i]
		keys = append(keys, key)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	at := o.completed
	if at == 0 {
		at = uint64(a.v.Now)
	}
	olds, err := a.v.Values(a.s, keys)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		if e, changed := o.finalPart(key, olds[i], given[key], at); changed {
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
func (o *opFinalize) finalPart(key string, old *session.Entry, given *terminalPart, at uint64) (e session.Entry, changed bool) {
	grew := old != nil && old.LastAppend != 0
	if given != nil {
		e = session.Entry{Key: key, Schema: given.schema, Payload: closePart(given.payload, false, o.status, at)}
	} else {
		e = session.Entry{Key: key, Since: old.Since, Schema: old.Schema, Payload: closePart(old.Payload, grew, o.status, at)}
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
func finalizeMessage(payload []byte, o *opFinalize, now int64) []byte {
	payload = bytes.TrimSpace(payload)
	end := cmp.Or(o.completed, uint64(now))
	if o.completed != 0 || rawjson.At(payload, "time", "completed") == nil {
		payload = rawjson.SetIfObject(payload, strconv.AppendUint(nil, end, 10), "time", "completed")
	}
	if o.usage != nil {
		payload = rawjson.Set(payload, bytes.TrimSpace(o.usage), "tokens")
	}
	if o.failure != nil {
		payload = rawjson.Set(payload, bytes.TrimSpace(o.failure), "error")
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
