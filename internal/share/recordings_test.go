package share

// Real traffic of opencode, over every wire.

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// wire is a way to the API.
type wire interface {
	create(session string) opencode.CreateReply
	sync(c opencode.CreateReply, items []json.RawMessage)
	delete(c opencode.CreateReply)
}

// replay plays a recording; before a DELETE, and at the end, check looks at the share.
func replay(t *testing.T, name string, w wire, r *rig, check func(opencode.CreateReply)) {
	var share opencode.CreateReply
	for i, q := range opencodetest.Requests(t, name) {
		switch {
		case q.Method == "POST" && q.Path == "/api/share":
			again := w.create(q.Body.SessionID)
			if share.ID != "" && (again.ID != share.ID || again.URL != share.URL || again.Secret == share.Secret) {
				t.Fatalf("request %d: created again it is %s at %s, it was %s at %s", i, again.ID, again.URL, share.ID, share.URL)
			}
			share = again
		case q.Method == "POST":
			w.sync(share, q.Body.Data)
		case q.Method == "DELETE":
			check(share)
			w.delete(share)
			for _, path := range []string{"", "/data", "/metadata"} {
				if got := r.request("GET", "/api/share/"+share.ID+path, ""); got.status != 404 || !strings.Contains(got.body, `"error":"Share not found"`) {
					t.Errorf("after the DELETE: %d %s", got.status, got.body)
				}
			}
			return
		case q.Method == "GET":
			_, hidden := opencodetest.Hidden(t, name)                                             // theirs has them
			if n := len(r.data(share)) + hidden; n < q.Response.Items-2 || n > q.Response.Items { // theirs counts empty lists, of diffs or models
				t.Errorf("request %d: %d items, theirs gave %d", i, n, q.Response.Items)
			}
		default:
			t.Fatalf("request %d: %s %s", i, q.Method, q.Path)
		}
	}
	check(share)
}

// checkShare compares what a share gives out with the expected export.
func (r *rig) checkShare(name string, c opencode.CreateReply) {
	r.t.Helper()
	rec, err := opencode.ReadRecording(strings.NewReader(r.want(200, r.request("GET", "/api/share/"+c.ID+"/data", "")).body), opencodetest.Limits)
	if err != nil {
		r.t.Fatalf("%s: data: %v", name, err)
	}
	r.checkPuts(name, rec.Batches[0].Puts, rec.External)

	var whole struct {
		Session  json.RawMessage
		Messages []json.RawMessage
		Parts    []json.RawMessage
		Diffs    json.RawMessage
		Models   []json.RawMessage
		Metadata metadata
	}
	if err := json.Unmarshal([]byte(r.want(200, r.request("GET", "/api/share/"+c.ID, "")).body), &whole); err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	reader := opencode.Reader{}
	items := map[string][]json.RawMessage{"session": {whole.Session}, "message": whole.Messages, "part": whole.Parts, "model": whole.Models, "session_diff": {whole.Diffs}}
	for kind, values := range items {
		for _, v := range values {
			if err := reader.Item(kind, v); err != nil {
				r.t.Fatalf("%s: %s: %v", name, kind, err)
			}
		}
	}
	r.checkPuts(name, reader.Puts, reader.Session)
	if whole.Metadata.ID != c.ID || whole.Metadata.URL != c.URL || whole.Metadata.SessionID != reader.Session || whole.Metadata.Title == "" || whole.Metadata.Cursor == 0 {
		r.t.Errorf("%s: metadata %+v", name, whole.Metadata)
	}
	if len(reader.Puts) != len(rec.Batches[0].Puts) {
		r.t.Errorf("%s: %d values in one form, %d in the other", name, len(reader.Puts), len(rec.Batches[0].Puts))
	}
}

func (r *rig) checkPuts(name string, puts []opencode.Put, external string) {
	r.t.Helper()
	var out bytes.Buffer
	doc := opencode.NewExport(puts, external)
	if _, err := doc.WriteTo(&out); err != nil || doc.Orphans != 0 {
		r.t.Errorf("%s: %d orphans, %v", name, doc.Orphans, err)
	}
	opencodetest.CheckShared(r.t, name, out.Bytes())
}

// byHTTP is opencode's own.
type byHTTP struct{ *rig }

func (w byHTTP) create(session string) opencode.CreateReply {
	w.t.Helper()
	return w.rig.create(session)
}
func (w byHTTP) sync(c opencode.CreateReply, items []json.RawMessage) {
	w.t.Helper()
	texts := make([]string, len(items))
	for i := range items {
		texts[i] = string(items[i])
	}
	got := w.want(200, w.rig.sync(c, texts...))
	var s opencode.SyncReply
	if err := json.Unmarshal([]byte(got.body), &s); err != nil || !s.Success || s.SyncCount != len(items) {
		w.t.Errorf("a sync of %d gave %s", len(items), got.body)
	}
}

func (w byHTTP) delete(c opencode.CreateReply) {
	w.t.Helper()
	w.want(200, w.request("DELETE", "/api/share/"+c.ID, `{"secret":"`+c.Secret+`"}`))
}

func TestRecordingsOverHTTP(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		for _, name := range opencodetest.Names {
			replay(t, name, byHTTP{r}, r, func(c opencode.CreateReply) { r.checkShare(name, c) })
		}
		if n := len(r.sessions()); n != len(opencodetest.Names) {
			t.Errorf("there are %d sessions", n)
		}
	})
}

// byCapnWeb calls through a main object: a batch a call, or one WebSocket for all.
type byCapnWeb struct {
	t    *testing.T
	call func(method string, args ...any) (any, error)
}

// batches makes a batch for each call.
func (r *rig) batches(headers ...string) byCapnWeb {
	return byCapnWeb{r.t, func(method string, args ...any) (any, error) {
		b := capnweb.NewBatch("http://"+r.addr+"/rpc/share", capnweb.DialOptions{HTTPClient: client, Header: httpHeader(headers)}, capnweb.Config{})
		p := b.Main().Call(r.t.Context(), method, args...)
		if err := b.Send(r.t.Context()); err != nil {
			return nil, err
		}
		return p.Await(r.t.Context())
	}}
}

func httpHeader(pairs []string) map[string][]string {
	h := map[string][]string{}
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = []string{pairs[i+1]}
	}
	return h
}

// webSocket makes one connection, which ends with the test.
func (r *rig) webSocket(path string, headers ...string) byCapnWeb {
	r.t.Helper()
	link, err := capnweb.Dial(r.t.Context(), "ws://"+r.addr+path, capnweb.DialOptions{Header: httpHeader(headers)})
	if err != nil {
		r.t.Fatal(err)
	}
	conn := capnweb.NewConn(link, capnweb.Config{})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = conn.Run(context.Background())
	}()
	main := conn.Main()
	r.t.Cleanup(func() {
		main.Release()
		conn.Close("done")
		<-ran
	})
	return byCapnWeb{r.t, func(method string, args ...any) (any, error) {
		p := main.Call(r.t.Context(), method, args...)
		defer p.Release()
		return p.Await(r.t.Context())
	}}
}

func (w byCapnWeb) must(method string, args ...any) map[string]any {
	w.t.Helper()
	got, err := w.call(method, args...)
	if err != nil {
		w.t.Fatalf("%s: %v", method, err)
	}
	m, ok := got.(map[string]any)
	if !ok {
		w.t.Fatalf("%s gave %v", method, got)
	}
	return m
}

func (w byCapnWeb) create(session string) opencode.CreateReply {
	w.t.Helper()
	got := w.must("createShare", session)
	text := func(name string) string { s, _ := got[name].(string); return s }
	return opencode.CreateReply{ID: text("id"), URL: text("url"), Secret: text("secret")}
}

func (w byCapnWeb) sync(c opencode.CreateReply, items []json.RawMessage) {
	w.t.Helper()
	got := w.must("syncShare", c.ID, c.Secret, jsValues(w.t, items))
	if got["success"] != true || got["syncCount"] != float64(len(items)) {
		w.t.Errorf("a sync of %d gave %v", len(items), got)
	}
}

// jsValues is what JavaScript has of items.
func jsValues(t *testing.T, items []json.RawMessage) []any {
	t.Helper()
	values := make([]any, len(items))
	for i := range items {
		if err := json.Unmarshal(items[i], &values[i]); err != nil {
			t.Fatal(err)
		}
	}
	return values
}

func (w byCapnWeb) delete(c opencode.CreateReply) {
	w.t.Helper()
	if got := w.must("deleteShare", c.ID, c.Secret); got["success"] != true {
		w.t.Errorf("the delete gave %v", got)
	}
}

func TestRecordingsOverCapnWeb(t *testing.T) {
	t.Parallel()
	play := func(r *rig, w wire) {
		for i, name := range opencodetest.Names { // TestRecordingsOverHTTP has all of them
			if seed.Picks(r.t, i, len(opencodetest.Names)) {
				replay(r.t, name, w, r, func(c opencode.CreateReply) { r.checkShare(name, c) })
			}
		}
	}
	t.Run("batches", func(t *testing.T) {
		t.Parallel()
		r := start(t, teststore.SQLite(t), nil)
		play(r, r.batches())
	})
	t.Run("websocket", func(t *testing.T) {
		t.Parallel()
		r := start(t, teststore.Postgres(t, teststore.PostgresURL(t)), nil)
		play(r, r.webSocket("/rpc/share"))
	})
}

// A recording that is played twice makes no event the second time, whatever the wire.
func TestRepeatsChangeNothing(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	for _, w := range []wire{byHTTP{r}, r.webSocket("/rpc/share")} {
		requests := opencodetest.Requests(t, "a-edit-1.18.33")
		c := w.create(requests[0].Body.SessionID)
		last := requests[0]
		for _, q := range requests {
			if strings.HasSuffix(q.Path, "/sync") {
				w.sync(c, q.Body.Data)
				last = q
			}
		}
		before := r.cursor(c)
		for range 3 {
			w.sync(c, last.Body.Data)
		}
		if after := r.cursor(c); after != before {
			t.Errorf("repeats made %d events", after-before)
		}
	}
}
