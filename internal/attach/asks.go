package attach

// Permissions and questions: opencode's become requests, whose answers go to opencode; what is answered in opencode ends the request.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
)

// asks are what opencode waits for, and the requests of it.
type asks struct {
	pending map[string]*pending
	known   map[string]*client.Request // that were asked for opencode, and may matter yet
	over    map[string]bool            // that were ended by this process
	listed  bool                       // pending has all since opencode was reached
	family  map[string]bool            // whether one of opencode's sessions is a sub-agent's of this one
}

func newAsks() asks {
	return asks{pending: map[string]*pending{}, known: map[string]*client.Request{}, over: map[string]bool{}, family: map[string]bool{}}
}

// listAsks asks what opencode waits for, and withdraws what it no longer does. Of a session that rests it waits for nothing, whatever it lists.
func (a *attachment) listAsks(busy map[string]bool) error {
	var permissions, questions []*pending
	if err := a.api.Get(a.ctx, "/permission", nil, &permissions); err != nil {
		return err
	}
	if err := a.api.Get(a.ctx, "/question", nil, &questions); err != nil && !opencodeapi.IsStatus(err, http.StatusNotFound) { // older ones have none
		return err
	}
	now := map[string]bool{}
	for _, p := range append(permissions, questions...) {
		if busy[p.Session] {
			now[p.ID] = true
			if err := a.askFor(p); err != nil {
				return err
			}
		}
	}
	for id := range a.pending {
		if !now[id] {
			if err := a.gone(id, notAsked); err != nil {
				return err
			}
		}
	}
	a.listed = true
	for id, req := range a.known {
		if !now[id] {
			delete(a.known, id)
			if !req.State.Ended() {
				if err := a.gone(id, notAsked); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const notAsked = "opencode does not ask it any more"

// isOurs reports whether one of opencode's sessions is the tie's, or a sub-agent's of it.
func (a *attachment) isOurs(session string) (bool, error) {
	ours, known := a.family[session]
	for at, depth := session, 0; !known && depth < 8; depth++ {
		if at == a.id {
			ours = true
			break
		}
		var info opencodeapi.Info
		err := a.api.Get(a.ctx, opencodeapi.SessionPath(at), nil, &info)
		if err != nil && !opencodeapi.IsStatus(err, http.StatusNotFound) {
			return false, err
		}
		if at = info.Parent; at == "" {
			break
		}
	}
	a.family[session] = ours
	return ours, nil
}

// asked takes an event that says that opencode asks something.
func (a *attachment) asked(properties json.RawMessage) error {
	p := &pending{}
	if json.Unmarshal(properties, p) != nil || p.ID == "" {
		return nil
	}
	return a.askFor(p)
}

// askFor asks people what opencode asks, once.
func (a *attachment) askFor(p *pending) error {
	if ours, err := a.isOurs(p.Session); err != nil || !ours {
		return err
	}
	if a.pending[p.ID] == nil {
		payload, choices, err := a.show(p)
		if err != nil {
			return err
		}
		p.digest = digestOf(payload)
		a.pending[p.ID] = p
		if a.known[p.ID] == nil {
			return a.askPeople(p, payload, choices)
		}
	}
	req := a.known[p.ID]
	if req == nil {
		return nil
	}
	a.pending[p.ID].digest = req.Digest
	if req.State.Ended() {
		return a.tell(req)
	}
	return nil
}

// show returns what people are shown of what opencode asks.
func (a *attachment) show(p *pending) (json.RawMessage, []client.Choice, error) {
	var in *message
	if p.Tool.Message != "" {
		in = &message{}
		if err := a.api.Get(a.ctx, opencodeapi.SessionPath(p.Session, "message", p.Tool.Message), nil, in); err != nil {
			if !opencodeapi.IsStatus(err, http.StatusNotFound) {
				return nil, nil, err
			}
			in = nil
		}
	}
	payload, choices := p.show(in, a.id)
	return payload, choices, nil
}

// askPeople makes the request. Where the server knows it already, as from an earlier process, that changes nothing.
func (a *attachment) askPeople(p *pending, payload json.RawMessage, choices []client.Choice) error {
	if len(payload) > maxShown {
		a.cfg.Report(fmt.Sprintf("%s can only be answered in opencode: what it is for has %d bytes", p.ID, len(payload)))
		return nil
	}
	o := client.AskOptions{ID: p.ID, Choices: choices}
	if p.Session == a.id {
		o.Message = p.Tool.Message
	}
	if err := a.rec.flush(a.ctx, time.Now()); err != nil { // the message it is about comes first
		return err
	}
	b := a.cfg.Session.Batch()
	b.Ask(p.kind(), payload, o)
	t, err := a.commit(a.ctx, b)
	if err != nil || t == nil {
		return err
	}
	a.tasks.Go(func() {
		results, err := t.Wait(a.ctx)
		if err == nil {
			err = results.Err()
		}
		if err != nil && a.ctx.Err() == nil {
			a.post(func() error {
				if a.pending[p.ID] == p && a.known[p.ID] == nil {
					a.cfg.Report(fmt.Sprintf("%s can only be answered in opencode: %v", p.ID, err))
				}
				return nil
			})
		}
	})
	return nil
}

// decided takes what became of a request that was asked for opencode.
func (a *attachment) decided(req *client.Request) error {
	if req.AskedRef != a.cfg.Session.Ref().ID || a.over[req.ID] {
		return nil
	}
	a.known[req.ID] = req
	switch p := a.pending[req.ID]; {
	case p == nil && a.listed && !req.State.Ended():
		return a.gone(req.ID, notAsked)
	case p == nil && a.listed:
		delete(a.known, req.ID)
	case p != nil && req.State.Ended():
		return a.ask("answer opencode", func() error { return a.tell(req) })
	case p != nil:
		p.digest = req.Digest
	}
	return nil
}

// tell tells opencode what became of a request. What was withdrawn or has expired is refused.
func (a *attachment) tell(req *client.Request) error {
	p := a.pending[req.ID]
	choice, payload := req.Choice, req.Answer
	if req.State != client.RequestAnswered {
		choice, payload = replyReject, nil
	}
	end, body := p.reply(choice, payload)
	if err := a.api.Post(a.ctx, p.path()+end, body); err != nil && !opencodeapi.IsStatus(err, http.StatusNotFound) { // it was answered in opencode, too
		return err
	}
	a.forget(req.ID)
	return nil
}

// forget notes that something that opencode asked is over.
func (a *attachment) forget(id string) {
	delete(a.pending, id)
	delete(a.known, id)
	a.over[id] = true
}

// gone withdraws what opencode no longer waits for.
func (a *attachment) gone(id, why string) error {
	req := a.known[id]
	a.forget(id)
	if req != nil && req.State.Ended() {
		return nil
	}
	b := a.cfg.Session.Batch()
	b.Withdraw(id, why)
	_, err := a.commit(a.ctx, b)
	return err
}

// turnEnded withdraws what one of opencode's sessions waited for.
func (a *attachment) turnEnded(session string) error {
	for id, p := range a.pending {
		if p.Session == session {
			if err := a.gone(id, "the turn has ended in opencode"); err != nil {
				return err
			}
		}
	}
	return nil
}

// replied takes an event that says what was answered in opencode, by whomever.
func (a *attachment) replied(e event) error {
	var r replied
	if json.Unmarshal(e.Properties, &r) != nil || a.pending[r.Request] == nil {
		return nil
	}
	p, req := a.pending[r.Request], a.known[r.Request]
	if req != nil && req.State.Ended() {
		a.forget(p.ID)
		return nil
	}
	o, ok := p.answer(r, e.Type)
	if !ok {
		return a.gone(p.ID, "it was answered in opencode: "+clip(string(encode(r.Answers))))
	}
	a.forget(p.ID)
	b := a.cfg.Session.Batch()
	b.Answer(p.ID, o)
	_, err := a.commit(a.ctx, b)
	return err
}
