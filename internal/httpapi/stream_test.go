//go:build unix

package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// A follower whose link is cut at random, and who comes back with the last id it
// saw, gets every event once and in order.
func TestResumedExactlyOnce(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		const puts = 60
		rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			r.put(m, puts)
		}()
		last := uint64(0)
		for links := 0; last < puts+1; links++ {
			if links > 10*puts {
				t.Fatal("it does not go on")
			}
			c, err := net.Dial("tcp", r.host)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			fmt.Fprintf(c, "GET %ssessions/%s/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\nLast-Event-ID: %d\r\n\r\n",
				Path, m.id, m.owner.Text(), last)
			resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(c, int64(300+rnd.IntN(10_000)))), nil)
			if err != nil { // cut in the head
				_ = c.Close()
				continue
			}
			s := &stream{t: t, scan: bufio.NewScanner(resp.Body), cuts: true}
			for last < puts+1 {
				e, ok := s.next()
				if !ok {
					break
				}
				if want := fmt.Sprint(last + 1); e.id != want {
					t.Fatalf("event %s in place of %s", e.id, want)
				}
				last++
			}
			_ = c.Close()
		}
		<-wrote
	})
}

// A payload of more than one line is one event, and none of its lines is another's.
func TestLinesOfAnEvent(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{"{\n\"a\":\r1\r\n}": "{\ndata: \"a\":\ndata: 1\ndata: }", "{}\n\nid: 7": "{}\ndata: \ndata: id: 7", "\r": "\ndata: "} {
		got := string(encodeFrame(&session.Event{Cursor: 3, Method: "put", Key: "message/m", Payload: []byte(payload)}))
		if !strings.HasPrefix(got, "id: 3\nevent: put\ndata: {") || !strings.HasSuffix(got, `"payload":`+want+"}\n\n") {
			t.Errorf("%q becomes %q", payload, got)
		}
	}
}

// A stream is quiet but for its heartbeats, counts as a connection while it lasts,
// and just ends when the server stops: the client is to come again.
func TestHeartbeatsAndDraining(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(s *node.Config, c *Config) { c.Heartbeat, s.Connections = 5*time.Millisecond, 2 })
	m := r.create()
	first, second := r.follow(m, m.owner.Text(), 0), r.follow(m, m.owner.Text(), 1)
	if e, ok := first.next(); !ok || e.name != "create" {
		t.Fatalf("%+v", e)
	}
	got := r.ask("GET", "/sessions/"+m.id, m.owner.Text(), nil)
	if got.status != 429 || got.code() != "overloaded" || got.header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", got.status, got.text)
	}
	for second.beat < 3 && second.scan.Scan() {
		if strings.HasPrefix(second.scan.Text(), ":") {
			second.beat++
		}
	}
	_ = second.body.Close()
	until.True(t, "the one who left is not counted", func() bool { return r.ask("GET", "/sessions/"+m.id, m.owner.Text(), nil).status == 200 })
	ended := make(chan event, 1)
	go func() {
		e, _ := first.next()
		ended <- e
	}()
	r.stop()
	if e := <-ended; e != (event{}) {
		t.Errorf("it ends with %+v", e)
	}
}

// away is a database that is away for whoever begins to follow.
type away struct {
	*store.Store
	reads atomic.Int32
}

func (s *away) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	if s.reads.Add(1) == 2 { // the first says whether there is something to follow
		return nil, fault.Unavailable.With("away")
	}
	return s.Store.ReadLog(ctx, id, after, maxBytes, maxEvents, refs, hashesAt...)
}

// What passes by itself is no end that a client is told of: it is to come again.
func TestStreamThatMayGoOnJustEnds(t *testing.T) {
	t.Parallel()
	st := &away{Store: teststore.SQLite(t)}
	r := start(t, st.Store, func(s *node.Config, _ *Config) { s.Store = st })
	m := r.create()
	if e, ok := r.follow(m, m.owner.Text(), 0).next(); ok {
		t.Errorf("it ends with %+v", e)
	}
	if e, ok := r.follow(m, m.owner.Text(), 0).next(); !ok || e.name != "create" {
		t.Errorf("coming again gives %+v", e)
	}
}

// Who takes nothing is left, and holds nothing any more; a snapshot that was cut off
// is not taken for a whole one.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	var log lockbuf.Buffer
	r := start(t, teststore.SQLite(t), func(s *node.Config, c *Config) {
		c.StallTimeout, s.Connections = time.Second, 3
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		c.Log = s.Log
	})
	m := r.create()
	large := obj{"text": strings.Repeat("x", 3<<20)}
	for i := range 5 {
		b := m.box.batch(m.id, op("put", "key", fmt.Sprintf("message/m%d", i), "payload", large))
		r.must(200, "POST", "/sessions/"+m.id+"/batches", m.owner.Text(), m.box.json(b))
	}
	var rest []net.Conn
	for _, path := range []string{"/events", "/snapshot"} {
		c, err := net.Dial("tcp", r.host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET %ssessions/%s%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", Path, m.id, path, m.owner.Text())
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil { // it has begun
			t.Fatal(path, err)
		}
		rest = append(rest, c)
	}
	// They count as two of the three that may be.
	until.True(t, "they are left", func() bool {
		for range 3 {
			one, refused := r.open(r.request("GET", "/sessions/"+m.id+"/events?after=5", m.owner.Text(), nil))
			if refused != nil {
				return false
			}
			defer one.body.Close()
		}
		return true
	})
	for i, from := range rest {
		_ = from.SetReadDeadline(time.Now().Add(patience))
		text, _ := io.ReadAll(from)
		if len(text) > 15<<20 || strings.HasSuffix(string(text), "0\r\n\r\n") {
			t.Errorf("%d: %d bytes came, and an end", i, len(text))
		}
	}
	r.stop()
	if text := log.String(); strings.Contains(text, "ERROR") {
		t.Errorf("readers who went away are errors in the log:\n%s", text)
	}
}
