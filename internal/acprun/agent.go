package acprun

// The agent: its process, the calls until it is ready, and what it says.

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/acprecord"
	"github.com/mooring-rpc/mooring/internal/agentproc"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
)

// agent is a process that was started.
type agent struct {
	proc     *agentproc.Process
	ending   chan struct{} // closed when nothing that it says counts any more
	calls    uint64
	waits    map[uint64]call // calls that are not answered
	deadline time.Time       // for the calls until it is ready
	info     acp.Initialized
	session  string // the agent's id of it; "" until it is ready
	ready    bool
	opening  string            // the method by which its session is opened
	found    map[string]bool   // ids of messages in its history
	asks     map[string]*asked // permissions that it waits for, by request
	passed   map[string]func() // requests that the editor was passed, by id, with what withdraws them
	rubbish  int
	first    string // line of rubbish
	broken   error  // nothing can be sent to it
}

// call is a request to the agent.
type call struct {
	method   string
	answered func(acp.Message) error // takes the answer; nil: runner.answered does
}

// maxRubbish is how many lines that are no messages an agent may print.
const maxRubbish = 1000

// startAgent starts the agent's process, and asks what it is.
func (r *runner) startAgent() error {
	started := r.cfg.Started
	r.cfg.Started = nil
	if started != nil && started.ended() {
		started = nil
	}
	mark := agentproc.NewMark()
	if started != nil {
		mark = started.proc.Identity().Mark
	}
	id := agentproc.NewIdentity(mark)
	if err := r.journal.write(record{Agent: &id}); err != nil {
		return err
	}
	if err := r.commit(r.rec.SetState(func(s *acprecord.State) { s.State, s.Error, s.Note = "starting", "", "" })); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.RunStartBefore)
	a := &agent{ending: make(chan struct{}), waits: map[uint64]call{}, found: map[string]bool{}, asks: map[string]*asked{}, passed: map[string]func(){}}
	if started != nil {
		a.proc, a.calls, a.info = started.proc, started.calls, started.info
	} else {
		proc, err := r.cfg.start(mark)
		if err != nil {
			return errors.Join(r.journal.write(record{Ended: mark}), r.agentGone(err.Error(), "failed"))
		}
		a.proc = proc
	}
	r.agent = a
	proc := a.proc
	id = proc.Identity()
	if err := r.journal.write(record{Agent: &id}); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.RunStartAfter)
	go r.read(a)
	go func() { // what it has started may keep its standard output open
		<-proc.Exited()
		_ = proc.End(context.Background()) // ended reports it
	}()
	if started != nil {
		return r.openSession()
	}
	a.deadline = time.Now().Add(r.cfg.StartWait)
	r.call(acp.MethodInitialize, r.cfg.initialize(), nil)
	return nil
}

// read reads the agent's lines until there are no more.
func (r *runner) read(a *agent) {
	for {
		line, err := a.proc.ReadLine()
		if err != nil && err != agentproc.ErrLongLine {
			r.postFrom(a, func() error { return r.ended(a) })
			return
		}
		var m acp.Message
		if err == nil {
			m, err = acp.Decode(line)
		}
		r.postFrom(a, func() error {
			if r.agent != a {
				return nil
			}
			return r.message(m, err)
		})
	}
}

// postFrom is post for the goroutines of an agent. The agent's end waits for those, so what they post then counts no more.
func (r *runner) postFrom(a *agent, f func() error) {
	select {
	case r.events <- f:
	case <-a.ending:
	case <-r.over:
	}
}

// exitWait is how long an agent that has closed its standard output is waited for, so that its exit status is shown.
const exitWait = time.Second

// ended is called when the agent has closed its standard output.
func (r *runner) ended(a *agent) error {
	if r.agent != a {
		return nil
	}
	select {
	case <-a.proc.Exited():
		return r.failAgent("the agent ended: " + a.proc.ExitText())
	case <-time.After(exitWait):
	}
	return r.failAgent("the agent closed its standard output")
}

// endAgent ends the agent's process and all that it has started.
func (r *runner) endAgent() error {
	a := r.agent
	close(a.ending)
	err := a.proc.End(r.work)
	r.agent = nil
	a.forgetCalls()
	if err != nil {
		return fmt.Errorf("end the agent: %w", err)
	}
	return r.journal.write(record{Ended: a.proc.Identity().Mark})
}

// failAgent ends the agent for a reason, which is recorded with the last that it printed.
func (r *runner) failAgent(why string) error {
	a := r.agent
	err := r.endAgent()
	if a.rubbish > 0 && !a.ready {
		why += a.saidRubbish()
	}
	if last := lastLines(a.proc.Stderr(), 5); last != "" {
		why += "; it printed last: " + last
	}
	return errors.Join(err, r.agentGone(why, "failed"))
}

// lastLines returns the last n lines of a text, as one.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], " | ")
}

func (a *agent) saidRubbish() string {
	if a.rubbish == 0 {
		return ""
	}
	if a.rubbish == 1 {
		return " (it printed a line that is not of the protocol: " + a.first + ")"
	}
	return fmt.Sprintf(" (it printed %d lines that are not of the protocol, the first: %s)", a.rubbish, a.first)
}

// waitsFor names the calls that are not answered.
func (a *agent) waitsFor() string {
	for _, c := range a.waits {
		return c.method
	}
	return "anything"
}

// call sends the agent a request; done is called when it is written, by another goroutine.
func (r *runner) call(method string, params any, done func(error)) {
	r.agent.calls++
	r.agent.waits[r.agent.calls] = call{method: method}
	r.send(acp.Call(r.agent.calls, method, params), done)
}

func (r *runner) send(line []byte, done func(error)) {
	if err := r.agent.proc.Send(line, done); err != nil && r.agent.broken == nil {
		r.agent.broken = err
	}
}

// message takes a message of the agent, or a line that is none.
func (r *runner) message(m acp.Message, err error) error {
	a := r.agent
	switch {
	case err != nil:
		if a.rubbish++; a.first == "" {
			a.first = strings.TrimPrefix(err.Error(), acp.ErrNoMessage.Error()+": ")
		}
		if a.rubbish > maxRubbish {
			return r.failProtocol("the agent prints what is not of the protocol")
		}
		return nil
	case m.Kind == acp.Response:
		c := a.waits[m.Call]
		delete(a.waits, m.Call)
		if c.answered != nil {
			return c.answered(m)
		}
		return r.answered(c.method, m)
	case m.Method == acp.MethodUpdate:
		return r.updated(m.Params)
	case m.Kind == acp.Request && m.Method == acp.MethodPermission:
		return r.permission(m)
	case r.cfg.Editor != nil:
		return r.passOn(m)
	case m.Kind == acp.Request:
		r.send(acp.Refusal(m.ID, acp.CodeMethodNotFound, m.Method+": not supported by this client"), nil)
	}
	return nil
}

// answered takes the agent's answer to a call.
func (r *runner) answered(method string, m acp.Message) error {
	a := r.agent
	switch method {
	case acp.MethodInitialize:
		info, err := initialized(m)
		switch {
		case m.Error != nil:
			return r.failAgent(err.Error())
		case err != nil:
			return r.failProtocol(err.Error())
		}
		a.info = info
		return r.openSession()
	case acp.MethodNew, acp.MethodLoad, acp.MethodResume:
		return r.opened(method, m)
	case acp.MethodPrompt:
		return r.prompted(m)
	}
	return nil // late, or to nothing
}

// openSession opens the agent's session: the one that it had, where it can.
func (r *runner) openSession() error {
	a, was := r.agent, r.journal.acp
	switch {
	case was == nil:
		r.open(acp.MethodNew, "")
	case was.Dir != r.cfg.Dir:
		return r.openNew("its earlier session is of the folder " + was.Dir + ", so it does not remember what was before")
	case a.info.Capabilities.Load && (len(r.leftOver) > 0 || r.repeats()): // its history tells whether it got the prompt
		r.open(acp.MethodLoad, was.ID)
	case a.info.CanResume():
		r.open(acp.MethodResume, was.ID)
	case a.info.Capabilities.Load:
		r.open(acp.MethodLoad, was.ID)
	default:
		return r.openNew("it cannot go on with an earlier session, so it does not remember what was before")
	}
	return nil
}

// open opens a session of the agent by a method; id is "" for a new one.
func (r *runner) open(method, id string) {
	a := r.agent
	a.opening, a.deadline = method, time.Now().Add(r.cfg.StartWait)
	if r.cfg.Open == nil {
		r.call(method, acp.SessionParams{ID: id, Dir: r.cfg.Dir, Servers: []json.RawMessage{}}, nil)
		return
	}
	params := acp.With(r.cfg.Open, "sessionId", nil)
	if id != "" {
		params = acp.With(params, "sessionId", id)
	}
	r.call(method, params, nil)
}

// openNew opens a new session of the agent, in place of an earlier one.
func (r *runner) openNew(note string) error {
	r.open(acp.MethodNew, "")
	r.cfg.Report("the agent: " + note)
	return r.commit(r.rec.SetState(func(s *acprecord.State) { s.Note = note }))
}

// opened takes the answer to the opening of the session: the agent is ready.
func (r *runner) opened(method string, m acp.Message) error {
	a := r.agent
	result, err := acp.Read[acp.SessionResult](m.Result)
	r.refused = m.Error
	switch {
	case m.Error != nil && method != acp.MethodNew:
		return r.openNew("it could not go on with its session (" + m.Error.Error() + "), so it does not remember what was before")
	case m.Error != nil && m.Error.Code == acp.CodeAuthRequired:
		return r.failAgent("the agent wants you to log in first, with its own program: " + m.Error.Error())
	case m.Error != nil:
		return r.failAgent("the agent refused a session: " + m.Error.Error())
	case err != nil:
		return r.failProtocol("the agent's answer to " + method + " is " + err.Error())
	case method == acp.MethodNew && result.ID == "":
		return r.failProtocol("the agent's answer to session/new names no session")
	case method != acp.MethodNew:
		result.ID = r.journal.acp.ID
	}
	if err := r.journal.write(record{ACP: &acpSession{ID: result.ID, Dir: r.cfg.Dir}}); err != nil {
		return err
	}
	a.session, a.ready, a.deadline, r.everReady = result.ID, true, time.Time{}, true
	err = r.commit(r.rec.SetState(func(s *acprecord.State) {
		s.State, s.Name, s.Version = "ready", a.info.Agent.Name, a.info.Agent.Version
		if result.Modes.Current != "" {
			s.Mode, s.Modes = result.Modes.Current, result.Modes.Available
		}
	}))
	if err != nil {
		return err
	}
	if e := r.cfg.Editor; e != nil && !r.wasOpened {
		r.wasOpened, r.held = true, true
		e.Opened(method, m.Result, Controls{r})
		return nil
	}
	return r.isReady()
}

// updated takes an update of the session.
func (r *runner) updated(params json.RawMessage) error {
	a := r.agent
	u, err := acp.Read[acp.UpdateParams](params)
	if err != nil {
		r.showUpdate(params, acp.SessionOf(params), true)
		return r.message(acp.Message{}, fmt.Errorf("%w: %w", acp.ErrNoMessage, err))
	}
	said := false // it is about a turn
	switch u.Update.Kind {
	case acp.CommandsUpdate, acp.ModeUpdate, acp.OptionsUpdate, acp.InfoUpdate, acp.UsageUpdate:
	case acp.UserChunk:
		a.found[u.Update.MessageID] = true
		said = r.current != nil && u.Update.MessageID == r.current.UUID
	default:
		said = true
	}
	r.showUpdate(params, u.ID, said || u.Update.Kind == acp.UserChunk)
	switch {
	case !a.ready && said: // its history, which is recorded
		return nil
	case a.ready && u.ID != a.session: // of another session, as of a sub-agent
		return nil
	case said:
		if err := r.heard(); err != nil {
			return err
		}
	}
	ops, flood := r.rec.Update(time.Now(), &u.Update)
	if err := r.commit(ops); err != nil {
		return err
	}
	if flood != nil {
		return r.failAgent(flood.Error() + ", so it was ended")
	}
	return nil
}

// agentGone records that the agent is gone, and ends what it was working on. An agent that never was ready is not
// started again.
func (r *runner) agentGone(why, state string) error {
	err := r.commit(r.rec.SetState(func(s *acprecord.State) { s.State, s.Error = state, why }))
	if p := r.current; p != nil && err == nil {
		switch FateOf(p.Stage, false) {
		case GoOn:
			switch {
			case p.Claim == 0: // the answer to the claim comes
			case state == "failed" || r.own[p.Request] != nil: // nobody would wait for it
				err = r.refuse(why)
			default:
				err = r.giveBack()
			}
		case Unknown:
			err = r.endUnknown(p, why)
		case Interrupted:
			err = r.interrupted(p, why)
		}
	}
	for _, p := range r.leftOver {
		if err == nil {
			err = r.endLeftOver(p, false)
		}
	}
	r.leftOver = nil
	switch {
	case state != "failed" || err != nil:
	case r.everReady:
		r.cfg.Report(why)
		err = r.next() // prompts that wait
	default:
		err = r.faultOfAgent().Because(&openError{why, r.refused}, "%s", why)
	}
	return err
}

// faultOfAgent returns the code of an agent that never was ready.
func (r *runner) faultOfAgent() fault.Code {
	if r.misspoke {
		return fault.Incompatible
	}
	return fault.Unavailable
}

// failProtocol is failAgent for an agent that does not speak the protocol, or another version of it.
func (r *runner) failProtocol(why string) error {
	r.misspoke = true
	return r.failAgent(why)
}

// openError is why an agent never was ready.
type openError struct {
	why    string
	answer *acp.Error // to the opening of its session; nil for none
}

func (e *openError) Error() string { return e.why }

func (e *openError) Unwrap() error {
	if e.answer == nil {
		return nil
	}
	return e.answer
}

// uuidOf returns a UUID made from a text.
func uuidOf(text string) string {
	h := sha256.Sum256([]byte(text))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
