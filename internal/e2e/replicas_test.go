package e2e

// Two servers on one Postgres.

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// startPair starts two servers on one new database. Their refs name both.
func startPair(t *testing.T, database string, args ...string) []*server {
	t.Helper()
	pair := []*server{newServer(t, serverConfig{URL: database, Args: args}), newServer(t, serverConfig{URL: database, Args: args})}
	both := []string{pair[0].proxy.Addr(), pair[1].proxy.Addr()}
	for _, s := range pair {
		s.hosts = both
		s.start("")
	}
	return pair
}

// crossed subscribes on one server and appends on the other.
func crossed(t *testing.T, pair []*server) {
	t.Helper()
	ref := makeSession(t, pair[0])
	tail := newHome(t).follow("session", "tail", "@"+writeRef(t, at(ref, pair, 1)), "--follow", "--json")
	w := newWriter(t, at(ref, pair, 0), pair[0].owner())
	for i := range 20 {
		w.must(put("message/m", map[string]any{"n": i}))
	}
	if _, ok := tail.out.await(tail.done, func(l string) bool { return strings.HasPrefix(l, `{"cursor":21,`) }); !ok {
		t.Fatalf("what was appended on one server is not seen on the other:\n%s%s", tail.out.text(), tail.err.text())
	}
	gapless(t, "tail", tailedLines(t, tail.out.list()), 0, 21)
}

func TestReplicasByNotifyAlone(t *testing.T) {
	t.Parallel()
	crossed(t, startPair(t, pgtest.URL(t), "--poll-interval", "0"))
}

// Every NOTIFY is dropped: in this database pg_notify is a function of the test's
// own, which does nothing.
func TestReplicasByPollingAlone(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`CREATE TABLE public.dropped (n int)`,
		`CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'INSERT INTO public.dropped VALUES (1)'`,
		`ALTER DATABASE ` + pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize() + ` SET search_path = public, pg_catalog`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	crossed(t, startPair(t, database, "--poll-interval", "100ms"))
	var dropped int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM public.dropped`).Scan(&dropped); err != nil {
		t.Fatal(err)
	}
	if dropped == 0 { // how many there are depends on how many commits were announced together
		t.Error("no notification was dropped: does the server notify in another way?")
	}
}

// A client whose server dies goes on at the other.
func TestClientGoesOnAtTheOtherServer(t *testing.T) {
	t.Parallel()
	pair := startPair(t, pgtest.URL(t))
	ref := makeSession(t, pair[0])
	tail := newHome(t).follow("session", "tail", "@"+writeRef(t, ref), "--follow", "--json")
	var batches []planBatch
	for i := range 300 {
		batches = append(batches, batch(ref, put(fmt.Sprintf("message/m%d", i%7), map[string]any{"n": i}), put("session", map[string]any{"n": i})))
	}
	a := newAgent(t, plan{Batches: batches})
	a.start("")
	for i, cursor := range []uint64{60, 200, 350} { // the one dies, then the other, and so on
		if _, ok := tail.out.await(tail.done, func(l string) bool { return tailedLines(t, []string{l})[0].Cursor >= cursor }); !ok {
			t.Fatalf("the tail does not come along:\n%s", tail.err.text())
		}
		if i > 0 {
			pair[(i+1)%2].start("")
		}
		pair[i%2].kill()
	}
	results := a.finish()
	log := readLog(t, view(t, openClient(t), ref))
	checkLog(t, log[1:], batches)
	last := uint64(len(log))
	if last != 601 {
		t.Errorf("%d events, want 601", last)
	}
	for _, b := range batches {
		for _, o := range results[b.ID] {
			if o.Status != client.Applied {
				t.Errorf("op %s: %s %s", o.OpID, o.Status, o.Reason)
			}
		}
	}
	if _, ok := tail.out.await(tail.done, func(l string) bool { return tailedLines(t, []string{l})[0].Cursor == last }); !ok {
		t.Fatalf("the tail does not come to the end:\n%s", tail.err.text())
	}
	gapless(t, "tail", tailedLines(t, tail.out.list()), 0, last)
}

// The cut is exact across servers too: revoked on one while the other commits.
func TestRevokeAcrossServers(t *testing.T) {
	t.Parallel()
	revokeWhileAppending(t, startPair(t, pgtest.URL(t)), nil, fault.Revoked)
}
