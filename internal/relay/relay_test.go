package relay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/outbox"
)

func infoItem(session, title, revert string) string {
	if revert != "" {
		revert = fmt.Sprintf(`,"revert":{"messageID":%q}`, revert)
	}
	return fmt.Sprintf(`{"type":"session","data":{"id":%q,"title":%q%s}}`, session, title, revert)
}

func messageItem(n int) string {
	return fmt.Sprintf(`{"type":"message","data":{"id":"m%d","role":"user","time":{"created":%d}}}`, n, 1000+n)
}

func partItem(n, part int, text string) string {
	return fmt.Sprintf(`{"type":"part","data":{"id":"m%dp%d","messageID":"m%d","type":"text","text":%q}}`, n, part, n, text)
}

// What a relay makes of opencode's traffic is what the server's own share API makes of it, item by item and in the same order: of recordings, and of
// what opencode sends around reverts.
func TestARelayMakesTheSameOfIt(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	compare := func(name, session string, play func(at string, c opencode.CreateReply)) {
		t.Helper()
		direct, relayed := create(t, r.real(), session), create(t, r.http.URL, session)
		play(r.real(), direct)
		play(r.http.URL, relayed)
		r.drained()
		if got, want := r.data(relayed.ID), r.data(direct.ID); !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("%s: the relay's share has %d items, the server's own %d:\n%s\n\n%s", name, len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, path := range []string{"", "/metadata"} {
			got, want := want(t, 200, "GET", r.real()+"/api/share/"+relayed.ID+path, ""), want(t, 200, "GET", r.real()+"/api/share/"+direct.ID+path, "")
			if got, want := comparable(t, got, relayed.ID, 1), comparable(t, want, direct.ID, 3); got != want {
				t.Errorf("%s %s: %s\n\n%s", name, path, got, want)
			}
		}
	}
	for _, name := range opencodetest.Names {
		requests := opencodetest.Requests(t, name)
		compare(name, requests[0].Body.SessionID, func(at string, c opencode.CreateReply) {
			for _, q := range requests {
				if !strings.HasSuffix(q.Path, "/sync") {
					continue
				}
				var items []string
				for _, item := range q.Body.Data {
					items = append(items, string(item))
				}
				syncTo(t, at, c, items...)
			}
		})
	}
	plain, toSecond := func(s string) string { return infoItem(s, "a", "") }, func(s string) string { return infoItem(s, "a", "m2") }
	all := func(s string) []string {
		list := []string{plain(s)}
		for n := 1; n <= 3; n++ {
			list = append(list, messageItem(n), partItem(n, 1, "x"), partItem(n, 2, "y"))
		}
		return list
	}
	for i, syncs := range []func(s string) [][]string{
		func(s string) [][]string { return [][]string{all(s), {toSecond(s)}} },
		func(s string) [][]string { return [][]string{all(s), {toSecond(s)}, {plain(s)}} },
		func(s string) [][]string {
			return [][]string{all(s), {toSecond(s)}, {messageItem(4), plain(s)}, {partItem(4, 1, "z")}}
		},
		func(s string) [][]string {
			return [][]string{all(s), {toSecond(s)}, {partItem(3, 1, "again")}, {infoItem(s, "b", "m2")}}
		},
		func(s string) [][]string {
			return [][]string{all(s), {toSecond(s)}, append([]string{toSecond(s)}, all(s)[1:]...)}
		},
		func(s string) [][]string { return [][]string{{toSecond(s)}, all(s)[1:]} },
		func(s string) [][]string {
			many := []string{toSecond(s)}
			for n := range 1500 { // several pieces
				many = append(many, messageItem(n))
			}
			return [][]string{many, {plain(s)}}
		},
	} {
		session := fmt.Sprintf("ses_%d", i)
		compare(session, session, func(at string, c opencode.CreateReply) {
			for _, items := range syncs(session) {
				syncTo(t, at, c, items...)
			}
		})
	}
}

// comparable takes out of an answer what two shares of one session differ in: their ids and times, and in the cursor the events of the refs that they took.
func comparable(t *testing.T, text, id string, refs float64) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, id, "ID")), &v); err != nil {
		t.Fatal(err)
	}
	about, ok := v["metadata"].(map[string]any)
	if !ok {
		about = v
	}
	about["cursor"] = about["cursor"].(float64) - refs
	delete(about, "created")
	delete(about, "updated")
	return string(mustJSON(t, v))
}

// Without a server everything is answered, over a restart of the relay too; once there is one it has all of it, in order, at the link that
// was given.
func TestTheServerIsAway(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.stopServer()
	c := create(t, r.http.URL, "ses_away")
	if want := "http://" + r.addr + "/share/" + c.ID; c.URL != want {
		t.Errorf("the link is %s, want %s", c.URL, want)
	}
	syncTo(t, r.http.URL, c, infoItem("ses_away", "first", ""), messageItem(1))
	r.stopRelay()
	r.startRelay()
	for n := 2; n <= 5; n++ {
		syncTo(t, r.http.URL, c, messageItem(n), infoItem("ses_away", fmt.Sprint("title ", n), ""))
	}
	ended := create(t, r.http.URL, "ses_ended")
	syncTo(t, r.http.URL, ended, messageItem(1))
	end(t, r.http.URL, ended)
	r.startServer()
	r.drained()
	if got, want := strings.Join(r.data(c.ID), "\n"), strings.Join([]string{infoItem("ses_away", "title 5", ""), messageItem(1), messageItem(2), messageItem(3), messageItem(4), messageItem(5)}, "\n"); got != want {
		t.Errorf("the share has\n%s\nwant\n%s", got, want)
	}
	if page := want(t, 200, "GET", c.URL, ""); !strings.Contains(page, "title 5") {
		t.Errorf("the page is %s", page)
	}
	if r.data(ended.ID) != nil {
		t.Error("what was unshared is shown")
	}
	res, err := plain.Transport.RoundTrip(mustRequest(t, r.http.URL+"/share/"+c.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.Header.Get("Location") != c.URL {
		t.Errorf("the relay's own page leads to %q", res.Header.Get("Location"))
	}
}

func mustRequest(t *testing.T, at string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", at, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// The same create gives the same share for ten minutes, unless it has ended, and both secrets write; later ones make another, with a session of its own.
func TestRepeatedCreates(t *testing.T) {
	t.Parallel()
	var later time.Duration
	r := start(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(later) } })
	first, again := create(t, r.http.URL, "ses_x"), create(t, r.http.URL, "ses_x")
	if again.ID != first.ID || again.URL != first.URL || again.Secret == first.Secret {
		t.Errorf("created again it is %+v, it was %+v", again, first)
	}
	other := create(t, r.http.URL, "ses_y")
	if other.ID == first.ID {
		t.Error("another session has its share")
	}
	r.stopRelay()
	r.startRelay()
	if over := create(t, r.http.URL, "ses_x"); over.ID != first.ID {
		t.Error("a restart makes another share of it")
	}
	syncTo(t, r.http.URL, first, messageItem(1))
	syncTo(t, r.http.URL, again, messageItem(2))
	later = 11 * time.Minute
	late := create(t, r.http.URL, "ses_x")
	if late.ID == first.ID {
		t.Error("after eleven minutes it is the same share")
	}
	end(t, r.http.URL, late)
	next := create(t, r.http.URL, "ses_x")
	if next.ID == late.ID {
		t.Error("a share that has ended is given again")
	}
	syncTo(t, r.http.URL, next, messageItem(3))
	r.drained()
	if got := strings.Join(r.data(first.ID), "\n"); got != messageItem(1)+"\n"+messageItem(2) {
		t.Errorf("the first share has %s", got)
	}
	if got := strings.Join(r.data(next.ID), "\n"); got != messageItem(3) {
		t.Errorf("the last share has %s", got)
	}
	secrets := []string{}
	for range maxSecrets + 1 {
		secrets = append(secrets, create(t, r.http.URL, "ses_x").Secret)
	}
	next.Secret = secrets[0]
	want(t, http.StatusForbidden, "POST", r.http.URL+"/api/share/"+next.ID+"/sync", syncBody(next.Secret))
	next.Secret = secrets[1]
	syncTo(t, r.http.URL, next)
}

// What is refused: as by a server, and what a page in a browser could send.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c, other := create(t, r.http.URL, "ses_x"), create(t, r.http.URL, "ses_y")
	at := r.http.URL + "/api/share"
	for _, q := range []struct {
		what, method, path, body string
		status                   int
		says                     string
		headers                  []string
	}{
		{"no session", "POST", "", `{}`, 400, "sessionID", nil},
		{"no JSON", "POST", "", `{`, 400, "JSON", nil},
		{"a control character", "POST", "", `{"sessionID":"a\u0000"}`, 400, "sessionID", nil},
		{"no share", "POST", "/" + strings.Repeat("A", 22) + "/sync", syncBody(c.Secret), 404, `"error":"Share not found"`, nil},
		{"another's secret", "POST", "/" + c.ID + "/sync", syncBody(other.Secret), 403, `"error":"Invalid secret"`, nil},
		{"no secret", "POST", "/" + c.ID + "/sync", `{"data":[]}`, 403, `"error":"Invalid secret"`, nil},
		{"no data", "POST", "/" + c.ID + "/sync", `{"secret":"` + c.Secret + `"}`, 400, "data", nil},
		{"no item", "POST", "/" + c.ID + "/sync", syncBody(c.Secret, `{"type":"message"}`), 400, "item 1", nil},
		{"another's info", "POST", "/" + c.ID + "/sync", syncBody(c.Secret, infoItem("ses_y", "a", "")), 400, "second session", nil},
		{"an end with another's secret", "DELETE", "/" + c.ID, `{"secret":"` + other.Secret + `"}`, 403, `"error":"Invalid secret"`, nil},
		{"another path", "GET", "/" + c.ID + "/data", "", 404, "relay", nil},
		{"another host", "POST", "", `{"sessionID":"ses_z"}`, 403, "localhost", []string{"Host", "evil.example"}},
		{"a page's", "POST", "", `{"sessionID":"ses_z"}`, 403, "localhost", []string{"Origin", "http://evil.example"}},
		{"a proxy's", "POST", "", `{"sessionID":"ses_z"}`, 403, "localhost", []string{"X-Forwarded-For", "10.0.0.1"}},
	} {
		if status, text := ask(t, q.method, at+q.path, q.body, q.headers...); status != q.status || !strings.Contains(text, q.says) {
			t.Errorf("%s: %d %s", q.what, status, text)
		}
	}
	end(t, r.http.URL, c)
	end(t, r.http.URL, c)
	want(t, http.StatusNotFound, "POST", at+"/"+c.ID+"/sync", syncBody(c.Secret, messageItem(1)))
	for _, one := range []opencode.CreateReply{c, other} {
		if strings.Contains(r.log.String(), one.Secret) {
			t.Error("the log has a secret")
		}
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "relay", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		if text, _ := os.ReadFile(name); strings.Contains(string(text), c.Secret) || strings.Contains(string(text), other.Secret) {
			t.Errorf("%s has a secret of opencode's", name)
		}
	}
}

// A value that is too large for a session is left out, and said; all else is there.
func TestValuesTooLarge(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := create(t, r.http.URL, "ses_x")
	large := partItem(1, 2, strings.Repeat("x", 4<<20))
	said := want(t, http.StatusRequestEntityTooLarge, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, messageItem(1), partItem(1, 1, "a"), large, partItem(1, 3, "b")))
	if !strings.Contains(said, "left out") {
		t.Errorf("it says %s", said)
	}
	r.logged("key=part/m1/m1p2")
	r.drained()
	if got, want := strings.Join(r.data(c.ID), "\n"), strings.Join([]string{messageItem(1), partItem(1, 1, "a"), partItem(1, 3, "b")}, "\n"); got != want {
		t.Errorf("the share has %s", got)
	}
	if page := want(t, 200, "GET", c.URL, ""); !strings.Contains(page, "the limit is 4194304") {
		t.Error("the page does not say that something is left out")
	}
	if s := r.only(); s.misses != 0 {
		t.Error("what the share says that it lacks is to be read from opencode")
	}
	syncTo(t, r.http.URL, c, partItem(1, 2, "smaller"))
	r.drained()
	if got := r.data(c.ID); len(got) != 4 {
		t.Errorf("the share has %s", got)
	}
	if page := want(t, 200, "GET", c.URL, ""); strings.Contains(page, "the limit is 4194304") {
		t.Error("the page goes on saying that something is left out")
	}
}

// A share that its ref's owner has ended at the server takes nothing any more here, instead of answering for what nobody will see.
func TestAnEndAtTheServer(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := create(t, r.http.URL, "ses_x")
	syncTo(t, r.http.URL, c, messageItem(1))
	r.drained()
	s, err := r.relay.find(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	b := s.session.Batch()
	b.Do("delete")
	if _, err := b.CommitWait(t.Context()); err != nil {
		t.Fatal(err)
	}
	syncTo(t, r.http.URL, c, messageItem(2)) // durable here, and refused there
	r.logged("takes nothing for it any more")
	want(t, http.StatusNotFound, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, messageItem(3)))
	if next := create(t, r.http.URL, "ses_x"); next.ID == c.ID {
		t.Error("the share is given again")
	}
}

// What the server refuses is said, also if later batches are there already.
func TestARefusalOfAnEarlierBatch(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := create(t, r.http.URL, "ses_x")
	syncTo(t, r.http.URL, c, messageItem(1))
	r.drained()
	r.stopServer()
	syncTo(t, r.http.URL, c, messageItem(2))
	s := r.only()
	b := s.session.Batch()
	b.Unrevert() // of what is not reverted
	ticket, err := b.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.watch(ticket)
	for n := range 3 {
		syncTo(t, r.http.URL, c, messageItem(3+n))
	}
	r.startServer()
	r.logged("the server has refused something of a share")
	r.drained()
	if got := r.data(c.ID); len(got) != 5 {
		t.Errorf("the share has %q", got)
	}
}

// Shares that ended long ago are forgotten while a relay runs, too.
func TestEndedSharesAreForgotten(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	r := start(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) } })
	r.stopRelay()
	r.every = 10 * time.Millisecond
	r.startRelay()
	c, stays := create(t, r.http.URL, "ses_x"), create(t, r.http.URL, "ses_y")
	syncTo(t, r.http.URL, c, messageItem(1))
	end(t, r.http.URL, c)
	r.settled()
	end(t, r.http.URL, c)
	later.Store(int64(keepEnded + time.Hour))
	until.True(t, "it is forgotten", func() bool {
		list := r.relay.all()
		return len(list) == 1 && list[0].rec.ID == stays.ID
	})
	until.True(t, "its files are removed", func() bool {
		left, err := filepath.Glob(filepath.Join(r.dir, "relay", c.ID+"*"))
		return err == nil && len(left) == 0
	})
	want(t, http.StatusNotFound, "DELETE", r.http.URL+"/api/share/"+c.ID, `{"secret":"`+c.Secret+`"}`)
}

// There are so many shares, and no more.
func TestTooManyShares(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := create(t, r.http.URL, "ses_x")
	r.relay.mu.Lock()
	for n := range maxShares - 1 {
		id := fmt.Sprint(n)
		r.relay.shares[id] = &share{relay: r.relay, rec: record{ID: id}}
	}
	r.relay.mu.Unlock()
	if text := want(t, http.StatusTooManyRequests, "POST", r.http.URL+"/api/share", `{"sessionID":"ses_y"}`); !strings.Contains(text, "10000 shares") {
		t.Errorf("it says %s", text)
	}
	if again := create(t, r.http.URL, "ses_x"); again.ID != c.ID {
		t.Error("a create that is repeated makes another share")
	}
	end(t, r.http.URL, c)
	create(t, r.http.URL, "ses_y")
}

// Under a ref that was revoked nothing is answered for what nobody will see, once the server has said so.
func TestARefThatHasEnded(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	owner, err := r.client.Space(t.Context(), r.owner)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := owner.Share(t.Context(), client.ShareOptions{Rights: capability.Create})
	if err != nil {
		t.Fatal(err)
	}
	r.stopRelay()
	r.owner = ref
	r.startRelay()
	c := create(t, r.http.URL, "ses_x")
	syncTo(t, r.http.URL, c, messageItem(1))
	r.drained()
	if r.data(c.ID) == nil {
		t.Fatal("a ref that creates does not do")
	}
	if owner, err = r.client.Space(t.Context(), owner.Ref()); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Revoke(t.Context(), ref.ID); err != nil {
		t.Fatal(err)
	}
	syncTo(t, r.http.URL, c, messageItem(2))
	r.logged("takes nothing for it any more")
	want(t, http.StatusNotFound, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, messageItem(3)))
	if text := want(t, http.StatusForbidden, "POST", r.http.URL+"/api/share", `{"sessionID":"ses_x"}`); !strings.Contains(text, "revoked") {
		t.Errorf("a create is answered %s", text)
	}
}

// changeFile changes the file of a share, as a crash would have left it. No relay runs meanwhile.
func (r *rig) changeFile(id string, change func(rec *record)) {
	r.t.Helper()
	dir := filepath.Join(r.dir, "relay")
	list, err := readRecords(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range list {
		if list[i].ID == id {
			change(&list[i])
			if err := list[i].write(dir); err != nil {
				r.t.Fatal(err)
			}
			return
		}
	}
	r.t.Fatalf("there is no file of %s", id)
}

// What a crash leaves between a file and its batch is finished at the next start, or forgotten if nobody was answered.
func TestWhatACrashLeaves(t *testing.T) {
	t.Parallel()
	later := time.Duration(0)
	r := start(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(later) } })
	made, never, ended, old := create(t, r.http.URL, "ses_made"), create(t, r.http.URL, "ses_never"), create(t, r.http.URL, "ses_ended"), create(t, r.http.URL, "ses_old")
	for _, c := range []opencode.CreateReply{made, ended, old} {
		syncTo(t, r.http.URL, c, messageItem(1))
	}
	end(t, r.http.URL, old)
	r.drained()
	r.stopRelay()
	r.changeFile(made.ID, func(rec *record) { rec.Made = false })                                                       // and the batch is there
	r.changeFile(never.ID, func(rec *record) { rec.Made, rec.Batch = false, outbox.NewBatchID() })                      // and it is not
	r.changeFile(ended.ID, func(rec *record) { rec.Ended, rec.EndBatch = time.Now().UnixMilli(), outbox.NewBatchID() }) // and the server does not know
	name := filepath.Join(r.dir, "relay", made.ID+shareSuffix)
	if _, err := newfile.WriteTemp(name, []byte("{"), nil); err != nil {
		t.Fatal(err)
	}
	later = keepEnded + time.Hour
	r.startRelay()
	syncTo(t, r.http.URL, made, messageItem(2))
	for _, c := range []opencode.CreateReply{never, ended, old} {
		want(t, http.StatusNotFound, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, messageItem(2)))
	}
	r.settled()
	if len(r.data(made.ID)) != 2 || r.data(ended.ID) != nil {
		t.Errorf("the shares have %q and %q", r.data(made.ID), r.data(ended.ID))
	}
	files, err := os.ReadDir(filepath.Join(r.dir, "relay"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), never.ID) || strings.HasPrefix(f.Name(), old.ID) || strings.HasPrefix(f.Name(), ".") {
			t.Errorf("%s is still there", f.Name())
		}
	}
	r.stopRelay()
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), Config{Client: r.client, Dir: filepath.Join(r.dir, "relay")}); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("of a damaged file it says %v", err)
	}
}
