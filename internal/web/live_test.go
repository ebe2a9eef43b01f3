//go:build unix

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/scrape"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// message is one server-sent event as a browser reads it.
type message struct {
	id, event, data string
}

// source is an EventSource, but that it comes back only when told to.
type source struct {
	t    testing.TB
	res  *http.Response
	in   *bufio.Reader
	stop context.CancelFunc
	last string // the last event id, kept over reconnects
}

// listen opens a stream; last is its Last-Event-ID, "" for none.
func listen(t testing.TB, b *browser, url, last string) *source {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	if token := b.token(url); token != "" {
		req.Header.Set(tokenHeader, token)
	}
	res, err := b.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return &source{t: t, res: res, in: bufio.NewReader(res.Body), stop: cancel, last: last}
}

// next reads a message, which may be one that a browser tells no page of (without
// data). The error is that of the link.
func (s *source) next() (message, error) {
	var m message
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return m, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "":
			if value == "" && line == "\n" {
				if m.id != "" {
					s.last = m.id
				}
				return m, nil
			}
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = value
		case "retry":
		default:
			return m, fmt.Errorf("a line of a stream is %q", line)
		}
	}
}

// until reads to a message of an event and gives it.
func (s *source) until(event string) message {
	s.t.Helper()
	for {
		m, err := s.next()
		if err != nil {
			s.t.Fatalf("the stream ends (%v) before %q", err, event)
		}
		if m.event == event {
			return m
		}
	}
}

// ends reads to the end and gives the events on the way.
func (s *source) ends() (events []string) {
	s.t.Helper()
	for {
		m, err := s.next()
		if err == io.EOF {
			return events
		}
		if err != nil {
			s.t.Fatalf("the stream breaks: %v", err)
		}
		if m.event != "" {
			events = append(events, m.event+" "+m.data)
		}
	}
}

// caughtUp reads to where nothing more is there, at a cursor.
func (s *source) caughtUp(at uint64) {
	s.t.Helper()
	for {
		if m := s.until("caught"); m.data == fmt.Sprintf(`{"cursor":%d}`, at) || strings.HasPrefix(m.data, fmt.Sprintf(`{"cursor":%d,"hash":"`, at)) {
			return
		}
	}
}

// script makes a session whose events are of all kinds, and gives its cursor.
func (m *made) script() uint64 {
	m.do(put("session", `{"title":"One"}`), put("message/a", `{"role":"user"}`), put("part/a/1", `{"type":"text","text":"hi"}`))
	reader := m.share(capability.MintRequest{}) // an event that changes nothing on a page
	m.revoke(reader.ID)
	for i := range 8 {
		m.do(put("message/b", `{"role":"assistant"}`), put(fmt.Sprintf("part/b/%d", i), fmt.Sprintf(`{"type":"text","text":"%d\n<b>"}`, i)))
		m.do(put("part/a/1", fmt.Sprintf(`{"type":"text","text":"hi %d"}`, i)), op("remove", arg("key", quoted(fmt.Sprintf("part/b/%d", i)))))
	}
	w := m.write()
	w.do(op("begin", arg("message", `"c"`), arg("payload", `{"role":"assistant"}`)), put("part/c/1", `{"type":"text","text":""}`))
	for i := range 12 {
		w.do(op("appendText", arg("key", `"part/c/1"`), arg("offset", fmt.Sprint(5*i)), arg("text", `"words"`)))
	}
	return w.do(op("finalize", arg("message", `"c"`), arg("status", `"completed"`)))
}

// frames reads a stream to a cursor: what came of events, by their ids.
func (s *source) frames(to uint64, into map[uint64][]message) error {
	var open []message
	for {
		m, err := s.next()
		if err != nil {
			return err
		}
		if m.event == "caught" || m.event == "at" {
			continue
		}
		if m.event != "" {
			open = append(open, m)
		}
		if m.id == "" {
			continue
		}
		id, err := parseCursor(m.id)
		if err != nil {
			return err
		}
		if _, twice := into[id]; twice {
			return fmt.Errorf("event %d came again", id)
		}
		into[id], open = open, nil
		if id == to {
			return nil
		}
	}
}

// Each piece of a stream ends with a position, from which the log's next reader goes on if
// it is the same log.
func TestPositions(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	for i := range 6 {
		m.do(put(fmt.Sprintf("part/m/%d", i), fmt.Sprintf(`{"type":"text","text":%q}`, strings.Repeat("x", pieceBytes))))
	}
	live := r.url("/share/" + m.publish().ID + "/live")
	b := newBrowser(t)
	s := listen(t, b, live+"?after=0", "")
	var positions []string
	last := "0"
	for got := (message{}); got.event != "caught"; {
		var err error
		if got, err = s.next(); err != nil {
			t.Fatal(err)
		}
		if got.id != "" {
			last = got.id
		}
		if got.event == "at" || got.event == "caught" {
			var at struct {
				Cursor json.Number
				Hash   string
			}
			if err := json.Unmarshal([]byte(got.data), &at); err != nil || at.Cursor.String() != last || len(at.Hash) != 64 {
				t.Errorf("behind event %s stands %+v", last, got)
			}
			positions = append(positions, fmt.Sprintf("after=%s&hash=%s", at.Cursor, at.Hash))
		}
	}
	if len(positions) < 6 {
		t.Errorf("there are %d positions", len(positions))
	}
	for i, at := range positions {
		s := listen(t, b, live+"?"+at, "")
		s.until("caught")
		s.stop()
		if i > 0 {
			_, hash, _ := strings.Cut(positions[0], "&")
			cursor, _, _ := strings.Cut(at, "&")
			if got := listen(t, b, live+"?"+cursor+"&"+hash, "").ends(); len(got) != 1 || got[0] != "reload {}" {
				t.Errorf("%s of another log: %q", cursor, got)
			}
		}
	}
}

// Whatever cursor a page comes back with, it gets every event after it once, in
// whole, and in order: from each cursor, and over links that are cut at random.
func TestResume(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		end := m.script()
		live := r.url("/share/" + m.publish().ID + "/live")
		b := newBrowser(t)
		end += 2 // publishing made events too
		whole := map[uint64][]message{}
		if err := listen(t, b, live+"?after=0", "").frames(end, whole); err != nil {
			t.Fatal(err)
		}
		if len(whole) != int(end) {
			t.Fatalf("%d events of %d", len(whole), end)
		}
		for from := uint64(1); from < end; from++ {
			got := map[uint64][]message{}
			s := listen(t, b, live+"?after=0", strconv.FormatUint(from, 10)) // the header wins
			if err := s.frames(end, got); err != nil {
				t.Fatalf("from %d: %v", from, err)
			}
			s.caughtUp(end)
			s.stop()
			if len(got) != int(end-from) {
				t.Errorf("from %d there are %d events, want %d", from, len(got), end-from)
			}
			for id, frames := range got {
				if id <= from || fmt.Sprint(frames) != fmt.Sprint(whole[id]) {
					t.Errorf("from %d event %d is %v, was %v", from, id, frames, whole[id])
				}
			}
		}
		random := rand.New(rand.NewPCG(seed.Of(t), 1))
		for range 5 {
			got, last := map[uint64][]message{}, "0"
			for len(got) < int(end) {
				cut := &cutting{left: 1 + random.IntN(4000)}
				s := listen(t, cut.browser(t), live+"?after=0", last)
				if err := s.frames(end, got); err != nil && !errors.Is(err, errCut) {
					t.Fatal(err)
				}
				last = s.last
				s.stop()
			}
			for id := uint64(1); id <= end; id++ {
				if fmt.Sprint(got[id]) != fmt.Sprint(whole[id]) {
					t.Errorf("event %d is %v, was %v", id, got[id], whole[id])
				}
			}
		}
	})
}

// cutting is a link that breaks after so many bytes.
type cutting struct {
	net.Conn
	left int
}

var errCut = errors.New("cut")

func (c *cutting) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, errCut
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func (c *cutting) browser(t testing.TB) *browser {
	b := newBrowser(t)
	dial := (&net.Dialer{}).DialContext
	c.left += 1200 // the head
	b.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.Conn = conn
		return c, nil
	}
	return b
}

// A page that is open sees what happens, is told when it has all, and of the end,
// at the cut, with its reason. Nothing is to come back to then.
func TestFollowToTheEnd(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, func(_ *node.Config, c *Config) { c.Heartbeat = 20 * time.Millisecond })
		m := r.create()
		public := m.publish()
		reader := m.share(capability.MintRequest{})
		b := newBrowser(t)
		if got := b.open(r.url("/s/"+reader.ID), fmt.Sprintf(`{"secret":%q}`, reader.Secret.RevealText())); got.StatusCode != http.StatusOK {
			t.Fatal(got.StatusCode, got.body)
		}
		for path, revoked := range map[string]string{"/share/" + public.ID: public.Share, "/s/" + reader.ID: reader.ID} {
			at := m.do(put("message/x", fmt.Sprintf(`{"role":%q}`, revoked)))
			s := listen(t, b, fmt.Sprintf("%s/live?after=%d", r.url(path), at), "")
			for name, want := range map[string]string{"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", "Cache-Control": "private, no-store"} {
				if got := s.res.Header.Get(name); got != want {
					t.Errorf("%s: %q", name, got)
				}
			}
			s.caughtUp(at)
			at = m.do(put("message/m", fmt.Sprintf(`{"role":"user","of":%q}`, revoked)))
			if got := s.until("block"); got.id != fmt.Sprint(at) || !strings.Contains(got.data, `"key":"message/m"`) {
				t.Errorf("%+v at %d", got, at)
			}
			s.caughtUp(at)
			for beats := 0; beats < 2; {
				line, err := s.in.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if line == ": hb\n" {
					beats++
				}
			}
			m.revoke(revoked)
			var over []string
			for {
				line, err := s.in.ReadString('\n')
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					over = append(over, data)
				}
			}
			var answer struct{ Code, Message string }
			if len(over) == 0 || json.Unmarshal([]byte(over[len(over)-1]), &answer) != nil || answer.Code != "revoked" || answer.Message == "" {
				t.Errorf("it ends with %q", over)
			}
			again := listen(t, b, r.url(path)+"/live?after=0", "")
			if got := again.ends(); len(got) != 1 || !strings.HasPrefix(got[0], `over {"code":"revoked"`) {
				t.Errorf("who comes back gets %q", got)
			}
			if got := b.get(r.url(path)); got.StatusCode != http.StatusForbidden && got.StatusCode != http.StatusGone || !strings.Contains(got.body, "revoked") {
				t.Errorf("the page is %d %s", got.StatusCode, got.body)
			}
		}
	})
}

// Other ends: the session's, the ref's time, and a page of another life of the server.
func TestOtherEnds(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	at := m.do(put("message/m", `{"role":"user"}`))
	b := newBrowser(t)
	open := func(ref capability.Ref) string {
		if got := b.open(r.url("/s/"+ref.ID), fmt.Sprintf(`{"secret":%q}`, ref.Secret.RevealText())); got.StatusCode != http.StatusOK {
			t.Fatal(got.StatusCode, got.body)
		}
		return r.url("/s/" + ref.ID + "/live")
	}
	live := open(m.share(capability.MintRequest{}))
	at++
	for _, ahead := range []string{fmt.Sprint(at + 1), "9223372036854775807"} {
		if got := listen(t, b, live, ahead).ends(); len(got) != 1 || got[0] != "reload {}" {
			t.Errorf("from a cursor that there is not: %q", got)
		}
	}
	for _, bad := range []string{"x", "-1", "+1", "01", "1.5", "9223372036854775808", "1e3", "١"} {
		if got := b.send(http.MethodGet, live, "", "Last-Event-ID: "+bad); got.StatusCode != http.StatusBadRequest {
			t.Errorf("from %q: %d", bad, got.StatusCode)
		}
	}
	if got := b.send(http.MethodGet, live, ""); got.StatusCode != http.StatusBadRequest {
		t.Errorf("from nowhere: %d", got.StatusCode)
	}
	soon := m.share(capability.MintRequest{Expires: time.Now().Add(6 * time.Second).UnixMilli()}) // by then it is open and followed
	s := listen(t, b, open(soon)+"?after=0", "")
	if got := s.until("over"); !strings.Contains(got.data, `"code":"expired"`) {
		t.Errorf("an expired ref's stream ends with %v", got)
	}
	s = listen(t, b, live+"?after=0", "")
	s.until("caught")
	m.write().do(op("delete"))
	if got := s.until("over"); !strings.Contains(got.data, `"code":"session_deleted"`) {
		t.Errorf("a deleted session's stream ends with %v", got)
	}
	stranger := newBrowser(t)
	if got := listen(t, stranger, live+"?after=0", "").ends(); len(got) != 1 || !strings.HasPrefix(got[0], `over {"code":"unknown_ref"`) {
		t.Errorf("without a token: %q", got)
	}
	if n := scrape.Refusals(r.server.Metrics())["unknown_ref"]; n != 1 {
		t.Errorf("it is counted %d times", n)
	}
}

// A log that was trimmed has the page read anew.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	st := teststore.SQLite(t)
	r := start(t, st, nil)
	m := r.create()
	for i := range 5 {
		m.do(put("message/m", fmt.Sprintf(`{"role":"user","i":%d}`, i)))
	}
	live := r.url("/share/" + m.publish().ID + "/live")
	until.True(t, "the log is trimmed", func() bool {
		_, err := st.Trim(t.Context(), m.id, time.Nanosecond, 1000, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := st.ReadRows(t.Context(), []string{m.id})
		return err == nil && rows[m.id].Base > 3
	})
	if got := listen(t, newBrowser(t), live, "1").ends(); len(got) != 1 || got[0] != "reload {}" {
		t.Errorf("from a cursor that is gone: %q", got)
	}
}

// A server that stops ends the streams without saying that anything is over, and
// whoever comes back to it after the restart misses nothing.
func TestRestart(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		at := m.do(put("message/m", `{"role":"user"}`))
		live := r.url("/share/" + m.publish().ID + "/live")
		at += 2
		b := newBrowser(t)
		s := listen(t, b, live+"?after=0", "")
		s.caughtUp(at)
		stopped := make(chan struct{})
		stop := r.stop
		go func() {
			defer close(stopped)
			stop()
		}()
		for {
			got, err := s.next()
			if err == io.EOF {
				break
			}
			if err != nil || got.event == "over" {
				t.Fatal(got, err)
			}
		}
		<-stopped
		r.run()
		want := m.do(put("message/n", `{"role":"user"}`))
		s = listen(t, b, live+"?after=0", s.last)
		if got := s.until("block"); got.id != fmt.Sprint(want) {
			t.Errorf("after the restart comes %v, want %d", got, want)
		}
	})
}

// Who does not read is ended, costs the others nothing, and comes back to where it was.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.WriteTimeout = time.Second })
	m := r.create()
	live := "/share/" + m.publish().ID + "/live?after=0"
	c, err := net.Dial("tcp", r.host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", live, r.host); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	quick := listen(t, b, r.url(live), "")
	quick.until("caught")
	until.True(t, "both follow", func() bool { return r.metric("mooring_connections") == "2" })
	text := strings.Repeat("words and words ", 12<<10)
	var at uint64
	for i := range 45 { // more than sockets hold
		at = m.do(put("message/m", `{"role":"user"}`), put("part/m/p", fmt.Sprintf(`{"type":"text","text":"%d %s"}`, i, text)))
	}
	for got := (map[uint64][]message{}); quick.frames(at, got) != nil; { // on a slow machine it may be slow too
		quick = listen(t, b, r.url(live), quick.last)
	}
	quick.stop()
	until.True(t, "the slow one is ended", func() bool { return r.metric("mooring_connections") == "0" })
	_ = c.SetReadDeadline(time.Now().Add(patience))
	slow := &source{t: t, in: bufio.NewReader(c)}
	for last := ""; ; {
		line, err := slow.in.ReadString('\n')
		if err != nil {
			slow.last = last
			break
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			last = strings.TrimSpace(id)
		}
	}
	if slow.last == "" {
		t.Fatal("it got nothing at all")
	}
	from, err := parseCursor(slow.last)
	if err != nil {
		t.Fatal(err)
	}
	rest := map[uint64][]message{}
	back := listen(t, b, r.url(live), slow.last)
	for back.frames(at, rest) != nil { // as above
		back = listen(t, b, r.url(live), back.last)
	}
	if len(rest) != int(at-from) {
		t.Errorf("coming back from %d it gets %d events of %d", from, len(rest), at-from)
	}
	if log := r.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("readers who went away are errors in the log:\n%s", log)
	}
}

// Streams are connections, and bounded as such.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *node.Config, _ *Config) {
		c.ConnectionsPerAddress, c.RPC.HandshakeTimeout = 3, 2*time.Second
	})
	m := r.create()
	live := r.url("/share/" + m.publish().ID + "/live?after=0")
	var all []*source
	for range 3 {
		s := listen(t, newBrowser(t), live, "")
		s.until("caught")
		all = append(all, s)
	}
	got := newBrowser(t).send(http.MethodGet, live, "")
	if got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" || !strings.Contains(got.body, "from this address") {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	begun := time.Now()
	until.True(t, "a handshake's time has passed", func() bool { return time.Since(begun) > 2500*time.Millisecond })
	at := m.do(put("message/m", `{"role":"user"}`))
	for _, s := range all {
		s.caughtUp(at)
	}
	all[0].stop()
	until.True(t, "one has left", func() bool { return r.metric("mooring_connections") == "2" })
	listen(t, newBrowser(t), live, "").caughtUp(at)
}
