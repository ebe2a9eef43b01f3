package decide

// ask, answer and withdraw, and the claims of requests: what they are is in session/request.go.

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

func (a *applier) applyAsk(o *opargs.Ask) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	if !capability.AllowsKind(a.grant.AskKinds, o.Kind) {
		return nil, fault.MissingRight.With("the ref asks only %s, and this is a %s: ask for one that covers it", capability.KindsText(a.grant.AskKinds), o.Kind)
	}
	key := session.RequestKey(o.ID)
	there, err := a.v.EntryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	if there.Entry != nil {
		return a.askedAgain(o, key)
	}
	if o.Message != "" {
		head, err := a.v.EntryMeta(a.s, session.MessageKey(o.Message))
		if err != nil {
			return nil, err
		}
		if head.Entry == nil {
			return nil, fault.NotFound.With("there is no message %s that the request could be about", fault.Clip(o.Message))
		}
		if err := a.notHidden(session.MessageKey(o.Message)); err != nil {
			return nil, err
		}
	}
	if err := a.checkRequestLimits(); err != nil {
		return nil, err
	}
	r := &session.OpenRequest{Session: a.s.Row.ID, ID: o.ID, Kind: o.Kind, Ref: a.grant.ID, Message: o.Message, Digest: session.SumOf(o.Payload).String(), Choices: o.ChoiceIDs}
	if o.ExpiresIn != 0 {
		r.Expires = a.v.Now + o.ExpiresIn
	}
	asked := requestPayload{Kind: o.Kind, Message: o.Message, Digest: r.Digest, Expires: r.Expires, By: a.by(), At: a.v.Now}
	if ends := a.grant.Expires; ends != 0 && (r.Expires == 0 || ends < r.Expires) {
		r.Expires = ends // nobody under a dead ref waits for an answer
	}
	a.putRequest(there, key, withRaw(asked, "choices", o.Choices, "payload", o.Payload))
	a.v.SetRequest(a.s, r)
	return a.changed(), nil
}

// askedAgain answers the repetition of a request that is there: it changes nothing if it is the same, by the same ref.
func (a *applier) askedAgain(o *opargs.Ask, key string) (result, *fault.Error) {
	e, err := a.v.Value(a.s, key)
	if err != nil {
		return nil, err
	}
	var was requestPayload
	if json.Unmarshal(e.Payload, &was) == nil && was.By.Ref == a.grant.ID && was.Kind == o.Kind && was.Message == o.Message && was.Digest == session.SumOf(o.Payload).String() &&
		bytes.Equal(rawjson.At(e.Payload, "choices"), bytes.TrimSpace(o.Choices)) {
		return changeResult{Cursor: e.Cursor, Unchanged: true}, nil // what became of it comes after that
	}
	return nil, fault.AlreadyExists.With("there is a request %s already, and it is another: ids are not used twice", fault.Clip(o.ID)).Pos(e.Cursor)
}

// by returns who does the op.
func (a *applier) by() maintain.RequestBy { return maintain.By(a.grant) }

// putRequest puts a value of a request, whose key's state is slot.
func (a *applier) putRequest(slot *view.EntryState, key string, payload []byte) *session.Event {
	ev := a.emit(session.MethodPut, key, 1, payload)
	a.v.PutRequest(a.s, slot, ev)
	return ev
}

// setState puts what became of a request by the op: r is its row from now on, with its claim if it has one.
func (a *applier) setState(r *session.OpenRequest, next maintain.StatePayload, answer []byte) *fault.Error {
	key := session.RequestStateKey(r.ID)
	slot, err := a.v.EntryMeta(a.s, key)
	if err != nil {
		return err
	}
	who := a.by()
	next.By, next.At = &who, a.v.Now
	a.putRequest(slot, key, withRaw(next, "payload", answer))
	maintain.EndOrKeep(a.v, a.s, r, next.State)
	return nil
}

// request returns the row of a request that may be answered; the refusal says what became of any other.
func (a *applier) request(id string) (*session.OpenRequest, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	open, err := a.v.OpenRequests(a.s)
	if err != nil {
		return nil, err
	}
	if r := open[id]; r != nil {
		if r.Expired(a.v.Now) {
			return nil, errEnded(id, session.RequestExpired, "")
		}
		return r, nil
	}
	e, err := a.v.Value(a.s, session.RequestStateKey(id))
	if err != nil {
		return nil, err
	}
	var was maintain.StatePayload
	if e == nil || json.Unmarshal(e.Payload, &was) != nil || was.State == session.RequestOpen || was.State == session.RequestClaimed {
		return nil, fault.NotFound.With("there is no request %s", fault.Clip(id))
	}
	if was.State == session.RequestAnswered {
		return nil, fault.Conflict.With("request %s was answered already, at cursor %d: the first answer counts", fault.Clip(id), e.Cursor).Pos(e.Cursor)
	}
	return nil, errEnded(id, was.State, was.Reason)
}

func errEnded(id string, state session.RequestState, reason string) *fault.Error {
	how := map[session.RequestState]string{session.RequestWithdrawn: "was withdrawn", session.RequestExpired: "has expired", session.RequestUnknown: "was handed over, and nobody knows what came of it"}[state]
	if reason != "" {
		how += ": " + reason
	}
	return fault.RequestEnded.With("request %s %s: ask again if it still matters", fault.Clip(id), how)
}

// answerable returns a request that the ref may answer or claim.
func (a *applier) answerable(id string) (*session.OpenRequest, *fault.Error) {
	r, err := a.request(id)
	if err == nil && !mayAnswer(a.grant, r.Kind) {
		return nil, fault.MissingRight.With("the ref answers only %s, and request %s is a %s: ask for one that covers it", capability.KindsText(a.grant.AnswerKinds), fault.Clip(id), r.Kind)
	}
	return r, err
}

// mine returns Conflict unless nobody works on a request and the op names no claim, or the op's stream does and it names
// that claim.
func (a *applier) mine(r *session.OpenRequest, named opargs.Condition) *fault.Error {
	c := r.Held(a.v.Now)
	switch {
	case c == nil && !named.Set:
		return nil
	case c == nil:
		return fault.Conflict.With("request %s is not claimed any more: the claim of cursor %d has lapsed, was released or never made: claim it again", r.ID, named.Cursor)
	case c.Stream != a.outbox:
		return fault.Conflict.With("request %s is claimed by another, since cursor %d", r.ID, c.Cursor).Pos(c.Cursor)
	case !named.Set || named.Cursor != c.Cursor:
		return fault.Conflict.With("request %s is claimed, since cursor %d: name the claim if it is yours", r.ID, c.Cursor).Pos(c.Cursor)
	}
	return nil
}

// claimRequest claims a request, or renews the claim of the stream's worker.
func (a *applier) claimRequest(o *opargs.Claim) (result, *fault.Error) {
	r, err := a.answerable(o.Request)
	if err != nil {
		return nil, err
	}
	c := r.Held(a.v.Now)
	if c != nil && (c.Stream != a.outbox || c.Worker != o.Worker) {
		return nil, fault.Conflict.With("request %s is claimed by another, since cursor %d", r.ID, c.Cursor).Pos(c.Cursor)
	}
	next := *r
	next.Claim = &session.RequestClaim{Cursor: a.s.Row.Cursor + 1, Until: a.v.Now + o.Lease, Stream: a.outbox, Worker: o.Worker}
	if c != nil {
		next.Claim.Cursor = c.Cursor
	}
	if err := a.setState(&next, maintain.StatePayload{State: session.RequestClaimed, Claim: next.Claim.Cursor, Outbox: session.OutboxOf(a.outbox), Worker: o.Worker, Until: next.Claim.Until}, nil); err != nil {
		return nil, err
	}
	return claimResult{changeResult: a.changed(), Claim: next.Claim.Cursor}, nil
}

// releaseRequest gives a request back, which is open again. A prompt gives back only who had it.
func (a *applier) releaseRequest(o *opargs.Release) (result, *fault.Error) {
	r, err := a.request(o.Request)
	if err != nil {
		return nil, err
	}
	if c := r.Held(a.v.Now); c != nil && c.Stream != a.outbox && c.Cursor == o.Claim.Cursor && r.Kind != session.KindPrompt && a.grant.Rights.Has(capability.Break) {
		// another's claim is broken
	} else if err := a.mine(r, o.Claim); err != nil {
		return nil, err
	}
	next := *r
	next.Claim = nil
	if err := a.setState(&next, maintain.StatePayload{State: session.RequestOpen}, nil); err != nil {
		return nil, err
	}
	return a.changed(), nil
}

func (a *applier) applyAnswer(o *opargs.Answer) (result, *fault.Error) {
	r, err := a.answerable(o.Request)
	if err != nil && a.sub.Direct != nil {
		return a.answeredAgain(o, err)
	}
	if err != nil {
		return nil, err
	}
	if err := a.mine(r, o.Claim); err != nil {
		return nil, err
	}
	switch {
	case o.Unknown && r.Claim == nil:
		return nil, fault.BadArgument.With("state: what nobody has claimed was handed to nobody, so it does not end as unknown: withdraw it")
	case o.Unknown:
		if err := a.setState(r, maintain.StatePayload{State: session.RequestUnknown, Reason: o.Reason}, nil); err != nil {
			return nil, err
		}
		return a.changed(), nil
	case r.Kind == session.KindPermission && o.Shown == "":
		return nil, fault.BadArgument.With("the answer to a permission names what was shown: shown is the request's digest")
	case o.Shown != "" && o.Shown != r.Digest:
		return nil, fault.Conflict.With("what was shown is not what request %s asks: read it and decide again", r.ID)
	case r.Choices != nil && !slices.Contains(r.Choices, o.Choice):
		return nil, fault.BadArgument.With("choice is not one of request %s: name the id of one of its choices", r.ID)
	case r.Choices == nil && o.Choice != "":
		return nil, fault.BadArgument.With("request %s has no choices: leave choice out, and answer by payload", r.ID)
	}
	if err := a.setState(r, maintain.StatePayload{State: session.RequestAnswered, Choice: o.Choice}, o.Payload); err != nil {
		return nil, err
	}
	return a.changed(), nil
}

// answeredAgain answers an answer that no ledger knows, and whose request is not open: it is the same by the same ref, and
// changes nothing, or is refused.
func (a *applier) answeredAgain(o *opargs.Answer, refused *fault.Error) (result, *fault.Error) {
	e, err := a.v.Value(a.s, session.RequestStateKey(o.Request))
	if err != nil {
		return nil, err
	}
	var was maintain.StatePayload
	if e == nil || json.Unmarshal(e.Payload, &was) != nil || was.State != session.RequestAnswered || was.By == nil || was.By.Ref != a.grant.ID || was.Choice != o.Choice ||
		!bytes.Equal(rawjson.At(e.Payload, "payload"), bytes.TrimSpace(o.Payload)) {
		return nil, refused
	}
	return changeResult{Cursor: e.Cursor, Unchanged: true}, nil
}

func (a *applier) applyWithdraw(o *opargs.Withdraw) (result, *fault.Error) {
	r, err := a.request(o.Request)
	if err != nil {
		return nil, err
	}
	if !a.grant.Owner {
		mine, err := a.v.Descends(r.Ref, a.grant.ID)
		if err != nil {
			return nil, err
		}
		if !mine {
			return nil, fault.MissingRight.With("this ref may withdraw only what was asked under it and refs minted below it")
		}
	}
	next := maintain.StatePayload{State: session.RequestWithdrawn, Reason: o.Reason}
	if c := r.Held(a.v.Now); c != nil {
		if a.v.Now < c.Until {
			return nil, fault.Conflict.With("request %s is being worked on, since cursor %d: ask to stop it", r.ID, c.Cursor).Pos(c.Cursor)
		}
		next.State = session.RequestUnknown // its claimer is gone, and may have handed it over
	}
	if err := a.setState(r, next, nil); err != nil {
		return nil, err
	}
	return a.changed(), nil
}

// checkRequestLimits returns the reason that the current ref may not have one more open request: the op waits until
// there is room.
func (a *applier) checkRequestLimits() *fault.Error {
	open, err := a.v.OpenRequests(a.s)
	if err != nil {
		return err
	}
	if len(open) >= MaxSessionRequests {
		return fault.Overloaded.With("%d requests of this session are open, the maximum: the op waits until some have ended", len(open))
	}
	if len(open) < MaxRefRequests {
		return nil
	}
	under := map[string]int{}
	for _, r := range open {
		line, err := a.v.Lineage(a.s, r.Ref)
		if err != nil {
			return err
		}
		for _, g := range line {
			under[g.ID]++
		}
	}
	line, err := a.v.Lineage(a.s, a.grant.ID)
	if err != nil {
		return err
	}
	for _, g := range line {
		if n := under[g.ID]; !g.Owner && n >= MaxRefRequests {
			return fault.Overloaded.With("%d requests of ref %s and refs made from it are open, the maximum: the op waits until some have ended", n, g.ID)
		}
	}
	return nil
}

// withdrawShared withdraws what was asked under refs that end with the session's epoch.
func (a *applier) withdrawShared() *fault.Error {
	return maintain.WithdrawOpen(a.v, a.s, a.grant, func(r *session.OpenRequest) (string, *fault.Error) {
		g, err := a.v.Grant(r.Ref)
		if err != nil || g == nil || g.Target != a.s.Row.ID || g.Owner {
			return "", err
		}
		return "the ref that it was asked under was revoked", nil
	})
}

// withdrawHidden withdraws what is about messages that r hides.
func (a *applier) withdrawHidden(r *session.Revert) *fault.Error {
	return maintain.WithdrawOpen(a.v, a.s, a.grant, func(q *session.OpenRequest) (string, *fault.Error) {
		if q.Message == "" {
			return "", nil
		}
		head, err := a.v.EntryMeta(a.s, session.MessageKey(q.Message))
		if err != nil || head.Entry == nil || !r.Hides(head.Entry, head.Entry) {
			return "", err
		}
		return "what it is about was reverted", nil
	})
}

// withdrawOfTurn withdraws what a turn that has ended was asked, or has asked.
func (a *applier) withdrawOfTurn(message string) *fault.Error {
	return maintain.WithdrawOpen(a.v, a.s, a.grant, func(r *session.OpenRequest) (string, *fault.Error) {
		if r.Message != message || r.Kind == session.KindPrompt {
			return "", nil
		}
		return "the turn that it is about has ended", nil
	})
}

// withdrawPurged ends the request whose key is purged, and refuses to purge the state of one that is open.
func (a *applier) withdrawPurged(key string) *fault.Error {
	id, state, ok := session.RequestOf(key)
	if !ok {
		return nil
	}
	open, err := a.v.OpenRequests(a.s)
	switch r := open[id]; {
	case err != nil || r == nil:
		return err
	case state:
		return fault.Conflict.With("request %s is open: withdraw it first", fault.Clip(id))
	default:
		return maintain.SetState(a.v, a.s, r, maintain.StatePayload{State: session.RequestWithdrawn, Reason: "what it asked was purged"}, a.grant)
	}
}

// mayAnswer reports whether a ref answers, and claims, requests of a kind.
func mayAnswer(g *capability.Grant, kind string) bool {
	return g.Rights.Has(capability.Answer) && capability.AllowsKind(g.AnswerKinds, kind)
}

// Bounds of requests: of those open or claimed, MaxRefRequests of a ref that is not an owner's with its
// descendants and MaxSessionRequests of a session.
const (
	MaxRefRequests     = 32
	MaxSessionRequests = 256
)

// requestPayload is what was asked. Payload and Choices are in it byte for byte (marshal).
type requestPayload struct {
	Kind    string             `json:"kind"`
	Message string             `json:"message,omitempty"`
	Digest  string             `json:"digest"`
	Expires int64              `json:"expires_at,omitempty"` // Unix ms
	By      maintain.RequestBy `json:"by"`
	At      int64              `json:"at"` // Unix ms
}

// withRaw returns v's JSON object with further members, whose values are JSON text and stay as they are; nil ones
// are left out.
func withRaw(v any, members ...any) []byte {
	text := rawjson.Encode(v)
	text = text[:len(text)-1]
	for i := 0; i < len(members); i += 2 {
		if raw := members[i+1].([]byte); raw != nil {
			text = append(append(append(text, `,"`...), members[i].(string)+`":`...), bytes.TrimSpace(raw)...)
		}
	}
	return append(text, '}')
}
