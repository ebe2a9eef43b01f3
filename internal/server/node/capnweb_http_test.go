//go:build unix

package node

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

// webURL connects a peer over a WebSocket.
func (r *rig) webURL(t testing.TB, url string, header http.Header) (*webClient, error) {
	transport, err := capnweb.Dial(within(t), url, capnweb.DialOptions{Header: header})
	if err != nil {
		return nil, err
	}
	return newWebClient(t, transport), nil
}

// post sends a batch as it is.
func post(t testing.TB, url, body string, header http.Header) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// A whole story in sockets: made, appended to, shared, followed, also below a
// prefix; connections are counted, those above the limit refused.
func TestWebSocketsAtTheEndpoint(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.Prefix, c.Connections = "some/where", 2 })
	web := httpOf(t, r)
	var peers []*webClient
	for _, path := range []string{"/rpc", "/some/where/rpc"} {
		w, err := r.webURL(t, web+path, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		m := r.createWeb(w)
		k := newWebRecorder()
		w.subscribe(w.restore(m.owner), k, 0)
		w.must(m.stream, m.batch(put(1)))
		k.untilCursor(t, 2)
		peers = append(peers, w)
	}
	for path, want := range map[string]int{"/rpc": 503, "/capnp": 503} {
		if status, _ := get(t, web+path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	if status, body := post(t, web+"/rpc", "", nil); status != 503 {
		t.Errorf("a batch beyond the limit: %d %q", status, body)
	}
	if open := r.metric("mooring_web_connections"); open != "2" {
		t.Errorf("%s connections are counted", open)
	}
	for _, w := range peers {
		w.leave()
	}
	until.True(t, "their end", func() bool { return r.connections() == 0 })
	if status, _ := get(t, web+"/rpc"); status != 426 {
		t.Errorf("a request that asks for no WebSocket: %d", status)
	}
	if in, out := r.metric(`mooring_web_messages_total{direction="in"}`), r.metric(`mooring_web_bytes_total{direction="out"}`); in == "0" || out == "0" {
		t.Errorf("%s messages came, %s bytes went", in, out)
	}
}

// One batch of calls by POST, pipelined on one another.
func TestBatchesByPost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		p.must(m.stream, m.batch(put(1)))
		url := httpOf(t, r) + "/rpc"

		b := capnweb.NewBatch(url, capnweb.DialOptions{}, capnweb.Config{})
		main := b.Main()
		sess := main.Call(t.Context(), "restore", m.owner.Text())
		info, events := sess.Call(t.Context(), "info"), sess.Call(t.Context(), "events", 1)
		box := newBox()
		stream := sess.Call(t.Context(), "openStream", object{"outbox": box.id, "secret": box.secret, "incarnation": 1})
		first, second := stream.Call(t.Context(), "apply", webBatch(box.batch(m.id, put(2)))), stream.Call(t.Context(), "apply", webBatch(box.batch(m.id, put(3))))
		wrong := main.Call(t.Context(), "restore", m.owner.With(m.owner.ID, capability.NewSecret()).Text()).Call(t.Context(), "info")
		if err := b.Send(within(t)); err != nil {
			t.Fatal(err)
		}
		v, err := awaitWeb(t, info)
		if err != nil || v.(object)["info"].(object)["id"] != m.id {
			t.Errorf("info: %v, %v", v, err)
		}
		v, err = awaitWeb(t, events)
		if err != nil || len(v.(object)["events"].([]any)) == 0 {
			t.Errorf("events: %v, %v", v, err)
		}
		for i, p := range []*capnweb.Promise{first, second} { // in order: a gap else
			if ack := readWebReply(t, p); ack.applied != 1 {
				t.Errorf("batch %d: %+v", i, ack)
			}
		}
		_, err = awaitWeb(t, wrong)
		wantCode(t, "a wrong ref", err, fault.UnknownRef)
		if strings.Contains(r.metric("mooring_web_batches_total"), "0") {
			t.Error("no batch is counted")
		}

		rows := r.dialWeb()
		if !slices.ContainsFunc(rows.give(rows.restore(m.owner), "audit").(object)["rows"].([]any), func(row any) bool {
			return row.(object)["act"] == "redeem" && row.(object)["peer"] == "127.0.0.1"
		}) {
			t.Error("the audit has no redemption from the batch's address")
		}
		rows.leave()
		<-rows.conn.Done()

		// As text, as any client would; and one that cannot be called back.
		text, err := json.Marshal(m.owner.Text())
		if err != nil {
			t.Fatal(err)
		}
		status, answer := post(t, url, `["push",["pipeline",0,["restore"],[`+string(text)+`]]]`+"\n"+`["push",["pipeline",1,["info"],[]]]`+"\n"+`["pull",2]`, nil)
		if status != 200 || !strings.HasPrefix(answer, `["resolve",2,{`) || !strings.Contains(answer, m.id) || strings.Contains(answer, m.owner.Secret.RevealText()) {
			t.Errorf("%d %s", status, answer)
		}
		status, answer = post(t, url, `["push",["pipeline",0,["restore"],[`+string(text)+`]]]`+"\n"+`["push",["pipeline",1,["subscribe"],[0,["export",-1]]]]`+"\n"+`["pull",2]`, nil)
		if status != 200 || !strings.HasPrefix(answer, `["re`) {
			t.Errorf("subscribing in a batch: %d %s", status, answer)
		}
		until.True(t, "nothing to be left", func() bool { return r.subscriptions() == 0 && r.connections() == 1 })
	})
}

// A batch has its own time, in which it is answered or refused, whatever the
// HTTP server's.
func TestABatchHasItsOwnTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		time time.Duration // a batch's
		want int
	}{
		"answered late": {20 * time.Second, http.StatusOK},
		"not in time":   {200 * time.Millisecond, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := sqliteStore(t)
			const handshake = time.Second
			r := start(t, st, func(cfg *Config) {
				cfg.BatchTimeout = c.time
				if c.want == http.StatusOK {
					cfg.RPC.HandshakeTimeout = handshake
				}
			})
			p := r.dial()
			m := r.create(p)
			url := httpOf(t, r) + "/rpc"
			release := holdWriter(t, st)
			defer release()
			if c.want == http.StatusOK { // later than any deadline that the HTTP server sets
				time.AfterFunc(handshake+readyTimeout+100*time.Millisecond, release)
			}
			text, err := json.Marshal(m.owner.Text())
			if err != nil {
				t.Fatal(err)
			}
			status, answer := post(t, url, `["push",["pipeline",0,["restore"],[`+string(text)+`]]]`+"\n"+`["push",["pipeline",1,["openStream"],["obx",["bytes","`+
				base64.StdEncoding.EncodeToString(newBox().secret)+`"],1]]]`+"\n"+`["pull",2]`, nil)
			if status != c.want || status == http.StatusOK && !strings.HasPrefix(answer, `["resolve",2,["export",-1]]`) {
				t.Errorf("%d %s", status, answer)
			}
		})
	}
}

// Pages of other origins are refused over WebSocket and by POST, those that are
// let in get what browsers ask for.
func TestOriginsAtTheEndpoint(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.OriginPatterns = []string{"*.friends.example"} })
	web := httpOf(t, r)
	for origin, want := range map[string]bool{"https://elsewhere.example": false, "https://app.friends.example": true, web: true, "null": false} {
		header := http.Header{"Origin": {origin}}
		w, err := r.webURL(t, web+"/rpc", header)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "403") {
			t.Errorf("%s: %v", origin, err)
		}
		if w != nil {
			w.leave()
		}
		status, _ := post(t, web+"/rpc", `["push",["pipeline",0,["hello"],[1]]]`+"\n"+`["pull",1]`, header)
		if (status == 200) != want || status != 200 && status != 403 {
			t.Errorf("%s: a batch gets %d", origin, status)
		}
		transport, err := rpc.Dial(within(t), web+"/capnp", rpc.DialOptions{Header: header})
		if (err == nil) != want {
			t.Errorf("%s, over Cap'n Proto: %v", origin, err)
		}
		if err == nil {
			_ = transport.Close(1000, "")
		}
	}
}

// Who guesses refs over the web is slow, by batches too, and shares its address's
// account with those who guess over Cap'n Proto.
func TestGuessingIsSlowOverTheWeb(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) {
		c.WrongTries, c.WrongTryInterval, c.BatchTimeout = 10, time.Hour, 2*time.Second
	})
	url := httpOf(t, r)
	guesser, err := r.webURL(t, url+"/rpc", nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := r.webURL(t, url+"/rpc", nil)
	if err != nil {
		t.Fatal(err)
	}
	forged := r.owner.With(r.owner.ID, capability.NewSecret())
	for range 8 {
		_, err := guesser.ask(guesser.main, "restore", forged.Text())
		wantCode(t, "one of the first", err, fault.UnknownRef)
	}
	text, _ := json.Marshal(forged.Text())
	guess := `["push",["pipeline",0,["restore"],[` + string(text) + `]]]` + "\n" + `["pull",1]`
	for range 2 {
		if status, answer := post(t, url+"/rpc", guess, nil); status != 200 || !strings.Contains(answer, "unknown_ref: ") || strings.Contains(answer, forged.Secret.RevealText()) {
			t.Errorf("a batch: %d %s", status, answer)
		}
	}
	if status, answer := post(t, url+"/rpc", guess, nil); status != http.StatusServiceUnavailable {
		t.Errorf("a batch that has to wait: %d %s", status, answer)
	}
	var guesses []*capnweb.Promise
	for range 10 {
		guesses = append(guesses, guesser.main.Call(within(t), "restore", forged.Text()))
	}
	for _, w := range []*webClient{guesser, other} {
		if _, err := w.ask(w.main, "restore", r.owner.Text()); err != nil {
			t.Errorf("the right secret: %v", err)
		}
	}
	// Restores are answered in no order: the last guesses may still be looked up.
	until.True(t, "eleven answers wait", func() bool { return r.hits("wrong_tries") == "11" })
	for range 100 {
		guesses = append(guesses, guesser.main.Call(within(t), "restore", forged.Text()))
	}
	for _, p := range guesses {
		if _, err := awaitWeb(t, p); err == nil {
			t.Fatal("a guess was right")
		}
	}
	<-guesser.conn.Done()
	if err := guesser.conn.Err(); err == nil || !strings.Contains(err.Error(), "overloaded: too many refs") {
		t.Errorf("the guesser's connection ended with %v", err)
	}
	// A batch above the limit ends at once, told so.
	_, answer := post(t, url+"/rpc", strings.Repeat(`["push",["pipeline",0,["restore"],[`+string(text)+`]]]`+"\n", 80), nil)
	if !strings.Contains(answer, `["abort"`) || !strings.Contains(answer, "overloaded: too many refs") {
		t.Errorf("a batch above the limit: %s", answer)
	}
	if _, err := other.ask(other.main, "restore", r.owner.Text(), "again"); err != nil {
		t.Errorf("the right secret, after it: %v", err)
	}
	until.True(t, "their end", func() bool { return r.connections() == 1 })
}

// Garbage ends the connection that it came over, and nothing else.
func TestHostileWebClients(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	web := httpOf(t, r)
	good := r.dialWeb()
	m := r.createWeb(good)
	text, _ := json.Marshal(m.owner.Text())
	deep := strings.Repeat("[", 5000)
	hostile := []string{"", "{}", "[", "null", `["push"]`, `["pull",99]`, `["release",0,1]`, `["resolve",1,2]`, `["push",["import",5]]`, deep,
		`["push",["pipeline",0,["__proto__"],[]]]`, `["push",["pipeline",0,["restore"],[["export",5]]]]`, `["push",["pipeline",0,[],[]]]`,
		`["push",["pipeline",0,["restore","info"],[1]]]`, `["push",["pipeline",0,["hello"],[["bigint","` + strings.Repeat("9", 20000) + `"]]]]`,
		`["push",["pipeline",0,["restore"],[` + string(text) + `,[["a"]]]]]`, `["push",["remap",0,[],[],[["pipeline",0,["hello"],[1]]]]]`, `["abort",5]`,
		`["stream",["pipeline",0,["challenge"],[]]]`, `["pipe"]`, "\xff\xfe", `["push",["pipeline",0,["hello"],[{"version":` + strings.Repeat("9", 400) + `}]]]`}
	for _, h := range hostile {
		if status, _ := post(t, web+"/rpc", h+"\n"+`["pull",1]`, nil); status >= 500 {
			t.Errorf("%.60q: %d", h, status)
		}
		c, _, err := websocket.Dial(within(t), web+"/rpc", &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
		if err != nil {
			t.Fatalf("%.60q: %v", h, err)
		}
		kind := websocket.MessageText
		if strings.HasPrefix(h, "\xff") {
			kind = websocket.MessageBinary
		}
		_ = c.Write(within(t), kind, []byte(h))
		_ = c.Write(within(t), websocket.MessageText, []byte(`["abort",["error","Error","enough"]]`))
		for {
			if _, _, err := c.Read(within(t)); err != nil {
				break
			}
		}
		_ = c.CloseNow()
	}
	// Calls of every kind with arguments of every kind, from one who has a session.
	rng := rand.New(rand.NewPCG(7, 7))
	methods := []string{"info", "openStream", "snapshot", "subscribe", "revoke", "events", "attenuate", "refs", "audit", "share", "apply", "hello", "x", ""}
	w := r.dialWeb()
	objects := []interface {
		Call(context.Context, string, ...any) *capnweb.Promise
	}{w.main, w.restore(m.owner), w.restore(r.owner), w.open(w.restore(m.owner), newBox())}
	for range 2000 {
		args := make([]any, rng.IntN(4))
		for i := range args {
			args[i] = nonsense(rng, 3, objects)
		}
		p := objects[rng.IntN(len(objects))].Call(within(t), methods[rng.IntN(len(methods))], args...)
		if _, err := awaitWeb(t, p); err != nil && strings.Contains(err.Error(), "internal") {
			t.Errorf("%v", err)
		}
		p.Release()
	}
	if ack := good.must(m.stream, m.batch(put(1))); ack.applied != 1 {
		t.Errorf("another connection: %+v", ack)
	}
}

// nonsense is some value. It revokes nothing: no number in it is a ref.
func nonsense(rng *rand.Rand, depth int, stubs []interface {
	Call(context.Context, string, ...any) *capnweb.Promise
}) any {
	n := 10
	if depth > 0 {
		n = 13
	}
	switch rng.IntN(n) {
	case 0:
		return nil
	case 1:
		return rng.Float64() * 100
	case 2:
		return rng.IntN(5)
	case 3:
		return []string{"", "x", "ses_", "spc_01", "mooring://h/x#y", "AAAA"}[rng.IntN(6)]
	case 4:
		return false
	case 5:
		return make([]byte, rng.IntN(40))
	case 6:
		return stubs[rng.IntN(len(stubs))]
	case 7:
		return func(any) error { return nil }
	case 8:
		return time.Now()
	case 9:
		return capnweb.Undefined{}
	case 10:
		list := make([]any, rng.IntN(4))
		for i := range list {
			list[i] = nonsense(rng, depth-1, stubs)
		}
		return list
	}
	o := object{}
	names := []string{"id", "secret", "ref", "from", "snapshot", "limits", "rights", "batch", "ops", "args", "name", "json", "hash", "outbox", "incarnation", "sink", "query", "under", "x"}
	for range rng.IntN(4) {
		o[names[rng.IntN(len(names))]] = nonsense(rng, depth-1, stubs)
	}
	return o
}

// A server that stops tells those who follow, answers what runs, takes nobody
// new, and ends the connections.
func TestDrainOverTheWeb(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, nil)
	web := httpOf(t, r)
	w, err := r.webURL(t, web+"/rpc", nil)
	if err != nil {
		t.Fatal(err)
	}
	idle := r.dialWeb()
	m := r.createWeb(w)
	idle.give(idle.main, "hello", 1)
	k := newWebRecorder()
	w.subscribe(w.restore(m.owner), k, 0)
	k.untilCursor(t, 1)

	release := holdWriter(t, st)
	running := m.stream.Call(t.Context(), "apply", webBatch(m.batch(put(1))))
	queued := m.stream.Call(t.Context(), "apply", webBatch(m.batch(put(2))))
	answers := make(chan error, 2)
	for _, p := range []*capnweb.Promise{running, queued} { // what nobody waits for is not sent
		p.Then(func(_ any, err error) { answers <- err })
	}
	untilQueued(t, r.server, 2)
	stopped := r.stopping()
	k.untilDraining(t)
	<-idle.conn.Done() // has nothing running
	near, far := capnweb.Pipe()
	wantCode(t, "a new connection", r.server.ServeCapnweb(far), fault.Draining)
	_ = near.Close(1000, "")
	if status, _ := post(t, web+"/rpc", "", nil); status != http.StatusServiceUnavailable {
		t.Errorf("a new batch: %d", status)
	}
	release()
	for i := range 2 {
		if err := <-answers; err != nil {
			t.Errorf("batch %d, which was there before the end: %v", i, err)
		}
	}
	<-stopped
	<-w.conn.Done()
	if at := rowOf(t, st, m.id).Cursor; at != 3 {
		t.Errorf("the session is at %d", at)
	}
}

// Limits that are met over the web are counted by names of their own.
func TestLimitsOverTheWeb(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) {
		c.RPC.MessageBytes, c.RPC.Exports = 32<<10, 20
	})
	web := httpOf(t, r)
	w, err := r.webURL(t, web+"/rpc", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.ask(w.main, "restore", r.owner.Text(), "r"); err != nil { // strangers may send less
		t.Fatal(err)
	}
	_, err = w.ask(w.main, "hello", object{"version": 1, "agent": strings.Repeat("x", 40<<10)})
	wantCode(t, "what is too large for the schema's message", err, fault.TooLarge)
	w.main.Call(within(t), "hello", object{"version": 1, "agent": strings.Repeat("x", 80<<10)})
	<-w.conn.Done()
	if n := r.hits("web_message_bytes"); n != "1" {
		t.Errorf("a message that is too large was counted %s times", n)
	}
	w = r.dialWeb()
	for err = nil; err == nil; {
		_, err = w.ask(w.main, "restore", r.owner.Text(), "r")
	}
	if !strings.HasPrefix(err.Error(), "an error of name Error") || !strings.Contains(err.Error(), `"overloaded: `) { // the wire's own: it has no properties
		t.Errorf("too many objects: %v", err)
	}
	if n := r.hits("web_exports"); n == "0" {
		t.Error("exports are not counted")
	}

	r = start(t, sqliteStore(t), func(c *Config) { c.RPC.HandshakeTimeout = time.Second })
	silent, err := capnweb.Dial(within(t), httpOf(t, r)+"/rpc", capnweb.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Read(within(t)); err == nil {
		t.Error("a silent client got a message")
	}
	_ = silent.Close(1000, "")
	if n := r.hits("web_handshake_timeout"); n != "1" {
		t.Errorf("a silent client was counted %s times", n)
	}
}

// Who leaves while answers to guesses wait, or are about to, is forgotten.
func TestGuessersLeaveNothingOverTheWeb(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.WrongTries, c.WrongTryInterval = 1, time.Hour })
	forged := r.owner.With(r.owner.ID, capability.NewSecret())
	for n := range 20 {
		w := r.dialWeb()
		for range 3 {
			w.main.Call(t.Context(), "restore", forged.Text())
		}
		if n%2 == 0 {
			w.give(w.main, "hello", 1) // the others' end may come before their calls
		}
		w.leave()
	}
	until.True(t, "their end", func() bool { return r.connections() == 0 })
}
