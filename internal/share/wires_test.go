package share

// What is particular to /ws and /rpc/share.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/scrape"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

// watch follows a share; each array that comes goes to the channel, which is closed
// at the end.
func (r *rig) watch(c opencode.CreateReply, headers ...string) (arrays chan string, end func() error) {
	r.t.Helper()
	conn, res, err := websocket.Dial(r.t.Context(), "ws://"+r.addr+"/ws/"+c.ID, &websocket.DialOptions{HTTPHeader: httpHeader(headers)})
	if err != nil {
		r.t.Fatalf("%v: %v", res, err)
	}
	conn.SetReadLimit(1 << 20)
	arrays = make(chan string, 100)
	var over error
	go func() {
		defer close(arrays)
		for {
			_, data, err := conn.Read(context.Background())
			if err != nil {
				over = err
				return
			}
			arrays <- string(data)
		}
	}()
	r.t.Cleanup(func() { _ = conn.CloseNow() })
	return arrays, func() error {
		for range arrays {
		}
		return over
	}
}

func next(t *testing.T, arrays chan string) string {
	t.Helper()
	select {
	case a := <-arrays:
		return a
	case <-time.After(patience):
		t.Fatal("nothing came")
		return ""
	}
}

// Each sync is broadcast to who follows, once, until the share is over.
func TestFollowing(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		c := r.create("ses_live")
		r.want(200, r.sync(c, message("msg_0", "before")))
		one, endOne := r.watch(c)
		two, endTwo := r.watch(c)
		for i, items := range [][]string{
			{message("msg_1", "a"), `{"type":"part","data":{"id":"prt_1","messageID":"msg_1"}}`, `{"type":"session_diff","data":[1]}`},
			{message("msg_1", "b")},
			{message("msg_1", "b")}, // changes nothing
			{`{"type":"model","data":[{"id":"m"}]}`},
		} {
			r.want(200, r.sync(c, items...))
			if i == 2 {
				continue
			}
			want := "[" + strings.Join(items, ",") + "]"
			for _, arrays := range []chan string{one, two} {
				if got := next(t, arrays); got != want {
					t.Errorf("sync %d came as %s, want %s", i, got, want)
				}
			}
		}
		byHTTP{r}.delete(c)
		for _, end := range []func() error{endOne, endTwo} {
			var closed websocket.CloseError
			if err := end(); !errors.As(err, &closed) || closed.Code != websocket.StatusNormalClosure || !strings.Contains(closed.Reason, "revoked") {
				t.Errorf("it ended with %v", err)
			}
		}
		if got := r.request("GET", "/ws/"+c.ID, ""); got.status != 404 {
			t.Errorf("following what is over: %d %s", got.status, got.body)
		}
	})
}

// What a session's owner does in other ways than opencode is broadcast as well.
func TestFollowingTheOwner(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_owned")
	arrays, _ := r.watch(c)
	p := shared(t, r, c)
	live := r.server.Caller(t.Context(), "127.0.0.1:1").Assume(p.Owner)
	batch := intent
	if _, err := live.ApplyDirect(t.Context(), batch("put", "key", `"message/m"`, "payload", `{"id":"m"}`), batch("put", "key", `"message/n"`, "payload", `{"id":"n"}`)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"m", "n"} { // two batches
		if got := next(t, arrays); got != `[{"type":"message","data":{"id":"`+id+`"}}]` {
			t.Errorf("came as %s", got)
		}
	}
	do := r.writer(live)
	do("begin", "message", `"t"`, "payload", `{"id":"t"}`)
	do("put", "key", `"part/t/p"`, "payload", `{"id":"p","messageID":"t","text":""}`)
	do("appendText", "key", `"part/t/p"`, "offset", "0", "text", `"Hello"`)
	do("finalize", "message", `"t"`, "status", `"completed"`)
	for _, want := range []string{`{"id":"t"}`, `"text":""`, `"text":"Hello"`, `"completed"`} {
		if got := next(t, arrays); !strings.Contains(got, want) || !json.Valid([]byte(got)) {
			t.Errorf("came as %s, want %s in it", got, want)
		}
	}
}

// intent is an op of a batch of its own, with names and JSON texts of arguments in turn.
func intent(method string, args ...string) ledger.Intent {
	op := ledger.Intent{OpID: ulid.Make().String(), BatchID: ulid.Make().String(), Method: method}
	for i := 0; i < len(args); i += 2 {
		op.Args = append(op.Args, ledger.Arg{Name: args[i], JSON: []byte(args[i+1])})
	}
	return op
}

// writer applies ops over a stream, one after the other.
func (r *rig) writer(live *objects.Capability) func(method string, args ...string) {
	r.t.Helper()
	stream, err := live.OpenStream(r.t.Context(), "obx_"+ulid.Make().String(), capability.NewSecret().Reveal(), 1)
	if err != nil {
		r.t.Fatal(err)
	}
	seq := uint64(0)
	return func(method string, args ...string) {
		r.t.Helper()
		seq++
		op := intent(method, args...)
		op.Seq = seq
		answer, err := stream.Apply(r.t.Context(), ledger.Batch{BatchID: op.BatchID, Ops: []ledger.Intent{op}})
		if err != nil || answer.Outcomes[0].Status != ledger.Applied {
			r.t.Fatalf("%s: %+v, %v", method, answer, err)
		}
	}
}

// What is taken away has no item: the stream ends, so that readers load what is left.
// What was put before it in the same batch comes first.
func TestRemovalsEndTheStream(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		c := r.create("ses_removed")
		live := r.server.Caller(t.Context(), "127.0.0.1:1").Assume(shared(t, r, c).Owner)
		do := r.writer(live)
		for _, q := range []struct{ method, key, put, item string }{
			{"remove", "message/a", `{"id":"a"}`, `{"type":"message","data":{"id":"a"}}`},
			{"purge", "part/a/p", `{"id":"p","messageID":"a"}`, `{"type":"part","data":{"id":"p","messageID":"a"}}`},
			{"purge", "session_diff", `{"diff":[1]}`, `{"type":"session_diff","data":[1]}`},
		} {
			key := strconv.Quote(q.key)
			arrays, end := r.watch(c)
			do("put", "key", key, "payload", q.put)
			if got := next(t, arrays); got != "["+q.item+"]" {
				t.Errorf("%s: came as %s", q.key, got)
			}
			do(q.method, "key", key)
			if got := next(t, arrays); got != "[]" {
				t.Errorf("%s of %s: came as %s", q.method, q.key, got)
			}
			var closed websocket.CloseError
			if err := end(); !errors.As(err, &closed) || closed.Code != websocket.StatusServiceRestart || closed.Reason != errRemoved.Error() {
				t.Errorf("%s of %s: it ended with %v", q.method, q.key, err)
			}
			if data := strings.Join(r.data(c), ""); strings.Contains(data, q.item) {
				t.Errorf("%s of %s: the share has %s", q.method, q.key, data)
			}
		}

		do("put", "key", `"message/c"`, "payload", `{"id":"c"}`)
		do("put", "key", `"message/d"`, "payload", `{"id":"d"}`)
		for _, q := range []struct {
			op   []string
			c, d bool
		}{{[]string{"revert", "to", `"message/c"`}, false, false}, {[]string{"revert", "to", `"message/d"`}, true, false}, {[]string{"unrevert"}, true, true},
			{[]string{"revert", "to", `"message/c"`}, false, false}, {[]string{"put", "key", `"message/e"`, "payload", `{"id":"e"}`}, false, false}} {
			_, end := r.watch(c)
			do(q.op[0], q.op[1:]...)
			if err := end(); websocket.CloseStatus(err) != websocket.StatusServiceRestart {
				t.Errorf("%v: it ended with %v", q.op, err)
			}
			data := strings.Join(r.data(c), "")
			if strings.Contains(data, `"id":"c"`) != q.c || strings.Contains(data, `"id":"d"`) != q.d {
				t.Errorf("%v: the share has %s", q.op, data)
			}
		}

		arrays, end := r.watch(c)
		ops := []ledger.Intent{intent("put", "key", `"message/b"`, "payload", `{"id":"b"}`), intent("remove", "key", `"message/b"`)}
		ops[1].BatchID = ops[0].BatchID
		if _, err := live.ApplyDirect(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
		if got := next(t, arrays); got != `[{"type":"message","data":{"id":"b"}}]` {
			t.Errorf("what was put before it came as %s", got)
		}
		if err := end(); websocket.CloseStatus(err) != websocket.StatusServiceRestart {
			t.Errorf("it ended with %v", err)
		}
	})
}

// Draining ends what is open, and says so.
func TestDraining(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_drained")
	_, end := r.watch(c)
	link, err := capnweb.Dial(t.Context(), "ws://"+r.addr+"/rpc/share", capnweb.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conn := capnweb.NewConn(link, capnweb.Config{})
	ran := make(chan error, 1)
	go func() { ran <- conn.Run(context.Background()) }()
	begun := time.Now()
	r.stop()
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("draining took %v", took)
	}
	var closed websocket.CloseError
	if err := end(); !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
		t.Errorf("who followed was told %v", err)
	}
	select {
	case <-ran:
	case <-time.After(patience):
		t.Error("Cap'n Web's connection goes on")
		conn.Close("")
		<-ran
	}
}

// Pages of other origins do not follow.
func TestOriginsOfFollowers(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.share.OriginPatterns = []string{"friend.example"} })
	c := r.create("ses_origin")
	r.watch(c, "Origin", "https://friend.example")
	r.watch(c, "Origin", "http://"+r.addr)
	if _, res, err := websocket.Dial(t.Context(), "ws://"+r.addr+"/ws/"+c.ID, &websocket.DialOptions{HTTPHeader: httpHeader([]string{"Origin", "https://evil.example"})}); err == nil || res.StatusCode != 403 {
		t.Errorf("a strange page: %v, %v", res, err)
	}
}

// The probes of the fork's contract, over both transports.
func TestProbes(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	when := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	ws, batch := r.webSocket("/rpc/share"), r.batches()
	for label, w := range map[string]byCapnWeb{"WebSocket": ws, "batch": batch} {
		got := w.must("probeValue", map[string]any{"when": when, "bytes": []byte{0, 1, 255}, "nested": map[string]any{"x": 7}})
		want := map[string]any{"when": "2026-03-04T05:06:07.089Z", "bytes": []any{0.0, 1.0, 255.0}, "size": 3.0, "nested": map[string]any{"x": 7.0}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: probeValue gave %v, want %v", label, got, want)
		}
		if _, err := w.call("probeValue", 7); err == nil {
			t.Errorf("%s: probeValue took a number", label)
		}
		if _, err := w.call("noSuchMethod"); err == nil {
			t.Errorf("%s: there is a method without a name", label)
		}
	}
	got, err := ws.call("probeCallback", func(text string) string { return "was " + text })
	if err != nil || got != "was server-called" {
		t.Errorf("probeCallback gave %v, %v", got, err)
	}
	if got, err := batch.call("probeCallback", func(text string) string { return text }); err == nil || !strings.Contains(err.Error(), "cannot be called") {
		t.Errorf("in a batch probeCallback gave %v, %v", got, err)
	}
}

// createShare takes what there is to begin with; errors are those of HTTP.
func TestCapnWebShares(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	for label, w := range map[string]byCapnWeb{"WebSocket": r.webSocket("/rpc/share"), "batch": r.batches()} {
		first := []any{map[string]any{"type": "message", "data": map[string]any{"id": "msg_1", "text": "<é>\u2028", "n": 1795203727476.0, "left": capnweb.Undefined{},
			"when": time.UnixMilli(0).UTC(), "f": 0.5, "list": []any{nil, true, capnweb.Undefined{}}}}}
		got := w.must("createShare", "ses_"+label, first)
		c := opencode.CreateReply{ID: got["id"].(string), URL: got["url"].(string), Secret: got["secret"].(string)}
		want := `[{"type":"message","data":{"f":0.5,"id":"msg_1","list":[null,true,null],"n":1795203727476,"text":"<é>\u2028","when":"1970-01-01T00:00:00.000Z"}}]`
		if items := fmt.Sprint(r.data(c)); items != want {
			t.Errorf("%s: the share has %s, want %s", label, items, want)
		}
		if again := w.create("ses_" + label); again.ID != c.ID {
			t.Errorf("%s: created again it is %s, was %s", label, again.ID, c.ID)
		}
		for method, args := range map[string][]any{
			"syncShare: Invalid secret":    {c.ID, "x", []any{}},
			"deleteShare: Invalid secret":  {c.ID, "x"},
			"syncShare: Share not found":   {capability.NewPublicID(), c.Secret, []any{}},
			"deleteShare: Share not found": {capability.NewPublicID(), c.Secret},
			"syncShare: message":           {c.ID, c.Secret, []any{map[string]any{"type": "message", "data": map[string]any{}}}},
			"syncShare: not JSON":          {c.ID, c.Secret, []any{map[string]any{"type": "message", "data": map[string]any{"id": "msg_1", "x": func() {}}}}},
			"syncShare: an array":          {c.ID, c.Secret, "data"},
			"createShare: sessionID":       {""},
			"createShare: item 1":          {"ses_" + label, []any{7}},
		} {
			name, words, _ := strings.Cut(method, ": ")
			if _, err := w.call(name, args...); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), c.Secret) {
				t.Errorf("%s: %s: %v", label, method, err)
			}
		}
		if items := r.data(c); len(items) != 1 {
			t.Errorf("%s: what was refused is there: %v", label, items)
		}
		w.delete(c)
		if _, err := w.call("syncShare", c.ID, c.Secret, []any{}); err == nil || !strings.Contains(err.Error(), "Share not found") {
			t.Errorf("%s: after the delete: %v", label, err)
		}
	}
	// A message beyond the bounds ends the connection, not the server.
	small := start(t, teststore.SQLite(t), func(c *settings) { c.share.BodyBytes = 1 << 16 })
	c := small.create("ses_small")
	large := []any{map[string]any{"type": "message", "data": map[string]any{"id": "m", "text": strings.Repeat("x", 1<<17)}}}
	for label, w := range map[string]byCapnWeb{"WebSocket": small.webSocket("/rpc/share"), "batch": small.batches()} {
		if _, err := w.call("syncShare", c.ID, c.Secret, large); err == nil {
			t.Errorf("%s: a large message is taken", label)
		}
	}
	small.want(200, small.sync(c, message("m", "x")))
}

// Other methods and paths are told what there is.
func TestPaths(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.server.Prefix = "below" })
	c := r.create("ses_paths")
	for _, q := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/api/share", 405, "POST"}, {"PUT", "/api/share/" + c.ID, 405, "DELETE, GET"}, {"GET", "/api/share/" + c.ID + "/sync", 405, "POST"},
		{"POST", "/api/share/" + c.ID + "/data", 405, "GET"}, {"GET", "/api/share/" + c.ID + "/more", 404, ""}, {"GET", "/api/share/" + c.ID + "/data/x", 404, ""},
		{"GET", "/t/x", 404, ""}, {"GET", "/ws/", 404, ""}, {"HEAD", "/api/share/" + c.ID + "/data", 200, ""}, {"PUT", "/rpc/share", 405, "OPTIONS, POST"},
		{"GET", "/below/api/share/" + c.ID + "/data", 200, ""}, {"POST", "/below/api/share", 400, ""}, {"GET", "/ws/" + c.ID, 426, ""},
		{"GET", "/api/share/%2E%2E/data", 404, ""}, {"GET", "/below/api/share/%2E%2E/data", 404, ""}, {"GET", "/t/x/api%2F%2Fshare/x", 404, ""}, // and no redirect
	} {
		got := r.request(q.method, q.path, "")
		if got.status != q.status || got.header.Get("Allow") != q.allow {
			t.Errorf("%s %s: %d, allowed %q: %s", q.method, q.path, got.status, got.header.Get("Allow"), got.body)
		}
		if q.path != "/rpc/share" && (got.header.Get("Cache-Control") != "no-store" || got.header.Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("%s %s: headers %v", q.method, q.path, got.header)
		}
	}
	if n := scrape.Refusals(r.server.Metrics()); !maps.Equal(n, map[string]int{"unknown_method": 4, "not_found": 7, "malformed": 1}) {
		t.Errorf("counted are %v", n)
	}
}

// A reader that is cut off in the middle does not take what it has for the whole.
func TestDataIsWholeOrCut(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_cut")
	var items []string
	for i := range 80 { // more pages than sockets hold
		items = append(items, message(fmt.Sprintf("msg_%03d", i), strings.Repeat("x", 100_000)))
	}
	r.want(200, r.sync(c, items...))
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.addr+"/api/share/"+c.ID+"/data", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	byHTTP{r}.delete(c)
	rest, err := io.ReadAll(res.Body)
	if err == nil && !bytes.HasSuffix(rest, []byte("]")) {
		t.Errorf("half of it came as a whole: %d bytes", len(rest))
	}
}

// A reader may take its time for the whole, if only it takes each piece in time.
func TestDataTakesItsTime(t *testing.T) {
	t.Parallel()
	const stall = time.Second
	st := teststore.SQLite(t)
	before := start(t, st, nil) // what makes it is not under the short timeout
	c := before.create("ses_long")
	var items []string
	for i := range 80 { // more than sockets hold
		items = append(items, message(fmt.Sprintf("msg_%03d", i), strings.Repeat("x", 100_000)))
	}
	before.want(200, before.sync(c, items...))
	before.stop()
	r := start(t, st, func(c *settings) { c.share.StallTimeout = stall })
	begun := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.addr+"/api/share/"+c.ID+"/data", nil)
	if err != nil {
		t.Fatal(err)
	}
	narrow := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return conn, err
	}}
	res, err := narrow.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	tick := time.NewTicker(stall / 20)
	defer tick.Stop()
	var got int64
	for err == nil {
		if time.Since(begun) < 2*stall {
			<-tick.C
		}
		var n int64
		n, err = io.CopyN(io.Discard, res.Body, 128<<10)
		got += n
	}
	if err != io.EOF || got < 8_000_000 || time.Since(begun) < 2*stall {
		t.Errorf("%d bytes came in %v, then %v", got, time.Since(begun), err)
	}
}

// A reader's body that does not come holds nothing.
func TestBodiesOfReaders(t *testing.T) {
	t.Parallel()
	st := teststore.SQLite(t)
	before := start(t, st, nil) // what makes it is not under the short timeout
	c := before.create("ses_body")
	before.stop()
	r := start(t, st, func(c *settings) { c.share.StallTimeout = 300 * time.Millisecond })
	for _, label := range []string{"GET /api/share/" + c.ID + "/data", "HEAD /api/share/" + c.ID, "GET /ws/" + c.ID, "GET /api/sessions"} {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\n%s: %s\r\nContent-Length: 5\r\n\r\n", label, r.addr, shareKeyHeader, testKey)
		answer, err := io.ReadAll(conn)
		_ = conn.Close()
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
			t.Errorf("%s: %.20q, %v", label, answer, err)
		}
	}
}

// A client that takes its time over what is written to it is not taken for gone; one to which nothing is written, and which does
// not answer a ping, is.
func TestWhoIsPinged(t *testing.T) {
	t.Parallel()
	const interval = time.Second
	r := start(t, teststore.SQLite(t), func(c *settings) { c.share.PingInterval, c.share.StallTimeout = interval, 2*patience })
	small := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return c, err
	}}}
	follow := func(c opencode.CreateReply) *websocket.Conn {
		conn, res, err := websocket.Dial(t.Context(), "ws://"+r.addr+"/ws/"+c.ID, &websocket.DialOptions{HTTPClient: small})
		if err != nil {
			t.Fatalf("%v: %v", res, err)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		conn.SetReadLimit(-1)
		return conn
	}
	slow, dead, text := r.create("ses_slow"), follow(r.create("ses_dead")), strings.Repeat("x", 2<<20)
	taking := make(chan error, 1)
	to := follow(slow)
	go func() {
		_, array, err := to.Reader(t.Context()) // answers pings until there is something
		if err == nil {
			time.Sleep(3 * interval) // takes nothing
			var read []byte
			if read, err = io.ReadAll(array); err == nil && len(read) < len(text) {
				err = fmt.Errorf("%d bytes came", len(read))
			}
		}
		taking <- err
	}()
	r.want(200, r.sync(slow, message("msg_1", text)))
	if err := <-taking; err != nil {
		t.Errorf("who took nothing for a while, and then all: %v", err)
	}
	if _, _, err := dead.Read(t.Context()); err == nil {
		t.Error("who answered no ping still follows")
	}
}
