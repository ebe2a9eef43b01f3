//go:build unix

package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/scrape"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// Every refusal that HTTP can bring about, with the status of its code.
func TestRefusals(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, func(c *node.Config, _ *Config) { c.ReadOnlyStreams, c.WrongTries = 1, 1000 })
		m, other := r.create(), r.create()
		r.put(m, 2)
		at, space := "/sessions/"+m.id, "/spaces/"+r.owner.Target()+"/sessions"
		owner, ofSpace := m.owner.Text(), "/spaces/"+r.owner.Target()
		put := func(b *box) json.RawMessage {
			return b.json(b.batch(m.id, op("put", "key", "message/x", "payload", obj{"at": ulid.Make().String()})))
		}
		refOf := func(text string) string { ref, _ := capability.ParseRef(text); return ref.ID }
		reader, appender := r.share(m, obj{"rights": []string{"read"}}), r.share(m, obj{"rights": []string{"append"}})
		sharer := r.share(m, obj{"rights": []string{"read", "share"}})
		revoked := r.share(m, obj{"rights": []string{"read", "append"}})
		r.must(200, "DELETE", at+"/refs/"+refOf(revoked), owner, nil)
		expired := r.share(m, obj{"rights": []string{"read"}, "expires_in": 1, "expires_at": 1}) // which goes for servers of before
		sealed := r.share(m, obj{"rights": []string{"read"}, "seal": base64.RawURLEncoding.EncodeToString(make([]byte, 32))})
		exhausted := r.share(m, obj{"rights": []string{"read"}, "redemptions": 1})
		req := r.request("GET", at, exhausted, nil)
		req.Header.Set(redemptionHeader, "somebody")
		r.do(req)
		fenced := newBox()
		newer := strings.Replace(string(put(fenced)), `"incarnation":1`, `"incarnation":"2"`, 1)
		r.must(200, "POST", at+"/batches", owner, newer)
		behind := strings.Replace(string(put(newBox())), `"acked_through":0`, `"acked_through":9`, 1)
		gap := newBox()
		gap.seq = 5
		older := newBox()
		own, _ := capability.SecretFrom(older.secret)
		older.secret = own.StreamSecret(m.id).Reveal()
		r.must(200, "POST", at+"/batches", owner, put(older))
		older.secret = own.Reveal()
		stranger := &box{id: m.box.id, secret: make([]byte, 32), seq: m.box.seq}
		diverged := &box{id: m.box.id, secret: m.box.secret, seq: 1}
		stale := r.share(other, obj{"rights": []string{"read"}})
		r.must(200, "POST", "/sessions/"+other.id+"/batches", other.owner.Text(), other.box.json(other.box.batch(other.id, op("bumpEpoch"))))
		gone := r.create()
		r.must(200, "POST", "/sessions/"+gone.id+"/batches", gone.owner.Text(), gone.box.json(gone.box.batch(gone.id, op("delete"))))
		r.must(200, "POST", at+"/batches", reader, put(newBox())) // it may make one stream, and change nothing
		unborn := capability.SessionPrefix + ulid.Make().String()

		counted := scrape.Refusals(r.server.Metrics())
		for i, c := range []struct {
			method, path, ref string
			body              any
			code              fault.Code
		}{
			{"GET", at, "", nil, fault.BadRefText},
			{"GET", at, "nonsense", nil, fault.BadRefText},
			{"GET", at, m.owner.With(m.owner.ID, capability.NewSecret()).Text(), nil, fault.UnknownRef},
			{"GET", at, m.owner.New(m.id).Text(), nil, fault.NotYetKnown},
			{"GET", "/sessions/" + unborn, r.owner.New(unborn).Text(), nil, fault.NotYetKnown},
			{"GET", at, revoked, nil, fault.Revoked},
			{"GET", at + "/events", revoked, nil, fault.Revoked},
			{"GET", at + "/snapshot", revoked, nil, fault.Revoked},
			{"GET", at, expired, nil, fault.Expired},
			{"GET", at, exhausted, nil, fault.Exhausted},
			{"GET", at, sealed, nil, fault.Sealed},
			{"GET", "/sessions/" + other.id, stale, nil, fault.StaleEpoch},
			{"GET", "/sessions/" + gone.id + "/snapshot", gone.owner.Text(), nil, fault.SessionDeleted},
			{"GET", at, appender, nil, fault.MissingRight},
			{"GET", at + "/events", appender, nil, fault.MissingRight},
			{"GET", at + "/snapshot", appender, nil, fault.MissingRight},
			{"GET", at + "/snapshot?at=99", reader, nil, fault.ServerBehind},
			{"POST", at + "/refs", reader, obj{"rights": []string{"read"}}, fault.MissingRight},
			{"POST", at + "/refs", sharer, obj{"rights": []string{"append"}}, fault.Widening},
			{"POST", at + "/refs", owner, obj{"rights": []string{"fly"}}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "ref": reader}, fault.Malformed},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "expires_at": "18446744073709551615"}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "expires_at": time.Now().UnixMilli() - 1000}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "expires_in": int64(1) << 60}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "read_keys": []string{}}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "read_keys": []string{"todo/*"}}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "read_keys": []string{"Todo/"}}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "read_keys": "todo/"}, fault.Malformed},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "write_keys": []string{"todo/"}}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "read_keys": []string{"todo/"}, "message": "m"}, fault.BadArgument},
			{"GET", at + "/events?keys=", reader, nil, fault.BadArgument},
			{"GET", at + "/events?keys=a,/", reader, nil, fault.BadArgument},
			{"GET", at + "/snapshot?keys=a//b", reader, nil, fault.BadArgument},
			{"GET", at + "/events?after=99", reader, nil, fault.ServerBehind},
			{"GET", at + "/events?after=1&hash=" + strings.Repeat("0", 63) + "1", reader, nil, fault.ServerBehind},
			{"GET", at + "/events?after=1&hash=xyz", reader, nil, fault.BadArgument},
			{"GET", at + "/snapshot?at=1&hash=" + strings.Repeat("0", 63) + "1", reader, nil, fault.ServerBehind},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "ref": refOf(reader), "hash": hashText(m.owner.Secret)}, fault.AlreadyExists},
			{"POST", at + "/refs", owner, obj{"rights": []string{"append"}, "methods": []string{}}, fault.BadArgument},
			{"POST", at + "/refs", owner, obj{"rights": []string{"read"}, "ref": capability.FixedID(m.id, "x"), "hash": hashText(m.owner.Secret)}, fault.BadArgument},
			{"DELETE", at + "/refs/" + refOf(reader), reader, nil, fault.MissingRight},
			{"DELETE", at + "/refs/" + other.owner.ID, owner, nil, fault.NotFound},
			{"DELETE", at + "/refs/" + m.owner.New(m.id).ID, owner, nil, fault.NotFound},
			{"DELETE", ofSpace + "/refs/" + r.owner.New(r.owner.Target()).ID, r.owner.Text(), nil, fault.MissingRight},
			{"DELETE", ofSpace + "/refs/x", r.owner.Text(), nil, fault.NotFound},
			{"POST", ofSpace + "/refs", r.owner.Text(), obj{"rights": []string{"list"}, "from": 3}, fault.BadArgument},
			{"POST", ofSpace + "/refs", owner, obj{"rights": []string{"list"}}, fault.NotFound},
			{"POST", at + "/rotate", sharer, obj{}, fault.NotAnOwner},
			{"POST", at + "/rotate", revoked, obj{}, fault.Revoked},
			{"POST", at + "/rotate", owner, obj{"ref": r.owner.New(r.owner.Target()).ID, "hash": hashText(m.owner.Secret)}, fault.BadArgument},
			{"POST", ofSpace + "/rotate", r.owner.Text(), obj{"ref": m.owner.ID, "hash": hashText(m.owner.Secret)}, fault.BadArgument},
			{"POST", ofSpace + "/rotate", r.owner.Text(), obj{"hash": hashText(m.owner.Secret)}, fault.Malformed},
			{"GET", at + "/audit", reader, nil, fault.NotAnOwner},
			{"GET", at + "/audit", revoked, nil, fault.Revoked},
			{"GET", ofSpace + "/audit?limit=0", r.owner.Text(), nil, fault.BadArgument},
			{"POST", at + "/acknowledge", owner, newBox().acknowledgement(7), fault.ServerBehind},
			{"POST", at + "/acknowledge", owner, fenced.acknowledgement(1), fault.Fenced},
			{"POST", at + "/acknowledge", owner, obj{"outbox": "x"}, fault.Malformed},
			{"GET", "/sessions/" + other.id, owner, nil, fault.NotFound},
			{"GET", "/sessions/x", owner, nil, fault.NotFound},
			{"GET", space, owner, nil, fault.NotFound},
			{"GET", "/spaces/" + m.id + "/sessions", owner, nil, fault.NotFound},
			{"GET", space + "?after=x", r.owner.Text(), nil, fault.BadArgument},
			{"GET", space + "?limit=0", r.owner.Text(), nil, fault.BadArgument},
			{"GET", space + "?lim=1", r.owner.Text(), nil, fault.BadArgument},
			{"GET", at + "/events?after=-1", owner, nil, fault.BadArgument},
			{"GET", at + "/events?after=1&after=2", owner, nil, fault.BadArgument},
			{"GET", at + "?x=1", owner, nil, fault.BadArgument},
			{"GET", at + "/events?after=1;limit=1", owner, nil, fault.BadArgument},
			{"POST", space, r.owner.Text(), obj{"session": m.id, "ref": m.owner.ID, "hash": hashText(m.owner.Secret)}, fault.AlreadyExists},
			{"POST", space, r.owner.Text(), obj{"session": m.id}, fault.Malformed},
			{"POST", space, r.owner.Text(), obj{"session": m.id, "ref": other.owner.ID, "hash": hashText(m.owner.Secret)}, fault.BadArgument},
			{"POST", space, r.owner.Text(), obj{"session": m.id, "ref": capability.FixedID(m.id, "x"), "hash": hashText(m.owner.Secret)}, fault.BadArgument},
			{"POST", space, r.owner.Text(), obj{"batch": put(newBox())}, fault.Malformed},
			{"POST", space, r.owner.Text(), obj{"label": strings.Repeat("x", 300)}, fault.TooLarge},
			{"POST", at + "/batches", owner, put(fenced), fault.Fenced},
			{"POST", at + "/batches", owner, behind, fault.ServerBehind},
			{"POST", at + "/batches", owner, put(gap), fault.Gap},
			{"POST", at + "/batches", owner, put(older), fault.WrongOutbox},
			{"POST", at + "/batches", owner, put(diverged), fault.OutboxDiverged},
			{"POST", at + "/batches", owner, put(stranger), fault.Gap},
			{"POST", at + "/batches", owner, put(&box{id: "a~b", secret: make([]byte, 32)}), fault.BadArgument},
			{"POST", at + "/batches", reader, put(newBox()), fault.MissingRight},
			{"POST", at + "/batches", owner, strings.Replace(string(put(newBox())), `"incarnation":1`, `"incarnation":0`, 1), fault.BadArgument},
			{"POST", at + "/batches", owner, strings.Replace(string(put(newBox())), `"outbox":"`, `"outbox":"`+strings.Repeat("x", 70), 1), fault.BadArgument},
			{"POST", at + "/batches", owner, newBox().json(newBox().batch(m.id)), fault.Malformed},
			{"POST", at + "/batches", owner, obj{"outbox": "x"}, fault.Malformed},
			{"POST", at + "/batches", owner, json.RawMessage(addMember(httpkit.JSON(obj{"with": []string{"x"}, "outbox": "o", "incarnation": 1}), "secret", httpkit.JSON(hashText(m.owner.Secret)))), fault.BadRefText},
		} {
			got := r.ask(c.method, c.path, c.ref, c.body)
			counted[c.code.String()]++
			if why, _ := got.json["error"].(obj); why["request"] == nil || why["request"] != got.header.Get(node.RequestHeader) {
				t.Errorf("%d: %s %s: %s, and the request is %q", i, c.method, c.path, got.text, got.header.Get(node.RequestHeader))
			}
			if got.status != c.code.HTTPStatus() || got.code() != c.code.String() {
				t.Errorf("%d: %s %s: %d %s, want %s", i, c.method, c.path, got.status, got.text, c.code)
			}
			if got.status == 401 != (got.header.Get("WWW-Authenticate") != "") || c.code.RetryAfter() != got.header.Get("Retry-After") {
				t.Errorf("%d: %v", i, got.header)
			}
		}
		if have := scrape.Refusals(r.server.Metrics()); !maps.Equal(have, counted) {
			t.Errorf("counted are %v, want %v", have, counted)
		}
		if got := r.ask("GET", at, sealed, nil); !strings.Contains(got.message(), "key") {
			t.Errorf("sealed: %s", got.text)
		}
		if _, refused := r.open(r.request("GET", at+"/events", appender, nil)); refused == nil || refused.code() != "missing_right" {
			t.Errorf("following without read: %+v", refused)
		}
		req = r.request("GET", at+"/events", owner, nil)
		req.Header.Set("Last-Event-ID", "x")
		if _, refused := r.open(req); refused == nil || refused.code() != "bad_argument" {
			t.Errorf("a bad Last-Event-ID: %+v", refused)
		}
		req = r.request("GET", at, "", nil)
		req.Header.Set("Authorization", "Basic eA==")
		if got := r.do(req); got.status != 401 {
			t.Errorf("Basic: %d", got.status)
		}
		req = r.request("GET", at, owner, nil)
		req.Header.Add("Authorization", "Bearer "+owner)
		if got := r.do(req); got.status != 401 {
			t.Errorf("two of them: %d", got.status)
		}
	})
}

// What a trimmed log no longer has.
func TestCursorExpired(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *node.Config, _ *Config) { c.KeepLog, c.SweepInterval = time.Millisecond, 10*time.Millisecond })
	m := r.create()
	r.put(m, 3)
	until.True(t, "the log is trimmed", func() bool {
		got := r.ask("GET", "/sessions/"+m.id+"/events", m.owner.Text(), nil)
		return got.status == 410 && got.code() == "cursor_expired" && got.json["error"].(obj)["at"] != nil
	})
	if _, refused := r.open(r.request("GET", "/sessions/"+m.id+"/events", m.owner.Text(), nil)); refused == nil || refused.code() != "cursor_expired" {
		t.Errorf("%+v", refused)
	}
}

// Bodies that are not what they should be: what is told names the place.
func TestHostileJSON(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	b := newBox()
	good := string(b.json(b.batch(m.id, op("put", "key", "message/x", "payload", obj{}))))
	change := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("%s has no %s", good, from)
		}
		return strings.Replace(good, from, to, 1)
	}
	for i, c := range []struct{ body, says string }{
		{"", "not one JSON value"}, {"{", "not one JSON value"}, {good + "x", "not one JSON value"}, {good + good, "not one JSON value"},
		{"[]", "the body: want an object"}, {"null", "the body: want an object"}, {"NaN", "not one JSON value"},
		{"{\"outbox\":\"\xff\"}", "UTF-8"}, {strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), "not one JSON value"},
		{change(`"atomic":false`, `"atomic":false,"extra":1`), `there is no "extra"; there are`},
		{change(`"atomic":false`, `"atomic":false,"at\u006fmic":true`), "atomic is given twice"},
		{change(`"atomic":false`, `"atomic":0`), "atomic: want true or false"},
		{change(`"incarnation":1`, `"incarnation":1.5`), "incarnation: want a whole number"},
		{change(`"incarnation":1`, `"incarnation":-1`), "incarnation: want a whole number"},
		{change(`"incarnation":1`, `"incarnation":1e3`), "incarnation: want a whole number"},
		{change(`"incarnation":1`, `"incarnation":18446744073709551616`), "incarnation: want a whole number"},
		{change(`"incarnation":1`, `"incarnation":"01"`), "incarnation: want a whole number"},
		{change(`"incarnation":1`, `"incarnation":true`), "incarnation: want a whole number"},
		{change(`"outbox":"`, `"outbox":7,"":"`), "outbox: want a text"},
		{change(`"secret":"`, `"secret":"x`), "secret: want 32 bytes"},
		{change(`"secret":"`, `"secret":null,"outbox":"`), "given twice"},
		{change(`"ops":[`, `"ops":[1,`), "ops[0]: want an object"},
		{change(`"ops":[`, `"ops":{},"x":[`), "ops: want an array"},
		{change(`"seq":1`, `"seq":1,"sequence":1`), `there is no "sequence" in ops[0]`},
		{change(`"method":`, `"expected_cursor":"x","method":`), "ops[0].expected_cursor: want a whole number"},
		{change(`"method":`, `"expected_cursor":{"op":1},"method":`), "ops[0].expected_cursor.op: want a text"},
		{change(`"method":`, `"depends_on":[1],"method":`), "ops[0].depends_on[0]: want a text"},
		{change(`"args":[`, `"args":[{"name":"a"},`), "ops[0].args[0]: want one of value, json and ref"},
		{change(`"args":[`, `"args":[{"name":"a","value":1,"json":"1"},`), "ops[0].args[0]: want one of"},
		{change(`"args":[`, `"args":[{"name":"a","json":1},`), "ops[0].args[0].json: want a text"},
		{change(`"args":[`, `"args":[{"name":"a","ref":{"op":"x","path":"y","z":1}},`), `there is no "z" in ops[0].args[0].ref`},
		{change(`"args":[`, `"args":7,"x":[`), "ops[0].args: want an array"},
		{change(`"args":[`, `"args":{"a":1,"\u0061":2},"x":[`), `ops[0].args has "a" twice`},
		{change(`"atomic":false`, fmt.Sprintf(`"%s":1`, strings.Repeat("é", 1000))), "…"},
	} {
		got := r.ask("POST", "/sessions/"+m.id+"/batches", m.owner.Text(), c.body)
		if got.status != 400 || got.code() != "malformed" || !strings.Contains(got.message(), c.says) || len(got.message()) > 500 {
			t.Errorf("%d: %d %.300s, want %s", i, got.status, got.text, c.says)
		}
	}
	for _, body := range []string{
		change(`"args":[`, `"args":[`+strings.Repeat(`{"name":"a","value":1},`, maxListLen)),
		change(`"method":`, `"depends_on":["x"`+strings.Repeat(`,"x"`, maxListLen)+`],"method":`),
		change(`"args":[`, `"args":{"x":0`+manyMembers(maxListLen)+`},"y":[`),
		change(`"ops":[`, `"ops":[`+strings.Repeat(`{"depends_on":["x"`+strings.Repeat(`,"x"`, maxListLen-1)+`]},`, maxBatchElems/maxListLen+1)),
		change(`"ops":[`, `"with":["x"`+strings.Repeat(`,"x"`, maxWith)+`],"ops":[`),
	} {
		if got := r.ask("POST", "/sessions/"+m.id+"/batches", m.owner.Text(), body); got.status != 413 || got.code() != "too_large" {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
	for name, value := range map[string]string{"Content-Type": "text/plain", "Content-Encoding": "gzip"} {
		req := r.request("POST", "/sessions/"+m.id+"/batches", m.owner.Text(), good)
		req.Header.Set(name, value)
		if got := r.do(req); got.status != 400 || !strings.Contains(got.message(), name) {
			t.Errorf("%s: %d %s", name, got.status, got.text)
		}
	}
	// Nothing of that was recorded.
	if ack := r.must(200, "POST", "/sessions/"+m.id+"/batches", m.owner.Text(), good); ack["applied"] != json.Number("1") {
		t.Errorf("%v", ack)
	}
	// A value may be null, and deep, and is judged by what takes it.
	deep := op("put", "key", "message/x", "payload", json.RawMessage(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)))
	null := op("put", "key", "message/x", "payload", json.RawMessage("null"))
	ack := r.must(200, "POST", "/sessions/"+m.id+"/batches", m.owner.Text(), b.json(b.batch(m.id, deep, null)))
	if ack["rejected"] != json.Number("2") {
		t.Errorf("%v", ack)
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"a%d":1`, i)
	}
	return b.String()
}

func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/nothing", 404, ""}, {"GET", "/", 404, ""}, {"PUT", "/sessions/x", 405, "GET"}, {"POST", "/sessions/x/events", 405, "GET"},
		{"GET", "/sessions/x/batches", 405, "POST"}, {"DELETE", "/spaces/x/sessions", 405, "GET, POST"}, {"HEAD", "/openapi.json", 405, "GET"},
	} {
		got := r.ask(c.method, c.path, "", nil)
		if got.status != c.status || got.header.Get("Allow") != c.allow || c.method != "HEAD" && got.code() == "" {
			t.Errorf("%s %s: %d %s, Allow %q", c.method, c.path, got.status, got.text, got.header.Get("Allow"))
		}
		if h := got.header; h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", h)
		}
	}
	if have := scrape.Refusals(r.server.Metrics()); !maps.Equal(have, map[string]int{"not_found": 2, "unknown_method": 5}) {
		t.Errorf("counted are %v", have)
	}
	until.True(t, "paths that there are not have a route", func() bool {
		return scrape.Of(r.server.Metrics())[`mooring_http_requests_total{route="/api/v1/",status="404"}`] == "2"
	})
}

// Pages of other origins are refused, but for those that are let in.
func TestOrigins(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.Origins = []string{"app.example"} })
	m := r.create()
	for from, status := range map[string]int{"https://app.example": 200, "https://evil.example": 403, "http://" + r.host: 200, "null": 403} {
		for _, path := range []string{"/sessions/" + m.id, "/sessions/" + m.id + "/snapshot"} {
			req := r.request("GET", path, m.owner.Text(), nil)
			req.Header.Set("Origin", from)
			got := r.do(req)
			if got.status != status || (got.header.Get("Access-Control-Allow-Origin") == from) != (status == 200) || (got.header.Get("Access-Control-Expose-Headers") == "Mooring-History, Mooring-Request, Retry-After") != (status == 200) ||
				got.header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s: %d %v", from, got.status, got.header)
			}
		}
		req := r.request(http.MethodOptions, "/spaces/x/sessions", "", nil)
		req.Header.Set("Origin", from)
		req.Header.Set("Access-Control-Request-Method", "POST")
		req.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
		got := r.do(req)
		if status == 200 && (got.status != 204 || got.header.Get("Access-Control-Allow-Methods") != "GET, POST" || got.header.Get("Access-Control-Allow-Headers") != "authorization,content-type") || status != 200 && got.status != 403 {
			t.Errorf("preflight of %s: %d %v", from, got.status, got.header)
		}
	}
	if have := scrape.Refusals(r.server.Metrics())["missing_right"]; have != 6 {
		t.Errorf("%d are counted, want 6", have)
	}
}

// TestPanic: a defect of ours is answered as such, in the API's way, and named in the log.
func TestPanic(t *testing.T) {
	t.Parallel()
	var log lockbuf.Buffer
	r := start(t, teststore.SQLite(t), func(c *node.Config, a *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		a.Log = c.Log
	})
	panics := func(*Request) *fault.Error { panic("of its own") }
	r.api.mux.Handle(Path+"panics", r.api.byMethod(map[string]Handler{http.MethodGet: panics, http.MethodPost: panics}))
	r.api.mux.Handle(Path+"half", r.api.byMethod(map[string]Handler{http.MethodGet: func(q *Request) *fault.Error {
		_, _ = q.W.Write(make([]byte, 64<<10))
		panic("in the middle")
	}}))
	req := func(path string) (*http.Response, []byte, error) {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
		resp, err := client.Get(r.base + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		return resp, text, err
	}
	resp, text, err := req("/panics")
	id := resp.Header.Get(node.RequestHeader)
	var got struct{ Error errorJSON }
	if err != nil || json.Unmarshal(text, &got) != nil || resp.StatusCode != 500 || got.Error.Code != "internal" || got.Error.Request != id ||
		!strings.Contains(got.Error.Message, id) {
		t.Errorf("%d %s, %v", resp.StatusCode, text, err)
	}
	if line := log.String(); !strings.Contains(line, "incident="+id) || !strings.Contains(line, "refusals_test.go") {
		t.Errorf("the log has %s", line)
	}
	post, err := http.NewRequest(http.MethodPost, r.base+"/panics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err = (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}).Do(post)
	if err != nil || resp.StatusCode != 500 {
		t.Fatalf("%+v, %v", resp, err)
	}
	_ = resp.Body.Close()
	resp, text, err = req("/half")
	if err == nil {
		t.Errorf("half an answer came whole, of %d bytes", len(text))
	}
	if !strings.Contains(log.String(), "in the middle") || !strings.Contains(log.String(), `msg="an answer was cut off" request=`+resp.Header.Get(node.RequestHeader)) {
		t.Errorf("the log has %s", log.String())
	}
	if n := scrape.Refusals(r.server.Metrics())["internal"]; n != 3 {
		t.Errorf("%d are counted, want 3", n)
	}
}
