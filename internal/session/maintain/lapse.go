package maintain

// Leases that have expired: of turns, claims and requests.

import (
	"context"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// Lapse marks as interrupted, inside tx, the streaming turns of sessions whose lease has expired by
// the database's clock, or all of them if the server has just started and has no stream (all). It
// ends claims whose lease has expired, and requests that have. Each gets an event. Turns and claims that were renewed, resumed
// or ended since the sessions were found do not change, so it may run on any server, any number of
// times. The sessions must exist.
func Lapse(ctx context.Context, tx session.Tx, sessions []string, all bool) (*session.Published, error) {
	ids := slices.Clone(sessions)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	v := view.New(ctx, tx, 0)
	if err := v.Load(&session.ReadSet{Sessions: ids, StreamingTurns: ids}, true); err != nil {
		return nil, err
	}
	if err := v.Load(&session.ReadSet{LapsedClaims: ids, LapsedBy: v.Now}, false); err != nil {
		return nil, err
	}
	reason := lapsePayload{"its lease lapsed"}
	if all {
		reason.Reason = "the server started"
	}
	for _, id := range ids {
		s := v.Sessions[id]
		if s.Row.Life != session.Live {
			continue
		}
		for _, t := range v.LoadedTurns(s, "") {
			next, err := t.Status.Next(session.StepLapse)
			if err != nil || next == t.Status || !all && t.Lease > v.Now {
				continue
			}
			v.Emit(s, &session.Event{Method: session.MethodInterrupted, Key: session.MessageKey(t.Message), Schema: 1, Payload: rawjson.Encode(reason)})
			gone := *t
			gone.Status = next
			v.SetTurn(s, gone)
		}
		for _, key := range slices.Sorted(maps.Keys(s.Entries)) {
			LapseClaim(v, s, key, s.Entries[key])
		}
		lapseRequests(v, s)
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	changes, published := v.Changes()
	if changes == nil {
		return published, nil
	}
	return published, tx.Save(ctx, changes)
}

// lapsePayload is the payload of an interrupted event.
type lapsePayload struct {
	Reason string `json:"reason"`
}

// EndPayload is the payload of release and lapse events.
type EndPayload struct {
	Claim  uint64 `json:"claim"`
	Broken bool   `json:"broken,omitempty"` // released by another stream than its owner's, under a ref with the right break
}

// LapseClaim ends a claim whose lease is over; other claims stay.
func LapseClaim(v *view.View, s *view.Session, key string, slot *view.EntryState) {
	c := slot.Entry.Claim
	if v.Now < c.Until {
		return
	}
	v.Emit(s, &session.Event{Method: session.MethodLapse, Key: key, Schema: 1, Payload: rawjson.Encode(EndPayload{Claim: c.Cursor})})
	v.SetClaim(s, key, slot, nil)
}
