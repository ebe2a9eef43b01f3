package e2e

// Databases that are away, and clients' disks that are full. Servers' are in fulldisk_linux_test.go.

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t)
	srv := startServer(t, serverConfig{URL: pg.URL()})
	owner := makeSession(t, srv)
	ref := "@" + writeRef(t, owner)
	h := newHome(t)
	line := func(n int) string {
		return fmt.Sprintf(`{"method":"put","key":"message/m%d","payload":{"n":%d}}`+"\n", n, n)
	}
	h.feed(line(1), "session", "append", ref, "-", "--wait")

	pg.Stop()
	if got := h.try(line(2), "session", "append", ref, "-"); got.code != 0 || !strings.Contains(got.err, "durable") {
		t.Errorf("append while the database is away: exit code %d, %q", got.code, got.err)
	}
	h.refused("", "unavailable", []string{"database"}, "session", "export", ref)
	if code, text := srv.get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "database") {
		t.Errorf("/readyz while the database is away: %d %s", code, text)
	}
	if code, _ := srv.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz while the database is away: %d", code)
	}
	// A server that is started now says what is wrong, and no password.
	got := newHome(t).refused("", "unavailable", []string{"database"}, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--database-url", pg.URL())
	if _, password, ok := strings.Cut(strings.SplitN(pg.URL(), "@", 2)[0], "//"); ok {
		if _, password, ok = strings.Cut(password, ":"); ok && strings.Contains(got.err, password) {
			t.Error("the server tells the database's password")
		}
	}

	pg.Start()
	h.do("outbox", "drain")
	pg.Kill()
	h.feed(line(3), "session", "append", ref, "-")
	pg.Start()
	h.do("outbox", "drain")
	log := readLog(t, view(t, openClient(t), owner))
	if len(log) != 4 || log[3].Key != "message/m3" {
		t.Errorf("%d events", len(log))
	}
	srv.healthy()
}

// A full disk on the client's side: append does not say that anything is durable.
func TestClientsDiskFull(t *testing.T) {
	t.Parallel()
	srv := startServer(t, serverConfig{})
	owner := makeSession(t, srv)
	ref := "@" + writeRef(t, owner)
	h := newHome(t)
	h.feed(`{"method":"put","key":"session","payload":{"n":1}}`, "session", "append", ref, "-", "--wait")
	big := fmt.Sprintf(`{"method":"put","key":"message/m","payload":{"text":"%s"}}`, strings.Repeat("x", 3<<20))
	full := *h
	full.wrap = []string{"sh", "-c", fmt.Sprintf(`ulimit -S -f %d && exec "$0" "$@"`, (1<<20)/512)}
	full.refused(big, "disk_full", []string{"space"}, "session", "append", ref, "-")
	h.do("outbox", "drain")
	if log := readLog(t, view(t, openClient(t), owner)); len(log) != 2 {
		t.Errorf("%d events", len(log))
	}
	h.feed(big, "session", "append", ref, "-", "--wait")
	if log := readLog(t, view(t, openClient(t), owner)); len(log) != 3 {
		t.Errorf("%d events", len(log))
	}
}
