package maintain

// What becomes of requests without an op about them: they are withdrawn with the ref that they were asked under, or with what they are
// about, expire, and are open again when the lease of a claim is over.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// RequestBy is who did something.
type RequestBy struct {
	Ref   string `json:"ref"`
	Actor string `json:"actor"`
}

// StatePayload is what became of a request. An answer's payload is in it byte for byte.
type StatePayload struct {
	State  session.RequestState `json:"state"`
	Claim  uint64               `json:"claim,omitempty"`  // cursor of the claim
	Outbox string               `json:"outbox,omitempty"` // of the claimer
	Worker string               `json:"worker,omitempty"`
	Until  int64                `json:"until,omitempty"` // of the claim's lease, Unix ms
	Choice string               `json:"choice,omitempty"`
	Reason string               `json:"reason,omitempty"`
	By     *RequestBy           `json:"by,omitempty"` // nil: it happened by itself
	At     int64                `json:"at"`           // Unix ms
}

// By returns the ref and the actor of what is done under g.
func By(g *capability.Grant) RequestBy { return RequestBy{g.ID, actorOf(g)} }

// SetState puts what became of a request without an op about it: r is its row from now on. who is the ref whose end has changed it, nil if
// it happened by itself.
func SetState(v *view.View, s *view.Session, r *session.OpenRequest, next StatePayload, who *capability.Grant) *fault.Error {
	key := session.RequestStateKey(r.ID)
	slot, err := v.EntryMeta(s, key)
	if err != nil {
		return err
	}
	ev := &session.Event{Method: session.MethodPut, Key: key, Schema: 1}
	if next.At = v.Now; who != nil {
		as := By(who)
		next.By, ev.Ref, ev.Actor = &as, as.Ref, as.Actor
	}
	ev.Payload = rawjson.Encode(next)
	v.Emit(s, ev)
	v.PutRequest(s, slot, ev)
	EndOrKeep(v, s, r, next.State)
	return nil
}

// EndOrKeep keeps the row of a request that is open or claimed, and ends it in any other state.
func EndOrKeep(v *view.View, s *view.Session, r *session.OpenRequest, state session.RequestState) {
	if !state.Ended() {
		v.SetRequest(s, r)
		return
	}
	v.DropRequest(s, r.ID)
}

// WithdrawOpen withdraws the requests that nobody has claimed and of which gone says why, in the order of their ids:
// who is whose doing it is.
func WithdrawOpen(v *view.View, s *view.Session, who *capability.Grant, gone func(*session.OpenRequest) (string, *fault.Error)) *fault.Error {
	open, err := v.OpenRequests(s)
	if err != nil {
		return err
	}
	for _, r := range view.SortedRequests(open) {
		if r.Held(v.Now) != nil {
			continue
		}
		reason, err := gone(r)
		if err != nil {
			return err
		}
		if reason == "" {
			continue
		}
		if err := SetState(v, s, r, StatePayload{State: session.RequestWithdrawn, Reason: reason}, who); err != nil {
			return err
		}
	}
	return nil
}

// WithdrawUnder withdraws what was asked under a ref that is about to end and those minted below it, or under all refs of
// a session if ended is its id.
func WithdrawUnder(v *view.View, s *view.Session, who *capability.Grant, ended string) *fault.Error {
	known := map[string]bool{ended: true}
	return WithdrawOpen(v, s, who, func(r *session.OpenRequest) (string, *fault.Error) {
		under := capability.Target(r.Ref) == ended
		if !under {
			var err *fault.Error
			if under, err = v.DescendsFrom(r.Ref, known); err != nil {
				return "", err
			}
		}
		if !under {
			return "", nil
		}
		return "the ref that it was asked under was revoked", nil
	})
}

// WithdrawReplaced withdraws what was asked under a ref that is about to be replaced. What was asked under those made from it
// goes on, as they do.
func WithdrawReplaced(v *view.View, s *view.Session, who *capability.Grant, ref string) *fault.Error {
	return WithdrawOpen(v, s, who, func(r *session.OpenRequest) (string, *fault.Error) {
		if r.Ref != ref {
			return "", nil
		}
		return "the ref that it was asked under was replaced", nil
	})
}

// lapseRequests ends the session's requests that have expired, and opens again those whose claim's lease is over.
func lapseRequests(v *view.View, s *view.Session) {
	open, err := v.OpenRequests(s)
	if err != nil {
		return // v.err says why
	}
	for _, r := range view.SortedRequests(open) {
		switch due := r.Due(); {
		case due == 0 || due > v.Now:
		case r.Claim != nil:
			next := *r
			next.Claim = nil
			SetState(v, s, &next, StatePayload{State: session.RequestOpen, Reason: "the lease of its claim is over"}, nil)
		default:
			SetState(v, s, r, StatePayload{State: session.RequestExpired}, nil)
		}
	}
}
