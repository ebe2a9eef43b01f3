package relay

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/relay/relaytest"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/outbox"
)

// slowSync is a sync whose body is sent bit by bit.
type slowSync struct {
	body   *io.PipeWriter
	status chan int
}

// beginSync sends a sync up to its items.
func (r *rig) beginSync(c opencode.CreateReply) *slowSync {
	r.t.Helper()
	out, in := io.Pipe()
	s := &slowSync{in, make(chan int, 1)}
	req, err := http.NewRequestWithContext(r.t.Context(), "POST", r.http.URL+"/api/share/"+c.ID+"/sync", out)
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(s.status)
		res, err := plain.Do(req)
		if err != nil {
			return // the test has broken it off
		}
		defer res.Body.Close()
		s.status <- res.StatusCode
	}()
	s.send(r.t, `{"secret":"`+c.Secret+`","data":[`)
	return s
}

func (s *slowSync) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(s.body, text); err != nil {
		t.Fatal(err)
	}
}

// finish sends the rest, and returns the answer's status.
func (s *slowSync) finish(t *testing.T, rest string) int {
	t.Helper()
	s.send(t, rest+"]}")
	if err := s.body.Close(); err != nil {
		t.Fatal(err)
	}
	return <-s.status
}

// largeItem is a part that is easily seen in the memory that requests hold.
func largeItem(text string) string { return partItem(1, 1, text+strings.Repeat("x", 100_000)) }

// holding waits until requests hold the memory of so many large items, or done is closed.
func (r *rig) holding(items int64, done <-chan struct{}) {
	r.t.Helper()
	until.True(r.t, "the items have arrived", func() bool {
		select {
		case <-done:
			return true
		default:
			return r.relay.memory.Stats().Held >= items*200_000
		}
	})
}

// waiting is how many ops wait in the outbox.
func (r *rig) waiting() int {
	r.t.Helper()
	st, err := r.client.Status(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return st.Unfinished()
}

// A sync that began earlier is committed earlier, however long its body takes; those of other shares do not wait for it.
func TestSyncsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c, other := create(t, r.http.URL, "ses_x"), create(t, r.http.URL, "ses_y")
	first := r.beginSync(c)
	first.send(t, largeItem("first"))
	r.holding(1, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		syncTo(t, r.http.URL, c, largeItem("second"))
	}()
	r.holding(2, done)
	syncTo(t, r.http.URL, other, messageItem(1))
	select {
	case <-done:
		t.Error("the second sync is answered before the first has arrived")
	default:
	}
	if status := first.finish(t, ""); status != http.StatusOK {
		t.Errorf("the first sync is answered %d", status)
	}
	<-done
	r.drained()
	if got := r.data(c.ID); len(got) != 1 || !strings.Contains(got[0], "second") {
		t.Errorf("the share has %.200q", got)
	}
}

// What is to be committed of syncs once their share has ended is refused, of one that is being sent and of one that waits for its turn.
func TestAShareEndsWhileSyncsWait(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.relay.limits.Ops = 2
	c := create(t, r.http.URL, "ses_x")
	r.drained()
	r.stopServer()
	b := r.only().session.Batch()
	b.Delete()
	if _, err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := r.beginSync(c)
	first.send(t, messageItem(1)+","+messageItem(2)+",")
	until.True(t, "the first piece is committed", func() bool { return r.waiting() == 3 })
	first.send(t, largeItem("a"))
	r.holding(1, nil)
	second := r.beginSync(c)
	second.send(t, largeItem("b"))
	second.send(t, ","+messageItem(3))
	r.holding(2, nil)
	r.startServer()
	r.logged("takes nothing for it any more")
	if status := first.finish(t, ""); status != http.StatusNotFound {
		t.Errorf("the sync that was being sent is answered %d", status)
	}
	if status := second.finish(t, ""); status != http.StatusNotFound {
		t.Errorf("the sync that waited is answered %d", status)
	}
	r.drained()
	rows, err := r.client.Outbox().List(t.Context(), outbox.Filter{Session: r.only().session.ID()})
	if err != nil || len(rows) != 5 {
		t.Errorf("the outbox has %d ops, %v; want the two of the create, the delete and the first piece", len(rows), err)
	}
}

// An unshare waits for the syncs that began before it, and those after it are refused.
func TestAnUnshareHasItsTurn(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := create(t, r.http.URL, "ses_x")
	r.drained()
	r.stopServer()
	first := r.beginSync(c)
	first.send(t, largeItem("a"))
	r.holding(1, nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		end(t, r.http.URL, c)
	}()
	if status := first.finish(t, ","+messageItem(1)); status != http.StatusOK {
		t.Errorf("the sync is answered %d", status)
	}
	<-ended
	if n := r.waiting(); n != 3 {
		t.Errorf("%d ops were committed, want two puts and a revoke", n)
	}
	want(t, http.StatusNotFound, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, messageItem(2)))
}

// What has arrived whole is committed also if opencode goes away while it waits: of a full piece, and of the last one.
func TestASyncWhoseSenderGoesAway(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := create(t, r.http.URL, "ses_x")
	r.drained()
	r.stopServer()
	for i, ops := range []int{2, 3} {
		r.relay.limits.Ops = ops
		requests, read := make(chan context.Context, 1), make(chan struct{})
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			requests <- req.Context()
			req.Body = &body{req.Body, read}
			r.relay.ServeHTTP(w, req)
		}))
		turn := r.relay.queue.Join(c.ID)
		ctx, goAway := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", front.URL+"/api/share/"+c.ID+"/sync", strings.NewReader(syncBody(c.Secret, messageItem(2*i), messageItem(2*i+1))))
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if res, err := plain.Do(req); err == nil {
				res.Body.Close()
				t.Error("it is answered before its turn")
			}
		}()
		server := <-requests
		<-read
		goAway()
		<-answered
		<-server.Done()
		turn.Leave()
		until.True(t, fmt.Sprintf("it is committed, with pieces of %d", ops), func() bool { return r.waiting() == 2*(i+1) })
		front.Close()
	}
}

// body is one that tells when it was read to its end.
type body struct {
	io.ReadCloser
	read chan struct{}
}

func (b *body) Read(p []byte) (n int, err error) {
	if n, err = b.ReadCloser.Read(p); err != nil && b.read != nil {
		close(b.read)
		b.read = nil
	}
	return n, err
}

// What requests hold is charged, piece by piece, so that a large sync needs little.
func TestMemoryOfSyncs(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	const total = 512 << 10
	r.relay.memory = membudget.New(membudget.Config{Total: total})
	r.relay.limits.Bytes = 64 << 10
	c := create(t, r.http.URL, "ses_x")
	var items []string
	for n := range 100 {
		items = append(items, partItem(1, n, strings.Repeat("x", 20<<10)))
	}
	syncTo(t, r.http.URL, c, items...)
	if st := r.relay.memory.Stats(); st.Held != 0 || st.Peak < 2*64<<10 {
		t.Errorf("the memory is %+v", st)
	}
	if text := want(t, http.StatusTooManyRequests, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, partItem(2, 1, strings.Repeat("x", 400<<10)))); !strings.Contains(text, "too many requests") {
		t.Errorf("an item that is larger is answered %s", text)
	}
	r.drained()
	if got := r.data(c.ID); len(got) != len(items) {
		t.Errorf("the share has %d items", len(got))
	}
}

// Whatever a sync is refused for, what it had is read from opencode.
func TestFailedSyncsAreMissed(t *testing.T) {
	t.Parallel()
	oc := relaytest.NewOpencode(t)
	r := start(t, func(c *Config) { c.Opencode = []*url.URL{parseURL(t, oc.URL())} })
	r.relay.memory = membudget.New(membudget.Config{Total: 512 << 10})
	r.relay.limits.Payload = 1000
	c := create(t, r.http.URL, "ses_x")
	all := []string{infoItem("ses_x", "a", "")}
	at := r.http.URL + "/api/share/" + c.ID + "/sync"
	missed := func(what string, fail func(item string)) {
		t.Helper()
		s := r.only()
		s.mu.Lock()
		was := s.misses
		s.mu.Unlock()
		item := messageItem(len(all))
		all = append(all, item)
		oc.Store(c.URL, all...)
		fail(item)
		until.True(t, what+" is missed", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.misses > was
		})
		r.caughtUp()
		r.drained()
		if got := r.data(c.ID); len(got) != len(all) {
			t.Errorf("%s: the share has %q", what, got)
		}
	}
	missed("an item that is not one", func(item string) {
		want(t, http.StatusBadRequest, "POST", at, syncBody(c.Secret, item, `{"type":"message"}`))
	})
	missed("a body that breaks off", func(item string) {
		s := r.beginSync(c)
		s.send(t, item)
		s.body.CloseWithError(io.ErrUnexpectedEOF)
		<-s.status
	})
	missed("an item that is too large, and one that is not one", func(item string) {
		want(t, http.StatusBadRequest, "POST", at, syncBody(c.Secret, partItem(1, 1, strings.Repeat("x", 2000)), item, `{"type":"message"}`))
	})
	missed("one for which there is no memory", func(item string) {
		want(t, http.StatusTooManyRequests, "POST", at, syncBody(c.Secret, partItem(1, 1, strings.Repeat("x", 400<<10)), item))
	})

	// One that is refused for its secret is not the share's.
	s := r.only()
	was := s.misses
	want(t, http.StatusForbidden, "POST", at, syncBody(strings.Repeat("A", len(c.Secret)), messageItem(1)))
	if s.misses != was {
		t.Error("a sync with a wrong secret counts")
	}
}
