package relay

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/relay/relaytest"
	"github.com/mooring-rpc/mooring/internal/until"
)

// caughtUp waits until no share is behind.
func (r *rig) caughtUp() {
	r.t.Helper()
	until.True(r.t, "no share is behind", func() bool {
		return !slices.ContainsFunc(r.relay.all(), (*share).isBehind)
	})
}

// bare takes the address of the share out of infos.
func bare(items []string) (list []string) {
	for _, item := range items {
		before, _, found := strings.Cut(item, `,"share":`)
		if found {
			item = before + "}}"
		}
		list = append(list, item)
	}
	return list
}

// What opencode changed, added and removed while no relay ran is there after its next start; what was there already makes no event.
func TestCatchingUp(t *testing.T) {
	t.Parallel()
	oc := relaytest.NewOpencode(t)
	oc.Set(func() { oc.Password = "secret" })
	r := start(t, func(c *Config) {
		u := parseURL(t, oc.URL())
		u.User = url.UserPassword("opencode", "secret")
		c.Opencode = []*url.URL{parseURL(t, "http://127.0.0.1:1"), u}
	})
	c := create(t, r.http.URL, "ses_x")
	before := []string{infoItem("ses_x", "a", ""), messageItem(1), partItem(1, 1, "a"), messageItem(2), partItem(2, 1, "b"), messageItem(3), partItem(3, 1, "c")}
	oc.Store(c.URL, before...)
	syncTo(t, r.http.URL, c, before...)
	r.stopRelay()
	after := []string{infoItem("ses_x", "b", ""), messageItem(1), partItem(1, 1, "a, and more"), messageItem(2), messageItem(4), partItem(4, 1, "new")}
	oc.Store(c.URL, after...)
	r.startRelay()
	syncTo(t, r.http.URL, c, messageItem(5)) // sent while it catches up, or before or after that
	oc.Store(c.URL, append(after, messageItem(5))...)
	check := func(want ...string) {
		t.Helper()
		r.drained()
		got := bare(r.data(c.ID))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("the share has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	r.relay.missedBy(r.only())
	until.True(t, "it has caught up", func() bool {
		r.drained()
		return len(r.data(c.ID)) == 7
	})
	check(append(after, messageItem(5))...)

	cursor := func() (n float64) {
		var v map[string]any
		if err := json.Unmarshal([]byte(want(t, 200, "GET", r.real()+"/api/share/"+c.ID+"/metadata", "")), &v); err != nil {
			t.Fatal(err)
		}
		return v["cursor"].(float64)
	}
	r.relay.missedBy(r.only())
	r.caughtUp()
	r.drained()
	was := cursor()
	r.stopRelay()
	r.startRelay()
	r.caughtUp()
	if st, err := r.client.Status(t.Context()); err != nil || st.Unfinished() > 0 {
		t.Errorf("what was there already is put again: %+v, %v", st, err)
	}
	if now := cursor(); now != was {
		t.Errorf("what was there already makes %v events", now-was)
	}
}

// only is the only share.
func (r *rig) only() *share {
	r.t.Helper()
	list := r.relay.all()
	if len(list) != 1 {
		r.t.Fatalf("there are %d shares", len(list))
	}
	return list[0]
}

// A list of messages that breaks off, and an opencode that is away or not the right one, remove nothing; it is tried again.
func TestCatchingUpTriesAgain(t *testing.T) {
	t.Parallel()
	oc := relaytest.NewOpencode(t)
	r := start(t, func(c *Config) { c.Opencode = []*url.URL{parseURL(t, oc.URL())} })
	c := create(t, r.http.URL, "ses_x")
	all := []string{infoItem("ses_x", "a", ""), messageItem(1), partItem(1, 1, "a"), messageItem(2)}
	oc.Store(c.URL, all...)
	syncTo(t, r.http.URL, c, all...)
	r.stopRelay()
	oc.Set(func() { oc.Broken = true })
	r.startRelay()
	r.logged("could not be compared")
	r.drained()
	if got := r.data(c.ID); len(got) != len(all) {
		t.Fatalf("the share has %q", got)
	}
	oc.Set(func() { oc.Broken, oc.Paged = false, true })
	r.relay.missedBy(r.only())
	r.logged("not with all messages")
	r.drained()
	if got := r.data(c.ID); len(got) != len(all) {
		t.Fatalf("the share has %q", got)
	}
	oc.Set(func() { oc.Paged, oc.Down = false, true })
	oc.Store(c.URL, append(all, messageItem(3))...)
	r.relay.missedBy(r.only())
	r.logged("does not answer")
	oc.Set(func() { oc.Down = false })
	r.caughtUp()
	r.drained()
	if got := r.data(c.ID); len(got) != len(all)+1 {
		t.Fatalf("the share has %q", got)
	}
	oc.Set(func() { oc.Forget("ses_x") }) // nobody has it
	r.relay.missedBy(r.only())
	r.caughtUp()
	r.drained()
	if got := r.data(c.ID); len(got) != len(all)+1 {
		t.Fatalf("the share has %q", got)
	}
}

// A sync that fails while its session is being read is not in what was read, which is read again.
func TestASyncThatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	oc := relaytest.NewOpencode(t)
	r := start(t, func(c *Config) { c.Opencode = []*url.URL{parseURL(t, oc.URL())} })
	c := create(t, r.http.URL, "ses_x")
	all := []string{infoItem("ses_x", "a", ""), messageItem(1)}
	oc.Store(c.URL, all...)
	failed := make(chan int, 1)
	oc.Set(func() {
		oc.OnMessages = func() {
			oc.Store(c.URL, append(all, messageItem(2))...)
			status, _ := ask(t, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, messageItem(2), `{"type":"part"}`))
			failed <- status
		}
	})
	r.relay.missedBy(r.only())
	if status := <-failed; status != http.StatusBadRequest {
		t.Fatalf("the sync is answered %d", status)
	}
	r.caughtUp()
	r.drained()
	if got := r.data(c.ID); len(got) != 3 {
		t.Errorf("the share has %q", got)
	}
}

// An unshare that no relay heard of ends the share; one so young that opencode may not have stored its address is left.
func TestAnUnshareThatWasMissed(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var later time.Duration
	oc := relaytest.NewOpencode(t)
	r := start(t, func(c *Config) {
		c.Opencode = []*url.URL{parseURL(t, oc.URL())}
		c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(later) }
	})
	c := create(t, r.http.URL, "ses_x")
	syncTo(t, r.http.URL, c, infoItem("ses_x", "a", ""), messageItem(1))
	oc.Store("", infoItem("ses_x", "a", ""), messageItem(1))
	done, err := r.relay.catchUp(t.Context(), r.only())
	if done || err != nil {
		t.Fatalf("of a young share: %v, %v", done, err)
	}
	r.drained()
	if r.data(c.ID) == nil {
		t.Fatal("a young share has ended")
	}
	mu.Lock()
	later = 2 * settleAfter
	mu.Unlock()
	for _, info := range []string{`{"id":"ses_x","share":{"url":7}}`, `{"id":"ses_x","share":{}}`, `{"id":"ses_x","share":true}`, `{"id":"ses_y"}`, `{"name":"NotFoundError"}`, `[]`, `{"id":`} {
		oc.Set(func() { oc.Info = info })
		if done, err := r.relay.catchUp(t.Context(), r.only()); done || err == nil {
			t.Errorf("of an info that says nothing, %s: %v, %v", info, done, err)
		}
	}
	oc.Set(func() { oc.Info = "" })
	syncTo(t, r.http.URL, c, messageItem(1))
	if done, err := r.relay.catchUp(t.Context(), r.only()); !done || err != nil {
		t.Fatalf("of an older share: %v, %v", done, err)
	}
	r.drained()
	if r.data(c.ID) != nil {
		t.Fatal("the share goes on")
	}
	want(t, http.StatusNotFound, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, messageItem(2)))
}
