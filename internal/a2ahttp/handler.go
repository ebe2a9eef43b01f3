package a2ahttp

// What the protocol's methods do.

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/prompts"
	"github.com/mooring-rpc/mooring/internal/session"
)

var _ a2asrv.RequestHandler = (*server)(nil)

// freeBytes is how many bytes of values may be held without being charged.
const freeBytes = 64 << 10

// cancelWait is how long CancelTask waits for the end of a turn.
const cancelWait = 10 * time.Second

// task is a task that is read.
type task struct {
	*call
	*prompts.Follower
	of      a2a.TaskInfo
	message *a2a.Message // that it was asked by

	held []func() // release what is charged for it
}

// read reads a task of the call's ref.
func (s *server) read(ctx context.Context, c *call, id a2a.TaskID) (*task, error) {
	return s.readBy(ctx, c, id, (*prompts.Follower).Read)
}

// readRequest is read without which messages answer: the task has no artifacts.
func (s *server) readRequest(ctx context.Context, c *call, id a2a.TaskID) (*task, error) {
	return s.readBy(ctx, c, id, (*prompts.Follower).ReadRequest)
}

func (s *server) readBy(ctx context.Context, c *call, id a2a.TaskID, read func(*prompts.Follower, context.Context) ([]byte, error)) (*task, error) {
	if !isOwn(c.live.Ref(), string(id)) {
		return nil, noTask()
	}
	t := &task{call: c, of: a2a.TaskInfo{TaskID: id, ContextID: c.live.Target()}}
	t.Follower = prompts.NewFollower(c.live, string(id), t.hold)
	asked, err := read(t.Follower, ctx)
	if err != nil {
		return nil, s.refuse(c, err)
	}
	if asked == nil || prompts.AskedUnder(asked) != c.live.Ref() {
		return nil, noTask()
	}
	if err := t.keep(2 * len(asked)); err != nil {
		return nil, s.refuse(c, err)
	}
	t.message = messageOf(t.of, gjson.GetBytes(asked, "payload"))
	return t, nil
}

// keep charges n bytes, if they are not few, until the task is given.
func (t *task) keep(n int) error {
	if n <= 2*freeBytes {
		return nil
	}
	release, refused := t.hold(n)
	if refused != nil {
		return refused
	}
	t.held = append(t.held, release)
	return nil
}

func (t *task) hold(n int) (func(), *fault.Error) { return t.q.Hold(t.live.Ref(), n) }

// release releases what is charged for the task, of which nothing is kept.
func (t *task) release() {
	for _, release := range t.held {
		release()
	}
	t.held, t.message = nil, nil
}

// given says that the call has been given the task, which stays charged until the answer is written.
func (t *task) given() {
	t.call.charged(t.held)
	t.held, t.message = nil, nil
}

// whole is a Sink that keeps what a task has, charged to its ref.
type whole struct {
	*artifacts
	t       *task
	charged int
}

// Flush implements prompts.Sink.
func (w *whole) Flush() error {
	if more := w.bytes - w.charged; more > freeBytes {
		w.charged = w.bytes
		return w.t.keep(2 * more)
	}
	return nil
}

// snapshot returns the task as it is. history is as a request names it; nil for all.
func (s *server) snapshot(ctx context.Context, t *task, a *artifacts, history *int) (*a2a.Task, error) {
	one, events, err := s.begun(ctx, t, a, history)
	if err == nil {
		one.Artifacts = fold(events)
	}
	return one, err
}

// begun is snapshot, but for the artifacts, which the events come to.
func (s *server) begun(ctx context.Context, t *task, a *artifacts, history *int) (*a2a.Task, []a2a.Event, error) {
	one := &a2a.Task{ID: t.of.TaskID, ContextID: t.of.ContextID, Status: statusOf(t.of, &t.Prompt)}
	if history == nil || *history > 0 {
		one.History = []*a2a.Message{t.message}
	}
	if a == nil {
		return one, nil, nil
	}
	if err := t.Put(ctx, &whole{artifacts: a, t: t}); err != nil {
		return nil, nil, s.refuse(t.call, err)
	}
	return one, a.take(), nil
}

// send asks for what a message says, and returns the task's id. The same message is the same task. begun is the task as it begins,
// without a time; nil if it was there before.
func (s *server) send(c *call, req *a2a.SendMessageRequest) (id a2a.TaskID, begun *a2a.Task, err error) {
	m := req.Message
	switch {
	case m == nil:
		return "", nil, refusal(a2a.ErrInvalidParams, "message is missing")
	case m.Role != a2a.MessageRoleUser:
		return "", nil, refusal(a2a.ErrInvalidParams, "the message's role is ROLE_USER")
	case m.ID == "" || len(m.ID) > maxMessageID:
		return "", nil, refusal(a2a.ErrInvalidParams, "the message's messageId has 1 to 512 bytes")
	case m.ContextID != "" && m.ContextID != c.live.Target():
		return "", nil, refusal(a2a.ErrInvalidParams, "contextId is another than the ref's session: leave it out, or take it from an earlier task")
	case m.TaskID != "" && !isOwn(c.live.Ref(), string(m.TaskID)):
		return "", nil, noTask()
	case m.TaskID != "":
		return "", nil, refusal(a2a.ErrUnsupportedOperation, "a task is one message and its answer: send the next message without taskId, in the same context")
	case req.Config != nil && req.Config.PushConfig != nil:
		return "", nil, noPush()
	case len(m.Parts) == 0:
		return "", nil, refusal(a2a.ErrInvalidParams, "the message has no parts")
	}
	payload, err := payloadOf(m)
	if err != nil {
		return "", nil, err
	}
	id = a2a.TaskID(taskID(c.live.Ref(), m.ID))
	known, refused := prompts.Ask(c.q, c.live, string(id), payload)
	if refused != nil {
		return "", nil, s.refuse(c, refused)
	}
	if !known {
		of := a2a.TaskInfo{TaskID: id, ContextID: c.live.Target()}
		begun = &a2a.Task{ID: id, ContextID: of.ContextID, Status: a2a.TaskStatus{State: a2a.TaskStateSubmitted}, History: []*a2a.Message{messageOf(of, gjson.ParseBytes(payload))}}
	}
	return id, begun, nil
}

// SendMessage implements a2asrv.RequestHandler.
func (s *server) SendMessage(ctx context.Context, req *a2a.SendMessageRequest) (a2a.SendMessageResult, error) {
	c := callOf(ctx)
	id, begun, err := s.send(c, req)
	if err != nil {
		return nil, err
	}
	waits, history := true, (*int)(nil)
	if req.Config != nil {
		waits, history = !req.Config.ReturnImmediately, req.Config.HistoryLength
	}
	if begun != nil && !waits { // it is not read for that
		if history != nil && *history <= 0 {
			begun.History = nil
		}
		return begun, nil
	}
	t, err := s.read(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if waits {
		t.release()
		if err := t.Wait(ctx); err != nil {
			return nil, s.refuse(c, err)
		}
		if t, err = s.read(ctx, c, id); err != nil {
			return nil, err
		}
	}
	defer t.given()
	return s.snapshot(ctx, t, newArtifacts(t.of), history)
}

// SendStreamingMessage implements a2asrv.RequestHandler.
func (s *server) SendStreamingMessage(ctx context.Context, req *a2a.SendMessageRequest) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		c := callOf(ctx)
		if !c.begin() {
			return
		}
		defer c.streaming.Unlock()
		id, _, err := s.send(c, req)
		if err == nil {
			var t *task
			if t, err = s.read(ctx, c, id); err == nil {
				err = s.stream(ctx, t, yield)
			}
		}
		if err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

// SubscribeToTask implements a2asrv.RequestHandler.
func (s *server) SubscribeToTask(ctx context.Context, req *a2a.SubscribeToTaskRequest) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		c := callOf(ctx)
		if !c.begin() {
			return
		}
		defer c.streaming.Unlock()
		t, err := s.read(ctx, c, req.ID)
		switch {
		case err == nil && t.State.Ended():
			err = refusal(a2a.ErrUnsupportedOperation, "the task has ended: get it")
		case err == nil:
			err = s.stream(ctx, t, yield)
		}
		if err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

// errStopped says that nobody takes events any more.
var errStopped = errors.New("the reader has gone")

// following is a Sink that yields events as they come.
type following struct {
	*artifacts
	t     *task
	state session.RequestState // that was given
	yield func(a2a.Event, error) bool
}

// Flush implements prompts.Sink.
func (l *following) Flush() error {
	for _, e := range l.take() {
		if !l.yield(e, nil) {
			return errStopped
		}
	}
	if l.state != l.t.State {
		l.state = l.t.State
		if !l.yield(statusEvent(l.of, &l.t.Prompt), nil) {
			return errStopped
		}
	}
	return nil
}

// stream yields a task as it is, and then what comes of it, until it has ended.
func (s *server) stream(ctx context.Context, t *task, yield func(a2a.Event, error) bool) error {
	defer t.given()
	a := newArtifacts(t.of)
	now, events, err := s.begun(ctx, t, a, nil)
	if err != nil {
		return err
	}
	first, rest := split(events)
	now.Artifacts = fold(first)
	if !yield(now, nil) {
		return errStopped
	}
	for _, e := range rest {
		if !yield(e, nil) {
			return errStopped
		}
	}
	t.given()
	if t.State.Ended() {
		return nil
	}
	err = t.Follow(ctx, &following{artifacts: a, t: t, state: t.State, yield: yield})
	switch err {
	case prompts.ErrEnded: // which was given
		return nil
	case errStopped:
		return err
	}
	if ctx.Err() != nil {
		return errStopped
	}
	return s.refuse(t.call, err)
}

// GetTask implements a2asrv.RequestHandler.
func (s *server) GetTask(ctx context.Context, req *a2a.GetTaskRequest) (*a2a.Task, error) {
	t, err := s.read(ctx, callOf(ctx), req.ID)
	if err != nil {
		return nil, err
	}
	defer t.given()
	return s.snapshot(ctx, t, newArtifacts(t.of), req.HistoryLength)
}

// begins is a Sink that says when an answer begins.
type begins struct {
	*artifacts
	begun func()
}

// Begin implements prompts.Sink.
func (b begins) Begin(string) { b.begun() }

// CancelTask implements a2asrv.RequestHandler: what no agent has begun is withdrawn, and the turn of what one works on is asked to
// stop. It waits some seconds for the end, which the agent decides.
func (s *server) CancelTask(ctx context.Context, req *a2a.CancelTaskRequest) (*a2a.Task, error) {
	c := callOf(ctx)
	t, err := s.read(ctx, c, req.ID)
	if err != nil {
		return nil, err
	}
	defer func() {
		if t != nil {
			t.given()
		}
	}()
	waiting, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	if t.State == session.RequestOpen {
		_, refused := c.q.ApplyAlone(c.live, session.MethodWithdraw, t.ID, nil)
		if refused != nil && refused.Code != fault.Conflict && refused.Code != fault.RequestEnded { // an agent has just taken it, or it has just ended
			return nil, s.refuse(c, refused)
		}
		t.release()
		if t, err = s.read(ctx, c, req.ID); err != nil {
			return nil, err
		}
		if t.State == session.RequestWithdrawn {
			return s.snapshot(ctx, t, newArtifacts(t.of), nil)
		}
	}
	if t.State == session.RequestClaimed && len(t.Messages) == 0 { // the turn has a name once it has begun
		beginning, begun := context.WithCancel(waiting)
		err := t.Follow(beginning, begins{newArtifacts(t.of), begun})
		begun()
		if err != nil && err != prompts.ErrEnded && waiting.Err() == nil && beginning.Err() == nil {
			return nil, s.refuse(c, err)
		}
	}
	if t.State.Ended() {
		return nil, refusal(a2a.ErrTaskNotCancelable, "the task has ended")
	}
	if _, _, refused := t.Stop(c.q, func(message string) string { return stopID(c.live.Ref(), message) }); refused != nil {
		return nil, s.refuse(c, refused)
	}
	if err := t.Wait(waiting); err != nil && waiting.Err() == nil {
		return nil, s.refuse(c, err)
	}
	t.release()
	if t, err = s.read(ctx, c, req.ID); err != nil {
		return nil, err
	}
	return s.snapshot(ctx, t, newArtifacts(t.of), nil)
}

// GetTaskPushConfig implements a2asrv.RequestHandler.
func (s *server) GetTaskPushConfig(context.Context, *a2a.GetTaskPushConfigRequest) (*a2a.PushConfig, error) {
	return nil, noPush()
}

// ListTaskPushConfigs implements a2asrv.RequestHandler.
func (s *server) ListTaskPushConfigs(context.Context, *a2a.ListTaskPushConfigRequest) (*a2a.ListTaskPushConfigResponse, error) {
	return nil, noPush()
}

// CreateTaskPushConfig implements a2asrv.RequestHandler.
func (s *server) CreateTaskPushConfig(context.Context, *a2a.PushConfig) (*a2a.PushConfig, error) {
	return nil, noPush()
}

// DeleteTaskPushConfig implements a2asrv.RequestHandler.
func (s *server) DeleteTaskPushConfig(context.Context, *a2a.DeleteTaskPushConfigRequest) error {
	return noPush()
}
