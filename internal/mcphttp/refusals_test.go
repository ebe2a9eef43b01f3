package mcphttp

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
)

// post sends a message as a client does; headers are names and values.
func (r *rig) post(method, body string, headers ...string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(within(r.t), method, r.url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	_, _ = r.wire.Write(text)
	return resp, string(text)
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	toolsList  = `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`
)

func TestWhoIsLetIn(t *testing.T) {
	r := start(t, func(c *Config) { c.Origins = []string{"https://good.example"} })
	s := r.create("s")
	reader := r.share(s, client.ShareOptions{Rights: capability.Read})
	wrong := reader.With(reader.ID, capability.NewSecret())
	owner := "Bearer " + r.owner.Text()
	resp, _ := r.post("POST", initialize, "Authorization", owner)
	id := resp.Header.Get(sessionHeader)
	if resp.StatusCode != 200 || len(id) < 20 {
		t.Fatalf("initialize came to %d and session %q", resp.StatusCode, id)
	}
	for _, c := range []struct {
		name    string
		method  string
		body    string
		headers []string
		status  int
		code    string
	}{
		{"no ref", "POST", initialize, nil, 401, "bad_ref_text"},
		{"no ref, with a session", "POST", toolsList, []string{sessionHeader, id}, 401, "bad_ref_text"},
		{"another scheme", "POST", initialize, []string{"Authorization", "Basic x"}, 401, "bad_ref_text"},
		{"a wrong secret", "POST", initialize, []string{"Authorization", "Bearer " + wrong.Text()}, 401, "unknown_ref"},
		{"a wrong secret, without sessions", "POST", toolsList, []string{"Authorization", "Bearer " + wrong.Text(), versionHeader, sessionless}, 401, "unknown_ref"},
		{"a wrong secret, with a session", "POST", toolsList, []string{"Authorization", "Bearer " + wrong.Text(), sessionHeader, id}, 401, "unknown_ref"},
		{"another's session", "POST", toolsList, []string{"Authorization", "Bearer " + reader.Text(), sessionHeader, id}, 404, "not_found"},
		{"another's stream", "GET", "", []string{"Authorization", "Bearer " + reader.Text(), sessionHeader, id}, 404, "not_found"},
		{"another's session, to be ended", "DELETE", "", []string{"Authorization", "Bearer " + reader.Text(), sessionHeader, id}, 404, "not_found"},
		{"an unknown session", "POST", toolsList, []string{"Authorization", owner, sessionHeader, "nosuchsessionnosuchsession"}, 404, "not_found"},
		{"a stream of no session", "GET", "", []string{"Authorization", owner}, 400, "bad_argument"},
		{"another origin", "POST", initialize, []string{"Authorization", owner, "Origin", "https://evil.example"}, 403, "missing_right"},
		{"another origin, with a session", "POST", toolsList, []string{"Authorization", owner, sessionHeader, id, "Origin", "https://evil.example"}, 403, "missing_right"},
		{"another origin's stream", "GET", "", []string{"Authorization", owner, sessionHeader, id, "Origin", "null"}, 403, "missing_right"},
		{"another method", "PUT", "{}", []string{"Authorization", owner}, 405, "unknown_method"},
		{"a large body", "POST", strings.Repeat(" ", 3<<20), []string{"Authorization", owner}, 413, "too_large"},
		{"no first initialize", "POST", toolsList, []string{"Authorization", owner}, 200, ""},
		{"not JSON", "POST", "{", []string{"Authorization", owner}, 400, ""},
		{"another type", "POST", initialize, []string{"Authorization", owner, "Content-Type", "text/plain"}, 415, ""},
		{"an origin that is let in", "POST", initialize, []string{"Authorization", owner, "Origin", "https://good.example"}, 200, ""},
		{"the session", "POST", toolsList, []string{"Authorization", owner, sessionHeader, id}, 200, ""},
		{"without sessions", "POST", `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
			[]string{"Authorization", owner, versionHeader, sessionless, "Mcp-Method", "tools/list"}, 200, ""},
		{"the end", "DELETE", "", []string{"Authorization", owner, sessionHeader, id}, 204, ""},
		{"after the end", "POST", toolsList, []string{"Authorization", owner, sessionHeader, id}, 404, "not_found"},
	} {
		resp, text := r.post(c.method, c.body, c.headers...)
		var answer struct {
			JSONRPC string `json:"jsonrpc"`
			Error   struct {
				Message string
				Data    struct{ Code string }
			}
		}
		if c.code != "" {
			if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.JSONRPC != "2.0" || !strings.HasPrefix(answer.Error.Message, c.code+": ") {
				t.Errorf("%s: the answer is %s", c.name, text)
			}
		}
		if resp.StatusCode != c.status || answer.Error.Data.Code != c.code {
			t.Errorf("%s: %d %s, want %d %s", c.name, resp.StatusCode, text, c.status, c.code)
		}
		if (c.status == 401) != (resp.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s: WWW-Authenticate is %q", c.name, resp.Header.Get("WWW-Authenticate"))
		}
	}
	// A request's limits hold here, too, and a session is of the limits that it began with.
	const narrow = `{"rights":["create"]}`
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_sessions","arguments":{}}}`
	resp, _ = r.post("POST", initialize, "Authorization", owner, "Mooring-Attenuate", narrow)
	id = resp.Header.Get(sessionHeader)
	if resp, text := r.post("POST", call, "Authorization", owner, "Mooring-Attenuate", narrow, sessionHeader, id); resp.StatusCode != 200 || !strings.Contains(text, "missing_right") {
		t.Errorf("within limits, a call came to %d %s", resp.StatusCode, text)
	}
	if resp, text := r.post("POST", call, "Authorization", owner, sessionHeader, id); resp.StatusCode != 404 {
		t.Errorf("without the session's limits, a call came to %d %s", resp.StatusCode, text)
	}
	if resp, text := r.post("POST", initialize, "Authorization", owner, "Mooring-Attenuate", "{"); resp.StatusCode != 400 || !strings.Contains(text, `"malformed"`) {
		t.Errorf("limits that are none came to %d %s", resp.StatusCode, text)
	}
	resp, _ = r.post("OPTIONS", "", "Origin", "https://good.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,mcp-session-id")
	if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Methods") != "DELETE, GET, POST" || resp.Header.Get("Access-Control-Allow-Origin") != "https://good.example" ||
		!strings.Contains(strings.Join(resp.Header.Values("Access-Control-Expose-Headers"), ","), sessionHeader) {
		t.Errorf("the preflight came to %d %v", resp.StatusCode, resp.Header)
	}
}

// TestRights: what a ref does not allow is refused as a result, whatever the server's flags allow.
func TestRights(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		r := start(t, allowAll)
		s, other := r.create("s", "hello"), r.create("other")
		reader := r.connect(version, r.share(s, client.ShareOptions{Rights: capability.Read}))
		reader.refuses("missing_right", "append_message", obj{"session": s.ID(), "text": "x"})
		reader.refuses("missing_right", "put_value", obj{"session": s.ID(), "key": "a/b", "value": 1})
		reader.refuses("missing_right", "ask", obj{"session": s.ID(), "kind": "prompt", "text": "x"})
		reader.refuses("not_found", "read_session", obj{"session": other.ID()})
		reader.refuses("bad_argument", "read_session", obj{"session": "nonsense"})
		reader.refuses("not_found", "read_message", obj{"session": s.ID(), "message": "none"})
		reader.refuses("not_found", "read_session", obj{"session": s.ID(), "before": "none"})
		reader.refuses("bad_argument", "read_session", obj{"session": s.ID(), "limit": 51})
		reader.refuses("bad_argument", "search_session", obj{"session": s.ID(), "query": "!"})
		reader.refuses("bad_argument", "list_sessions", obj{"limit": -1})
		if _, refused := reader.call("read_session", obj{"sesion": s.ID()}); !strings.Contains(refused, "sesion") {
			t.Errorf("a call with an unknown argument came to %q", refused)
		}
		if got := reader.must("list_sessions", nil); len(list(got, "sessions", "session")) != 1 {
			t.Errorf("listed %v", got)
		}
		writer := r.connect(version, r.share(s, client.ShareOptions{Rights: capability.Append}))
		writer.must("append_message", obj{"session": s.ID(), "text": "x"})
		writer.refuses("missing_right", "read_session", obj{"session": s.ID()})
		limited := r.connect(version, r.share(s, client.ShareOptions{Rights: capability.Read, Message: "msg_none"}))
		if got := limited.must("read_session", obj{"session": s.ID()}); len(list(got, "messages", "text")) != 0 {
			t.Errorf("a limited ref shows %v", got)
		}
		manager, err := r.space.Share(within(t), client.ShareOptions{Rights: capability.List, Actor: "owner/lister"})
		if err != nil {
			t.Fatal(err)
		}
		lister := r.connect(version, manager)
		lister.must("list_sessions", nil)
		lister.refuses("missing_right", "read_session", obj{"session": s.ID()})
	})
}

// TestRevokedInMidSession: the next call is refused, and the subscription is over.
func TestRevokedInMidSession(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		r := start(t, allowAll)
		s := r.create("s", "hello")
		ref := r.share(s, client.ShareOptions{Rights: capability.Read | capability.Append | capability.Ask})
		m := r.connect(version, ref)
		m.must("read_session", obj{"session": s.ID()})
		m.must("ask", obj{"session": s.ID(), "kind": "question", "text": "?", "id": "q"})
		m.subscribe(s)
		waited := make(chan string)
		go func() {
			defer close(waited) // even if it fails
			_, refused := m.call("wait_answer", obj{"session": s.ID(), "request": "q", "seconds": 50})
			waited <- refused
		}()
		time.Sleep(100 * time.Millisecond) // it waits; if it does not yet, it is refused at once
		if _, err := s.Revoke(within(t), ref.ID); err != nil {
			t.Fatal(err)
		}
		if version == versions[0] { // without sessions the ref is restored for each request, and that refuses it
			m.awaitUpdate(s)
		}
		select {
		case refused := <-waited:
			// A revoke withdraws what was asked under the ref.
			if !strings.HasPrefix(refused, "revoked: ") && refused != "" {
				t.Errorf("the waiting call came to %q", refused)
			}
		case <-time.After(patience):
			t.Fatal("a call still waits")
		}
		for _, name := range []string{"list_sessions", "read_session", "list_keys", "list_requests"} {
			m.refuses("revoked", name, withoutIf(name == "list_sessions", obj{"session": s.ID()}))
		}
		m.refuses("revoked", "append_message", obj{"session": s.ID(), "text": "x"})
		m.refuses("revoked", "ask", obj{"session": s.ID(), "kind": "prompt", "text": "x"})
		for len(m.updates) > 0 {
			<-m.updates
		}
		b := s.Batch()
		b.Put("message/msg_999", obj{"role": "user"})
		r.commit(b)
		select {
		case uri := <-m.updates:
			t.Errorf("an update of %s came after the ref was revoked", uri)
		case <-time.After(2 * time.Second):
		}
	})
}

// withoutIf returns the arguments of a call, or none.
func withoutIf(none bool, args obj) obj {
	if none {
		return nil
	}
	return args
}

// TestSecrets: no answer and no line of the log has the secret of a ref, whether it is the caller's or stands in a session.
func TestSecrets(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		r := start(t, allowAll)
		s := r.create("s", "hello")
		ref := r.share(s, client.ShareOptions{Rights: capability.Read | capability.Append | capability.Ask | capability.Share})
		leaked := r.share(s, client.ShareOptions{Rights: capability.Read})
		page := strings.Replace(leaked.WebAddress()+"/s/"+leaked.ID+"#"+leaked.Secret.RevealText(), "#", "%23", 1)
		b := s.Batch()
		b.Put("session", obj{"title": "see " + leaked.Text()})
		b.Put("part/msg_000/prt_2", obj{"type": "text", "text": "use " + leaked.Text() + " or " + page})
		b.Put("note/1", obj{"of": leaked.ID + "#" + leaked.Secret.RevealText()})
		b.Ask("question", obj{"text": "is it " + leaked.Text() + "?"}, client.AskOptions{ID: "q"})
		r.commit(b)
		m := r.connect(version, ref)
		all := []obj{m.must("list_sessions", nil), m.must("read_session", obj{"session": s.ID()}), m.must("read_message", obj{"session": s.ID(), "message": "msg_000"}),
			m.must("read_value", obj{"session": s.ID(), "key": "note/1"}), m.must("search_session", obj{"session": s.ID(), "query": "use"}), m.must("list_requests", obj{"session": s.ID()}),
			m.must("wait_answer", obj{"session": s.ID(), "request": "q", "seconds": 1})}
		for i, out := range all {
			if !bytes.Contains(encode(t, out), []byte("SECRET-WITHHELD")) {
				t.Errorf("result %d does not say that there was a secret: %v", i, out)
			}
		}
		m.refuses("bad_key", "put_value", obj{"session": s.ID(), "key": ref.Text(), "value": 1})
		m.refuses("bad_argument", "read_session", obj{"session": ref.Text()})
		r.resources(m, s)
		if _, err := r.tryConnect(version, ref.With(ref.ID, capability.NewSecret()).Text()); err == nil || strings.Contains(err.Error(), "#") {
			t.Errorf("a wrong secret came to %v", err)
		}
		for name, text := range map[string]string{"an answer": r.wire.String(), "the log": r.log.String()} {
			for _, of := range []capability.Ref{ref, leaked, r.owner} {
				if strings.Contains(text, of.Secret.RevealText()) {
					t.Errorf("%s has a secret", name)
				}
			}
		}
		if r.wire.String() == "" || r.log.String() == "" {
			t.Error("nothing was looked at")
		}
	})
}
