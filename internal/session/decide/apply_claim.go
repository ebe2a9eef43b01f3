package decide

// claim and release: who works on a key. A claim belongs to a stream, and to a worker of it if it
// names one, until its lease is over by the database's clock. Its cursor is the fencing token: while
// a key is claimed, only ops of the owner's stream that name this cursor change it, so a worker that
// was slow, and whose claim has ended meanwhile, changes nothing. Others who name it can only end it,
// under a ref with the right break.
//
// A claim is part of its key's entry: it ends with it (remove, purge, delete), and a new value keeps
// it. A claim whose lease is over counts as none. An event says so, written by the next op that
// changes the key, just before its own, or by the sweep (maintain.Lapse).

import (
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// claimResult is the result of claim: it names no key if none was free.
type claimResult struct {
	changeResult
	Key   string `json:"key,omitempty"`
	Claim uint64 `json:"claim,omitempty"`
}

// liveClaim returns a key's claim; nil if it has none, or its lease is over.
func (a *applier) liveClaim(slot *view.EntryState) *session.Claim {
	if e := slot.Entry; e != nil && e.Claim != nil && a.v.Now < e.Claim.Until {
		return e.Claim
	}
	return nil
}

// fenced returns Conflict unless an op may change a key: the key is not claimed and the op names no
// claim, or the op comes from the claim's stream and names it.
func (a *applier) fenced(key string, slot *view.EntryState, named opargs.Condition) *fault.Error {
	c := a.liveClaim(slot)
	switch {
	case c == nil && !named.Set:
		return nil
	case c == nil:
		return fault.Conflict.With("%s is not claimed any more: the claim of cursor %d has lapsed, was released or never made: claim it again", key, named.Cursor)
	case !named.Set:
		return fault.Conflict.With("%s is claimed by another, since cursor %d: wait until it is free, or name the claim if it is yours", key, c.Cursor).Pos(c.Cursor)
	case named.Cursor != c.Cursor || c.Outbox != a.outbox:
		return fault.Conflict.With("%s is claimed by another, since cursor %d: the claim of cursor %d is not in force here", key, c.Cursor, named.Cursor).Pos(c.Cursor)
	}
	return nil
}

// endLapsed writes the event of a claim of key whose lease is over; the key's state is loaded.
func (a *applier) endLapsed(key string) {
	if slot := a.s.Entries[key]; slot.Entry != nil && slot.Entry.Claim != nil {
		maintain.LapseClaim(a.v, a.s, key, slot)
	}
}

func (a *applier) applyClaim(o *opargs.Claim) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	key := o.Key
	if o.Request != "" {
		return a.claimRequest(o)
	}
	if key == "" {
		if err := a.mayFind(o.Prefix); err != nil {
			return nil, err
		}
		var err *fault.Error
		if key, err = a.firstFree(o.Prefix); err != nil {
			return nil, err
		}
		if key == "" {
			return claimResult{changeResult: a.unchanged()}, nil
		}
	}
	slot, err := a.v.EntryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	payload := session.ClaimPayload{Lease: o.Lease, Until: a.v.Now + o.Lease, Worker: o.Worker}
	c := a.liveClaim(slot)
	switch {
	case slot.Entry == nil:
		return nil, fault.NotFound.With("%s has no value: put it before it is claimed", key)
	case c != nil && (c.Outbox != a.outbox || c.Worker != o.Worker):
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
	a.v.SetClaim(a.s, key, a.s.Entries[key], next)
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

func (a *applier) applyRelease(o *opargs.Release) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	if o.Request != "" {
		return a.releaseRequest(o)
	}
	slot, err := a.v.EntryMeta(a.s, o.Key)
	if err != nil {
		return nil, err
	}
	c := a.liveClaim(slot)
	broken := c != nil && c.Cursor == o.Claim.Cursor && c.Outbox != a.outbox
	switch {
	case broken && !a.grant.Rights.Has(capability.Break):
		return nil, fault.Conflict.With("%s is claimed by another, since cursor %d: wait until it is free, or break the claim under a ref with the right break", o.Key, c.Cursor).Pos(c.Cursor)
	case !broken:
		if err := a.fenced(o.Key, slot, o.Claim); err != nil {
			return nil, err
		}
	}
	a.emit(session.MethodRelease, o.Key, 1, rawjson.Encode(maintain.EndPayload{Claim: o.Claim.Cursor, Broken: broken}))
	a.v.SetClaim(a.s, o.Key, slot, nil)
	return a.changed(), nil
}

// firstFree returns the first key below a prefix that has a value, is not claimed and is shown by the
// current ref, in key order; "" if there is none. The error is Overloaded if too many claimed ones
// come first.
func (a *applier) firstFree(prefix string) (string, *fault.Error) {
	free := func(key string) bool {
		slot := a.s.Entries[key]
		return slot.Entry != nil && a.liveClaim(slot) == nil && session.ShowsEntry(a.grant, slot.Entry)
	}
	stored, more, err := a.v.FirstStored(a.s, prefix, free)
	if err != nil {
		return "", err
	}
	first := stored
	for key := range a.s.Entries { // that this group has put, or whose claim it has ended
		if strings.HasPrefix(key, prefix) && (first == "" || key < first) && free(key) {
			first = key
		}
	}
	if first == "" && more {
		return "", fault.Overloaded.With("more than %d keys below %s are claimed, or not shown by the ref: the op waits until some are free", view.MaxPassedClaims, prefix)
	}
	return first, nil
}
