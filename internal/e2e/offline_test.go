package e2e

// Without a server: appending is durable and says so; when the server comes, the
// outbox drains by itself, in a process that runs and by the next command.

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
)

// outboxStates is what "outbox status" counts.
func (h *home) outboxStates() map[string]int {
	h.t.Helper()
	var status struct{ States map[string]int }
	if err := json.Unmarshal([]byte(h.do("outbox", "status", "--json")), &status); err != nil {
		h.t.Fatal(err)
	}
	return status.States
}

// makeSession creates a session with this process's client and gives its owner's ref.
func makeSession(t *testing.T, srv *server, ops ...planOp) capability.Ref {
	t.Helper()
	w := newWriter(t, srv.owner().New(capability.SessionPrefix+ulid.Make().String()), srv.owner())
	if err := client.Results(w.wait(w.send(creating(w.ref, ops...))...)).Err(); err != nil {
		t.Fatal(err)
	}
	return w.ref
}

func TestOfflineAppend(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		srv := startServer(t, serverConfig{URL: db.url(t)})
		ref := writeRef(t, makeSession(t, srv))
		srv.kill()

		h := newHome(t)
		line := func(n int) string {
			return fmt.Sprintf(`{"method":"put","key":"message/m%d","payload":{"n":%d}}`+"\n", n, n)
		}
		got := h.try(line(1)+line(2), "session", "append", "@"+ref, "-")
		if got.code != 0 || !strings.Contains(got.err, "durable") {
			t.Errorf("append without a server: exit code %d, %q", got.code, got.err)
		}
		if s := h.outboxStates(); s["pending"]+s["in_flight"] != 2 {
			t.Errorf("the outbox after an append without a server: %v", s)
		}

		// By a process that runs: a tail, started without a server.
		tail := h.follow("session", "tail", "@"+ref, "--follow", "--json")
		if got := h.try(line(3), "session", "append", "@"+ref, "-"); got.code != 0 {
			t.Errorf("append beside a running process: exit code %d, %q", got.code, got.err)
		}
		srv.start("")
		if _, ok := tail.out.await(tail.done, func(l string) bool { return strings.Contains(l, `"message/m3"`) }); !ok {
			t.Fatalf("the running process did not drain the outbox:\n%s%s", tail.out.text(), tail.err.text())
		}
		eventually(t, "the outbox knows that all is answered", func() bool { return h.outboxStates()["acked"] == 3 })
		tail.kill()

		// By the next command, whichever it is.
		srv.kill()
		h.feed(line(4), "session", "append", "@"+ref, "-")
		srv.start("")
		eventually(t, "the next command, or one after it, has sent what waited", func() bool {
			h.do("session", "show", "@"+ref)
			return h.outboxStates()["acked"] == 4
		})
		events := tailedLines(t, splitLines(h.do("session", "tail", "@"+ref, "--json")))
		gapless(t, "tail", events, 0, 5)
		for i, e := range events[1:] {
			if e.Key != fmt.Sprintf("message/m%d", i+1) {
				t.Errorf("event %d is of %s", e.Cursor, e.Key)
			}
		}
	})
}

// A whole session made before its server was ever reached: imported, shared and
// handed on, all of it durable and sent later as one.
func TestOfflineFromTheBeginning(t *testing.T) {
	t.Parallel()
	srv := startServer(t, serverConfig{})
	owner := writeRef(t, srv.owner())
	srv.kill()
	h := newHome(t)
	id := strings.TrimSpace(lastLine(h.do("session", "import", filepath.Join(recordings, "d-revert-unshare-1.18.33.jsonl"), "--owner", "@"+owner)))
	ref := strings.TrimSpace(h.do("share", id, "--rights", "read"))
	reader := newHome(t)
	reader.refused("", "unavailable", nil, "session", "export", ref)
	srv.start("")
	eventually(t, "the server that is back says not_yet_known", func() bool { // on a busy machine its first answer may come too late
		return strings.Contains(reader.try("", "session", "export", ref).err, "not_yet_known")
	})
	h.do("outbox", "drain")
	if got, want := reader.do("session", "export", ref), expectedExport(t, "d-revert-unshare-1.18.33"); !sameJSON([]byte(got), want) {
		t.Errorf("the export is not what it should be: %s", clipped(got))
	}
}
