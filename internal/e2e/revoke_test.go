package e2e

// Revoking against a stream of appends: nothing commits after the cut, no event
// above it is delivered, subscriptions end with the reason.

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
)

func TestRevokeAgainstAStreamOfAppends(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		srv := startServer(t, serverConfig{URL: db.url(t)})
		for _, how := range []struct {
			name string
			args []string
			code fault.Code
		}{
			{"one ref", nil, fault.Revoked},
			{"the epoch", []string{"--epoch"}, fault.StaleEpoch},
		} {
			if db.name == onPostgres.name && how.code == fault.Revoked {
				continue // there it is TestRevokeAcrossServers
			}
			t.Run(how.name, func(t *testing.T) {
				t.Parallel()
				revokeWhileAppending(t, []*server{srv}, how.args, how.code)
			})
		}
	})
}

// revokeWhileAppending shares a session, lets an agent's process append under the
// share and two commands follow it under the share and under a ref made from
// it, and revokes in the middle. The processes go to the servers in turn.
func revokeWhileAppending(t *testing.T, servers []*server, args []string, code fault.Code) {
	t.Helper()
	space := servers[0].owner()
	owner := makeSession(t, servers[0])
	own := newWriter(t, owner, space)
	share := space.New(owner.Target())
	own.must(shareOp(share, "owner/helper", "read", "append", "share"))
	below := space.New(owner.Target())
	mine := newWriter(t, share, space)
	mine.must(shareOp(below, "", "read"))

	a := newAgent(t, plan{UntilDenied: true, Batches: []planBatch{
		batch(at(share, servers, 1), put("session", map[string]any{"n": -1}), put("message/m", map[string]any{"same": true}))}})
	a.start("")
	var tails []*process
	for i, ref := range []capability.Ref{share, below} {
		tails = append(tails, newHome(t).follow("session", "tail", "@"+writeRef(t, at(ref, servers, i)), "--follow", "--json"))
	}
	for _, tail := range tails { // all are under way
		if _, ok := tail.out.await(tail.done, func(l string) bool { return tailedLines(t, []string{l})[0].Cursor >= 40 }); !ok {
			t.Fatalf("the tail does not come along:\n%s", tail.err.text())
		}
	}
	home := newHome(t)
	target := "@" + writeRef(t, share)
	if len(args) > 0 {
		target = "@" + writeRef(t, owner)
	}
	home.do("redeem", "@"+writeRef(t, owner))
	var cut struct{ Cut uint64 }
	if err := json.Unmarshal([]byte(home.do(append([]string{"revoke", target, "--json"}, args...)...)), &cut); err != nil || cut.Cut == 0 {
		t.Fatalf("no cut: %v", err)
	}
	own.must(put("session", map[string]any{"after": "the cut"}))

	results := a.finish()
	batches := []planBatch{}
	for id := range results {
		b := a.plan.Batches[0]
		b.ID = id
		batches = append(batches, b)
	}
	log := readLog(t, view(t, openClient(t), owner))
	checkLog(t, log[1:], slices.Concat(batches, own.batches, mine.batches))
	applied, denied := 0, 0
	for _, e := range log {
		if e.Ref == share.ID && e.Cursor > cut.Cut {
			t.Errorf("cursor %d is above the cut at %d", e.Cursor, cut.Cut)
		}
	}
	for _, b := range batches {
		for _, o := range results[b.ID] {
			switch {
			case o.Status == client.Applied && o.Cursor <= cut.Cut:
				applied++
			case o.Status == client.Denied && o.Reason == code:
				denied++
			default:
				t.Errorf("op %s: %s %s at cursor %d, the cut is at %d", o.OpID, o.Status, o.Reason, o.Cursor, cut.Cut)
			}
		}
	}
	if applied == 0 || denied == 0 {
		t.Errorf("%d applied, %d denied: the cut was not in the middle", applied, denied)
	}
	for i, tail := range tails {
		if !within(patience, tail.done) {
			t.Fatalf("tail %d goes on after its ref was revoked", i)
		}
		events := tailedLines(t, tail.out.list())
		gapless(t, "tail", events, 0, uint64(len(events)))
		if n := uint64(len(events)); n > cut.Cut {
			t.Errorf("tail %d got event %d, above the cut at %d", i, n, cut.Cut)
		}
		last := lastLine(tail.err.text())
		if tail.cmd.ProcessState.ExitCode() != 1 || !containsAll(last, code.String()) {
			t.Errorf("tail %d ended with code %d and %q, not for %s", i, tail.cmd.ProcessState.ExitCode(), last, code)
		}
	}
	for _, ref := range []capability.Ref{share, below} {
		s := view(t, openClientWith(t, client.Config{OpenOutbox: sqliteclient.Outbox(filepath.Join(t.TempDir(), "home"))}), ref)
		if _, err := s.Snapshot(bounded(t)); !errors.Is(err, code) {
			t.Errorf("reading under the revoked ref: %v", err)
		}
	}
}

// at is a ref that names only one of the servers.
func at(ref capability.Ref, servers []*server, i int) capability.Ref {
	ref.Hosts = []string{servers[i%len(servers)].proxy.Addr()}
	return ref
}
