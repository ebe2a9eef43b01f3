package aisdk

// The stream of the message that answers a prompt: the values that are its parts are read, and then followed, until the
// prompt has ended.

import (
	"context"
	"net/http"
	"sync"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/prompts"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// stream writes the message that answers a prompt. Its methods are for one goroutine, but for comment.
type stream struct {
	q *httpapi.Request
	*message

	mu  sync.Mutex // guards the answer's writer
	err error      // of the first write that failed
}

// follow answers with the message that answers a prompt, from its start, until the prompt has ended. ctx, which live is of,
// ends with the client, or by leave.
func follow(ctx context.Context, leave context.CancelCauseFunc, q *httpapi.Request, live *objects.Capability, id string) *fault.Error {
	s := &stream{q: q, message: newMessage()}
	f := prompts.NewFollower(live, id, func(n int) (func(), *fault.Error) { return q.Hold(live.Ref(), n) })
	if _, err := f.Read(q.Context()); err != nil {
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
	if s.comment(": following\n\n") != nil {
		return nil
	}
	var beating sync.WaitGroup
	defer beating.Wait()
	defer leave(nil)
	beating.Go(func() {
		if err := q.Heartbeats(ctx, s.comment); err != nil {
			leave(err)
		}
	})
	err := f.Put(ctx, s)
	if err == nil {
		err = f.Follow(ctx, s)
	}
	if err == prompts.ErrEnded {
		s.end(f.Outcome())
		_ = s.Flush() // the client may have gone
		return nil
	}
	if ctx.Err() != nil || s.broken() {
		return nil
	}
	why := q.ToFault(err)
	if why.Code.Transient() || why.Code == fault.Canceled {
		return why // the answer is cut off: an end would look like that of the message
	}
	s.end(prompts.Outcome{Failed: "the session is not shown any more: " + why.Code.String()})
	_ = s.Flush()
	return nil
}

// comment sends text that is between chunks.
func (s *stream) comment(text string) error {
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

// Flush sends the chunks that are not sent yet.
func (s *stream) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.send(s.take())
}

func (s *stream) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}
