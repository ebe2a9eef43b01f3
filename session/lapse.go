package session

// Leases that lapsed: the one thing that happens to a session without an op.

import (
	"context"
	"slices"
)

// Lapse marks, inside tx, the streaming turns of sessions as interrupted whose
// lease has run out by the database's clock, or all of them if the server has
// just started and holds no stream (all). An event tells of each. Sessions whose
// turns were renewed, resumed or ended since they were looked up are left alone,
// so it may run anywhere, any number of times. The sessions must exist.
func Lapse(ctx context.Context, tx Tx, sessions []string, all bool) (*Published, error) {
	ids := slices.Clone(sessions)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	v := newView(ctx, tx, 0)
	if err := v.load(&Want{Sessions: ids, Turns: ids}, true); err != nil {
		return nil, err
	}
	reason := lapsePayload{"its lease lapsed"}
	if all {
		reason.Reason = "the server started"
	}
	for _, id := range ids {
		s := v.sessions[id]
		if s.row.Life != Live {
			continue
		}
		for _, t := range v.knownTurns(s, "") {
			next, err := t.Status.Next(StepLapse)
			if err != nil || next == t.Status || !all && t.Lease > v.now {
				continue
			}
			v.emit(s, &Event{Method: MethodInterrupted, Key: MessageKey(t.Message), Schema: 1, Payload: encode(reason)})
			gone := *t
			gone.Status = next
			v.setTurn(s, gone)
		}
	}
	changes, published := v.changes()
	if changes == nil {
		return published, nil
	}
	return published, tx.Save(ctx, changes)
}

// lapsePayload is what an interrupted event holds.
type lapsePayload struct {
	Reason string `json:"reason"`
}
