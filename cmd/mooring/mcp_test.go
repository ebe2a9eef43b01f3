//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// modelClient is a model's program, which has started mooring mcp.
type modelClient struct {
	*mcp.ClientSession
	t       *testing.T
	updates chan string
	out     *lockbuf.Buffer // all that mooring mcp has written
	end     func() int      // closes its standard input, and returns its exit code
}

func (r *cliRig) model(args ...string) *modelClient {
	r.t.Helper()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	m := &modelClient{t: r.t, updates: make(chan string, 100), out: &lockbuf.Buffer{}}
	code, log := make(chan int, 1), &lockbuf.Buffer{}
	go func() {
		code <- runContext(context.Background(), withHomeOf(append([]string{"mcp"}, args...), r.home()), fromClient, io.MultiWriter(toClient, m.out), io.MultiWriter(log, m.out))
		_ = toClient.Close()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	r.t.Cleanup(cancel)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { m.updates <- req.Params.URI }})
	var err error
	if m.ClientSession, err = c.Connect(ctx, &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil); err != nil {
		r.t.Fatalf("mooring mcp: %v: %s", err, log.String())
	}
	m.end = func() int {
		_ = m.Close()
		_ = toServer.Close()
		select {
		case c := <-code:
			if c != cli.ExitOK {
				r.t.Errorf("mooring mcp ended with %d: %s", c, log.String())
			}
			return c
		case <-time.After(time.Minute):
			r.t.Fatal("mooring mcp does not end with its standard input")
			return -1
		}
	}
	r.t.Cleanup(func() {
		if m.end != nil {
			m.end()
		}
	})
	return m
}

// call calls a tool; refused is the line of a refusal.
func (m *modelClient) call(name string, args map[string]any) (out map[string]any, refused string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := m.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		m.t.Fatalf("%s: %v", name, err)
	}
	text := res.Content[0].(*mcp.TextContent).Text
	if res.IsError {
		return nil, text
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		m.t.Fatalf("%s: %v", name, err)
	}
	return out, ""
}

func (m *modelClient) must(name string, args map[string]any) map[string]any {
	m.t.Helper()
	out, refused := m.call(name, args)
	if refused != "" {
		m.t.Fatalf("%s was refused: %s", name, refused)
	}
	return out
}

func (m *modelClient) refuses(code, name string, args map[string]any) {
	m.t.Helper()
	if out, refused := m.call(name, args); !strings.HasPrefix(refused, code+": ") {
		m.t.Errorf("%s came to %v %s, want %s", name, out, refused, code)
	}
}

// texts returns a member of the elements of a list.
func texts(out map[string]any, name, member string) (all []string) {
	elements, _ := out[name].([]any)
	for _, e := range elements {
		all = append(all, fmt.Sprint(e.(map[string]any)[member]))
	}
	return all
}

func TestMCP(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	other := strings.TrimSpace(r.ok("session", "create", "--owner", r.owner()))
	r.okIn(`{"method":"put","key":"session","payload":{"title":"other"}}`, "session", "append", other, "--wait")
	m := r.model("--owner", r.owner(), "--allow", "append,ask,share")
	if got := texts(m.must("list_sessions", nil), "sessions", "title"); !slices.Equal(got, []string{"other", "small"}) {
		t.Errorf("listed %v", got)
	}
	first := m.must("list_sessions", map[string]any{"limit": 1})
	if got := texts(m.must("list_sessions", map[string]any{"limit": 1, "after": first["next"]}), "sessions", "session"); !slices.Equal(got, []string{id}) {
		t.Errorf("the second page is %v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	uri := "mooring://session/" + id
	if err := m.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the same again changes nothing
		if out := m.must("append_message", map[string]any{"session": id, "id": "mine", "text": "a note"}); (out["before"] == true) != (i == 1) {
			t.Errorf("call %d came to %v", i, out)
		}
	}
	m.refuses("conflict", "append_message", map[string]any{"session": id, "id": "mine", "text": "another"})
	select {
	case got := <-m.updates:
		if got != uri {
			t.Errorf("an update of %s came", got)
		}
	case <-ctx.Done():
		t.Fatal("no update came")
	}
	if got := texts(m.must("read_session", map[string]any{"session": id}), "messages", "message"); !slices.Equal(got, []string{"msg_1", "mine"}) {
		t.Errorf("the messages are %v", got)
	}
	if got := m.must("read_message", map[string]any{"session": id, "message": "mine"}); !slices.Equal(texts(got, "parts", "text"), []string{"a note"}) {
		t.Errorf("the message is %v", got)
	}
	if got := m.must("search_session", map[string]any{"session": id, "query": "note"}); !slices.Equal(texts(got, "matches", "message"), []string{"mine"}) {
		t.Errorf("found %v", got)
	}
	m.must("put_value", map[string]any{"session": id, "key": "todo/1", "value": map[string]any{"done": false}, "expect": 0})
	m.refuses("conflict", "put_value", map[string]any{"session": id, "key": "todo/1", "value": 1, "expect": 0})
	if got := m.must("read_value", map[string]any{"session": id, "key": "todo/1"}); got["value"] != `{"done":false}` {
		t.Errorf("the value is %v", got)
	}
	if got := texts(m.must("list_keys", map[string]any{"session": id, "prefix": "todo/"}), "keys", "key"); !slices.Equal(got, []string{"todo/1"}) {
		t.Errorf("the keys are %v", got)
	}
	m.must("ask", map[string]any{"session": id, "kind": "question", "text": "which?", "id": "q", "choices": []map[string]any{{"id": "a"}, {"id": "b"}}})
	if got := m.must("list_requests", map[string]any{"session": id}); !slices.Equal(texts(got, "requests", "text"), []string{"which?"}) {
		t.Errorf("the requests are %v", got)
	}
	r.ok("session", "answer", r.owner()+"/"+id, "q", "b")
	if got := m.must("wait_answer", map[string]any{"session": id, "request": "q"}); got["ended"] != true || got["choice"] != "b" {
		t.Errorf("it has come to %v", got)
	}

	file := filepath.Join(r.dir, "shared.ref")
	shared := m.must("share", map[string]any{"session": id, "rights": "read", "file": file, "expires_seconds": 3600})
	text, err := os.ReadFile(file)
	if err != nil || shared["file"] != file {
		t.Fatalf("shared %v, %v", shared, err)
	}
	m.refuses("already_exists", "share", map[string]any{"session": id, "rights": "read", "file": file})
	m.refuses("bad_argument", "share", map[string]any{"session": id, "rights": "read,answer", "file": file + "2"})
	_, secret, _ := strings.Cut(strings.TrimSpace(string(text)), "#")
	owner, err := os.ReadFile(filepath.Join(r.data(), "owner.ref"))
	if err != nil {
		t.Fatal(err)
	}
	_, ownerSecret, _ := strings.Cut(strings.TrimSpace(string(owner)), "#")
	m.refuses("bad_argument", "read_session", map[string]any{"session": strings.TrimSpace(string(text))})

	// Without a server, what is appended is durable, and arrives once.
	r.stop()
	if out := m.must("append_message", map[string]any{"session": other, "text": "later"}); out["queued"] != true {
		t.Errorf("without a server it came to %v", out)
	}
	m.refuses("unavailable", "read_session", map[string]any{"session": other})
	r.start()
	if !r.soon(func() bool {
		out, _ := m.call("read_session", map[string]any{"session": other})
		got := texts(out, "messages", "text")
		return slices.Equal(got, []string{"later"})
	}) {
		t.Error("what was appended offline did not arrive")
	}
	m.end()
	m.end = nil
	for _, secret := range []string{secret, ownerSecret} {
		if len(secret) < 40 || strings.Contains(m.out.String(), secret) {
			t.Error("mooring mcp has written a secret")
		}
	}

	// A reader of one session sees that alone, and can do nothing else.
	reader := r.model("@" + file)
	if got := texts(reader.must("list_sessions", nil), "sessions", "session"); !slices.Equal(got, []string{id}) {
		t.Errorf("listed %v", got)
	}
	if _, refused := reader.call("read_session", map[string]any{"session": other}); refused == "" {
		t.Error("a ref of one session reads another")
	}
	for tool, err := range reader.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if !tool.Annotations.ReadOnlyHint {
			t.Errorf("there is a tool %s", tool.Name)
		}
	}
	r.ok("revoke", "@"+file)
	reader.refuses("revoked", "read_session", map[string]any{"session": id})

	both := r.model(r.owner()+"/"+id, r.owner()+"/"+other)
	if got := texts(both.must("list_sessions", map[string]any{"search": "SMALL"}), "sessions", "session"); !slices.Equal(got, []string{id}) {
		t.Errorf("listed %v", got)
	}
	if got := texts(both.must("read_session", map[string]any{"session": other}), "messages", "text"); !slices.Equal(got, []string{"later"}) {
		t.Errorf("the other one has %v", got)
	}
	r.fails(cli.ExitUsage, "--allow", "mcp", "--owner", r.owner(), "--allow", "append,revoke")
	r.fails(cli.ExitUsage, "not both", "mcp", "@"+file, "--owner", r.owner())
}

func TestServeMCP(t *testing.T) {
	t.Parallel()
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	for _, c := range []struct {
		flags  []string
		status int
		tool   string // there is that, too
	}{
		{nil, http.StatusNotFound, ""},
		{[]string{"--mcp"}, http.StatusOK, ""},
		{[]string{"--mcp", "--mcp-allow", "append,ask"}, http.StatusOK, "append_message"},
	} {
		r := newCLI(t, "", c.flags...)
		owner, err := os.ReadFile(filepath.Join(r.data(), "owner.ref"))
		if err != nil {
			t.Fatal(err)
		}
		post := func(body, session string) (*http.Response, string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.proxy.Addr()+"/mcp", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(owner)))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			if session != "" {
				req.Header.Set("Mcp-Session-Id", session)
			}
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var text bytes.Buffer
			if _, err := text.ReadFrom(resp.Body); err != nil {
				t.Fatal(err)
			}
			return resp, text.String()
		}
		resp, text := post(initialize, "")
		if resp.StatusCode != c.status {
			t.Errorf("serve %v: %d %s", c.flags, resp.StatusCode, text)
		}
		if c.status == http.StatusOK {
			_, text = post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, resp.Header.Get("Mcp-Session-Id"))
			if !strings.Contains(text, `"read_session"`) || strings.Contains(text, `"append_message"`) != (c.tool != "") {
				t.Errorf("serve %v has the tools %s", c.flags, text)
			}
		}
	}
	for _, c := range []struct{ words, flags string }{
		{"--mcp-allow is for --mcp", "--mcp-allow append"},
		{`--mcp-allow: "share" cannot be allowed`, "--mcp --mcp-allow share"},
	} {
		var out, errOut lockbuf.Buffer
		args := append([]string{"serve", "--data", t.TempDir()}, strings.Fields(c.flags)...)
		if code := runContext(t.Context(), args, strings.NewReader(""), &out, &errOut); code != cli.ExitUsage || !strings.Contains(errOut.String(), c.words) {
			t.Errorf("serve %s: exit %d, %s", c.flags, code, errOut.String())
		}
	}
}
