// Events: a page of the log as JSON, or the growing log as server-sent events.

package httpapi

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/trickle"
)

// eventJSON is an event. Its payload is a separate member.
type eventJSON struct {
	Cursor uint64 `json:"cursor"`
	Method string `json:"method"`
	Key    string `json:"key"`
	Schema uint32 `json:"schema_version"`
	Actor  string `json:"actor"`
	Ref    string `json:"ref,omitempty"`
	Op     string `json:"op,omitempty"`
	Batch  string `json:"batch,omitempty"`
	Outbox string `json:"outbox,omitempty"`
	At     int64  `json:"at"`
	Hash   string `json:"hash"` // to be sent with the cursor
	Purged bool   `json:"purged,omitempty"`
}

// hiddenJSON replaces events that the ref does not show.
type hiddenJSON struct {
	Cursor uint64 `json:"cursor"` // of the last hidden event
	Hash   string `json:"hash"`
	Hidden bool   `json:"hidden"`
}

// hashJSON returns a hash as the API writes and reads it: "" before the first event.
func hashJSON(h session.Hash) string {
	if h == (session.Hash{}) {
		return ""
	}
	return h.String()
}

// encodeEvent returns an event as JSON text, with the payload unchanged.
func encodeEvent(e *session.Event) []byte {
	if e.Hidden {
		return httpkit.JSON(hiddenJSON{e.Cursor, hashJSON(e.Hash), true})
	}
	return addMember(httpkit.JSON(eventJSON{Cursor: e.Cursor, Method: e.Method, Key: e.Key, Schema: e.Schema, Actor: e.Actor,
		Ref: e.Ref, Op: e.Op, Batch: e.Batch, Outbox: e.Outbox, At: e.At, Hash: hashJSON(e.Hash), Purged: e.Payload == nil}), "payload", e.Payload)
}

// serveEvents serves GET /sessions/{id}/events.
func serveEvents(q *Request) *fault.Error {
	params := q.params("after", "hash", "limit", "keys")
	after, keys := params.position("after"), params.keys()
	if params.refused == nil && acceptsEvents(q.Header) {
		after, refused := resumePosition(q.Header, params.values["after"], after)
		if refused != nil {
			return refused
		}
		return q.follow(after, keys)
	}
	limit := params.limit()
	if params.refused != nil {
		return params.refused
	}
	live, refused := q.Session(q.Context())
	if refused != nil {
		return refused
	}
	page, err := live.Events(q.Context(), after, keys, limit)
	if err != nil {
		return q.ToFault(err)
	}
	var events bytes.Buffer
	events.WriteByte('[')
	for i, e := range page.Events {
		if i > 0 {
			events.WriteByte(',')
		}
		events.Write(encodeEvent(e))
		after = fanout.Position{Cursor: e.Cursor, Hash: e.Hash}
	}
	events.WriteByte(']')
	httpkit.WriteCompressedJSON(q.W, q.Request, http.StatusOK, addMember(httpkit.JSON(struct {
		Cursor uint64 `json:"cursor"`
		After  uint64 `json:"after"`
		Hash   string `json:"hash,omitempty"` // the position's, to continue from; "" if unknown
		More   bool   `json:"more"`
	}{page.Row.Cursor, after.Cursor, hashJSON(after.Hash), page.More}), "events", events.Bytes()))
	return nil
}

// acceptsEvents reports whether the request asks for a stream.
func acceptsEvents(h http.Header) bool {
	for _, accepted := range strings.Split(strings.Join(h.Values("Accept"), ","), ",") {
		if kind, _, err := mime.ParseMediaType(accepted); err == nil && kind == "text/event-stream" {
			return true
		}
	}
	return false
}

// resumePosition returns where a stream starts: at Last-Event-ID, which browsers send when they
// reconnect by themselves, with an unchanged URL. The parameter hash therefore belongs to the
// parameter after, if it is set, and else to Last-Event-ID.
func resumePosition(h http.Header, after string, named fanout.Position) (fanout.Position, *fault.Error) {
	last := h.Get("Last-Event-ID")
	if last == "" {
		return named, nil
	}
	cursor, refused := parseUintParam("Last-Event-ID", last, 0)
	if after != "" && cursor != named.Cursor {
		named.Hash = session.Hash{}
	}
	return fanout.Position{Cursor: cursor, Hash: named.Hash}, refused
}

// follow sends every event about keys after a position until the client goes, the ref dies or the server
// stops. An immediate refusal is an ordinary answer, so that browsers do not reconnect.
func (q *Request) follow(after fanout.Position, keys *session.Selection) *fault.Error {
	ctx, leave := context.WithCancelCause(q.ClientCtx)
	defer leave(nil)
	live, refused := q.Session(ctx)
	if refused != nil {
		return refused
	}
	if _, err := live.Events(q.Context(), after, keys, 1); err != nil {
		return q.ToFault(err)
	}
	if refused := q.BeginStream(); refused != nil {
		return refused
	}
	h := q.W.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	q.W.WriteHeader(http.StatusOK)
	s := &eventStream{out: trickle.Sender{Sent: after, Write: q.W.WriteUntil, Flush: q.W.FlushUntil, MinRateTime: q.api.cfg.StallTimeout, MinRateBytes: bytesPerStall,
		Render: func(e *session.Event) ([]byte, error) { return encodeFrame(e), nil }}}
	if err := s.write(": following\n\n"); err != nil {
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
	err := live.Follow(ctx, after, keys, s.writeEvents)
	if err == nil || ctx.Err() != nil || s.broken() {
		return nil
	}
	if why := q.ToFault(err); !why.Code.Transient() && why.Code != fault.Canceled { // else the client reconnects
		_ = s.write("event: ended\ndata: " + string(httpkit.JSON(newErrorJSON(why))) + "\n\n") // the client may have gone
	}
	return nil
}

// eventStream writes server-sent events.
type eventStream struct {
	mu  sync.Mutex
	out trickle.Sender
	err error // of the first write that failed
}

// write sends text that is not an event.
func (s *eventStream) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.out.Partial() { // else it would interrupt an event
		s.err = s.out.Send(nil, []byte(text))
	}
	return s.err
}

// writeEvents is the callback of Capability.Follow.
func (s *eventStream) writeEvents(events []*session.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	err := s.out.Send(events, nil)
	if !errors.As(err, new(objects.Rewind)) {
		s.err = err
	}
	return err
}

func (s *eventStream) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// Heartbeats has write send a comment of server-sent events at each Config.Heartbeat until ctx ends, to detect a dead
// connection: it returns the error of the first write that fails.
func (q *Request) Heartbeats(ctx context.Context, write func(string) error) error {
	t := time.NewTicker(q.api.cfg.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if err := write(": hb\n\n"); err != nil {
			return err
		}
	}
}

// encodeFrame returns an event as a frame: its cursor is the id, its method the event's name.
// Line breaks between a payload's tokens split the data lines.
func encodeFrame(e *session.Event) []byte {
	name := e.Method
	if e.Hidden {
		name = "hidden"
	}
	b := strconv.AppendUint([]byte("id: "), e.Cursor, 10)
	b = append(append(b, "\nevent: "...), name...)
	rest := encodeEvent(e)
	for more := true; more; {
		var line []byte
		i := bytes.IndexAny(rest, "\r\n")
		switch {
		case i < 0:
			line, more = rest, false
		case rest[i] == '\r' && i+1 < len(rest) && rest[i+1] == '\n':
			line, rest = rest[:i], rest[i+2:]
		default:
			line, rest = rest[:i], rest[i+1:]
		}
		b = append(append(b, "\ndata: "...), line...)
	}
	return append(b, "\n\n"...)
}
