// The live stream: what changes after a cursor, as server-sent events, or the same
// over a WebSocket (socket.go). The id of an event is its cursor. Each piece ends with
// the position that it brings the page to, from where that goes on when it comes back.

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
	"github.com/mooring-rpc/mooring/internal/timetext"
	"github.com/mooring-rpc/mooring/internal/trickle"
	"github.com/mooring-rpc/mooring/page"
	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/session"
)

// comeBack is how long a browser waits before it comes back, in ms.
const comeBack = "1000"

// live follows a session until one of both ends, or the reader does not keep up.
func (q *request) live(held holding) {
	from, err := follows(q.r)
	if err != nil {
		q.refuse(err)
		return
	}
	if asksForSocket(q.r) {
		q.liveSocket(held, from)
		return
	}
	done, err := q.site.server.AdmitStream(q.w, q.r)
	if err != nil {
		q.refuse(err)
		return
	}
	defer done()
	h, about, err := q.describe(held)
	if err != nil && q.faultOf(err).Code.Transient() {
		q.refuse(err)
		return
	}
	header := q.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // proxies
	q.w.WriteHeader(http.StatusOK)
	if q.r.Method == http.MethodHead {
		return
	}
	ctx, cancel := context.WithCancelCause(q.r.Context())
	defer cancel(nil)
	q.follow(ctx, q.site.newStream(q.pacer(), cancel, from), h, about, err)
}

// follow sends a stream what happens until its link ends, or the session does: for
// its reader, or because it could not be described. That is told in the stream: any
// other answer would leave the page without a reason. What passes is not: then the
// page comes back.
func (q *request) follow(link context.Context, s *stream, h *server.Held, about *server.Description, err error) {
	switch {
	case err != nil:
		f := q.faultOf(err)
		q.site.server.Refused(q.w, f)
		s.over(f)
		return
	case s.out.At.Cursor > about.Row.Cursor: // the server was restored to before what the page has
		_ = s.frame("reload", []byte("{}")) // the reader may have gone
		return
	}
	from := s.out.At
	s.goal, s.order = about.Row.Cursor, about.Row.Order
	if about.Grant.From > 1 {
		s.limited = h
	}
	hello := []byte("retry: " + comeBack + "\n\n")
	if from.Cursor == s.goal && (from.Hash == session.Hash{} || from.Hash == about.Row.Head) {
		hello = appendCaught(hello, from)
	}
	if s.send(hello) != nil {
		return
	}
	ctx, end := context.WithCancelCause(link)
	s.out.Render = func(e *session.Event) ([]byte, error) {
		if err := q.site.render(ctx); err != nil {
			return nil, err
		}
		defer q.site.rendered()
		if s.place != nil {
			return appendEvent(nil, e, s.place), nil
		}
		return q.site.events.of(e, s.order), nil
	}
	if !q.until.IsZero() {
		defer time.AfterFunc(time.Until(q.until), func() { end(q.site.timeIsOver()) }).Stop()
	}
	var beats sync.WaitGroup
	beats.Go(func() { s.beat(ctx, q.site.cfg.Heartbeat, func() { q.stillOpen(ctx, end) }) })
	err = h.Follow(ctx, from, func(events []*session.Event) error { return s.events(ctx, q.site, events) })
	end(nil)
	beats.Wait()
	if link.Err() != nil { // the reader has gone, or was too slow
		return
	}
	if why := new(fault.Error); errors.As(context.Cause(ctx), &why) {
		s.over(why)
		return
	}
	switch f := q.faultOf(err); {
	case f.Code == fault.CursorExpired, f.Code == fault.ServerBehind: // what the page has is not what is there
		_ = s.frame("reload", []byte("{}")) // the reader may have gone
	case f.Code.Transient(), f.Code == fault.SlowConsumer, f.Code == fault.Internal, f.Code == fault.Canceled:
		// the page comes back, and goes on where it was
	default:
		s.over(f)
	}
}

// stillOpen ends a stream whose token is there no more: its browser ended it, at any
// server.
func (q *request) stillOpen(ctx context.Context, end context.CancelCauseFunc) {
	if q.until.IsZero() {
		return
	}
	if err := q.lookUp(ctx); err == errNoToken {
		if time.Until(q.until) < time.Second { // the database's clock came first
			err = q.site.timeIsOver()
		}
		end(err)
	}
}

// timeIsOver is why a page ends whose token's time is over.
func (s *Site) timeIsOver() error {
	return fault.Expired.With("a page stays open for %s: open it by its whole link again, with what stands behind the #", timetext.Long(s.cfg.TokenLife))
}

// follows says where a stream goes on: the browser's own word wins, which names no hash.
func follows(r *http.Request) (from server.Position, err error) {
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
		return from, fault.BadArgument.With("a stream goes on from a cursor: say ?after=CURSOR, or Last-Event-ID, with a number")
	}
	return from, nil
}

// parseCursor reads a cursor as it is written: digits, without a sign or a zero in
// front.
func parseCursor(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err == nil && strconv.FormatUint(n, 10) != text {
		err = strconv.ErrSyntax
	}
	return n, err
}

// sender writes to a reader, as fast as that must be able to take it.
type sender interface {
	write(piece []byte, until time.Time) error
	flush(until time.Time) error // has what was written leave
}

// stream is what is written to one reader who follows.
type stream struct {
	gone    context.CancelCauseFunc // the reader has
	goal    uint64                  // what was there at the start
	order   session.Order           // of the session
	limited *server.Held            // the session, for a reader who is not shown its first events; else nil

	mu    sync.Mutex
	place page.Placing   // of what is being sent; nil for the order's own
	out   trickle.Sender // what brings the page to where it is
}

func (s *Site) newStream(to sender, gone context.CancelCauseFunc, at server.Position) *stream {
	return &stream{gone: gone, out: trickle.Sender{At: at, Write: to.write, Flush: to.flush, Limit: s.cfg.WriteTimeout, Least: pieceBytes}}
}

// events sends what events change on the page.
func (s *stream) events(ctx context.Context, site *Site, events []*session.Event) error {
	place, err := s.places(ctx, site, events)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place = place
	last := events[len(events)-1]
	at := server.Position{Cursor: last.Cursor, Hash: last.Hash}
	then := appendPosition(nil, "at", at)
	if at.Cursor >= s.goal {
		then = appendCaught(nil, at)
	}
	return s.left(s.out.Send(events, then))
}

// send sends what is no event: a few bytes.
func (s *stream) send(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(b)
}

func (s *stream) sendLocked(b []byte) error {
	if s.out.Torn() {
		return nil // it would stand in the middle of an event
	}
	return s.left(s.out.Send(nil, b))
}

// left notes that the reader has gone, if that is what an error says.
func (s *stream) left(err error) error {
	if err != nil && !errors.As(err, new(server.Again)) {
		s.gone(err)
	}
	return err
}

// places is where what events put stands for a limited reader, to whom keys may come
// that were first put before all that it is shown; nil for any other.
func (s *stream) places(ctx context.Context, site *Site, events []*session.Event) (page.Placing, error) {
	if s.limited == nil {
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
		got, next, err := s.limited.Values(ctx, keys[:min(len(keys), entriesAtOnce)], site.cfg.PageBytes)
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
		return s.order.Place(e, i, key, payload) // it is gone again
	}, nil
}

// beat shows the page, and proxies, that a silent stream lives, and us whether the
// reader does. The page sees no comments, and is told again that it has everything.
// check is called each time.
func (s *stream) beat(ctx context.Context, every time.Duration, check func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if s.heartbeat() != nil {
				return
			}
			check()
		}
	}
}

func (s *stream) heartbeat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := []byte(": hb\n\n")
	if s.out.At.Cursor >= s.goal {
		b = appendCaught(b, s.out.At)
	}
	return s.sendLocked(b)
}

// appendCaught tells that the page has all that was there at the start, or as much
// more as has come since.
func appendCaught(b []byte, at server.Position) []byte { return appendPosition(b, "caught", at) }

// appendPosition tells where the page is, by cursor and hash: from there it goes on when
// it comes back. What it has seen since is sent again, which changes nothing.
func appendPosition(b []byte, event string, at server.Position) []byte {
	data := strconv.AppendUint([]byte(`{"cursor":`), at.Cursor, 10)
	if at.Hash != (session.Hash{}) {
		data = fmt.Appendf(data, `,"hash":"%s"`, at.Hash)
	}
	data = append(data, '}')
	return appendFrame(b, page.Frame{Event: event, Data: data}, 0)
}

// over tells why the session cannot be followed: for good.
func (s *stream) over(f *fault.Error) { _ = s.frame("over", told(f)) } // the reader may have gone

func (s *stream) frame(event string, data []byte) error {
	return s.send(appendFrame(nil, page.Frame{Event: event, Data: data}, 0))
}

// appendEvent writes an event's frames, the last one with the event's cursor as its
// id. Of one that changes nothing there is the id alone: a browser keeps it, and
// tells the page nothing.
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

// appendFrame writes a frame; one of cursor 0 has no id.
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
