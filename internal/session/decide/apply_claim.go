package decide

// claim and release: who works on a key. A claim belongs to a stream, and to a worker of it if it
// names one, until its lease is over by the database's clock. Its cursor is the fencing token: while
// a key is claimed, only ops of the owner's stream that name this cursor change it, so a worker that
// was slow, and whose claim has ended meanwhile, changes nothing. Others who name it can only end it,
// under a ref with the right break.
//
// A claim is part of its key's entry: it ends with it (remove, purge, delete), and a new value keeps
// it. A claim whose lease is over counts as none. An event says so, written by the next op that
// changes the key, just before its own, or by the sweep (Lapse).

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Bounds of a lease, in milliseconds, and of a worker's name.
const (
	MinLease       = 1000
	MaxLease       = 3_600_000
	maxWorkerBytes = 64
)

// MaxPassedClaims bounds the keys that the search for a free one passes over: all that may be claimed at
// once (MaxSessionClaims), and some that the ref does not show.
const MaxPassedClaims = 10_000

// endPayload is the payload of release and lapse events.
type endPayload struct {
	Claim  uint64 `json:"claim"`
	Broken bool   `json:"broken,omitempty"` // released by another stream than its owner's, under a ref with the right break
}

// claimResult is the result of claim: it names no key if none was free.
type claimResult struct {
	changeResult
	Key   string `json:"key,omitempty"`
	Claim uint64 `json:"claim,omitempty"`
}

// liveClaim returns a key's claim; nil if it has none, or its lease is over.
func (a *applier) liveClaim(slot *entryState) *session.Claim {
	if e := slot.entry; e != nil && e.Claim != nil && a.v.now < e.Claim.Until {
		return e.Claim
	}
	return nil
}

// fenced returns Conflict unless an op may change a key: the key is not claimed and the op names no
// claim, or the op comes from the claim's stream and names it.
func (a *applier) fenced(key string, slot *entryState, named condition) *fault.Error {
	c := a.liveClaim(slot)
	switch {
	case c == nil && !named.set:
		return nil
	case c == nil:
		return fault.Conflict.With("%s is not claimed any more: the claim of cursor %d has lapsed, was released or never made: claim it again", key, named.cursor)
	case !named.set:
		return fault.Conflict.With("%s is claimed by another, since cursor %d: wait until it is free, or name the claim if it is yours", key, c.Cursor).Pos(c.Cursor)
	case named.cursor != c.Cursor || c.Outbox != a.outbox:
		return fault.Conflict.With("%s is claimed by another, since cursor %d: the claim of cursor %d is not in force here", key, c.Cursor, named.cursor).Pos(c.Cursor)
	}
	return nil
}

// endLapsed writes the event of a claim of key whose lease is over; the key's state is loaded.
func (a *applier) endLapsed(key string) {
	if slot := a.s.entries[key]; slot.entry != nil && slot.entry.Claim != nil {
		a.v.lapseClaim(a.s, key, slot)
	}
}

// lapseClaim ends a claim whose lease is over; other claims stay.
func (v *view) lapseClaim(s *sessionView, key string, slot *entryState) {
	c := slot.entry.Claim
	if v.now < c.Until {
		return
	}
	v.emit(s, &session.Event{Method: session.MethodLapse, Key: key, Schema: 1, Payload: rawjson.Encode(endPayload{Claim: c.Cursor})})
	v.setClaim(s, key, slot, nil)
}

// setClaim sets the claim of a key that has a value, nil for none.
func (v *view) setClaim(s *sessionView, key string, slot *entryState, c *session.Claim) {
	v.countClaim(s, slot.entry.Claim, -1)
	v.countClaim(s, c, 1)
	next, e := *slot, *slot.entry
	e.Claim = c
	next.entry, next.claimChanged = &e, true
	v.setEntry(s, key, &next)
}

func (o *opClaim) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	key := o.key
	if o.request != "" {
		return o.claimRequest(a)
	}
	if key == "" {
		if err := a.mayFind(o.prefix); err != nil {
			return nil, err
		}
		var err *fault.Error
		if key, err = a.firstFree(o.prefix); err != nil {
			return nil, err
		}
		if key == "" {
			return claimResult{changeResult: a.unchanged()}, nil
		}
	}
	slot, err := a.v.entryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	payload := session.ClaimPayload{Lease: o.lease, Until: a.v.now + o.lease, Worker: o.worker}
	c := a.liveClaim(slot)
	switch {
	case slot.entry == nil:
		return nil, fault.NotFound.With("%s has no value: put it before it is claimed", key)
	case c != nil && (c.Outbox != a.outbox || c.Worker != o.worker):
		return nil, fault.Conflict.With("%s is claimed by another, since cursor %d: wait until it is free", key, c.Cursor).Pos(c.Cursor)
	}
	if err := a.checkClaimLimits(c); err != nil {
		return nil, err
	}
	if c == nil {
		a.endLapsed(key)
	} else {
		payload.Claim = c.Cursor
	}
	next := session.ClaimOf(a.emit(session.MethodClaim, key, 1, rawjson.Encode(payload)), &payload)
	next.Outbox = a.outbox
	a.v.setClaim(a.s, key, a.s.entries[key], next)
	return claimResult{a.changed(), key, next.Cursor}, nil
}

// mayFind returns an error unless the current ref shows the keys below a prefix: the answer names one.
func (a *applier) mayFind(prefix string) *fault.Error {
	switch {
	case !a.grant.Rights.Has(capability.Read):
		return fault.MissingRight.With("claiming the first free key below %s tells which there is, and the ref may not read: name a key", prefix)
	case !capability.CoversKey(a.grant.ReadKeys, prefix):
		return fault.MissingRight.With("claiming the first free key below %s tells which there is, and the ref shows only %s: ask for one that covers it", prefix, fault.Clip(capability.KeysText(a.grant.ReadKeys)))
	}
	return nil
}

func (o *opRelease) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	if o.request != "" {
		return o.releaseRequest(a)
	}
	slot, err := a.v.entryMeta(a.s, o.key)
	if err != nil {
		return nil, err
	}
	c := a.liveClaim(slot)
	broken := c != nil && c.Cursor == o.claim.cursor && c.Outbox != a.outbox
	switch {
	case broken && !a.grant.Rights.Has(capability.Break):
		return nil, fault.Conflict.With("%s is claimed by another, since cursor %d: wait until it is free, or break the claim under a ref with the right break", o.key, c.Cursor).Pos(c.Cursor)
	case !broken:
		if err := a.fenced(o.key, slot, o.claim); err != nil {
			return nil, err
		}
	}
	a.emit(session.MethodRelease, o.key, 1, rawjson.Encode(endPayload{o.claim.cursor, broken}))
	a.v.setClaim(a.s, o.key, slot, nil)
	return a.changed(), nil
}

// freeKeys are the keys without a live claim that the database has below a prefix, as far as they were
// read: in key order.
type freeKeys struct {
	keys  []string
	after string // the last of them
	done  bool   // no others are read
	more  bool   // others may follow the claimed keys that were passed over
}

// freePiece is how many free keys are read at first, since a group of batches may claim several;
// further ones are read for groups that claim more, and for refs that do not show them.
const freePiece = 32

// firstFree returns the first key below a prefix that has a value, is not claimed and is shown by the
// current ref, in key order; "" if there is none. The error is Overloaded if too many claimed ones
// come first.
func (a *applier) firstFree(prefix string) (string, *fault.Error) {
	free := func(key string) bool {
		slot := a.s.entries[key]
		return slot.entry != nil && a.liveClaim(slot) == nil && session.ShowsEntry(a.grant, slot.entry)
	}
	stored, more, err := a.v.firstStored(a.s, prefix, free)
	if err != nil {
		return "", err
	}
	first := stored
	for key := range a.s.entries { // that this group has put, or whose claim it has ended
		if strings.HasPrefix(key, prefix) && (first == "" || key < first) && free(key) {
			first = key
		}
	}
	if first == "" && more {
		return "", fault.Overloaded.With("more than %d keys below %s are claimed, or not shown by the ref: the op waits until some are free", MaxPassedClaims, prefix)
	}
	return first, nil
}

// firstStored returns the first key that the database had as free below a prefix and that still is,
// "" if there is none; more reports that the search gave up before the last key.
func (v *view) firstStored(s *sessionView, prefix string, free func(key string) bool) (first string, more bool, err *fault.Error) {
	if s.free == nil {
		s.free = map[string]*freeKeys{}
	}
	f := s.free[prefix]
	if f == nil {
		f = &freeKeys{after: prefix}
		s.free[prefix] = f
	}
	for looked := 0; ; {
		if i := slices.IndexFunc(f.keys[looked:], free); i >= 0 {
			return f.keys[looked+i], false, nil
		}
		if looked = len(f.keys); f.done || looked > MaxPassedClaims {
			return "", f.more || !f.done, nil
		}
		piece := min(max(freePiece, looked), session.MaxListKeys)
		rows, err := v.loadBounded(&session.ReadSet{FreeKeys: &session.FreeKeys{Session: s.row.ID, After: f.after, Below: session.PrefixEnd(prefix), Now: v.now, Limit: piece, Passed: MaxPassedClaims}})
		if err != nil {
			return "", false, err
		}
		for _, e := range rows.FreeKeys {
			s.fill(e.Key, e, false)
			f.keys, f.after = append(f.keys, e.Key), e.Key
		}
		f.done, f.more = len(rows.FreeKeys) < piece, rows.MoreFreeKeys
	}
}
