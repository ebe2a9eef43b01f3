// The live stream: changes after a cursor, as server-sent events or over a WebSocket (socket.go).
// An event's id is its cursor. Each piece ends with the position that the page has then, from
// which it resumes when it reconnects.

package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/humantime"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/trickle"
)

// retryMillis is how long a browser waits before it reconnects, in ms.
const retryMillis = "1000"

// serveLive follows a session until the session or the connection ends, or the reader is too
// slow.
func (q *request) serveLive() error {
	from, err := resumePosition(q.r)
	if err != nil {
		return err
	}
	if isSocketUpgrade(q.r) {
		return q.serveLiveSocket(from)
	}
	done, err := q.site.server.AdmitStream(q.w, q.r)
	if err != nil {
		return err
	}
	defer done()
	h, desc, err := q.describe()
	if err != nil && q.toFault(err).Code.Transient() {
		return err
	}
	header := q.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // for proxies
	q.w.WriteHeader(http.StatusOK)
	if q.r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithCancelCause(q.r.Context())
	defer cancel(nil)
	q.follow(ctx, q.site.newStream(q.newPacedWriter(), cancel, from), h, desc, err)
	return nil
}

// follow sends a stream events until its link ends, or the session does, either for its reader or
// because it could not be described. A permanent reason is sent in the stream: any other answer
// would leave the page without it. A transient one is not: the page then reconnects.
func (q *request) follow(link context.Context, s *stream, h *objects.Capability, desc *objects.Description, err error) {
	switch {
	case err != nil:
		f := q.toFault(err)
		q.site.server.Refused(q.w, f)
		s.sendOver(f)
		return
	case s.out.Sent.Cursor > desc.Row.Cursor: // the server was restored to an earlier cursor than the page has
		_ = s.sendFrame("reload", []byte("{}")) // the reader may have gone
		return
	}
	from := s.out.Sent
	s.startCursor, s.order = desc.Row.Cursor, desc.Row.Order
	if desc.Grant.VisibleFrom > 1 {
		s.partial = h
	}
	hello := []byte("retry: " + retryMillis + "\n\n")
	if from.Cursor == s.startCursor && (from.Hash == session.Hash{} || from.Hash == desc.Row.Head) {
		hello = appendCaughtUp(hello, from)
	}
	if s.send(hello) != nil {
		return
	}
	ctx, end := context.WithCancelCause(link)
	s.out.Render = func(e *session.Event) ([]byte, error) {
		if err := q.site.acquireRender(ctx); err != nil {
			return nil, err
		}
		defer q.site.releaseRender()
		if s.placing != nil {
			return appendEvent(nil, e, s.placing), nil
		}
		return q.site.renderCache.get(e, s.order), nil
	}
	if !q.tokenExpiry.IsZero() {
		defer time.AfterFunc(time.Until(q.tokenExpiry), func() { end(q.site.expired()) }).Stop()
	}
	var beats sync.WaitGroup
	beats.Go(func() { s.heartbeats(ctx, q.site.cfg.Heartbeat, func() { q.recheckToken(ctx, end) }) })
	err = h.Follow(ctx, from, nil, func(events []*session.Event) error { return s.sendEvents(ctx, q.site, events) })
	end(nil)
	beats.Wait()
	if link.Err() != nil { // the reader has gone, or was too slow
		return
	}
	if why := new(fault.Error); errors.As(context.Cause(ctx), &why) {
		s.sendOver(why)
		return
	}
	switch f := q.toFault(err); {
	case f.Code == fault.CursorExpired, f.Code == fault.ServerBehind: // the page's state is not the server's
		_ = s.sendFrame("reload", []byte("{}")) // the reader may have gone
	case f.Code.Transient(), f.Code == fault.SlowConsumer, f.Code == fault.Internal, f.Code == fault.Canceled:
		// the page reconnects and resumes
	default:
		s.sendOver(f)
	}
}

// recheckToken ends a stream whose token no longer exists: its browser ended it, at any server.
func (q *request) recheckToken(ctx context.Context, end context.CancelCauseFunc) {
	if q.tokenExpiry.IsZero() {
		return
	}
	if err := q.checkToken(ctx); err == errNoToken {
		if time.Until(q.tokenExpiry) < time.Second { // the database's clock is ahead
			err = q.site.expired()
		}
		end(err)
	}
}

// expired returns the error of a page whose token has expired.
func (s *Site) expired() error {
	return fault.Expired.With("a page stays open for %s: open its whole link again, with the part after the #", humantime.Duration(s.cfg.TokenLife))
}

// resumePosition returns the position where a stream resumes: the browser's Last-Event-ID takes
// precedence; it has no hash.
func resumePosition(r *http.Request) (from fanout.Position, err error) {
	text := r.Header.Get("Last-Event-ID")
	if hash := r.URL.Query().Get("hash"); hash != "" && text == "" {
		if from.Hash, err = session.ParseHash(hash); err != nil {
			return from, err
		}
	}
	for _, name := range []string{"after", "from"} {
		if text == "" {
			text = r.URL.Query().Get(name)
		}
	}
	if from.Cursor, err = parseCursor(text); err != nil {
		return from, fault.BadArgument.With("a stream continues from a cursor: give ?after=CURSOR, or Last-Event-ID, with a number")
	}
	return from, nil
}

// parseCursor parses a cursor: digits, without a sign or a leading zero.
func parseCursor(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err == nil && strconv.FormatUint(n, 10) != text {
		err = strconv.ErrSyntax
	}
	return n, err
}

// sender writes to a reader under deadlines.
type sender interface {
	WriteUntil(piece []byte, until time.Time) error
	FlushUntil(until time.Time) error // sends buffered bytes
}

// stream is the state of one live reader.
type stream struct {
	cancel      context.CancelCauseFunc // called when the reader has gone
	startCursor uint64                  // the session's cursor at the start
	order       session.Order           // of the session
	partial     *objects.Capability     // the session, for a reader whose first events are hidden; else nil

	mu      sync.Mutex
	placing page.Placing   // of the events being sent; nil for the order's own
	out     trickle.Sender // frames, and the position sent
}

func (s *Site) newStream(to sender, gone context.CancelCauseFunc, at fanout.Position) *stream {
	return &stream{cancel: gone, out: trickle.Sender{Sent: at, Write: to.WriteUntil, Flush: to.FlushUntil, MinRateTime: s.cfg.WriteTimeout, MinRateBytes: pieceBytes}}
}

// sendEvents sends the changes of events to the page.
func (s *stream) sendEvents(ctx context.Context, site *Site, events []*session.Event) error {
	place, err := s.placingFor(ctx, site, events)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placing = place
	last := events[len(events)-1]
	at := fanout.Position{Cursor: last.Cursor, Hash: last.Hash}
	then := appendPosition(nil, "at", at)
	if at.Cursor >= s.startCursor {
		then = appendCaughtUp(nil, at)
	}
	return s.noteGone(s.out.Send(events, then))
}

// send sends a few bytes that are not an event.
func (s *stream) send(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(b)
}

func (s *stream) sendLocked(b []byte) error {
	if s.out.Partial() {
		return nil // it would interrupt an event
	}
	return s.noteGone(s.out.Send(nil, b))
}

// noteGone cancels the stream if err says that the reader has gone.
func (s *stream) noteGone(err error) error {
	if err != nil && !errors.As(err, new(objects.Rewind)) {
		s.cancel(err)
	}
	return err
}

// placingFor returns the placing of events' keys for a limited reader, who may get keys first put
// before the reader's first visible event; nil for any other.
func (s *stream) placingFor(ctx context.Context, site *Site, events []*session.Event) (page.Placing, error) {
	if s.partial == nil {
		return nil, nil
	}
	var keys []string
	for _, e := range events {
		keys = append(keys, page.Puts(e)...)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	known := map[string]session.Ord{}
	for len(keys) > 0 {
		got, next, err := s.partial.Values(ctx, keys[:min(len(keys), entriesPerRead)], site.cfg.PageBytes)
		if err != nil {
			return nil, err
		}
		for _, e := range got.Entries {
			known[e.Key] = e.Ord
		}
		keys = keys[next:]
	}
	return func(e *session.Event, i int, key string, payload []byte) session.Ord {
		if ord, ok := known[key]; ok {
			return ord
		}
		return s.order.NewOrd(e, i, key, payload) // removed again
	}, nil
}

// heartbeats shows the page, and proxies, that a silent stream lives, and detects a dead reader.
// The page does not see comments, so it is sent its position again. check is called each time.
func (s *stream) heartbeats(ctx context.Context, every time.Duration, check func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if s.sendHeartbeat() != nil {
				return
			}
			check()
		}
	}
}

func (s *stream) sendHeartbeat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := []byte(": hb\n\n")
	if s.out.Sent.Cursor >= s.startCursor {
		b = appendCaughtUp(b, s.out.Sent)
	}
	return s.sendLocked(b)
}

// appendCaughtUp appends an event saying that the page has everything that existed at the start,
// or later events too.
func appendCaughtUp(b []byte, at fanout.Position) []byte { return appendPosition(b, "caught", at) }

// appendPosition appends the page's position, by cursor and hash, from which it resumes. Events
// sent again after it change nothing.
func appendPosition(b []byte, event string, at fanout.Position) []byte {
	data := strconv.AppendUint([]byte(`{"cursor":`), at.Cursor, 10)
	if at.Hash != (session.Hash{}) {
		data = fmt.Appendf(data, `,"hash":"%s"`, at.Hash)
	}
	data = append(data, '}')
	return appendFrame(b, page.Frame{Event: event, Data: data}, 0)
}

// sendOver sends why the session can no longer be followed, for good.
func (s *stream) sendOver(f *fault.Error) { _ = s.sendFrame("over", faultJSON(f)) } // the reader may have gone

func (s *stream) sendFrame(event string, data []byte) error {
	return s.send(appendFrame(nil, page.Frame{Event: event, Data: data}, 0))
}

// appendEvent appends an event's frames, the last with the event's cursor as its id. An event
// without frames gets the id alone: a browser stores it, without notifying the page.
func appendEvent(b []byte, e *session.Event, place page.Placing) []byte {
	frames := page.Frames(e, place)
	if len(frames) == 0 {
		return append(appendID(b, e.Cursor), '\n')
	}
	for _, f := range frames[:len(frames)-1] {
		b = appendFrame(b, f, 0)
	}
	return appendFrame(b, frames[len(frames)-1], e.Cursor)
}

// appendFrame appends a frame; one of cursor 0 has no id.
func appendFrame(b []byte, f page.Frame, cursor uint64) []byte {
	if cursor != 0 {
		b = appendID(b, cursor)
	}
	b = append(append(append(b, "event: "...), f.Event...), "\ndata: "...)
	return append(append(b, f.Data...), "\n\n"...)
}

func appendID(b []byte, cursor uint64) []byte {
	return append(strconv.AppendUint(append(b, "id: "...), cursor, 10), '\n')
}
