package session

// put and remove.

import "github.com/mooring-rpc/mooring/fault"

func (o *opPut) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	key := o.keyText
	slot, err := a.v.entryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	e := slabAlloc(&a.v.entrySlab)
	*e = Entry{Session: a.s.row.ID, Key: key, Schema: o.schema, Sum: SumOf(o.payload), Payload: o.payload, TextLen: entryTextLen(o.key, o.payload)}
	equal, err := a.equal(slot, e)
	if err != nil {
		return nil, err
	}
	if equal {
		return a.unchanged(), nil
	}
	ev := a.emitWithSum(MethodPut, key, o.schema, o.payload, e.Sum)
	e.Cursor, e.Since = ev.Cursor, ev.Cursor
	a.v.put(a.s, e, ev, 0, true)
	return a.changed(), nil
}

// equal reports whether a key holds e already. A part with deltas is read whole only if its length
// permits equality; one that is too large to read is replaced.
func (a *applier) equal(slot *entryState, e *Entry) (bool, *fault.Error) {
	old := slot.entry
	if old == nil || old.Schema != e.Schema || old.TextLen != e.TextLen {
		return false, nil
	}
	if old.LastAppend == 0 {
		return old.Sum == e.Sum, nil
	}
	old, err := a.v.value(a.s, e.Key)
	if err != nil && err.Code == fault.TooLarge {
		return false, nil
	}
	return err == nil && old.Sum == e.Sum, err
}

func (o *opRemove) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	key := o.key.String()
	slot, err := a.v.entryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	if slot.entry == nil {
		return a.unchanged(), nil
	}
	if o.key.Kind == KeyMessage {
		t, err := a.v.turn(a.s, o.key.Message)
		if err != nil {
			return nil, err
		}
		if t != nil && t.Status.Open() {
			return nil, fault.TurnOpen.With("the turn of this message is %s: finalize it first", t.Status)
		}
	}
	a.emit(MethodRemove, key, 1, emptyPayload)
	a.v.drop(a.s, key)
	return a.changed(), nil
}
