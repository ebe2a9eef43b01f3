package mcphttp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/until"
)

func uriOf(s *client.Session) string { return "mooring://session/" + s.ID() }

func (m *model) subscribe(s *client.Session) {
	m.t.Helper()
	if err := m.Subscribe(within(m.t), &mcp.SubscribeParams{URI: uriOf(s)}); err != nil {
		m.t.Fatal(err)
	}
}

// awaitUpdate waits for an update of a session.
func (m *model) awaitUpdate(s *client.Session) {
	m.t.Helper()
	select {
	case uri := <-m.updates:
		if uri != uriOf(s) {
			m.t.Errorf("an update of %s came", uri)
		}
	case <-time.After(patience):
		m.t.Fatal("no update came")
	}
}

// read reads a resource, which is JSON.
func (m *model) read(uri string) (out obj) {
	m.t.Helper()
	res, err := m.ReadResource(within(m.t), &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		m.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(res.Contents[0].Text), &out); err != nil || res.Contents[0].MIMEType != "application/json" || res.Contents[0].URI != uri {
		m.t.Errorf("%s is %+v, %v", uri, res.Contents[0], err)
	}
	return out
}

// resources reads all resources of a session.
func (r *rig) resources(m *model, s *client.Session) {
	r.t.Helper()
	for res, err := range m.Resources(within(r.t), nil) {
		if err != nil {
			r.t.Fatal(err)
		}
		m.read(res.URI)
	}
	m.read(uriOf(s) + "/message/msg_000")
}

func TestResources(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		r := start(t, nil)
		for i := range 22 {
			r.create(fmt.Sprintf("session %d", i))
		}
		texts := make([]string, 12)
		for i := range texts {
			texts[i] = fmt.Sprintf("text %d", i)
		}
		s := r.create("", texts...)
		m := r.connect(version, r.owner)
		var titles []string
		for res, err := range m.Resources(within(t), nil) {
			if err != nil {
				t.Fatal(err)
			}
			titles = append(titles, res.Title)
		}
		if len(titles) != 23 || titles[0] != s.ID() || titles[22] != "session 0" {
			t.Errorf("the resources are %v", titles)
		}
		templates, err := m.ListResourceTemplates(within(t), nil)
		if err != nil || len(templates.ResourceTemplates) != 3 {
			t.Errorf("%+v, %v", templates, err)
		}
		page := m.read(uriOf(s))
		if got := list(page, "messages", "text"); !slices.Equal(got, texts[2:]) || page["earlier"] != "msg_002" {
			t.Errorf("the session is %v", page)
		}
		if got := list(m.read(uriOf(s)+"/before/msg_002"), "messages", "text"); !slices.Equal(got, texts[:2]) {
			t.Errorf("before it is %v", got)
		}
		if got := m.read(uriOf(s) + "/message/msg_003"); got["role"] != "assistant" {
			t.Errorf("the message is %v", got)
		}
		for _, uri := range []string{uriOf(s) + "/message/none", "mooring://session/ses_nonsense", "mooring://session/ses_" + ulid.Make().String(), "mooring://other/x", uriOf(s) + "/other/x", "file:///etc/passwd"} {
			if res, err := m.ReadResource(within(t), &mcp.ReadResourceParams{URI: uri}); err == nil {
				t.Errorf("%s is %+v", uri, res)
			}
		}
	})
}

func TestUpdates(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		r := start(t, nil)
		s, other := r.create("s", "hello"), r.create("other", "hello")
		m := r.connect(version, r.owner)
		m.subscribe(s)
		// A burst is a few updates: the first at once, and what comes after it together.
		for i := range 30 {
			for _, of := range []*client.Session{s, other} {
				b := of.Batch()
				b.Put(fmt.Sprintf("message/msg_1%02d", i), obj{"role": "user", "text": "x"})
				r.commit(b)
			}
		}
		m.awaitUpdate(s)
		time.Sleep(1500 * time.Millisecond)
		if n := len(m.updates); n > 12 {
			t.Errorf("%d more updates came", n)
		}
		for len(m.updates) > 0 {
			if uri := <-m.updates; uri != uriOf(s) {
				t.Errorf("an update of %s came", uri)
			}
		}
		if err := m.Unsubscribe(within(t), &mcp.UnsubscribeParams{URI: uriOf(s)}); err != nil {
			t.Fatal(err)
		}
		b := s.Batch()
		b.Put("message/msg_200", obj{"role": "user"})
		r.commit(b)
		select {
		case uri := <-m.updates:
			t.Errorf("an update of %s came after it was unsubscribed from", uri)
		case <-time.After(time.Second):
		}
		if version == versions[0] {
			for _, uri := range []string{uriOf(s) + "/message/msg_000", "mooring://session/" + s.ID()[:29] + "0", "x:y"} {
				if err := m.Subscribe(within(t), &mcp.SubscribeParams{URI: uri}); err == nil {
					t.Errorf("%s could be subscribed to", uri)
				}
			}
		}
	})
}

func TestLimits(t *testing.T) {
	r := start(t, func(c *Config) {
		c.Sessions, c.SessionsPerRef, c.IdleTimeout, c.Heartbeat = 3, 2, time.Second, 100*time.Millisecond
	})
	s := r.create("s", "hello")
	ref := r.share(s, client.ShareOptions{Rights: capability.Read})
	begin := func(ref capability.Ref) (id string, status int) {
		resp, _ := r.post("POST", initialize, "Authorization", "Bearer "+ref.Text())
		return resp.Header.Get(sessionHeader), resp.StatusCode
	}
	alive := func(id string, ref capability.Ref) bool {
		resp, _ := r.post("POST", toolsList, "Authorization", "Bearer "+ref.Text(), sessionHeader, id)
		return resp.StatusCode == 200
	}
	first, _ := begin(ref)
	second, _ := begin(ref)
	third, _ := begin(ref)
	if alive(first, ref) || !alive(second, ref) || !alive(third, ref) {
		t.Error("of three sessions of a ref that may have two, the first does not end")
	}
	if _, status := begin(r.owner); status != 200 {
		t.Errorf("another ref's came to %d", status)
	}
	if _, status := begin(r.share(s, client.ShareOptions{Rights: capability.Read})); status != 503 && status != 429 {
		t.Errorf("one too many came to %d", status)
	}
	until.True(t, "idle sessions end", func() bool {
		r.handler.mu.Lock()
		defer r.handler.mu.Unlock()
		return len(r.handler.sessions) == 0
	})
	if alive(second, ref) || alive(third, ref) {
		t.Error("sessions that were idle go on")
	}

	// A session with a stream is not idle, and the stream is kept alive.
	m := r.connect(versions[0], ref)
	m.subscribe(s)
	until.True(t, "the stream has heartbeats for longer than a session may be idle", func() bool { return strings.Count(r.wire.String(), ": hb\n\n") > 15 })
	b := s.Batch()
	b.Put("message/msg_200", obj{"role": "user"})
	r.commit(b)
	m.awaitUpdate(s)
	sessions := []*client.Session{}
	for i := range 17 {
		sessions = append(sessions, r.create(fmt.Sprint(i)))
	}
	owner := r.connect(versions[0], r.owner)
	for i, s := range sessions {
		if err := owner.Subscribe(within(t), &mcp.SubscribeParams{URI: uriOf(s)}); (err == nil) != (i < 16) {
			t.Errorf("subscription %d came to %v", i+1, err)
		}
	}
}

// TestDrain: neither a stream nor a call that waits keeps a server from stopping.
func TestDrain(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		r := start(t, allowAll)
		s := r.create("s", "hello")
		m := r.connect(version, r.owner)
		m.must("ask", obj{"session": s.ID(), "kind": "question", "text": "?", "id": "q"})
		m.subscribe(s)
		waited := make(chan error)
		go func() {
			_, err := m.CallTool(within(t), &mcp.CallToolParams{Name: "wait_answer", Arguments: obj{"session": s.ID(), "request": "q", "seconds": 50}})
			waited <- err
		}()
		time.Sleep(200 * time.Millisecond) // it waits
		began := time.Now()
		r.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the server took %s to stop", took)
		}
		select {
		case <-waited: // a refusal, or a connection that was cut
		case <-time.After(patience):
			t.Error("a call still waits")
		}
	})
}
