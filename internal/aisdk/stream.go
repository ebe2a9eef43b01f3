package aisdk

// The stream of the message that answers a prompt: the values that are its parts are read, and then followed, until the
// prompt has ended.

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// resetEvery is how often a step is begun anew, at most: each time its parts are read again.
const resetEvery = time.Second

// stream writes the message that answers a prompt. Its methods are for one goroutine, but for write.
type stream struct {
	q    *httpapi.Request
	live *objects.Capability

	prompt
	message *message

	resetAt time.Time // of the last reset

	mu  sync.Mutex // guards the answer's writer
	err error      // of the first write that failed
}

func newStream(q *httpapi.Request, live *objects.Capability, id string) *stream {
	return &stream{q: q, live: live, prompt: prompt{id: id}, message: newMessage()}
}

// errEnded ends the following of a prompt that has ended.
var errEnded = errors.New("the prompt has ended")

// follow answers with the message that answers a prompt, from its start, until the prompt has ended. ctx, which live is of,
// ends with the client, or by leave.
func follow(ctx context.Context, leave context.CancelCauseFunc, q *httpapi.Request, live *objects.Capability, id string) *fault.Error {
	keys, refused := session.SelectKeys([]string{session.RequestKey(id), session.RequestStateKey(id), "message/", "part/"})
	if refused != nil {
		return refused
	}
	s := newStream(q, live, id)
	if err := s.read(q.Context()); err != nil {
		return q.ToFault(err)
	}
	if refused := q.BeginStream(); refused != nil {
		return refused
	}
	h := q.W.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Vercel-AI-UI-Message-Stream", "v1")
	h.Set("X-Accel-Buffering", "no")
	q.W.WriteHeader(http.StatusOK)
	if s.write(": following\n\n") != nil {
		return nil
	}
	var beating sync.WaitGroup
	defer beating.Wait()
	defer leave(nil)
	beating.Go(func() {
		if err := q.Heartbeats(ctx, s.write); err != nil {
			leave(err)
		}
	})
	err := s.put(ctx)
	if err == nil {
		err = live.Follow(ctx, s.at, keys, func(events []*session.Event) error { return s.take(ctx, events) })
	}
	if err == errEnded {
		s.message.end(s.outcome())
		_ = s.flush() // the client may have gone
		return nil
	}
	if ctx.Err() != nil || s.broken() {
		return nil
	}
	why := q.ToFault(err)
	if why.Code.Transient() || why.Code == fault.Canceled {
		return why // the answer is cut off: an end would look like that of the message
	}
	s.message.end(outcome{failed: "the session is not shown any more: " + why.Code.String()})
	_ = s.flush()
	return nil
}

// write sends text that is between chunks.
func (s *stream) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.send([]byte(text))
}

// send sends text. The lock is held.
func (s *stream) send(text []byte) error {
	if s.err == nil && len(text) > 0 {
		if _, s.err = s.q.W.Write(text); s.err == nil {
			s.err = s.q.W.Flush()
		}
	}
	return s.err
}

// flush sends the chunks that are not sent yet.
func (s *stream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.send(s.message.take())
}

func (s *stream) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// put writes what there is of the message. The error is errEnded if the prompt has ended.
func (s *stream) put(ctx context.Context) error {
	for _, m := range s.messages {
		s.message.begin(m.id)
		if err := s.putParts(ctx, m.id); err != nil {
			return err
		}
	}
	if s.state.Ended() {
		return errEnded
	}
	return nil
}

// putParts writes the parts of a message of the session as they are, a page at a time.
func (s *stream) putParts(ctx context.Context, message string) error {
	query := session.KeyQuery{Prefix: session.PartKey(message, ""), Order: session.ByPut, Values: true, Limit: session.MaxListKeys, MaxBytes: partsBytes}
	for {
		page, err := s.live.ListKeys(ctx, query)
		if err != nil {
			return err
		}
		size := 0
		for _, e := range page.Entries {
			size += len(e.Payload)
		}
		err = s.holding(size, func() error {
			for _, e := range page.Entries {
				if k, refused := session.ParseKey(e.Key); refused == nil {
					s.message.put(k, e.Payload, e.Changed())
				}
				if err := s.flush(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if !page.More {
			return nil
		}
		query.After = page.Next
	}
}

// partsBytes is about how many bytes of parts are read at once; freeBytes how many of values a stream may hold without being
// charged.
const (
	partsBytes = 256 << 10
	freeBytes  = 64 << 10
)

// holding calls do while values of so many bytes, and the chunks made of them, are charged to the ref: a reader may take
// them as slowly as its pace allows, and there may be many.
func (s *stream) holding(size int, do func() error) error {
	if size <= freeBytes {
		return do()
	}
	release, refused := s.q.Hold(s.live.Ref(), 2*size)
	if refused != nil {
		return refused
	}
	defer release()
	return do()
}

// take is the callback of Capability.Follow.
func (s *stream) take(ctx context.Context, events []*session.Event) error {
	for _, e := range events {
		if e.Hidden {
			continue
		}
		err := s.holding(len(e.Payload), func() error {
			stale, err := s.event(ctx, e)
			if err == nil && stale != "" {
				err = s.reset(ctx, stale)
			}
			if err != nil {
				return err
			}
			return s.flush()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// event takes an event. stale is the message whose step has to be begun anew, "" for none.
func (s *stream) event(ctx context.Context, e *session.Event) (stale string, err error) {
	if id, state, is := session.RequestOf(e.Key); is {
		if id == s.id && state {
			s.became(e.Payload)
		}
		if s.state.Ended() {
			return "", errEnded
		}
		return "", nil
	}
	k, refused := session.ParseKey(e.Key)
	if refused != nil {
		return "", nil
	}
	if k.Kind == session.KeyMessage && (e.Method == session.MethodPut || e.Method == session.MethodBegin) {
		mine, err := s.seen(ctx, s.live, k.Message, e)
		if mine && err == nil {
			s.message.begin(k.Message)
		}
		return "", err
	}
	if k.Kind == session.KeyPart && !s.owns(k.Message) {
		if e.Method == session.MethodPut {
			s.named(k.Message, e.Payload)
		}
		return "", nil
	}
	if !s.owns(k.Message) {
		return "", nil
	}
	if s.change(k, e) {
		stale = k.Message
	}
	return stale, nil
}

// change takes an event about a message that is part of the stream's, or about one of its parts.
func (s *stream) change(k session.Key, e *session.Event) (stale bool) {
	switch {
	case e.Method == session.MethodFinalize:
		for key, value := range session.FinalValues(e.Payload) {
			if part, refused := session.ParseKey(key); refused == nil && part.Kind == session.KeyPart && s.owns(part.Message) {
				stale = s.message.put(part, value, e.Cursor) || stale
			}
		}
	case e.Method == session.MethodRevert, e.Method == session.MethodUnrevert, e.Method == session.MethodSettle:
		return true
	case k.Kind != session.KeyPart:
		return e.Method == session.MethodRemove || e.Method == session.MethodPurge
	case e.Method == session.MethodPut && e.Payload != nil:
		return s.message.put(k, e.Payload, e.Cursor)
	case e.Method == session.MethodAppendText && e.Payload != nil:
		return s.message.append(k, e.Payload, e.Cursor)
	case e.Method == session.MethodRemove, e.Method == session.MethodPurge:
		return s.message.remove(e.Key, e.Cursor)
	}
	return stale
}

// reset begins the step of a message anew, with its parts as they are by now. It waits, so that a writer who changes a text
// again and again has the parts read no more often than the reader needs them.
func (s *stream) reset(ctx context.Context, message string) error {
	if !s.message.reset(message) {
		return nil
	}
	if wait := resetEvery - time.Since(s.resetAt); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.resetAt = time.Now()
	return s.putParts(ctx, message)
}
