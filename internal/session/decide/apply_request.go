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
	"github.com/mooring-rpc/mooring/internal/session/view"
)

func (o *opAsk) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	if !capability.AllowsKind(a.grant.AskKinds, o.kind) {
		return nil, fault.MissingRight.With("the ref asks only %s, and this is a %s: ask for one that covers it", capability.KindsText(a.grant.AskKinds), o.kind)
	}
	key := session.RequestKey(o.id)
	there, err := a.v.EntryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	if there.Entry != nil {
		return o.again(a, key)
	}
	if o.message != "" {
		head, err := a.v.EntryMeta(a.s, session.MessageKey(o.message))
		if err != nil {
			return nil, err
		}
		if head.Entry == nil {
			return nil, fault.NotFound.With("there is no message %s that the request could be about", fault.Clip(o.message))
		}
		if err := a.notHidden(session.MessageKey(o.message)); err != nil {
			return nil, err
		}
	}
	if err := a.checkRequestLimits(); err != nil {
		return nil, err
	}
	r := &session.OpenRequest{Session: a.s.Row.ID, ID: o.id, Kind: o.kind, Ref: a.grant.ID, Message: o.message, Digest: session.SumOf(o.payload).String(), Choices: o.choiceIDs}
	if o.expiresIn != 0 {
		r.Expires = a.v.Now + o.expiresIn
	}
	asked := requestPayload{Kind: o.kind, Message: o.message, Digest: r.Digest, Expires: r.Expires, By: a.by(), At: a.v.Now}
	if ends := a.grant.Expires; ends != 0 && (r.Expires == 0 || ends < r.Expires) {
		r.Expires = ends // nobody under a dead ref waits for an answer
	}
	a.putRequest(there, key, withRaw(asked, "choices", o.choices, "payload", o.payload))
	a.v.SetRequest(a.s, r)
	return a.changed(), nil
}

// again answers the repetition of a request that is there: it changes nothing if it is the same, by the same ref.
func (o *opAsk) again(a *applier, key string) (result, *fault.Error) {
	e, err := a.v.Value(a.s, key)
	if err != nil {
		return nil, err
	}
	var was requestPayload
	if json.Unmarshal(e.Payload, &was) == nil && was.By.Ref == a.grant.ID && was.Kind == o.kind && was.Message == o.message && was.Digest == session.SumOf(o.payload).String() &&
		bytes.Equal(rawjson.At(e.Payload, "choices"), bytes.TrimSpace(o.choices)) {
		return changeResult{Cursor: e.Cursor, Unchanged: true}, nil // what became of it comes after that
	}
	return nil, fault.AlreadyExists.With("there is a request %s already, and it is another: ids are not used twice", fault.Clip(o.id)).Pos(e.Cursor)
}

// by returns who does the op.
func (a *applier) by() requestBy { return by(a.grant) }

func by(g *capability.Grant) requestBy { return requestBy{g.ID, actorOf(g)} }

// putRequest puts a value of a request, whose key's state is slot.
func (a *applier) putRequest(slot *view.EntryState, key string, payload []byte) *session.Event {
	ev := a.emit(session.MethodPut, key, 1, payload)
	a.v.PutRequest(a.s, slot, ev)
	return ev
}

// setState puts what became of a request by the op: r is its row from now on, with its claim if it has one.
func (a *applier) setState(r *session.OpenRequest, next statePayload, answer []byte) *fault.Error {
	key := session.RequestStateKey(r.ID)
	slot, err := a.v.EntryMeta(a.s, key)
	if err != nil {
		return err
	}
	who := a.by()
	next.By, next.At = &who, a.v.Now
	a.putRequest(slot, key, withRaw(next, "payload", answer))
	endOrKeep(a.v, a.s, r, next.State)
	return nil
}

// setStateByItself is setState without an op: a rule, or the end of a ref, changed the request.
func setStateByItself(v *view.View, s *view.Session, r *session.OpenRequest, next statePayload, who *capability.Grant) *fault.Error {
	key := session.RequestStateKey(r.ID)
	slot, err := v.EntryMeta(s, key)
	if err != nil {
		return err
	}
	ev := &session.Event{Method: session.MethodPut, Key: key, Schema: 1}
	if next.At = v.Now; who != nil {
		as := by(who)
		next.By, ev.Ref, ev.Actor = &as, as.Ref, as.Actor
	}
	ev.Payload = rawjson.Encode(next)
	v.Emit(s, ev)
	v.PutRequest(s, slot, ev)
	endOrKeep(v, s, r, next.State)
	return nil
}

// endOrKeep keeps the row of a request that is open or claimed, and ends it in any other state.
func endOrKeep(v *view.View, s *view.Session, r *session.OpenRequest, state session.RequestState) {
	if !state.Ended() {
		v.SetRequest(s, r)
		return
	}
	v.DropRequest(s, r.ID)
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
	var was statePayload
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
func (a *applier) mine(r *session.OpenRequest, named condition) *fault.Error {
	c := r.Held(a.v.Now)
	switch {
	case c == nil && !named.set:
		return nil
	case c == nil:
		return fault.Conflict.With("request %s is not claimed any more: the claim of cursor %d has lapsed, was released or never made: claim it again", r.ID, named.cursor)
	case c.Stream != a.outbox:
		return fault.Conflict.With("request %s is claimed by another, since cursor %d", r.ID, c.Cursor).Pos(c.Cursor)
	case !named.set || named.cursor != c.Cursor:
		return fault.Conflict.With("request %s is claimed, since cursor %d: name the claim if it is yours", r.ID, c.Cursor).Pos(c.Cursor)
	}
	return nil
}

// claimRequest claims a request, or renews the claim of the stream's worker.
func (o *opClaim) claimRequest(a *applier) (result, *fault.Error) {
	r, err := a.answerable(o.request)
	if err != nil {
		return nil, err
	}
	c := r.Held(a.v.Now)
	if c != nil && (c.Stream != a.outbox || c.Worker != o.worker) {
		return nil, fault.Conflict.With("request %s is claimed by another, since cursor %d", r.ID, c.Cursor).Pos(c.Cursor)
	}
	next := *r
	next.Claim = &session.RequestClaim{Cursor: a.s.Row.Cursor + 1, Until: a.v.Now + o.lease, Stream: a.outbox, Worker: o.worker}
	if c != nil {
		next.Claim.Cursor = c.Cursor
	}
	if err := a.setState(&next, statePayload{State: session.RequestClaimed, Claim: next.Claim.Cursor, Outbox: session.OutboxOf(a.outbox), Worker: o.worker, Until: next.Claim.Until}, nil); err != nil {
		return nil, err
	}
	return claimResult{changeResult: a.changed(), Claim: next.Claim.Cursor}, nil
}

// releaseRequest gives a request back, which is open again. A prompt gives back only who had it.
func (o *opRelease) releaseRequest(a *applier) (result, *fault.Error) {
	r, err := a.request(o.request)
	if err != nil {
		return nil, err
	}
	if c := r.Held(a.v.Now); c != nil && c.Stream != a.outbox && c.Cursor == o.claim.cursor && r.Kind != session.KindPrompt && a.grant.Rights.Has(capability.Break) {
		// another's claim is broken
	} else if err := a.mine(r, o.claim); err != nil {
		return nil, err
	}
	next := *r
	next.Claim = nil
	if err := a.setState(&next, statePayload{State: session.RequestOpen}, nil); err != nil {
		return nil, err
	}
	return a.changed(), nil
}

func (o *opAnswer) apply(a *applier) (result, *fault.Error) {
	r, err := a.answerable(o.request)
	if err != nil && a.sub.Direct != nil {
		return o.again(a, err)
	}
	if err != nil {
		return nil, err
	}
	if err := a.mine(r, o.claim); err != nil {
		return nil, err
	}
	switch {
	case o.unknown && r.Claim == nil:
		return nil, fault.BadArgument.With("state: what nobody has claimed was handed to nobody, so it does not end as unknown: withdraw it")
	case o.unknown:
		if err := a.setState(r, statePayload{State: session.RequestUnknown, Reason: o.reason}, nil); err != nil {
			return nil, err
		}
		return a.changed(), nil
	case r.Kind == session.KindPermission && o.shown == "":
		return nil, fault.BadArgument.With("the answer to a permission names what was shown: shown is the request's digest")
	case o.shown != "" && o.shown != r.Digest:
		return nil, fault.Conflict.With("what was shown is not what request %s asks: read it and decide again", r.ID)
	case r.Choices != nil && !slices.Contains(r.Choices, o.choice):
		return nil, fault.BadArgument.With("choice is not one of request %s: name the id of one of its choices", r.ID)
	case r.Choices == nil && o.choice != "":
		return nil, fault.BadArgument.With("request %s has no choices: leave choice out, and answer by payload", r.ID)
	}
	if err := a.setState(r, statePayload{State: session.RequestAnswered, Choice: o.choice}, o.payload); err != nil {
		return nil, err
	}
	return a.changed(), nil
}

// again answers an answer that no ledger knows, and whose request is not open: it is the same by the same ref, and
// changes nothing, or is refused.
func (o *opAnswer) again(a *applier, refused *fault.Error) (result, *fault.Error) {
	e, err := a.v.Value(a.s, session.RequestStateKey(o.request))
	if err != nil {
		return nil, err
	}
	var was statePayload
	if e == nil || json.Unmarshal(e.Payload, &was) != nil || was.State != session.RequestAnswered || was.By == nil || was.By.Ref != a.grant.ID || was.Choice != o.choice ||
		!bytes.Equal(rawjson.At(e.Payload, "payload"), bytes.TrimSpace(o.payload)) {
		return nil, refused
	}
	return changeResult{Cursor: e.Cursor, Unchanged: true}, nil
}

func (o *opWithdraw) apply(a *applier) (result, *fault.Error) {
	r, err := a.request(o.request)
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
	next := statePayload{State: session.RequestWithdrawn, Reason: o.reason}
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

// withdrawOpen withdraws the requests that nobody has claimed and of which gone says why, in the order of their ids:
// who is whose doing it is.
func withdrawOpen(v *view.View, s *view.Session, who *capability.Grant, gone func(*session.OpenRequest) (string, *fault.Error)) *fault.Error {
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
		if err := setStateByItself(v, s, r, statePayload{State: session.RequestWithdrawn, Reason: reason}, who); err != nil {
			return err
		}
	}
	return nil
}

// withdrawUnder withdraws what was asked under a ref that is about to end and those minted below it, or under all refs of
// a session if ended is its id.
func withdrawUnder(v *view.View, s *view.Session, who *capability.Grant, ended string) *fault.Error {
	known := map[string]bool{ended: true}
	return withdrawOpen(v, s, who, func(r *session.OpenRequest) (string, *fault.Error) {
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

// withdrawReplaced withdraws what was asked under a ref that is about to be replaced. What was asked under those made from it
// goes on, as they do.
func withdrawReplaced(v *view.View, s *view.Session, who *capability.Grant, ref string) *fault.Error {
	return withdrawOpen(v, s, who, func(r *session.OpenRequest) (string, *fault.Error) {
		if r.Ref != ref {
			return "", nil
		}
		return "the ref that it was asked under was replaced", nil
	})
}

// withdrawShared withdraws what was asked under refs that end with the session's epoch.
func (a *applier) withdrawShared() *fault.Error {
	return withdrawOpen(a.v, a.s, a.grant, func(r *session.OpenRequest) (string, *fault.Error) {
		g, err := a.v.Grant(r.Ref)
		if err != nil || g == nil || g.Target != a.s.Row.ID || g.Owner {
			return "", err
		}
		return "the ref that it was asked under was revoked", nil
	})
}

// withdrawHidden withdraws what is about messages that r hides.
func (a *applier) withdrawHidden(r *session.Revert) *fault.Error {
	return withdrawOpen(a.v, a.s, a.grant, func(q *session.OpenRequest) (string, *fault.Error) {
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
	return withdrawOpen(a.v, a.s, a.grant, func(r *session.OpenRequest) (string, *fault.Error) {
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
		return setStateByItself(a.v, a.s, r, statePayload{State: session.RequestWithdrawn, Reason: "what it asked was purged"}, a.grant)
	}
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
			setStateByItself(v, s, &next, statePayload{State: session.RequestOpen, Reason: "the lease of its claim is over"}, nil)
		default:
			setStateByItself(v, s, r, statePayload{State: session.RequestExpired}, nil)
		}
	}
}
