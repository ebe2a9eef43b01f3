package decide

// put, remove, and the edits of values of the users' own kinds: patch and add.

import (
	"bytes"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

func (a *applier) applyPut(o *opargs.Put) (result, *fault.Error) {
	if o.Sync && a.sub.Direct == nil { // of a direct call every op is one of a sync
		return a.syncOp(func() (result, *fault.Error) { return a.put(o) })
	}
	return a.put(o)
}

func (a *applier) put(o *opargs.Put) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	if err := a.notHidden(o.KeyText); err != nil {
		return nil, err
	}
	slot, err := a.guarded(o.KeyText, o.Guard)
	if err != nil {
		return nil, err
	}
	return a.putValue(slot, o.KeyText, o.Schema, o.Payload, session.EntryTextLen(o.Key, o.Payload), o.Key.Kind == session.KeyOwn)
}

// putValue puts a whole value, unless the key holds it already. checked says that its kind may have a
// schema.
func (a *applier) putValue(slot *view.EntryState, key string, schema uint32, payload []byte, textLen uint64, checked bool) (result, *fault.Error) {
	e := a.v.NewEntry()
	*e = session.Entry{Session: a.s.Row.ID, Key: key, Schema: schema, Sum: session.SumOf(payload), Payload: payload, TextLen: textLen}
	equal, err := a.equal(slot, e)
	if err != nil {
		return nil, err
	}
	if equal {
		return a.unchanged(), nil
	}
	if checked {
		if err := a.checkValue(key, payload); err != nil {
			return nil, err
		}
	}
	if slot.Entry == nil && session.HeadOf(key) == key { // a new message
		if err := a.settle(); err != nil {
			return nil, err
		}
	}
	a.endLapsed(key)
	ev := a.emitWithSum(session.MethodPut, key, schema, payload, e.Sum)
	e.Cursor, e.Since = ev.Cursor, ev.Cursor
	a.v.Put(a.s, e, ev, 0, view.WriteInEvent)
	return a.changed(), nil
}

// guarded returns the state of a key without its payload, or Conflict: with the cursor of the key's
// claim if the op does not come from its owner and name it, else with that of its value's last change
// if that is not the expected one.
func (a *applier) guarded(key string, g opargs.Guard) (*view.EntryState, *fault.Error) {
	slot, err := a.v.EntryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	if err := a.fenced(key, slot, g.Claim); err != nil {
		return nil, err
	}
	want := g.Expect
	if !want.Set {
		return slot, nil
	}
	at := uint64(0)
	if slot.Entry != nil {
		at = slot.Entry.Changed()
	}
	switch {
	case at == want.Cursor:
		return slot, nil
	case at == 0:
		return nil, fault.Conflict.With("%s was expected to be as of cursor %d, and there is none: read it and decide again", key, want.Cursor)
	case want.Cursor == 0:
		return nil, fault.Conflict.With("%s was expected not to exist, and was last changed at cursor %d: read it and decide again", key, at).Pos(at)
	}
	return nil, fault.Conflict.With("%s was expected to be as of cursor %d, and was last changed at %d: read it and decide again", key, want.Cursor, at).Pos(at)
}

// equal reports whether a key holds e already. A part with deltas is read whole only if its length
// permits equality; one that is too large to read is replaced.
func (a *applier) equal(slot *view.EntryState, e *session.Entry) (bool, *fault.Error) {
	old := slot.Entry
	if old == nil || old.Schema != e.Schema || old.TextLen != e.TextLen {
		return false, nil
	}
	if old.LastAppend == 0 {
		return old.Sum == e.Sum, nil
	}
	old, err := a.v.Value(a.s, e.Key)
	if err != nil && err.Code == fault.TooLarge {
		return false, nil
	}
	return err == nil && old.Sum == e.Sum, err
}

func (a *applier) applyRemove(o *opargs.Remove) (result, *fault.Error) {
	if o.Sync && a.sub.Direct == nil {
		return a.syncOp(func() (result, *fault.Error) { return a.remove(o) })
	}
	return a.remove(o)
}

func (a *applier) remove(o *opargs.Remove) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	key := o.Key.String()
	if err := a.notHidden(key); err != nil {
		return nil, err
	}
	slot, err := a.guarded(key, o.Guard)
	if err != nil {
		return nil, err
	}
	if slot.Entry == nil {
		return a.unchanged(), nil
	}
	if o.Key.Kind == session.KeyMessage {
		if r := &a.s.Row.Revert; r.Message() == o.Key.Message { // the message stays of which parts are hidden
			return nil, errReverted("a part of "+key, r, a.grant)
		}
		t, err := a.v.Turn(a.s, o.Key.Message)
		if err != nil {
			return nil, err
		}
		if t != nil && t.Status.Open() {
			return nil, fault.TurnOpen.With("the turn of this message is %s: finalize it first", t.Status)
		}
	}
	a.endLapsed(key)
	a.emit(session.MethodRemove, key, 1, emptyPayload)
	a.v.Drop(a.s, key)
	a.endCompaction(key)
	return a.changed(), nil
}

func (a *applier) applyPatch(o *opargs.Patch) (result, *fault.Error) {
	return a.edit(o.Key, o.Guard, o.Schema, session.MethodPatch, o.Patch)
}

func (a *applier) applyAdd(o *opargs.Add) (result, *fault.Error) {
	return a.edit(o.Key, o.Guard, 0, session.MethodAdd, rawjson.Encode(addPayload{o.Member, o.By}))
}

// edit changes a value by the payload of a patch or add event, which has the change alone: its cost
// in the log, and to subscribers, is that of the change. Where there is no value yet, or the change
// is the value, the event is a put. schema 0 keeps the value's.
func (a *applier) edit(key string, want opargs.Guard, schema uint32, method string, change []byte) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	slot, err := a.guarded(key, want)
	if err != nil {
		return nil, err
	}
	old, err := a.v.Value(a.s, key)
	if err != nil {
		return nil, err
	}
	var base []byte
	if old != nil {
		base = old.Payload
	}
	value, made, bad := session.EditedPieces(method, base, change)
	if bad != nil {
		return nil, fault.From(nil, bad, "change "+key)
	}
	if len(value) > a.cfg.Limits.PayloadBytes {
		return nil, fault.TooLarge.With("%s would have %d bytes, the limit is %d", key, len(value), a.cfg.Limits.PayloadBytes)
	}
	if schema == 0 {
		if schema = 1; old != nil {
			schema = old.Schema
		}
	}
	if old == nil || bytes.Equal(value, change) {
		return a.putValue(slot, key, schema, value, 0, true)
	}
	e := a.v.NewEntry()
	*e = session.Entry{Session: a.s.Row.ID, Key: key, Since: old.Since, Schema: schema, Sum: session.SumOf(value), Payload: value}
	if e.Sum == old.Sum && e.Schema == old.Schema {
		return a.unchanged(), nil
	}
	if err := a.checkValue(key, value); err != nil {
		return nil, err
	}
	write, err := view.StoreEdit(slot, e, old, made)
	if err != nil {
		return nil, err
	}
	a.endLapsed(key)
	ev := a.emit(method, key, schema, change)
	e.Cursor = ev.Cursor
	a.v.Put(a.s, e, ev, 0, write)
	return a.changed(), nil
}

// addPayload is the payload of an add event.
type addPayload struct {
	Member string `json:"member"`
	By     int64  `json:"by"`
}

// Schemas of values: schema/KIND has a JSON Schema, and from that put on every put, patch and add of a
// key of that kind must leave a value that is valid by it. Values that are there already stay. The
// log has only what was accepted, so readers and folds need no schema.

// mayChangeSchema returns an error if op changes a schema and the current grant does not carry that
// right: append does not include it.
func (a *applier) mayChangeSchema(do opargs.Op) *fault.Error {
	var key session.Key
	switch o := do.(type) {
	case *opargs.Put:
		key = o.Key
	case *opargs.Remove:
		key = o.Key
	}
	if key.Kind == session.KeySchema && !a.grant.Rights.Has(capability.Schema) {
		return fault.MissingRight.With("this needs %s, the ref carries %s: ask for a ref that has it", capability.Schema, a.grant.Rights)
	}
	return nil
}

// checkValue returns an error if a key of the users' kinds must not have a value, by the schema of its
// kind. It has nothing of the value, or outcomes would.
func (a *applier) checkValue(key string, value []byte) *fault.Error {
	name := session.SchemaKey(key)
	slot, err := a.v.EntryMeta(a.s, name)
	if err != nil || slot.Entry == nil {
		return err
	}
	schema := opargs.Schemas.Find(slot.Entry.Sum)
	if schema == nil {
		e, err := a.v.Value(a.s, name)
		if err != nil {
			return err
		}
		if schema, err = opargs.Schemas.Get(e.Sum, e.Payload); err != nil {
			return fault.BadPayload.With("%s cannot be checked, as this server cannot compile %s: put it anew or remove it", fault.Clip(key), name)
		}
	}
	return schema.Check(value, key, name)
}
