package acprun

// The editor: one more party of a run, beside those who ask and answer in the session. What it wants goes the same way as what
// they want, and it is shown what the agent does for them.

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/acprecord"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Editor is the program before which a person sits. A run calls its methods from one goroutine, and they return at once. The
// sessions that params name are the agent's: the editor knows another id.
type Editor interface {
	// Opened says that the agent's session is open: by which method, and what the agent answered. From then on the editor
	// controls the run, which begins with prompts after Controls.Begin.
	Opened(method string, result json.RawMessage, c Controls)
	// Notify passes on a notification.
	Notify(method string, params json.RawMessage)
	// Offers reports whether the editor may be asked something.
	Offers(method string) bool
	// Ask passes on a request. The answer is called once, from another goroutine, unless withdraw is called, or the editor
	// is gone.
	Ask(method string, params json.RawMessage, answer func(acp.Message)) (withdraw func())
	// Notice shows people a line about the run.
	Notice(line string)
}

// Bounds of what is passed on.
const (
	maxPassed   = 64              // requests that are not answered, in either direction
	noticeAfter = 2 * time.Second // what waits for the server for so long is said
)

// ownPrompt is a prompt of the editor that is not answered.
type ownPrompt struct {
	message   string    // the id that the editor gave it; "" if none
	asked     time.Time // zero once the editor was told that it waits
	cancelled bool
	done      func(result json.RawMessage, failed error)
}

// Controls are what an editor does with a run. Their methods may be called concurrently; each waits until the run takes what
// it is told, and does nothing once that has ended.
type Controls struct{ r *runner }

// Begin has the run begin with prompts.
func (c Controls) Begin() { c.r.post(c.r.shown) }

// Prompt asks a prompt in the session. done is called at its end, by the run's goroutine: with the agent's answer, or why there is
// none; not if the run ends before.
func (c Controls) Prompt(content []json.RawMessage, message string, done func(result json.RawMessage, failed error)) {
	c.r.post(func() error {
		return c.r.promptedByEditor(content, &ownPrompt{message: message, asked: time.Now(), done: done})
	})
}

// Cancel ends what the agent works on, and withdraws the editor's prompts that wait.
func (c Controls) Cancel() { c.r.post(c.r.cancelledByEditor) }

// Call passes a request on to the agent, and returns when that has read it. answer is called by the run's goroutine, unless
// the run ends before.
func (c Controls) Call(method string, params json.RawMessage, answer func(acp.Message)) {
	c.pass(func(a *agent, written func(error)) {
		switch {
		case a == nil:
			answer(acp.Message{Error: &acp.Error{Code: acp.CodeInternal, Message: "the agent does not run: the next prompt starts it"}})
			written(nil)
			return
		case len(a.waits) >= maxPassed:
			answer(acp.Message{Error: &acp.Error{Code: acp.CodeInternal, Message: "the agent has too many requests to answer"}})
			written(nil)
			return
		}
		a.calls++
		a.waits[a.calls] = call{method, func(m acp.Message) error {
			answer(m)
			return c.r.changedByEditor(method, params, m)
		}}
		c.r.send(acp.Call(a.calls, method, acp.SetSession(params, a.session)), written)
	})
}

// Notify is Call for a notification. One to an agent that does not run is left out.
func (c Controls) Notify(method string, params json.RawMessage) {
	c.pass(func(a *agent, written func(error)) {
		if a == nil {
			written(nil)
			return
		}
		c.r.send(acp.Notify(method, acp.SetSession(params, a.session)), written)
	})
}

// pass has the run's goroutine call f with the agent, nil if that is not ready, and waits until written is called: so who sends
// much waits for an agent that does not read.
func (c Controls) pass(f func(a *agent, written func(error))) {
	done := make(chan struct{})
	ending := make(chan (<-chan struct{}), 1)
	c.r.post(func() error {
		a := c.r.agent
		if a != nil && !a.ready {
			a = nil
		}
		if a != nil {
			ending <- a.ending
		}
		f(a, func(error) { close(done) })
		return nil
	})
	var gone <-chan struct{}
	for {
		select {
		case <-done:
			return
		case <-gone:
			return
		case <-c.r.over:
			return
		case gone = <-ending:
		}
	}
}

// changedByEditor records what the editor has changed of the agent.
func (r *runner) changedByEditor(method string, params json.RawMessage, m acp.Message) error {
	p, err := acp.Read[struct {
		Mode string `json:"modeId"`
	}](params)
	if method != acp.MethodSetMode || m.Error != nil || err != nil || p.Mode == "" {
		return nil
	}
	return r.commit(r.rec.SetState(func(s *acprecord.State) { s.Mode = p.Mode }))
}

// shown goes on when the editor has shown that the session is open.
func (r *runner) shown() error {
	r.held = false
	if r.agent != nil && r.agent.ready {
		return r.isReady()
	}
	return r.next()
}

// promptedByEditor asks a prompt of the editor, as anybody's.
func (r *runner) promptedByEditor(content []json.RawMessage, own *ownPrompt) error {
	payload := map[string]any{"content": content}
	if own.message != "" {
		payload["messageId"] = own.message
	}
	if len(r.own) >= maxPassed {
		own.done(nil, fmt.Errorf("%d prompts wait: cancel them first", len(r.own)))
		return nil
	}
	b := r.cfg.Session.Batch()
	id, _ := b.Ask(client.KindPrompt, payload, client.AskOptions{})
	ticket, err := b.Commit(r.work)
	if err != nil {
		own.done(nil, fmt.Errorf("the prompt could not be asked: %w", err))
		return nil
	}
	r.own[id] = own
	r.watch(ticket, func(err error) error {
		r.settle(id, nil, fmt.Errorf("the prompt could not be asked: %w", err))
		return nil
	})
	return nil
}

// watch calls refused, in the loop, if a batch is.
func (r *runner) watch(ticket client.Ticket, refused func(error) error) {
	go func() {
		results, err := ticket.Wait(r.ctx)
		if err == nil {
			err = results.Err()
		}
		if err != nil && r.ctx.Err() == nil {
			r.post(func() error { return refused(err) })
		}
	}()
}

// settle answers a prompt of the editor.
func (r *runner) settle(request string, result json.RawMessage, failed error) {
	own := r.own[request]
	if own == nil {
		return
	}
	delete(r.own, request)
	switch {
	case failed == nil:
		own.done(result, nil)
	case own.cancelled:
		own.done(acp.Stopped(acp.StopCancelled), nil)
	default:
		own.done(nil, failed)
	}
}

// endedElsewhere answers a prompt of the editor that this run has not handed over: it was withdrawn, or another runner had it.
func (r *runner) endedElsewhere(req *client.Request) {
	if r.current != nil && r.current.Request == req.ID {
		return // its claim is refused
	}
	var answer struct{ StopReason, Error string }
	_ = json.Unmarshal(req.Answer, &answer) // what is no object is none of a runner
	switch {
	case answer.StopReason != "":
		r.settle(req.ID, acp.Stopped(answer.StopReason), nil)
	case answer.Error != "":
		r.settle(req.ID, nil, errors.New(answer.Error))
	default:
		r.settle(req.ID, nil, fmt.Errorf("the prompt is %s: %s", req.State, req.Reason))
	}
}

// cancelledByEditor ends what is worked on, whoever has asked it: the editor shows it.
func (r *runner) cancelledByEditor() error {
	if p := r.current; p != nil && r.own[p.Request] != nil {
		r.own[p.Request].cancelled = true
		if p.Stage == Claiming { // the server may be away; the prompt ends when the answer to the claim comes
			r.settle(p.Request, nil, errCancelled)
		}
	}
	return errors.Join(r.withdrawOwn(errCancelled), r.stopTurn())
}

// Why the editor's prompts are withdrawn.
var (
	errCancelled = errors.New("cancelled in the editor")
	errGone      = errors.New("the editor has gone")
)

// withdrawOwn withdraws the editor's prompts that wait.
func (r *runner) withdrawOwn(why error) error {
	b := r.cfg.Session.Batch()
	for id, own := range r.own {
		if r.current != nil && r.current.Request == id {
			continue
		}
		own.cancelled, r.done[id] = true, true // it is not begun, whatever comes first
		b.Withdraw(id, why.Error())
		r.settle(id, nil, why)
	}
	return r.commitBatch(b)
}

// noticeBy returns when the editor is to be told that something waits; zero if nothing does.
func (r *runner) noticeBy() (by time.Time) {
	soonest := func(since time.Time) {
		if at := since.Add(noticeAfter); !since.IsZero() && (by.IsZero() || at.Before(by)) {
			by = at
		}
	}
	for id, own := range r.own {
		if r.waitsForServer(id) {
			soonest(own.asked)
		}
	}
	if r.agent != nil {
		for _, ask := range r.agent.asks {
			soonest(ask.answered)
		}
	}
	return by
}

// waitsForServer reports whether a prompt waits for nothing else.
func (r *runner) waitsForServer(request string) bool {
	return r.current == nil || r.current.Request == request && r.current.Stage == Claiming
}

// noticeWaiting tells the editor what waits for the server.
func (r *runner) noticeWaiting(now time.Time) {
	if by := r.noticeBy(); by.IsZero() || now.Before(by) {
		return
	}
	why := "Mooring's server does not answer"
	if err := r.cfg.Client.ConnErr(); err != nil {
		why = "Mooring's server cannot be reached (" + err.Error() + ")"
	}
	for id, own := range r.own {
		if r.waitsForServer(id) && !own.asked.IsZero() && now.After(own.asked.Add(noticeAfter)) {
			own.asked = time.Time{}
			r.cfg.Editor.Notice(why + ": the prompt waits for it, and is withdrawn if you cancel it")
		}
	}
	if r.agent == nil {
		return
	}
	for _, ask := range r.agent.asks {
		if !ask.answered.IsZero() && now.After(ask.answered.Add(noticeAfter)) {
			ask.answered = time.Time{}
			r.cfg.Editor.Notice(why + ": your answer waits for it")
		}
	}
}

// showPrompt shows the editor the prompt that is about to be handed over, if it is another's.
func (r *runner) showPrompt(content []json.RawMessage) {
	p, e := r.current, r.cfg.Editor
	if e == nil || r.own[p.Request] != nil {
		return
	}
	for _, block := range content {
		e.Notify(acp.MethodUpdate, acp.UserUpdate(r.agent.session, p.UUID, block, map[string]any{"mooring": map[string]string{"actor": r.asker, "request": p.Request}}))
	}
}

// repeats reports whether the agent's history is to be shown: when it first opens its session.
func (r *runner) repeats() bool { return r.cfg.History && !r.everReady }

// showUpdate shows the editor an update of a session of the agent. said is false where it is about the agent, and not about messages.
func (r *runner) showUpdate(params json.RawMessage, id string, said bool) {
	a, e := r.agent, r.cfg.Editor
	switch {
	case e == nil:
	case a.ready && id != a.session: // of a sub-agent
	case a.ready, !said, a.opening == acp.MethodLoad && r.repeats():
		e.Notify(acp.MethodUpdate, params)
	}
}

// passOn passes a message of the agent on to the editor.
func (r *runner) passOn(m acp.Message) error {
	a, e, id := r.agent, r.cfg.Editor, string(m.ID)
	switch {
	case m.Kind == acp.Notification && m.Method == acp.MethodCancelCall:
		return r.cancelledByAgent(m)
	case m.Kind == acp.Notification:
		e.Notify(m.Method, m.Params)
	case !e.Offers(m.Method):
		r.send(acp.Refusal(m.ID, acp.CodeMethodNotFound, m.Method+": not supported by this client"), nil)
	case len(a.passed) >= maxPassed || a.passed[id] != nil:
		r.send(acp.Refusal(m.ID, acp.CodeInternal, "too many requests are not answered"), nil)
	default:
		a.passed[id] = e.Ask(m.Method, m.Params, func(answer acp.Message) {
			r.post(func() error {
				if r.agent == a && a.passed[id] != nil {
					delete(a.passed, id)
					r.send(acp.PassedOn(m.ID, answer), nil)
				}
				return nil
			})
		})
	}
	return nil
}

// cancelledByAgent takes back a question of the agent's.
func (r *runner) cancelledByAgent(m acp.Message) error {
	p, err := acp.Read[acp.CancelCallParams](m.Params)
	if err != nil {
		return nil
	}
	if withdraw := r.agent.passed[string(p.ID)]; withdraw != nil {
		withdraw() // the editor answers all the same
		return nil
	}
	for id, ask := range r.agent.asks {
		if string(ask.id) == string(p.ID) {
			b := r.cfg.Session.Batch()
			b.Withdraw(id, "the agent does not want it any more")
			r.endAsk(id)
			r.send(acp.Result(ask.id, acp.Cancelled()), nil)
			return r.commitBatch(b)
		}
	}
	return nil
}

// forgetCalls answers what the agent was asked, and withdraws what it asked: it has ended.
func (a *agent) forgetCalls() {
	for n, c := range a.waits {
		delete(a.waits, n)
		if c.answered != nil {
			_ = c.answered(acp.Message{Error: &acp.Error{Code: acp.CodeInternal, Message: "the agent has ended"}}) // which changes nothing
		}
	}
	for id, withdraw := range a.passed {
		delete(a.passed, id)
		withdraw()
	}
	for _, ask := range a.asks {
		if ask.withdraw != nil {
			ask.withdraw()
		}
	}
}

// askEditor asks the editor for a permission that was asked for in the session. The editor's answer is one to that: the
// first that the server has is what the agent gets.
func (r *runner) askEditor(id string, ask *asked, shown []byte, m acp.Message) {
	if r.cfg.Editor == nil {
		return
	}
	a := r.agent
	ask.digest = session.SumOf(shown).String()
	ask.withdraw = r.cfg.Editor.Ask(m.Method, m.Params, func(answer acp.Message) {
		r.post(func() error {
			if r.agent != a || a.asks[id] == nil {
				return nil // somebody else was first
			}
			ask.withdraw = nil
			return r.decidedByEditor(id, ask, answer)
		})
	})
}

// decidedByEditor records the editor's answer to a permission.
func (r *runner) decidedByEditor(id string, ask *asked, answer acp.Message) error {
	decision, err := acp.Read[acp.Answered](answer.Result)
	if answer.Error != nil || err != nil {
		return nil // it does not know how; others may
	}
	b := r.cfg.Session.Batch()
	b.Withdraw(id, "dismissed in the editor")
	for choice, option := range ask.options {
		if decision.Outcome.Outcome == "selected" && option == decision.Outcome.Option {
			b = r.cfg.Session.Batch()
			b.Answer(id, client.AnswerOptions{Choice: choice, Shown: ask.digest})
		}
	}
	ticket, err := b.Commit(r.work)
	if err != nil {
		return err
	}
	ask.answered = time.Now()
	r.watch(ticket, func(err error) error {
		if code := fault.CodeOf(err); code != fault.Conflict && code != fault.RequestEnded { // else somebody else was first
			ask.answered = time.Time{}
			r.cfg.Editor.Notice("your answer was refused: " + err.Error())
		}
		return nil
	})
	return nil
}
