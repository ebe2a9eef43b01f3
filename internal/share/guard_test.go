package share

// Who may create, who may list, and what nobody gets to see.

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/syncbody"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// On this machine everybody creates, but no page of somebody else's in a browser:
// neither by a "simple" POST nor under a name of its own that leads here.
func TestCreatingOnThisMachine(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.server.Hosts = []string{"share.example"} })
	port := r.addr[strings.LastIndex(r.addr, ":"):]
	for i, c := range []struct {
		what    string
		headers []string
		want    int
	}{
		{"opencode", nil, 200},
		{"by name", []string{"Host", "localhost" + port}, 200},
		{"by name, in capitals", []string{"Host", "LOCALHOST." + port}, 200},
		{"by IPv6", []string{"Host", "[::1]" + port}, 200},
		{"another loopback address", []string{"Host", "127.1.2.3" + port}, 200},
		{"a page of this server", []string{"Origin", "http://" + r.addr, "Sec-Fetch-Site", "same-origin"}, 200},
		{"a page somebody typed in", []string{"Sec-Fetch-Site", "none"}, 200},
		{"a simple POST of a page", []string{"Origin", "https://evil.example", "Content-Type", "text/plain"}, 403},
		{"the same, without an origin's name", []string{"Origin", "null"}, 403},
		{"a page of another port", []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"a page of another site, without Origin", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a page of another port, without Origin", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"an origin that is let in elsewhere", []string{"Origin", "https://friend.example"}, 403},
		{"a name that was made to lead here", []string{"Host", "evil.example" + port}, 421},
		{"the same, from a page of it", []string{"Host", "evil.example" + port, "Origin", "http://evil.example" + port, "Sec-Fetch-Site", "same-origin"}, 421},
		{"a name that begins well", []string{"Host", "localhost.evil.example" + port}, 421},
		{"a name that ends well", []string{"Host", "notlocalhost" + port}, 421},
		{"a name of the server's own that is not this machine", []string{"Host", "share.example" + port}, 403},
		{"through a proxy", []string{"X-Forwarded-For", "203.0.113.7"}, 403},
		{"through another proxy", []string{"Forwarded", "for=203.0.113.7"}, 403},
		{"the key", []string{shareKeyHeader, testKey, "Host", "share.example", "X-Forwarded-For", "203.0.113.7"}, 200},
		{"another key", []string{shareKeyHeader, testKey + "x"}, 401},
		{"an empty key", []string{shareKeyHeader, ""}, 401},
	} {
		session := fmt.Sprintf("ses_%d", i)
		got := r.request("POST", "/api/share", fmt.Sprintf(`{"sessionID":%q}`, session), c.headers...)
		if got.status != c.want {
			t.Errorf("%s: %d %s, want %d", c.what, got.status, got.body, c.want)
		}
		if made := r.sessions()[session] == 1; made != (c.want == 200) {
			t.Errorf("%s: a session was made is %v", c.what, made)
		}
		if cors := got.header.Get("Access-Control-Allow-Origin"); cors != "" {
			t.Errorf("%s: pages of %s may read the reply", c.what, cors)
		}
	}
}

// The same request does as little over Cap'n Web: there it is the one that opened the
// connection which counts.
func TestCreatingOverCapnWeb(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.share.OriginPatterns = []string{"friend.example"} })
	friend := []string{"Origin", "https://friend.example"}
	for label, w := range map[string]byCapnWeb{"a batch": r.batches(friend...), "a WebSocket": r.webSocket("/rpc/share", friend...)} {
		if _, err := w.call("createShare", "ses_by_page"); err == nil || !strings.Contains(err.Error(), "share key") {
			t.Errorf("%s of a page: %v", label, err)
		}
	}
	for label, w := range map[string]byCapnWeb{
		"a batch with the key": r.batches(shareKeyHeader, testKey), "a WebSocket with the key": r.webSocket("/rpc/share", append(friend, shareKeyHeader, testKey)...),
	} {
		if c := w.create("ses_by_key"); !capability.IsPublicID(c.ID) {
			t.Errorf("%s gave %+v", label, c)
		}
	}
	if _, err := r.batches("Origin", "https://evil.example").call("probeValue"); err == nil {
		t.Error("a page of a strange origin is let in")
	}
	only := CreatorPath(r.spaceRef(capability.Create))
	if c := r.webSocket(only+"/rpc/share", friend...).create("ses_by_ref"); !capability.IsPublicID(c.ID) {
		t.Errorf("with a ref in the path: %+v", c)
	}
}

func TestLoopbackMayBeSwitchedOff(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.share.NoLoopback, c.share.Key = true, "" })
	for label, headers := range map[string][]string{"nothing": nil, "no key": {shareKeyHeader, ""}, "some key": {shareKeyHeader, testKey}} {
		if got := r.request("POST", "/api/share", `{"sessionID":"ses_1"}`, headers...); got.status == 200 {
			t.Errorf("with %s: %s", label, got.body)
		}
	}
	if got := r.request("GET", "/api/sessions", "", shareKeyHeader, ""); got.status == 200 {
		t.Errorf("without a key there is a list: %s", got.body)
	}
}

// A ref in the path may create, and must be able to do nothing else.
func TestRefsInThePath(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.share.NoLoopback = true; c.server.WrongTries = 100 })
	only := r.spaceRef(capability.Create)
	at := CreatorPath(only)
	got := r.want(200, r.request("POST", at+"/api/share", `{"sessionID":"ses_1"}`))
	var c opencode.CreateReply
	if err := json.Unmarshal([]byte(got.body), &c); err != nil || c.URL != "http://"+r.addr+"/share/"+c.ID {
		t.Errorf("create gave %s", got.body)
	}
	// What follows has the path before it too, as opencode puts it together.
	r.want(200, r.request("POST", at+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, message("msg_1", "x"))))
	r.want(200, r.request("GET", at+"/api/share/"+c.ID+"/data", ""))
	if n := r.webSocket(at + "/rpc/share").create("ses_1"); n.ID != c.ID {
		t.Errorf("over Cap'n Web it is %s, was %s", n.ID, c.ID)
	}
	for label, path := range map[string]string{
		"a ref that may list":  CreatorPath(r.spaceRef(capability.Create | capability.List)),
		"a ref that may not":   CreatorPath(r.spaceRef(capability.List)),
		"the owner's":          CreatorPath(r.owner),
		"another secret":       CreatorPath(only.With(only.ID, capability.NewSecret())),
		"no secret":            "/t/" + only.ID,
		"a session's ref":      CreatorPath(only.New("ses_01ARZ3NDEKTSV4RRFFQ69G5FAV")),
		"a strange text":       "/t/..%2f..",
		"a path of two pieces": at + "/t/x",
	} {
		if got := r.request("POST", path+"/api/share", `{"sessionID":"ses_2"}`); got.status < 400 || got.status >= 500 {
			t.Errorf("%s: %d %s", label, got.status, got.body)
		}
	}
	if made := r.sessions(); made["ses_2"] != 0 {
		t.Error("one of them made a session")
	}
	for _, path := range []string{"/healthz", "/capnp", "/rpc", "/api/v1/sessions", "/sessions", "/share/" + c.ID, ""} {
		if got := r.request("GET", at+path, ""); got.status != 404 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	revoke(t, r.store, only.ID)
	if got := r.request("POST", at+"/api/share", `{"sessionID":"ses_1"}`); got.status != 403 || !strings.Contains(got.body, "revoked") {
		t.Errorf("revoked: %d %s", got.status, got.body)
	}
	if strings.Contains(r.log.String(), only.Secret.RevealText()) || strings.Contains(r.log.String(), r.owner.Secret.RevealText()) {
		t.Error("the log has a ref's secret")
	}
}

// No reply but a create's has a secret, and no log has one, or a public id.
func TestSecretsStayWhereTheyWere(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.server.WrongTries = 1000 })
	only := r.spaceRef(capability.Create)
	c, twin := r.create("ses_1"), r.create("ses_1")
	secrets := []string{c.Secret, twin.Secret, strings.SplitN(c.Secret, ".", 2)[1], strings.SplitN(twin.Secret, ".", 2)[1], testKey, only.Secret.RevealText(), r.owner.Secret.RevealText()}
	id := "/api/share/" + c.ID
	var replies []reply
	for _, q := range [][]string{
		{"POST", id + "/sync", syncBody(c.Secret, message("msg_1", "x"))}, {"POST", id + "/sync", syncBody(c.Secret, `{"type":"x","data":{}}`)},
		{"POST", id + "/sync", syncBody(c.Secret, `7`)}, {"POST", id + "/sync", `{"secret":"` + c.Secret}, {"POST", id + "/sync", syncBody(c.Secret + "x")},
		{"GET", id, ""}, {"GET", id + "/data", ""}, {"GET", id + "/metadata", ""}, {"GET", "/api/sessions", ""}, {"PATCH", id, c.Secret}, {"GET", "/ws/" + c.ID, ""},
		{"GET", "/t/" + strings.TrimPrefix(CreatorPath(only), "/t/") + id, ""}, {"POST", CreatorPath(only) + "x/api/share", `{"sessionID":"ses_2"}`},
		{"DELETE", id, `{"secret":"x` + c.Secret + `"}`}, {"DELETE", id, `{"secret":"` + c.Secret + `"}`}, {"POST", id + "/sync", syncBody(c.Secret)},
	} {
		replies = append(replies, r.request(q[0], q[1], q[2], shareKeyHeader, testKey))
	}
	r.stop()
	for i, got := range replies {
		for _, s := range secrets {
			if strings.Contains(got.body, s) || strings.Contains(fmt.Sprint(got.header), s) {
				t.Errorf("reply %d has a secret: %d %v %s", i, got.status, got.header, got.body)
			}
		}
	}
	log := r.log.String()
	for _, s := range append(secrets, c.ID) {
		if strings.Contains(log, s) {
			t.Errorf("the log has a secret, or the public id:\n%s", log)
		}
	}
	if !strings.Contains(log, "draining") {
		t.Errorf("this is not the log:\n%s", log)
	}
}

// Who guesses ids and secrets waits; who is right does not.
func TestGuessing(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.server.WrongTries, c.server.WrongTryInterval = 1, time.Hour })
	c := r.create("ses_1")
	if got := r.request("GET", "/api/share/"+capability.NewPublicID()+"/data", ""); got.status != 404 {
		t.Errorf("the first guess: %d", got.status)
	}
	var guesses sync.WaitGroup
	impatient := &http.Client{Timeout: 200 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	for label, q := range map[string][3]string{
		"an id":                   {"GET", "/api/share/" + capability.NewPublicID() + "/data", ""},
		"an id of another form":   {"GET", "/api/share/x", ""},
		"a secret":                {"POST", "/api/share/" + c.ID + "/sync", syncBody(strings.SplitN(c.Secret, ".", 2)[0] + "." + capability.NewSecret().RevealText())},
		"a secret of no form":     {"POST", "/api/share/" + c.ID + "/sync", syncBody("x")},
		"a secret, to delete":     {"DELETE", "/api/share/" + c.ID, `{"secret":"x"}`},
		"the key":                 {"GET", "/api/sessions", ""},
		"a ref to create by":      {"POST", "/t/x/api/share", `{"sessionID":"ses_2"}`},
		"an id to follow":         {"GET", "/ws/" + capability.NewPublicID(), ""},
		"a secret that came late": {"POST", "/api/share/" + c.ID + "/sync", `{"data":[],"secret":"x"}`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), q[0], "http://"+r.addr+q[1], strings.NewReader(q[2]))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(shareKeyHeader, "another")
		guesses.Go(func() {
			if res, err := impatient.Do(req); err == nil {
				t.Errorf("%s: answered at once: %d", label, res.StatusCode)
				_ = res.Body.Close()
			}
		})
	}
	guesses.Wait()
	r.want(200, r.sync(c, message("msg_1", "x")))
	r.create("ses_1")
	r.data(c)
}

// Creating has a rate, for each address.
func TestCreatesHaveARate(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.share.CreateBurst, c.share.CreatesPerHour = 3, 1 })
	c := r.create("ses_1")
	r.create("ses_1")
	r.batches().create("ses_2")
	got := r.request("POST", "/api/share", `{"sessionID":"ses_3"}`)
	if got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d %v %s", got.status, got.header, got.body)
	}
	if _, err := r.batches().call("createShare", "ses_3"); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("one too many by Cap'n Web: %v", err)
	}
	r.want(200, r.sync(c, message("msg_1", "x")))
	if _, made := r.sessions()["ses_3"]; made {
		t.Error("it was made")
	}

	now := time.Now()
	rate := newCreateThrottle(2, 3600)
	rate.now = func() time.Time { return now }
	take := func(address string, want bool) {
		t.Helper()
		if rate.allow(address) != want {
			t.Errorf("%s may is not %v", address, want)
		}
	}
	take("a", true)
	take("a", true)
	take("a", false)
	take("b", true)
	now = now.Add(time.Second)
	take("a", true)
	take("a", false)
	for i := range maxAddresses + 10 {
		rate.allow(fmt.Sprint(i))
	}
	if len(rate.buckets) > maxAddresses+1 {
		t.Errorf("%d addresses are kept", len(rate.buckets))
	}
	now = now.Add(time.Hour)
	take("c", true)
	take("a", true)
	if len(rate.buckets) > 10 {
		t.Errorf("%d addresses are kept of whose nothing is owed", len(rate.buckets))
	}
	take("d", true)
	take("d", true)
	rate.setRate(60)
	now = now.Add(time.Second)
	take("d", false)
	now = now.Add(time.Minute)
	take("d", true)
}

// One address has so many places at once.
func TestRoom(t *testing.T) {
	t.Parallel()
	m := newAddressSlots(2, 20*time.Millisecond)
	ctx := t.Context()
	enter := func(address string) func() {
		t.Helper()
		leave, err := m.acquire(ctx, address)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	a, b := enter("x"), enter("x")
	if _, err := m.acquire(ctx, "x"); fault.CodeOf(err) != fault.Overloaded {
		t.Errorf("a third: %v", err)
	}
	enter("y")()
	a()
	var waiting sync.WaitGroup
	waiting.Go(func() { enter("x")() })
	waiting.Wait()
	b()
	c := enter("x")
	m.setLimits(1, time.Nanosecond)
	d := enter("x")
	if _, err := m.acquire(ctx, "x"); fault.CodeOf(err) != fault.Overloaded {
		t.Errorf("a second where one may be: %v", err)
	}
	c()
	if _, err := m.acquire(ctx, "x"); fault.CodeOf(err) != fault.Overloaded {
		t.Errorf("the end of one that counted by other limits makes room: %v", err)
	}
	d()
	if len(m.byAddress) != 0 {
		t.Errorf("%d addresses are left", len(m.byAddress))
	}
}

// What a request holds is charged to the strangers' budget before its secret is known,
// and to the share's afterwards, decoded or not, on both wires; and it is given back.
func TestRequestsAreCharged(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) {
		c.server.WrongTries, c.server.WrongTryInterval = 1, time.Hour // so that who is wrong waits, with all that it holds
	})
	c := r.create("ses_charged")
	strangers, known := r.server.MemoryBudgets()
	r.request("GET", "/api/share/x/data", "") // the one wrong try that is answered at once
	idle := func() {
		t.Helper()
		until.True(t, "all is given back", func() bool { return strangers.Stats().Held == 0 && known.Stats().Held == 0 })
	}
	idle()
	const size = 1 << 19
	text := strings.Repeat("x", size)
	sync, create := "/api/share/"+c.ID+"/sync", "/api/share"
	for _, q := range []struct {
		what, path, body string
		strangers, known int64
	}{
		{"data before its secret", sync, `{"data":[` + message("m", text), size, 0},
		{"data behind its secret", sync, `{"secret":"` + c.Secret + `","data":[` + message("m", text), 0, size},
		{"items behind its secret", sync, `{"secret":"` + c.Secret + `","data":[` + message("m", text) + "," + message("n", text) + ",", 0, 2 * 2 * size},
		{"a create", create, `{"sessionID":"` + strings.Repeat("x", maxSmallBody/2), maxSmallBody / 2, 0},
		{"Cap'n Web, with a wrong secret", "/rpc/share", `["push",["pipeline",0,["syncShare"],["` + capability.NewPublicID() + `","x",[[{"type":"` + text + `"}]]]]]` + "\n[\"pull\",1]", 4 * size, 0}, // as it came, its values, and their text
	} {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", q.path, r.addr, len(q.body), q.body)
		if q.path == "/rpc/share" {
			fmt.Fprint(conn, "0\r\n\r\n")
		}
		until.True(t, q.what+" is charged", func() bool {
			return strangers.Stats().Held >= q.strangers && known.Stats().Held >= q.known && (q.strangers > 0 || strangers.Stats().Held == 0) && (q.known > 0 || known.Stats().Held == 0)
		})
		_ = conn.Close()
		idle()
	}
	if limit := strangers.Stats().Peak; limit > 8*size {
		t.Errorf("strangers held %d", limit)
	}
}

// Who has shown no secret is refused where there is no memory for strangers; who shows
// it first is served.
func TestStrangersTakeNoMemoryOfOthers(t *testing.T) {
	t.Parallel()
	strangers := membudget.New(membudget.Config{Total: 1 << 20})
	known := membudget.New(membudget.Config{Total: 8 << 20})
	read := func(body string, others int64) error {
		other := strangers.Open("another")
		defer other.Close()
		if !other.TryGrow(others) {
			t.Fatal("the other one is refused")
		}
		memory := &requestMemory{syncbody.Charged{Ctx: t.Context(), Account: strangers.Open("one")}, known}
		defer memory.close()
		b := syncbody.Reader{In: bufio.NewReader(strings.NewReader(body)), Memory: memory,
			OnSecret: func(string) error { memory.chargeToShare("x"); return nil },
			Add:      func(json.RawMessage) bool { return true },
			Flush:    func() error { return nil }}
		_, err := b.Read()
		return err
	}
	data := `"data":[` + message("m", strings.Repeat("x", 200<<10)) + `]`
	first, last := `{"secret":"x",`+data+`}`, `{`+data+`,"secret":"x"}`
	for _, q := range []struct {
		what, body string
		others     int64
		want       fault.Code
	}{
		{"its secret first", first, 1<<20 - 2<<10, 0},
		{"its secret last, and room", last, 1 << 18, 0},
		{"its secret last, and no room", last, 3 << 18, fault.Overloaded},
		{"more than there ever is", `{"data":["` + strings.Repeat("x", 1<<20) + `"]`, 0, fault.Overloaded},
	} {
		if err := read(q.body, q.others); fault.CodeOf(err) != q.want {
			t.Errorf("%s: %v", q.what, err)
		}
	}
	if s, k := strangers.Stats().Held, known.Stats().Held; s != 0 || k != 0 {
		t.Errorf("%d and %d bytes are not given back", s, k)
	}
}

// Who announces a body and does not send it takes no room from those who do.
func TestAnnouncedBodiesTakeNoRoom(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) {
		c.share.BodyBytes, c.server.StrangerBytes = 1<<16, 8*syncbody.BufferBytes
	})
	c := r.create("ses_room")
	for _, path := range []string{"/rpc/share", "/api/share/" + c.ID + "/sync"} {
		for range 2 {
			conn, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", path, r.addr, 1<<16, strings.Repeat(" ", 2048))
		}
	}
	until.True(t, "all of them are in", func() bool {
		r.service.slots.mu.Lock()
		defer r.service.slots.mu.Unlock()
		calls, batches := r.service.slots.byAddress["127.0.0.1"], r.service.slots.byAddress[batchSlotPrefix+"127.0.0.1"]
		return calls != nil && batches != nil && calls.users == 2 && batches.users == 2
	})
	if _, err := r.batches().call("probeValue", map[string]any{"when": time.Now(), "bytes": []byte{1}, "nested": nil}); err != nil {
		t.Errorf("a batch: %v", err)
	}
	// Its secret comes last, so that it is a stranger's until all of it has been read.
	body := fmt.Sprintf(`{"data":[%s],"secret":%q}`, message("m", strings.Repeat("x", 2048)), c.Secret)
	if got := r.request("POST", "/api/share/"+c.ID+"/sync", body); got.status != 200 {
		t.Errorf("a sync: %d %s", got.status, got.body)
	}
}

// The list of shares is for who shows the key; being on this machine is not enough.
func TestTheListOfShares(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		if got := r.want(200, r.request("GET", "/api/sessions", "", shareKeyHeader, testKey)); got.body != "[]" {
			t.Errorf("the empty list is %s", got.body)
		}
		var all []opencode.CreateReply
		for i := range 5 {
			session := fmt.Sprintf("ses_%d", i)
			c := r.create(session)
			r.want(200, r.sync(c, fmt.Sprintf(`{"type":"session","data":{"id":%q,"title":"%s <b>"}}`, session, strings.Repeat("é", 200*i))))
			all = append(all, c)
		}
		byHTTP{r}.delete(all[0])
		if got := r.request("GET", "/api/sessions", ""); got.status != 403 {
			t.Errorf("without the key: %d %s", got.status, got.body)
		}
		var list []metadata
		if err := json.Unmarshal([]byte(r.want(200, r.request("GET", "/api/sessions", "", shareKeyHeader, testKey)).body), &list); err != nil {
			t.Fatal(err)
		}
		got := map[string]metadata{}
		for _, m := range list {
			got[m.SessionID] = m
			if len(m.Title) > titleBytes || m.Created == 0 || m.Updated == 0 || m.Cursor == 0 {
				t.Errorf("the list has %+v", m)
			}
		}
		for i, c := range all {
			if m := got[fmt.Sprintf("ses_%d", i)]; i > 0 && (m.ID != c.ID || m.URL != c.URL) || i == 0 && m.ID != "" {
				t.Errorf("share %d is listed as %+v", i, m)
			}
		}
	})
}

// Public URLs begin with what the server was told, or with where it was asked.
func TestWhereSharesAre(t *testing.T) {
	t.Parallel()
	s := &Service{}
	visit := func(host string, secure bool) *visitor {
		v := &visitor{Request: &http.Request{Host: host}}
		if secure {
			v.TLS = &tls.ConnectionState{}
		}
		return v
	}
	for _, c := range []struct {
		host   string
		secure bool
		want   string
	}{
		{"localhost:7600", false, "http://localhost:7600/share/x"}, {"share.example", true, "https://share.example/share/x"},
		{"[::1]:7600", false, "http://[::1]:7600/share/x"}, {"", false, ""}, {"a b", false, ""}, {"evil.example/x?", false, ""}, {"user@evil.example", false, ""},
	} {
		got, err := s.shareURL(visit(c.host, c.secure), "x")
		if c.want == "" && fault.CodeOf(err) != fault.BadArgument || c.want != "" && (err != nil || got != c.want) {
			t.Errorf("at %q: %s, %v", c.host, got, err)
		}
	}
	s.cfg.Base = "https://share.example/prefix"
	if got, err := s.shareURL(visit("whatever", false), "x"); err != nil || got != "https://share.example/prefix/share/x" {
		t.Errorf("as told: %s, %v", got, err)
	}
}
