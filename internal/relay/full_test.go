package relay

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/relay/relaytest"
)

// fill starts the relay again, without a server, and makes a share that leaves no room in the outbox.
func (r *rig) fill() opencode.CreateReply {
	r.t.Helper()
	r.stopServer()
	r.stopRelay()
	r.rows = 3
	r.startRelay()
	c := create(r.t, r.http.URL, "ses_x")
	syncTo(r.t, r.http.URL, c, messageItem(1))
	return c
}

// With a full outbox syncs and creates are refused, and an unshare is not: the share's file has it, and the server hears of it once there is room.
func TestAFullOutbox(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	other := create(t, r.http.URL, "ses_other")
	syncTo(t, r.http.URL, other, messageItem(1))
	r.drained()
	c := r.fill()
	at := r.http.URL + "/api/share"
	if text := want(t, http.StatusInsufficientStorage, "POST", at+"/"+c.ID+"/sync", syncBody(c.Secret, messageItem(2), messageItem(3))); !strings.Contains(text, "outbox_full") {
		t.Errorf("a sync is answered %s", text)
	}
	want(t, http.StatusInsufficientStorage, "POST", at, `{"sessionID":"ses_y"}`)
	end(t, r.http.URL, other)
	r.logged("waits in its file")
	end(t, r.http.URL, other)
	want(t, http.StatusNotFound, "POST", at+"/"+other.ID+"/sync", syncBody(other.Secret, messageItem(2)))
	r.startServer()
	r.settled()
	if r.data(other.ID) != nil {
		t.Error("the share goes on at the server")
	}
	create(t, r.http.URL, "ses_y")
}

// A relay starts with a full outbox, also if a share has ended of which the outbox knows nothing.
func TestAStartWithAFullOutbox(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	other := create(t, r.http.URL, "ses_other")
	syncTo(t, r.http.URL, other, messageItem(1))
	r.drained()
	c := r.fill()
	end(t, r.http.URL, other)
	r.stopRelay()
	r.startRelay()
	end(t, r.http.URL, c)
	for _, one := range []opencode.CreateReply{c, other} {
		want(t, http.StatusNotFound, "POST", r.http.URL+"/api/share/"+one.ID+"/sync", syncBody(one.Secret, messageItem(2)))
	}
	r.logged("could not be kept; it is tried again")
	r.startServer()
	r.settled()
	if r.data(c.ID) != nil || r.data(other.ID) != nil {
		t.Error("the shares go on at the server")
	}
}

// What a full outbox has refused is read from opencode when there is room.
func TestAFullOutboxAndOpencode(t *testing.T) {
	t.Parallel()
	oc := relaytest.NewOpencode(t)
	r := start(t, func(c *Config) { c.Opencode = []*url.URL{parseURL(t, oc.URL())} })
	c := create(t, r.http.URL, "ses_x")
	all := []string{infoItem("ses_x", "a", ""), messageItem(1), messageItem(2), messageItem(3)}
	oc.Store(c.URL, all...)
	syncTo(t, r.http.URL, c, all[:2]...)
	r.caughtUp()
	r.drained()
	r.stopServer()
	r.stopRelay()
	r.rows = 1
	r.startRelay()
	oc.Store(c.URL, append(all, messageItem(4))...)
	want(t, http.StatusInsufficientStorage, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, messageItem(4), infoItem("ses_x", "b", "")))
	r.logged("could not be compared")
	r.stopRelay()
	r.rows = 0
	r.startRelay()
	r.startServer()
	r.caughtUp()
	r.drained()
	if got := r.data(c.ID); len(got) != 5 {
		t.Errorf("the share has %q", got)
	}
}
