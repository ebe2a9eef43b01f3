//go:build unix

package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/scrape"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// askedIDs are those of a list of requests, each with its state.
func askedIDs(page obj) string {
	var ids []string
	for _, one := range page["requests"].([]any) {
		r := one.(obj)
		ids = append(ids, fmt.Sprintf("%s %s", r["request"], r["state"].(obj)["state"]))
	}
	return strings.Join(ids, ", ")
}

// TestRequests: whoever may asks, answers and withdraws without an outbox, everything any number of times, and is told what
// became of it, byte for byte.
func TestRequests(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		r.put(m, 1)
		owner, at := m.owner.Text(), "/sessions/"+m.id+"/requests"
		guest := r.share(m, obj{"rights": []string{"read", "ask", "answer"}, "ask": []string{"question", "own"}, "answer": []string{"permission"}})
		blind := r.share(m, obj{"rights": []string{"ask"}})
		payload := `{ "b" : 1.50, "a<b>&é\/":"\u00e9", "b":null }`
		asking := `{"request":"z","kind":"permission","payload": ` + payload + ` ,"choices":[{"id":"no", "label":"No"},{"id":"yes"}],"message":"m2","expires_in":"60000"}`
		first := r.ask("POST", at, owner, asking)
		if want := fmt.Sprintf(`{"session":%q,"request":"z","cursor":5}`, m.id); first.status != 201 || string(first.text) != want {
			t.Fatalf("asked: %d %s, want %s", first.status, first.text, want)
		}
		made := r.must(201, "POST", at, guest, obj{"kind": "own", "payload": nil})["request"].(string)
		r.must(201, "POST", at, guest, obj{"request": "a", "kind": "question"})
		if again := r.ask("POST", at, owner, asking); again.status != 201 || string(again.text) != string(first.text) {
			t.Errorf("asked again: %d %s, want %s", again.status, again.text, first.text)
		}
		if got := r.must(201, "POST", at, blind, obj{"request": "blind", "kind": "question"}); got["cursor"] != json.Number("8") {
			t.Errorf("by a ref that reads nothing: %v", got)
		}
		r.must(200, "POST", at+"/blind/withdraw", blind, obj{"reason": "never mind"})

		// Those that are open, in the order in which they were asked.
		list := r.ask("GET", at, owner, nil)
		if got, want := askedIDs(list.json), "z open, "+made+" open, a open"; got != want || list.json["cursor"] != json.Number("9") || list.json["more"] != false {
			t.Fatalf("open are %s, want %s; %s", got, want, list.text)
		}
		value := r.must(200, "GET", "/sessions/"+m.id+"/state?key=request/z", owner, nil)
		raw := r.ask("GET", "/sessions/"+m.id+"/state?key=request/z", owner, nil).text
		asked := string(raw[strings.Index(string(raw), `"payload":`)+len(`"payload":`) : len(raw)-1])
		if want := `{"request":"z","cursor":5,"asked":` + asked + `,"state":{"state":"open"}}`; !strings.Contains(string(list.text), want) || !strings.Contains(asked, `"payload":`+payload) {
			t.Errorf("listed is %s, want %s", list.text, want)
		}
		if got := r.ask("GET", at+"/"+made, owner, nil); !strings.Contains(string(got.text), `"payload":{}}`) {
			t.Errorf("a payload that is null, as if there was none: %s", got.text)
		}
		if got := r.ask("GET", at+"/z", owner, nil); string(got.text) != `{"request":"z","cursor":5,"asked":`+asked+`,"state":{"state":"open"}}` {
			t.Errorf("read alone: %d %s", got.status, got.text)
		}
		if got := askedIDs(r.must(200, "GET", at+"?kinds=question,own", owner, nil)); got != made+" open, a open" {
			t.Errorf("of two kinds: %s", got)
		}
		if got := askedIDs(r.must(200, "GET", at+"?after=6", owner, nil)); got != "a open" {
			t.Errorf("after a cursor: %s", got)
		}
		b := m.box.batch(m.id, op("claim", "request", made, "lease", 60_000))
		r.must(200, "POST", "/sessions/"+m.id+"/batches", owner, m.box.json(b))
		if got := askedIDs(r.must(200, "GET", at, owner, nil)); got != "z open, "+made+" claimed, a open" {
			t.Errorf("with one that is claimed: %s", got)
		}
		for _, c := range []struct {
			name, want string
			limits     obj
		}{{"of other keys", "", obj{"read_keys": []string{"todo/"}}}, {"of one", "a open", obj{"read_keys": []string{"request/a"}}}, {"of one message", "", obj{"message": "m2"}},
			{"from a cursor", "a open", obj{"from": 7}}} {
			got := r.do(r.attenuated("GET", at, owner, nil, c.limits))
			if got.status != 200 || askedIDs(got.json) != c.want {
				t.Errorf("a ref %s is shown %d %s, want %s", c.name, got.status, got.text, c.want)
			}
			one := r.do(r.attenuated("GET", at+"/a", owner, nil, c.limits))
			if shown := c.want != ""; (one.status == 200) != shown || !shown && one.code() != "not_found" {
				t.Errorf("a ref %s is shown the one: %d %s", c.name, one.status, one.text)
			}
		}

		// Answers: only one, and only to what was shown.
		digest := value["payload"].(obj)["digest"].(string)
		right := `{"choice":"yes","payload": [1, "é" ,2.0] ,"shown":"` + digest + `"}`
		answered := r.must(200, "POST", at+"/z/answer", guest, right)
		if again := r.must(200, "POST", at+"/z/answer", guest, right); answered["cursor"] != json.Number("11") || again["cursor"] != answered["cursor"] {
			t.Errorf("answered at %v, again at %v", answered, again)
		}
		if got := r.ask("GET", at+"/z", owner, nil); got.json["cursor"] != json.Number("11") || !strings.HasPrefix(string(got.text), `{"request":"z","cursor":11,"asked":`+asked+`,"state":{"state":"answered","choice":"yes",`) || !strings.HasSuffix(string(got.text), `,"payload":[1, "é" ,2.0]}}`) {
			t.Errorf("what became of it: %s", got.text)
		}
		if again := r.ask("POST", at, owner, asking); again.status != 201 || string(again.text) != string(first.text) {
			t.Errorf("asked again when it has been answered: %d %s", again.status, again.text)
		}
		if got := r.must(200, "POST", at+"/a/withdraw", owner, obj{}); got["cursor"] != json.Number("12") {
			t.Errorf("withdrawn: %v", got)
		}
		if got := askedIDs(r.must(200, "GET", at, owner, nil)); got != made+" claimed" {
			t.Errorf("in the end there are %s", got)
		}

		before := r.must(200, "GET", "/sessions/"+m.id, owner, nil)["session"].(obj)["cursor"]
		for i, c := range []struct {
			path, ref string
			body      any
			status    int
			code      string
		}{
			{"", owner, strings.Replace(asking, "1.50", "1.5", 1), 409, "already_exists"},
			{"", guest, asking, 403, "missing_right"},
			{"", guest, strings.Replace(asking, "permission", "question", 1), 409, "already_exists"},
			{"", guest, obj{"kind": "prompt"}, 403, "missing_right"},
			{"", r.share(m, obj{"rights": []string{"read", "append", "answer"}}), obj{"kind": "question"}, 403, "missing_right"},
			{"", owner, obj{}, 400, "bad_argument"},
			{"", owner, obj{"kind": "Own"}, 400, "bad_argument"},
			{"", owner, obj{"kind": "own", "request": "a b"}, 400, "bad_key"},
			{"", owner, obj{"kind": "own", "request": strings.Repeat("x", 201)}, 400, "bad_key"},
			{"", owner, obj{"kind": "own", "expires_in": 0}, 400, "bad_argument"},
			{"", owner, obj{"kind": "own", "expires_in": 999}, 400, "bad_argument"},
			{"", owner, obj{"kind": "own", "expires_in": -1}, 400, "malformed"},
			{"", owner, obj{"kind": "own", "choices": []any{}}, 400, "bad_argument"},
			{"", owner, obj{"kind": "own", "choices": obj{"id": "x"}}, 400, "bad_argument"},
			{"", owner, obj{"kind": "own", "lease": 1}, 400, "malformed"},
			{"", owner, `{"kind":"own","payload":1,"payload":2}`, 400, "malformed"},
			{"", owner, `{"kind":"own","kind":"own"}`, 400, "malformed"},
			{"", owner, `{"kind":7}`, 400, "bad_argument"},
			{"", owner, `{"request":7,"kind":"own"}`, 400, "malformed"},
			{"", owner, `[]`, 400, "malformed"},
			{"", owner, ``, 400, "malformed"},
			{"", owner, obj{"kind": "stop"}, 400, "bad_argument"},
			{"", owner, obj{"kind": "own", "message": "none"}, 404, "not_found"},
			{"?x=1", owner, obj{"kind": "own"}, 400, "bad_argument"},
			{"/z/answer", guest, obj{"choice": "no", "shown": digest}, 409, "conflict"},
			{"/z/answer", owner, right, 409, "conflict"},
			{"/z/withdraw", owner, obj{}, 409, "conflict"},
			{"/a/answer", owner, obj{"payload": 1}, 409, "request_ended"},
			{"/a/withdraw", owner, obj{}, 409, "request_ended"},
			{"/" + made + "/answer", owner, obj{"payload": 1}, 409, "conflict"},
			{"/" + made + "/withdraw", guest, obj{}, 409, "conflict"},
			{"/" + made + "/answer", guest, obj{}, 403, "missing_right"},
			{"/none/answer", owner, obj{}, 404, "not_found"},
			{"/none/withdraw", owner, obj{}, 404, "not_found"},
			{"/z/answer", owner, obj{"state": "unknown"}, 400, "malformed"},
			{"/z/answer", owner, obj{"claim": 1}, 400, "malformed"},
			{"/z/answer", owner, obj{"choice": 1}, 400, "bad_argument"},
			{"/z/withdraw", owner, obj{"reason": 1}, 400, "bad_argument"},
			{"/z/withdraw", owner, obj{"why": "x"}, 400, "malformed"},
			{"/z/withdraw?x=1", owner, obj{}, 400, "bad_argument"},
		} {
			if got := r.ask("POST", at+c.path, c.ref, c.body); got.status != c.status || got.code() != c.code {
				t.Errorf("%d: %s %v: %d %s, want %d %s", i, c.path, c.body, got.status, got.text, c.status, c.code)
			}
		}
		for query, code := range map[string]string{"?kinds=": "bad_argument", "?kinds=own,": "bad_argument", "?kinds=OWN": "bad_argument", "?after=x": "bad_argument", "?limit=1": "bad_argument", "?kinds=own&kinds=own": "bad_argument",
			"?kinds=" + strings.Repeat("k,", 64) + "k": "bad_argument", "/a%20b": "bad_key", "/a?wait=-1": "bad_argument", "/a?wait=55001": "bad_argument", "/a?wait=1s": "bad_argument", "/a?x=1": "bad_argument", "/none": "not_found"} {
			if got := r.ask("GET", at+query, owner, nil); got.code() != code {
				t.Errorf("%s: %d %s, want %s", query, got.status, got.text, code)
			}
		}
		undescribed := &rig{t: t, base: r.base, http: &http.Client{Transport: r.seen.next}} // they are in no template of a path
		for _, req := range []*http.Request{r.request("GET", at+"/a%2Fstate", owner, nil), r.request("POST", at+"/a%2Fstate/answer", owner, obj{})} {
			if got := undescribed.do(req); got.code() != "bad_key" {
				t.Errorf("%s of a key: %d %s", req.Method, got.status, got.text)
			}
		}
		if after := r.must(200, "GET", "/sessions/"+m.id, owner, nil)["session"].(obj)["cursor"]; wholeOf(after) != wholeOf(before)+1 { // the share
			t.Errorf("what was refused has changed something: the cursor is %v, was %v", after, before)
		}
		if got := r.ask("GET", at, blind, nil); got.code() != "missing_right" {
			t.Errorf("a list for who may not read: %d %s", got.status, got.text)
		}
		if got := r.ask("GET", at+"/a?wait=1", blind, nil); got.code() != "missing_right" {
			t.Errorf("waiting without the right to read: %d %s", got.status, got.text)
		}
	})
}

// TestLargeRequests: a list is cut at what an answer holds, and goes on; a request whose two values are larger than that is
// read as it is.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		owner, at := m.owner.Text(), "/sessions/"+m.id+"/requests"
		large := strings.Repeat("x", 3<<20)
		for _, id := range []string{"c", "b", "a"} {
			r.must(201, "POST", at, owner, obj{"request": id, "kind": "question", "payload": large})
		}
		next := ""
		for i, want := range []string{"c open", "b open", "a open"} {
			page := r.must(200, "GET", at+next, owner, nil)
			if got := askedIDs(page); got != want || page["more"] != (i < 2) || (page["next"] == nil) != (i == 2) {
				t.Fatalf("page %d has %s, more %v, next %v", i, got, page["more"], page["next"])
			}
			next = fmt.Sprintf("?after=%v", page["next"])
		}
		r.must(200, "POST", at+"/b/answer", owner, obj{"payload": large})
		if got := r.must(200, "GET", at+"/b?wait=55000", owner, nil); got["state"].(obj)["payload"] != large || got["asked"].(obj)["payload"] != large {
			t.Error("it is not read whole")
		}
	})
}

// TestAnswersAtOnce: of two who answer at once one is told that it did, the other what it lost to.
func TestAnswersAtOnce(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		at := "/sessions/" + m.id + "/requests"
		refs := []string{m.owner.Text(), r.share(m, obj{"rights": []string{"answer"}})}
		for round := range 10 {
			id := fmt.Sprint("r", round)
			r.must(201, "POST", at, m.owner.Text(), obj{"request": id, "kind": "question"})
			got := make([]*reply, len(refs))
			var both sync.WaitGroup
			for i, ref := range refs {
				req := r.request("POST", at+"/"+id+"/answer", ref, obj{"payload": i})
				both.Go(func() { got[i] = r.send(req) })
			}
			both.Wait()
			won, lost := got[0], got[1]
			if won.status != 200 {
				won, lost = lost, won
			}
			now := r.must(200, "GET", at+"/"+id, m.owner.Text(), nil)
			e, _ := lost.json["error"].(obj)
			if won.status != 200 || lost.status != 409 || lost.code() != "conflict" || e["at"] != won.json["cursor"] || now["cursor"] != won.json["cursor"] {
				t.Errorf("%s: %d %s and %d %s; it is %v", id, won.status, won.text, lost.status, lost.text, now)
			}
		}
	})
}

// send is do for another goroutine than the test's: a failure is a reply without a status.
func (r *rig) send(req *http.Request) *reply {
	resp, err := r.http.Do(req)
	if err != nil {
		return &reply{text: []byte(err.Error())}
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	out := &reply{status: resp.StatusCode, header: resp.Header, text: text}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	_ = d.Decode(&out.json)
	return out
}

// waiting asks for a request that is waited for, and returns once it is followed, as the n-th. The reply comes later.
func (r *rig) waiting(n int, req *http.Request) <-chan *reply {
	r.t.Helper()
	got := make(chan *reply, 1)
	go func() { got <- r.send(req) }()
	r.untilFollowers(n)
	return got
}

func (r *rig) untilFollowers(n int) {
	r.t.Helper()
	until.True(r.t, fmt.Sprintf("%d wait", n), func() bool {
		return scrape.Of(r.server.Metrics())["mooring_followers"] == fmt.Sprint(n)
	})
}

// keyReads is a store that counts reads of keys.
type keyReads struct {
	*store.Store
	n atomic.Int32
}

func (s *keyReads) ReadKeys(ctx context.Context, id string, keys []string, maxBytes int, refs []string, admit session.Admit) (*session.Unscoped[*session.KeyPage], int, error) {
	defer s.n.Add(1)
	return s.Store.ReadKeys(ctx, id, keys, maxBytes, refs, admit)
}

// TestWaitingForARequest: the end of a request ends the wait for it, and so does the end of the ref, of the time and of the
// client. What else happens reads nothing.
func TestWaitingForARequest(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		reads := &keyReads{Store: st}
		r := start(t, st, func(c *node.Config, _ *Config) {
			c.Store, c.SweepInterval = reads, 20*time.Millisecond
		})
		m := r.create()
		owner, at := m.owner.Text(), "/sessions/"+m.id+"/requests"
		wait := func(id, ref string) <-chan *reply {
			t.Helper()
			return r.waiting(1, r.request("GET", at+"/"+id+"?wait=55000", ref, nil))
		}
		state := func(got *reply) string {
			of, _ := got.json["state"].(obj)
			return fmt.Sprint(got.status, " ", of["state"])
		}
		for _, id := range []string{"answered", "withdrawn", "claimed", "open", "other"} {
			r.must(201, "POST", at, owner, obj{"request": id, "kind": "question"})
		}

		waits := wait("answered", owner)
		reads.n.Store(0)
		r.put(m, 3)
		r.must(200, "POST", at+"/other/answer", owner, obj{})
		b := m.box.batch(m.id, op("claim", "request", "answered", "lease", 60_000))
		claim := r.must(200, "POST", "/sessions/"+m.id+"/batches", owner, m.box.json(b))["cursor"]
		until.True(t, "the claim is read", func() bool { return reads.n.Load() == 1 })
		b = m.box.batch(m.id, op("answer", "request", "answered", "claim", claim, "payload", json.RawMessage(`[1.0 ]`)))
		r.must(200, "POST", "/sessions/"+m.id+"/batches", owner, m.box.json(b))
		if got := <-waits; state(got) != "200 answered" || !strings.HasSuffix(string(got.text), `"payload":[1.0 ]}}`) || reads.n.Load() != 2 {
			t.Errorf("an answer: %d %s, after %d reads", got.status, got.text, reads.n.Load())
		}
		r.untilFollowers(0)
		if got := r.ask("GET", at+"/answered?wait=55000", owner, nil); state(got) != "200 answered" {
			t.Errorf("of one that has ended: %d %s", got.status, got.text)
		}

		waits = wait("withdrawn", owner)
		r.must(200, "POST", at+"/withdrawn/withdraw", owner, obj{"reason": "why"})
		if got := <-waits; state(got) != "200 withdrawn" || !strings.Contains(string(got.text), `"reason":"why"`) {
			t.Errorf("a withdrawal: %d %s", got.status, got.text)
		}

		// One that is not there yet, and that nobody answers in time.
		waits = wait("later", owner)
		r.must(201, "POST", at, owner, obj{"request": "later", "kind": "question", "expires_in": 1000})
		if got := <-waits; state(got) != "200 expired" {
			t.Errorf("an expiry: %d %s", got.status, got.text)
		}

		reader := r.share(m, obj{"rights": []string{"read"}})
		waits = wait("open", reader)
		r.must(200, "DELETE", "/sessions/"+m.id+"/refs/"+refOf(t, reader).ID, owner, nil)
		if got := <-waits; got.status != 403 || got.code() != "revoked" {
			t.Errorf("the end of the ref: %d %s", got.status, got.text)
		}

		b = m.box.batch(m.id, op("claim", "request", "claimed", "lease", 60_000))
		r.must(200, "POST", "/sessions/"+m.id+"/batches", owner, m.box.json(b))
		for id, want := range map[string]string{"claimed": "200 claimed", "open": "200 open", "none": "404 <nil>"} {
			if got := r.ask("GET", at+"/"+id+"?wait=1", owner, nil); state(got) != want {
				t.Errorf("when the time is over %s is %d %s, want %s", id, got.status, got.text, want)
			}
		}
		hidden := r.attenuated("GET", at+"/open?wait=1", owner, nil, obj{"read_keys": []string{"request/other"}})
		if got := r.do(hidden); got.code() != "not_found" {
			t.Errorf("of one that is not shown: %d %s", got.status, got.text)
		}

		// Who goes holds nothing any more.
		ctx, leave := context.WithCancel(t.Context())
		waits = r.waiting(1, r.request("GET", at+"/open?wait=55000", owner, nil).WithContext(ctx))
		leave()
		<-waits
		r.untilFollowers(0)
	})
}

// TestWaitingLongerThanARequestLasts: the time of a request does not end a wait.
func TestWaitingLongerThanARequestLasts(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.Timeout = 3 * time.Second })
	m := r.create()
	at := "/sessions/" + m.id + "/requests"
	r.must(201, "POST", at, m.owner.Text(), obj{"request": "r", "kind": "question"})
	if got := r.ask("GET", at+"/r?wait=3500", m.owner.Text(), nil); got.status != 200 || got.json["state"].(obj)["state"] != "open" {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// TestWaitingEndsWithTheServer: whoever waits when a server drains is told to come again, at once.
func TestWaitingEndsWithTheServer(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	waits := r.waiting(1, r.request("GET", "/sessions/"+m.id+"/requests/r?wait=55000", m.owner.Text(), nil))
	r.stop()
	if got := <-waits; got.status != 503 || got.code() != "draining" || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// TestWaitingIsBounded: who waits counts as a connection as long as it does, and has no body; what is asked is bounded as
// every body is.
func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(s *node.Config, c *Config) { s.Connections, c.BodyBytes = 2, 1<<20 })
	m := r.create()
	at := "/sessions/" + m.id + "/requests"
	wait := func(id string) *http.Request {
		return r.request("GET", at+"/"+id+"?wait=55000", m.owner.Text(), nil)
	}
	first := r.waiting(1, wait("a"))
	if got := r.must(201, "POST", at, m.owner.Text(), obj{"request": "b", "kind": "question"}); got["request"] != "b" {
		t.Error(got)
	}
	ctx, leave := context.WithCancel(t.Context())
	second := r.waiting(2, wait("b").WithContext(ctx))
	if got := r.do(wait("b")); got.status != 429 || got.code() != "overloaded" || got.header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", got.status, got.text)
	}
	leave()
	<-second
	until.True(t, "there is room again", func() bool {
		return r.ask("POST", at, m.owner.Text(), obj{"request": "a", "kind": "question"}).status == 201
	})
	r.must(200, "POST", at+"/a/answer", m.owner.Text(), obj{})
	if got := <-first; got.status != 200 {
		t.Errorf("%d %s", got.status, got.text)
	}
	body := r.request("GET", at+"/b?wait=1", m.owner.Text(), "{}")
	if got := r.do(body); got.status != 400 || got.code() != "bad_argument" {
		t.Errorf("with a body: %d %s", got.status, got.text)
	}
	if got := r.ask("POST", at, m.owner.Text(), obj{"kind": "question", "payload": strings.Repeat("x", 1<<20)}); got.status != 413 {
		t.Errorf("a large one: %d %s", got.status, got.text)
	}
}

// TestFollowingARequest: the events of one request's two keys are followed as those of any keys are.
func TestFollowingARequest(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	at := "/sessions/" + m.id
	cursor := r.must(201, "POST", at+"/requests", m.owner.Text(), obj{"request": "r", "kind": "question"})["cursor"]
	s, refused := r.open(r.request("GET", fmt.Sprintf("%s/events?after=%s&keys=request/r,request/r/state", at, cursor), m.owner.Text(), nil))
	if refused != nil {
		t.Fatalf("%d %s", refused.status, refused.text)
	}
	r.must(201, "POST", at+"/requests", m.owner.Text(), obj{"request": "r2", "kind": "question"})
	r.put(m, 1)
	r.must(200, "POST", at+"/requests/r/answer", m.owner.Text(), json.RawMessage(`{"payload":[1.0 ]}`))
	for {
		e, ok := s.next()
		if !ok {
			t.Fatal("the stream ends")
		}
		if e.name == "hidden" {
			continue
		}
		if e.name != "put" || !strings.Contains(e.data, `"key":"request/r/state"`) || !strings.Contains(e.data, `"payload":[1.0 ]}`) {
			t.Errorf("it is followed by %+v", e)
		}
		return
	}
}
