package attach

// Prompts and stops: from the request to its end. One prompt at a time is handed over, when opencode rests.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
)

// prompts are the prompts and stops of the session.
type prompts struct {
	current *prompt
	lost    bool              // the tie's file did not know of current, which was claimed: opencode's history is searched for it
	payload []byte            // of current, until it is taken
	queue   []*client.Request // open prompts
	stops   []*client.Request
	done    map[string]bool // prompts that have ended in this process
	lookAt  time.Time       // when to attend to them; zero: no need
	renewed time.Time       // the claim of current

	sends   int       // of current's message by this process, since opencode was reached
	sentAt  time.Time // last
	restAt  time.Time // since when opencode rests on what it has answered; zero: it does not
	restsOn string    // the newest message of that, "" for none
	failure string    // the session's last error since
}

func newPrompts(p *prompt) prompts {
	all := prompts{done: map[string]bool{}}
	if p != nil {
		now := *p
		all.current = &now
	}
	return all
}

// follow hands over the session's requests as they change.
func (a *attachment) follow() {
	kinds := []string{client.KindPrompt, client.KindStop, client.KindPermission, client.KindQuestion}
	for req, err := range a.cfg.Session.FollowRequests(a.ctx, client.RequestOptions{Kinds: kinds, Ended: true}) {
		if err != nil {
			if a.ctx.Err() == nil {
				a.post(func() error { return fmt.Errorf("follow the session's requests: %w", err) })
			}
			return
		}
		a.post(func() error { return a.ask("take a request", func() error { return a.request(req) }) })
	}
}

// request takes a request that is there, or has changed.
func (a *attachment) request(req *client.Request) error {
	a.lookAt = time.Now()
	switch req.Kind {
	case client.KindPermission, client.KindQuestion:
		return a.decided(req)
	case client.KindStop:
		if req.State == client.RequestOpen {
			a.stops = append(a.stops, req)
		}
		return nil
	}
	a.queue = slices.DeleteFunc(a.queue, func(q *client.Request) bool { return q.ID == req.ID })
	mine := req.Claim != nil && req.Claim.Outbox == a.cfg.Client.Outbox().ID() && req.Claim.Worker == worker
	if p := a.current; p != nil && p.Request == req.ID {
		switch {
		case req.State.Ended() && (p.Stage == claiming || p.Stage == taken):
			return a.drop()
		case p.Stage == claiming && mine:
			a.payload = req.Payload
			return a.claimed(req.Claim.Cursor)
		case req.State == client.RequestOpen && (p.Stage == claiming && a.payload == nil || p.Stage == taken): // an earlier process did not get, or gave back
			a.queue = append(a.queue, req)
			return a.drop()
		}
		return nil
	}
	if !a.done[req.ID] && (req.State == client.RequestOpen || mine) {
		a.queue = append(a.queue, req)
	}
	return nil
}

// attend does what can be done with prompts and stops: opencode is there, and all was read from it.
func (a *attachment) attend() error {
	if len(a.stops) == 0 && len(a.queue) == 0 && a.current == nil {
		return nil
	}
	busy, err := a.api.Busy(a.ctx)
	if err != nil {
		return err
	}
	for len(a.stops) > 0 {
		if err := a.stop(a.stops[0], busy[a.id]); err != nil {
			return err
		}
		a.stops = a.stops[1:]
	}
	switch p := a.current; {
	case p == nil && len(a.queue) == 0, p != nil && p.Stage == claiming && p.Claim == 0:
		return nil
	case p != nil && p.Stage == claiming: // it could not be written down
		return a.stage(taken)
	case p == nil && !busy[a.id]:
		return a.claim()
	case p == nil, p.Stage == taken && busy[a.id]:
		a.lookAt = time.Now().Add(lookEvery)
		return nil
	case p.Refused != "":
		return a.finish(map[string]any{"error": p.Refused})
	case p.Stage == taken:
		return a.hand()
	}
	return a.goOn()
}

// stage writes down how far the current prompt has come. If it cannot, the prompt is where it was.
func (a *attachment) stage(s stage) error {
	was := a.current.Stage
	a.current.Stage = s
	err := a.cfg.Tie.setPrompt(a.current)
	if err != nil {
		a.current.Stage = was
	}
	return err
}

// drop forgets the current prompt.
func (a *attachment) drop() error {
	a.current, a.payload, a.lost = nil, nil, false
	a.sends, a.failure, a.sentAt, a.restAt = 0, "", time.Time{}, time.Time{}
	a.lookAt = time.Now()
	return a.cfg.Tie.setPrompt(nil)
}

// hand hands the current prompt over: from here on opencode may have it.
func (a *attachment) hand() error {
	p := a.current
	if a.lost {
		if err := a.search(); err != nil || p.Stage != taken {
			return err
		}
	}
	list, err := a.messages(1)
	if err != nil {
		return err
	}
	last := ""
	if len(list) > 0 {
		last = list[len(list)-1].Info.ID
	}
	now := time.Now()
	p.Message = newID("msg", now, last)
	for i := range p.Parts {
		p.Parts[i].ID = newID("prt", now.Add(time.Duration(i)*time.Millisecond), "")
	}
	if err := a.stage(handing); err != nil {
		return err
	}
	return a.send()
}

// messages returns the newest messages of opencode's session.
func (a *attachment) messages(n int) (list []message, err error) {
	err = a.api.Get(a.ctx, opencodeapi.SessionPath(a.id, "message"), url.Values{"limit": {strconv.Itoa(n)}}, &list)
	return list, err
}

// send sends the current prompt's message.
func (a *attachment) send() error {
	p := a.current
	a.sends, a.sentAt, a.restAt, a.failure = a.sends+1, time.Now(), time.Time{}, ""
	a.lookAt = time.Now().Add(lookEvery)
	err := a.api.Post(a.ctx, opencodeapi.SessionPath(a.id, "prompt_async"), map[string]any{"messageID": p.Message, "parts": p.Parts})
	if opencodeapi.IsStatus(err, http.StatusBadRequest) {
		return a.finish(map[string]any{"error": err.Error()})
	}
	return err
}

// goOn does what is to be done with the current prompt, which opencode may have.
func (a *attachment) goOn() error {
	p := a.current
	list, err := a.messages(recent)
	if err != nil {
		return err
	}
	all, err := a.api.Busy(a.ctx) // after its messages: one that is there then, and not whole, is not worked on
	if err != nil {
		return err
	}
	busy, now := all[a.id], time.Now()
	v := look(list, p.Message)
	if !v.there {
		err := a.api.Get(a.ctx, opencodeapi.SessionPath(a.id, "message", p.Message), nil, nil)
		if err != nil && !opencodeapi.IsStatus(err, http.StatusNotFound) && !opencodeapi.IsStatus(err, http.StatusBadRequest) {
			return err
		}
		v.there = err == nil
	}
	if v.there && p.Stage == handing {
		if err := a.stage(handed); err != nil {
			return err
		}
	}
	last := ""
	if v.last != nil {
		last = v.last.Info.ID
	}
	switch {
	case busy:
		a.restAt = time.Time{}
	case a.restAt.IsZero() || last != a.restsOn:
		a.restAt, a.restsOn = now, last
	}
	v.busy, v.failure, v.posts, v.since = busy, a.failure, a.sends, now.Sub(later(a.restAt, a.sentAt))
	if a.lookAt = now.Add(lookEvery); busy {
		a.lookAt = now.Add(lookBusy)
	}
	switch decide(p.Stage, v) {
	case send:
		return a.send()
	case answered:
		return a.finish(v.last.answer())
	case interrupted:
		return a.finish(map[string]any{"message": v.last.Info.ID, "error": "opencode ended while it worked on it"})
	case failed:
		return a.finish(map[string]any{"message": p.Message, "error": a.failure})
	case removed:
		return a.finish(map[string]any{"error": "it was removed from opencode's session"})
	case ignored:
		return a.finish(map[string]any{"message": p.Message, "error": "opencode has it, and did not begin to answer it"})
	}
	return nil
}

// finish ends the current prompt: what answers it is in the session first.
func (a *attachment) finish(answer map[string]any) error {
	p := a.current
	if err := a.rec.compareRecent(a.ctx, a.api); err != nil {
		return err
	}
	b := a.cfg.Session.Batch().SetID(p.End)
	b.Answer(p.Request, client.AnswerOptions{Payload: answer, Claim: p.Claim})
	if _, err := a.commit(a.ctx, b); err != nil {
		return err
	}
	a.done[p.Request] = true
	return a.drop()
}

// seen notes that opencode has a message.
func (a *attachment) seen(id string) {
	if p := a.current; p != nil && p.Message == id && p.Stage == handing {
		a.lookAt = time.Now()
	}
}

// failedWith notes an error of opencode's session.
func (a *attachment) failedWith(properties json.RawMessage) {
	var of struct {
		Error *apiError `json:"error"`
	}
	if a.current != nil && a.sends > 0 && json.Unmarshal(properties, &of) == nil && of.Error != nil && a.failure == "" {
		a.failure, a.lookAt = of.Error.String(), time.Now()
	}
}

// restarted notes that opencode may be another process than before.
func (a *attachment) restarted() {
	a.sends, a.failure, a.sentAt, a.restAt = 0, "", time.Time{}, time.Time{}
}

// giveBack gives the current prompt back if opencode cannot have it: it is open again.
func (a *attachment) giveBack() error {
	p := a.current
	if p == nil || p.Stage != taken || a.lost {
		return nil
	}
	b := a.cfg.Session.Batch()
	b.ReleaseRequest(p.Request, p.Claim)
	_, err := a.commit(context.WithoutCancel(a.ctx), b)
	return errors.Join(err, a.drop())
}
