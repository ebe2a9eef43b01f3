package acpedit

// A session of the editor: its run, and what is passed on between the two.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/acprecord"
	"github.com/mooring-rpc/mooring/internal/acprun"
)

// editSession is a session that is open, or being opened. It is the run's acprun.Editor.
type editSession struct {
	s      *server
	ctx    context.Context // of the run
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when the run has ended
	inbox  chan func(acprun.Controls)
	opened acp.Message // the request that opens it
	m      Session

	mu    sync.Mutex
	id    string
	shown bool     // the request that opens it was answered, and the editor knows its id
	held  [][]byte // lines until then
	kept  int      // bytes of held
	calls []acp.Message
	over  bool
}

// open opens a session.
func (s *server) open(m acp.Message) {
	id := acp.SessionOf(m.Params)
	e := &editSession{s: s, ended: make(chan struct{}), inbox: make(chan func(acprun.Controls), maxInbox), opened: m, id: id, shown: id != ""}
	why, code := "", acp.CodeInternal
	s.mu.Lock()
	switch {
	case s.over:
		why = "the connection is being closed"
	case m.Kind != acp.Request:
		s.mu.Unlock()
		return
	case id == "" && m.Method != acp.MethodNew:
		why, code = m.Method+" names no session", acp.CodeInvalidParams
	case s.sessions[id] != nil:
		why = "the session " + id + " is open already"
	case s.count >= maxSessions:
		why = fmt.Sprintf("%d sessions are open: close one first", maxSessions)
	default:
		if e.ctx, e.cancel = context.WithCancelCause(s.ctx); id != "" {
			s.sessions[id] = e
		}
		s.count++
		s.work.Go(e.run)
	}
	s.mu.Unlock()
	if why != "" {
		s.refuse(m, code, why)
	}
}

// run runs the agent until the session's end.
func (e *editSession) run() {
	err := e.runAgent()
	e.cancel(nil)
	e.s.mu.Lock()
	if e.s.count--; e.s.sessions[e.name()] == e {
		delete(e.s.sessions, e.name())
	}
	e.s.mu.Unlock()
	if err != nil && e.isOpen() && e.s.ctx.Err() == nil {
		e.Notice("the session has ended: " + err.Error())
	}
	if err == nil {
		if err = context.Cause(e.ctx); errors.Is(err, context.Canceled) {
			err = errors.New("the session was closed")
		}
	}
	close(e.ended)
	e.mu.Lock()
	calls := e.calls
	e.calls, e.over = nil, true
	e.s.conn.keep(-e.kept)
	e.held, e.kept = nil, 0
	e.mu.Unlock()
	for _, m := range calls {
		if m.Method == acp.MethodClose {
			e.s.conn.send(acp.Result(m.ID, struct{}{}))
			continue
		}
		e.s.conn.send(acp.Failure(m.ID, asError(err)))
	}
}

func (e *editSession) name() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.id
}

func (e *editSession) runAgent() error {
	e.begin(e.opened)
	s := e.s
	params, err := acp.Read[acp.SessionParams](e.opened.Params)
	if err != nil {
		return &acp.Error{Code: acp.CodeInvalidParams, Message: "the params are " + err.Error()}
	}
	if info, err := os.Stat(params.Dir); err != nil || !info.IsDir() || !filepath.IsAbs(params.Dir) {
		return &acp.Error{Code: acp.CodeInvalidParams, Message: fmt.Sprintf("cwd has to be the absolute path of a folder that is there, and is %q", params.Dir)}
	}
	if e.m, err = e.session(); err != nil {
		return err
	}
	s.mu.Lock()
	if other := s.sessions[e.m.ID()]; other != nil && other != e {
		s.mu.Unlock()
		return fmt.Errorf("the session %s is open already", e.m.ID())
	}
	e.mu.Lock()
	e.id = e.m.ID()
	e.mu.Unlock()
	s.sessions[e.m.ID()] = e
	cfg := s.cfg.Run
	cfg.Initialize = s.client
	s.mu.Unlock()
	cfg.Session, cfg.Journal, cfg.Dir, cfg.Open, cfg.Editor = e.m.Session, e.m.Journal, params.Dir, e.opened.Params, e
	cfg.History = e.m.Before && e.opened.Method != acp.MethodResume
	cfg.Report = func(line string) {
		s.cfg.Run.Report(line)
		e.Notice(line)
	}
	select {
	case cfg.Started = <-s.spare:
	default:
	}
	err = acprun.Run(e.ctx, cfg)
	if e.opened.Method == acp.MethodNew && !e.m.Before && !e.isOpen() {
		select {
		case s.unused <- e.m: // the next one has it
		default:
		}
	}
	return err
}

// session returns the session of Mooring.
func (e *editSession) session() (m Session, err error) {
	s := e.s
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-e.ctx.Done():
		return m, context.Cause(e.ctx)
	}
	if e.opened.Method != acp.MethodNew {
		if m, err = s.cfg.Open(e.ctx, acp.SessionOf(e.opened.Params)); err != nil {
			err = &acp.Error{Code: acp.CodeNotFound, Message: err.Error()}
		}
		return m, err
	}
	select {
	case m = <-s.unused:
		return m, nil
	default:
		return s.cfg.New(e.ctx)
	}
}

// begin notes a request that is to be answered.
func (e *editSession) begin(m acp.Message) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return false
	}
	e.calls = append(e.calls, m)
	return true
}

// answer answers a request, once.
func (e *editSession) answer(m acp.Message, line []byte) {
	e.mu.Lock()
	found := false
	for i := range e.calls {
		if string(e.calls[i].ID) == string(m.ID) {
			e.calls, found = append(e.calls[:i], e.calls[i+1:]...), true
			break
		}
	}
	e.mu.Unlock()
	if found {
		e.s.conn.send(line)
	}
}

// works reports whether a prompt of an id is not answered.
func (e *editSession) works(id json.RawMessage) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.calls, func(m acp.Message) bool { return m.Method == acp.MethodPrompt && string(m.ID) == string(id) })
}

// isOpen reports whether the request that opens the session was answered.
func (e *editSession) isOpen() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !slices.ContainsFunc(e.calls, func(m acp.Message) bool { return string(m.ID) == string(e.opened.ID) })
}

// take takes a message of the editor.
func (e *editSession) take(m acp.Message) {
	if m.Kind == acp.Request && !e.begin(m) {
		e.s.refuse(m, acp.CodeNotFound, "the session has ended")
		return
	}
	if !e.isOpen() {
		if m.Kind == acp.Request {
			e.answer(m, acp.Refusal(m.ID, acp.CodeInvalidRequest, "the session is not open yet"))
		}
		return
	}
	switch m.Method {
	case acp.MethodClose:
		e.cancel(errors.New("the editor has closed the session")) // and is answered when it has ended
	case acp.MethodCancel:
		e.do(acprun.Controls.Cancel)
	case acp.MethodPrompt:
		e.do(func(c acprun.Controls) { e.prompt(c, m) })
	default:
		e.do(func(c acprun.Controls) {
			if m.Kind == acp.Notification {
				c.Notify(m.Method, m.Params)
				return
			}
			c.Call(m.Method, m.Params, func(answer acp.Message) { e.answer(m, acp.PassedOn(m.ID, answer)) })
		})
	}
}

// do has the session's goroutine call f.
func (e *editSession) do(f func(acprun.Controls)) {
	select {
	case e.inbox <- f:
	case <-e.ended:
	case <-e.ctx.Done():
	}
}

// prompt asks a prompt in the session.
func (e *editSession) prompt(c acprun.Controls, m acp.Message) {
	p, err := acp.Read[acp.PromptParams](m.Params)
	switch {
	case err != nil:
		e.answer(m, acp.Refusal(m.ID, acp.CodeInvalidParams, "the params are "+err.Error()))
		return
	case len(p.Prompt) == 0:
		e.answer(m, acp.Refusal(m.ID, acp.CodeInvalidParams, "the prompt is empty"))
		return
	}
	c.Prompt(p.Prompt, p.MessageID, func(result json.RawMessage, failed error) {
		if failed == nil {
			e.answer(m, acp.Result(m.ID, result))
			return
		}
		e.answer(m, acp.Failure(m.ID, asError(failed)))
	})
}

// Opened answers the request that opens the session, after what was before, if the editor is to be shown that.
func (e *editSession) Opened(method string, result json.RawMessage, c acprun.Controls) {
	e.s.work.Go(func() {
		for {
			select {
			case f := <-e.inbox:
				f(c)
			case <-e.ended:
				return
			}
		}
	})
	e.s.work.Go(func() {
		var history [][]byte
		if e.m.Before && e.opened.Method != acp.MethodResume && method != acp.MethodLoad {
			history = e.history()
		}
		result = acp.With(result, "sessionId", nil)
		if e.opened.Method == acp.MethodNew {
			e.answer(e.opened, acp.Result(e.opened.ID, acp.With(result, "sessionId", e.m.ID())))
			e.s.conn.sendAll(history, 0)
		} else {
			e.s.conn.sendAll(history, 0)
			e.answer(e.opened, acp.Result(e.opened.ID, result))
		}
		e.release()
		c.Begin()
	})
}

// release sends what was held until the editor knew the session.
func (e *editSession) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shown = true
	e.s.conn.sendAll(e.held, e.kept)
	e.held, e.kept = nil, 0
}

// send sends a line about the session.
func (e *editSession) send(line []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shown {
		e.s.conn.send(line)
		return
	}
	e.held, e.kept = append(e.held, line), e.kept+len(line)
	e.s.conn.keep(len(line))
}

// history returns what is recorded as lines that repeat it: the newest of it.
func (e *editSession) history() (lines [][]byte) {
	ctx, stop := context.WithTimeout(e.ctx, 10*time.Second)
	defer stop()
	state, err := e.m.Snapshot(ctx)
	if err != nil {
		return [][]byte{e.update(notice("what was before cannot be shown: " + err.Error()))}
	}
	size := 0
	var replay acprecord.Replay
	for _, v := range state.Entries {
		for _, u := range replay.Value(v.Key, v.Payload) {
			lines = append(lines, e.update(u))
			size += len(u)
		}
	}
	left := false
	for size > maxHistory {
		size -= len(lines[0])
		lines, left = lines[1:], true
	}
	if left {
		lines = append([][]byte{e.update(notice("what was long before is not shown"))}, lines...)
	}
	return lines
}

// update returns the line of an update.
func (e *editSession) update(u json.RawMessage) []byte {
	return acp.Notify(acp.MethodUpdate, map[string]any{"sessionId": e.name(), "update": u})
}

// notice returns the update that shows a line about the run.
func notice(line string) json.RawMessage {
	text := map[string]string{"type": "text", "text": "\n[mooring] " + line + "\n"}
	return acp.With(acp.With(nil, "sessionUpdate", acp.AgentChunk), "content", text)
}

// Notice shows people a line about the run, as an agent's message.
func (e *editSession) Notice(line string) { e.send(e.update(notice(line))) }

// Notify passes a notification on.
func (e *editSession) Notify(method string, params json.RawMessage) {
	e.send(acp.Notify(method, acp.SetSession(params, e.name())))
}

// Offers reports whether the editor may be asked something.
func (e *editSession) Offers(method string) bool {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	return e.s.offers.has(method)
}

// Ask passes a request on.
func (e *editSession) Ask(method string, params json.RawMessage, answer func(acp.Message)) (withdraw func()) {
	return e.s.conn.call(method, acp.SetSession(params, e.name()), func(m acp.Message) {
		e.do(func(acprun.Controls) { answer(m) })
	})
}

// asError returns an error as it is answered: with the agent's code if the agent answered it.
func asError(err error) *acp.Error {
	var answer *acp.Error
	switch {
	case !errors.As(err, &answer):
		return &acp.Error{Code: acp.CodeInternal, Message: err.Error()}
	case error(answer) == err:
		return answer
	}
	return &acp.Error{Code: answer.Code, Message: err.Error(), Data: answer.Data}
}
