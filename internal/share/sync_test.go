package share

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/syncbody"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
)

// rawSync begins a sync by hand: the head, and so much of the body.
func (r *rig) rawSync(c opencode.CreateReply, length int, body string) net.Conn {
	r.t.Helper()
	conn, err := new(net.Dialer).DialContext(r.t.Context(), "tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(conn, "POST /api/share/%s/sync HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.ID, r.addr, length, body); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// A request that is torn anywhere changes nothing.
func TestTornRequests(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_torn")
	r.want(200, r.sync(c, message("msg_1", "whole")))
	before := r.cursor(c)
	long := message("msg_3", strings.Repeat("é", 3000)) // beyond what is looked at for the secret
	body := syncBody(c.Secret, message("msg_1", "torn"), `{"type":"part","data":{"id":"prt_1","messageID":"msg_1"}}`, long)
	cuts := []int{0, 1, 5, 12, 40, len(body) - 1}
	for _, mark := range []string{`"data"`, `[{"type"`, `"msg_1"`, `},{"type":"part"`, `prt_1`, `},{"type":"message","data":{"id":"msg_3"`, `é`} {
		cuts = append(cuts, strings.Index(body, mark)+len(mark)/2)
	}
	for _, at := range cuts {
		// The client goes away …
		conn := r.rawSync(c, len(body), body[:at])
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode == 200 {
			t.Errorf("torn at %d: %v, %v", at, res, err)
		} else {
			_ = res.Body.Close()
		}
		_ = conn.Close()
		// … or sends what is no more than that.
		if got := r.request("POST", "/api/share/"+c.ID+"/sync", body[:at]); got.status != 400 && (got.status != 403 || at > strings.Index(body, `"data"`)) {
			t.Errorf("cut at %d: %d %s", at, got.status, got.body)
		}
	}
	for label, bad := range map[string]string{
		"more behind it": body + "{}", "two secrets": strings.Replace(body, `"data"`, `"secret":"x","data"`, 1), "no data": syncBody(c.Secret)[:10+len(c.Secret)+2] + "}",
		"data that is no array": `{"secret":"` + c.Secret + `","data":{}}`, "no UTF-8": strings.Replace(body, "torn", "\xff", 1),
		"a message without its id": syncBody(c.Secret, message("msg_1", "torn"), `{"type":"message","data":{}}`),
		"a key that is none":       syncBody(c.Secret, message("msg_1", "torn"), message("no key", "x")),
		"an item that is none":     syncBody(c.Secret, message("msg_1", "torn"), `7`),
		"another session":          syncBody(c.Secret, message("msg_1", "torn"), `{"type":"session","data":{"id":"ses_other"}}`),
		"data, then the secret":    `{"data":[7],"secret":"` + c.Secret + `"}`,
		"nothing":                  "", "null": "null", "a list": "[]",
	} {
		got := r.request("POST", "/api/share/"+c.ID+"/sync", bad)
		if got.status != 400 && (got.status != 403 || label != "null") {
			t.Errorf("%s: %d %s", label, got.status, got.body)
		}
	}
	if after := r.cursor(c); after != before {
		t.Errorf("torn requests made %d events", after-before)
	}
	if items := r.data(c); len(items) != 1 || !strings.Contains(items[0], "whole") {
		t.Errorf("the share has %v", items)
	}
	// The secret may come last, and the body in chunks of no known length.
	r.want(200, r.request("POST", "/api/share/"+c.ID+"/sync", `{"data":[`+message("msg_1", "late")+`],"secret":"`+c.Secret+`"}`))
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr+"/api/share/"+c.ID+"/sync", io.MultiReader(strings.NewReader(body[:50]), strings.NewReader(body[50:])))
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Errorf("in chunks: %v, %v", res, err)
	}
	_ = res.Body.Close()
}

// Within one request the last of a key wins; types that are not known are passed over.
func TestFolding(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_fold")
	got := r.want(200, r.sync(c, message("msg_1", "a"), `{"type":"hologram","data":{}}`, message("msg_1", "b"), message("msg_2", "c"), message("msg_1", "d"),
		`{"type":"model","data":[{"id":"Qwen 2.5 (local)"},{"id":"a/b"}]}`, `{"type":"session_diff","data":[{"file":"x"}]}`,
		`{"type":"messages","data":{"sessionID":"ses_fold","messages":[{"info":{"id":"msg_3"},"parts":[{"id":"prt_1","messageID":"msg_3","text":"\ud83d"}]}]}}`))
	if got.body != `{"success":true,"syncCount":8}`+"\n" {
		t.Errorf("the reply is %s", got.body)
	}
	want := `[{"type":"session_diff","data":[{"file":"x"}]} {"type":"model","data":[{"id":"a/b"}]} {"type":"model","data":[{"id":"Qwen 2.5 (local)"}]}` +
		` {"type":"message","data":{"id":"msg_1","text":"d"}} {"type":"message","data":{"id":"msg_2","text":"c"}} {"type":"message","data":{"id":"msg_3"}}` +
		` {"type":"part","data":{"id":"prt_1","messageID":"msg_3","text":"\ud83d"}}]`
	if got := fmt.Sprint(r.data(c)); got != want {
		t.Errorf("the share has\n%s, want\n%s", got, want)
	}
	if cursor := r.cursor(c); cursor != 4+7 { // create, three refs, and a put for each key
		t.Errorf("there are %d events", cursor)
	}
}

// What is large goes in pieces; what is too large is refused, and keeps nothing else out.
func TestSizes(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) {
		c.share.BodyBytes, c.share.CommitLimits = 1<<20, opencode.Limits{Ops: 10, Bytes: 1 << 16, Payload: 1 << 15}
	})
	c := r.create("ses_large")
	var items []string
	for i := range 300 {
		items = append(items, message(fmt.Sprintf("msg_%03d", i), strings.Repeat("x", 2000)))
	}
	r.want(200, r.sync(c, items...))
	if n := len(r.data(c)); n != 300 {
		t.Errorf("%d of 300 messages are there", n)
	}
	got := r.sync(c, message("msg_a", "before"), message("msg_b", strings.Repeat("x", 1<<15)), message("msg_c", "behind"))
	if got.status != 413 || !strings.Contains(got.body, "at most 32768 bytes: 1;") || len(r.data(c)) != 302 {
		t.Errorf("a large item: %d %s, and %d messages", got.status, got.body, len(r.data(c)))
	}
	before := r.cursor(c)
	body := syncBody(c.Secret, message("msg_d", strings.Repeat("x", 1<<20)))
	conn := r.rawSync(c, len(body), body[:100]) // it is refused before the rest is sent
	defer conn.Close()
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != 413 {
		t.Errorf("a large body: %v, %v", res, err)
	}
	if got := r.request("POST", "/api/share", `{"sessionID":"`+strings.Repeat("x", maxSmallBody)+`"}`); got.status != 413 {
		t.Errorf("a large create: %d %s", got.status, got.body)
	}
	if r.cursor(c) != before {
		t.Error("what was refused made events")
	}
	for _, bad := range []string{"", "\x01", strings.Repeat("x", 257)} {
		if got := r.request("POST", "/api/share", string(jsonText(bad))); got.status != 400 {
			t.Errorf("a create of %.10q: %d", bad, got.status)
		}
		if got := r.request("POST", "/api/share", `{"sessionID":`+string(jsonText(bad))+`}`); got.status != 400 {
			t.Errorf("a create of %.10q: %d", bad, got.status)
		}
	}
}

// A sync that began earlier is committed earlier, however long its body takes.
func TestSyncsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_order")
	slow := syncBody(c.Secret, message("msg_1", "first"), message("msg_2", strings.Repeat("x", 5000)))
	conn := r.rawSync(c, len(slow), slow[:3000])
	defer conn.Close()
	_, known := r.service.cfg.Server.MemoryBudgets()
	until.True(t, "the first has begun", func() bool { return known.Stats().Held > 0 })
	var later sync.WaitGroup
	later.Go(func() {
		if got := r.sync(c, message("msg_1", "second")); got.status != 200 {
			t.Errorf("the later one: %d %s", got.status, got.body)
		}
	})
	until.True(t, "the second waits", func() bool {
		r.service.slots.mu.Lock()
		defer r.service.slots.mu.Unlock()
		return r.service.slots.byAddress["127.0.0.1"].users == 2
	})
	if items := r.data(c); len(items) != 0 {
		t.Errorf("before the first is there: %v", items)
	}
	if _, err := io.WriteString(conn, slow[3000:]); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	_ = res.Body.Close()
	later.Wait()
	if items := r.data(c); len(items) != 2 || !strings.Contains(items[0], "second") {
		t.Errorf("the share has %v", items)
	}
}

// Syncs that one client sends without waiting for their answers are committed in the
// order of the calls, however long it takes to read each.
func TestCapnWebSyncsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_order")
	item := func(id, text string) any {
		return map[string]any{"type": "message", "data": map[string]any{"id": id, "text": text}}
	}
	first := []any{item("msg_1", "first")}
	for range 20_000 {
		first = append(first, item("msg_2", "x"))
	}
	b := capnweb.NewBatch("http://"+r.addr+"/rpc/share", capnweb.DialOptions{HTTPClient: client}, capnweb.Config{})
	calls := []*capnweb.Promise{b.Main().Call(t.Context(), "syncShare", c.ID, c.Secret, first)}
	for i := range 4 {
		calls = append(calls, b.Main().Call(t.Context(), "syncShare", c.ID, c.Secret, []any{item("msg_1", fmt.Sprint("later ", i))}))
	}
	if err := b.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, call := range calls {
		if _, err := call.Await(t.Context()); err != nil {
			t.Errorf("sync %d: %v", i, err)
		}
	}
	if items := r.data(c); len(items) != 2 || !strings.Contains(items[0], "later 3") {
		t.Errorf("the share has %v", items)
	}
}

// A database that is away for a while loses nothing that was sent.
func TestSyncsOutlastTheDatabase(t *testing.T) {
	t.Parallel()
	st := &away{fullStore: teststore.SQLite(t)}
	r := start(t, st, nil)
	c := r.create("ses_away")
	st.set(5)
	r.want(200, r.sync(c, message("msg_1", "kept")))
	if items := r.data(c); len(items) != 1 || st.left() > 0 {
		t.Errorf("the share has %v, and the database was away %d times less", items, st.left())
	}
}

// away is a store whose transactions fail a few times.
type away struct {
	fullStore
	mu sync.Mutex
	n  int
}

func (a *away) set(n int) { a.mu.Lock(); defer a.mu.Unlock(); a.n = n }
func (a *away) left() int { a.mu.Lock(); defer a.mu.Unlock(); return a.n }

func (a *away) Update(ctx context.Context, fn func(session.Tx) error) error {
	if err := a.asked(); err != nil {
		return err
	}
	return a.fullStore.Update(ctx, fn)
}

func (a *away) asked() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n >= 0 {
		return fault.Unavailable.With("the database of the test is away")
	}
	return nil
}

// unlimited is memory without a bound.
type unlimited struct{}

func (unlimited) Grow(int) error { return nil }
func (unlimited) Shrink(int)     {}

// FuzzBodies: whatever is read of a body is what encoding/json reads of it.
func FuzzBodies(f *testing.F) {
	for _, seed := range []string{`{"secret":"x","data":[]}`, ` { "data" : [ 1 , {"a":[2,"\"]"]} ] , "secret":"y"}`, `{"secret":"x","data":[1,]}`,
		`{"secret":"x","secret":"y","data":[]}`, `{"other":{"data":[1]},"secret":"x","data":["\ud83d"]}`, `{"secret":"x","data":[{}]} x`, `{"secret":"x","data":[1 2]}`, `{}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var secrets, items []string
		b := syncbody.Reader{In: bufio.NewReaderSize(strings.NewReader(text), 16),
			Memory:     unlimited{},
			OnSecret:   func(s string) error { secrets = append(secrets, s); return nil },
			Add:        func(item json.RawMessage) bool { items = append(items, string(item)); return false },
			Flush:      func() error { return nil },
			OnOversize: func(int64, int) { t.Error("too large") }}
		if n, err := b.Read(); err != nil {
			return
		} else if n != len(items) {
			t.Errorf("%q has %d items, and %d are counted", text, len(items), n)
		}
		var members map[string]json.RawMessage // for a struct, names are matched whatever their letters' case
		var want struct {
			Secret string
			Data   []json.RawMessage
		}
		if json.Unmarshal([]byte(text), &members) != nil || json.Unmarshal(members["secret"], &want.Secret) != nil || json.Unmarshal(members["data"], &want.Data) != nil {
			return // names of other members are read by their letters, and their values are not looked at
		}
		if len(secrets) != 1 || secrets[0] != want.Secret || len(items) != len(want.Data) {
			t.Fatalf("%q reads as %q with %q, want %q with %q", text, secrets, items, want.Secret, want.Data)
		}
		for i, item := range want.Data {
			if items[i] != string(item) {
				t.Errorf("item %d is %q, want %q", i, items[i], item)
			}
		}
	})
}

// What could not be stored is remembered until it is, and logged once.
func TestMissingOfAShare(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, func(c *settings) {
			c.share.BodyBytes, c.share.CommitLimits = 1<<18, opencode.Limits{Ops: 10, Bytes: 1 << 16, Payload: 1 << 15}
		})
		c := r.create("ses_lacks")
		lacks := func(want ...string) {
			t.Helper()
			list, err := r.service.LeftOut(t.Context(), shared(t, r, c).Session)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range list {
				if l.At == 0 || l.Why == "" {
					t.Errorf("%+v", l)
				}
				got = append(got, l.Key)
			}
			if !slices.Equal(got, want) {
				t.Errorf("it lacks %q, want %q", got, want)
			}
		}
		large, vast := strings.Repeat("x", 1<<15), strings.Repeat("x", 1<<18)
		r.want(200, r.sync(c, message("msg_0", "x")))
		lacks()
		for range 2 {
			r.want(413, r.sync(c, message("msg_1", large), message("msg_2", "x"), message("msg_3", large)))
			lacks("message/msg_1", "message/msg_3")
		}
		if n := strings.Count(r.log.String(), "message/msg_1"); n != 1 {
			t.Errorf("it is logged %d times", n)
		}
		r.want(200, r.sync(c, message("msg_1", "small by now")))
		lacks("message/msg_3")
		r.want(413, r.sync(c, message("msg_4", vast)))
		lacks("", "message/msg_3")
		r.want(200, r.sync(c, message("msg_5", "x"))) // is not all
		lacks("", "message/msg_3")
		until.True(t, "the clock goes on", func() bool { return clockOf(t, st) > lastLack(t, r, c) })
		c = r.create("ses_lacks") // opencode shares again, and syncs all that there is
		r.want(413, r.sync(c, message("msg_3", large), message("msg_4", "x")))
		lacks("message/msg_3")
		if got := r.sync(opencode.CreateReply{ID: c.ID, Secret: "x"}, message("msg_6", large)); got.status != 403 {
			t.Errorf("a stranger: %d %s", got.status, got.body)
		}
		lacks("message/msg_3")
	})
}

// clockOf is a database's clock, lastLack when a share last lost something, in Unix ms.
func clockOf(t *testing.T, st *store.Store) int64 {
	t.Helper()
	access, err := st.ReadAccess(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return access.Now
}

func lastLack(t *testing.T, r *rig, c opencode.CreateReply) (last int64) {
	t.Helper()
	list, err := r.service.LeftOut(t.Context(), shared(t, r, c).Session)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		last = max(last, l.At)
	}
	return last
}

// TestForgottenShares: what is said of a share whose session was deleted is said when the
// session is forgotten, too.
func TestForgottenShares(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_gone")
	r.want(200, r.sync(c, message("msg_1", "x")))
	share, err := r.store.FindShare(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := r.server.Caller(t.Context(), "127.0.0.9:1").Assume(share.Owner).OpenStream(t.Context(), "obx_1", bytes.Repeat([]byte{1}, capability.SecretBytes), 1)
	if err != nil {
		t.Fatal(err)
	}
	deleted, err := stream.Apply(t.Context(), ledger.Batch{BatchID: ulid.Make().String(), Ops: []ledger.Intent{{OpID: ulid.Make().String(), Seq: 1, Method: session.MethodDelete}}})
	if err != nil || deleted.Outcomes[0].Status != ledger.Applied {
		t.Fatal(deleted, err)
	}
	answers := func() (all []string) {
		for _, q := range []struct{ method, path, body string }{
			{"GET", "", ""}, {"GET", "/data", ""}, {"GET", "/metadata", ""}, {"POST", "/sync", syncBody(c.Secret, message("msg_2", "y"))},
			{"POST", "/sync", syncBody("x", message("msg_2", "y"))}, {"DELETE", "", fmt.Sprintf(`{"secret":%q}`, c.Secret)},
		} {
			got := r.request(q.method, "/api/share/"+c.ID+q.path, q.body)
			all = append(all, fmt.Sprintf("%s %s: %d %s", q.method, q.path, got.status, got.body))
		}
		return all
	}
	was := answers()
	if more, err := r.store.Forget(t.Context(), share.Session, -time.Hour, 100); more || err != nil {
		t.Fatal(more, err)
	}
	if now := answers(); !slices.Equal(now, was) {
		t.Errorf("it is answered\n%s\nand was\n%s", strings.Join(now, "\n"), strings.Join(was, "\n"))
	}
	if again := r.create("ses_gone"); again.ID == c.ID {
		t.Error("a forgotten share is given again")
	}
}
