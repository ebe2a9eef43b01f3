package e2e

// Workers that share a list: what one has claimed no other gets, and what a dead one has claimed
// another gets when its lease is over.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// claimResult is the result of a claim; no key is free if it names none.
type claimResult struct {
	Key   string
	Claim uint64
}

// claimFirst claims the first free key below todo/.
func claimFirst(t testing.TB, s *client.Session, lease time.Duration) (c claimResult, err error) {
	b := s.Batch()
	b.ClaimFirst("todo/", lease, "")
	results, err := b.CommitWait(bounded(t))
	if err == nil {
		err = results[0].Decode(&c)
	}
	return c, err
}

// TestAgentsClaimTodos: 8 agents, each with an outbox of its own, do 40 todos. Each is claimed once, and
// no op of any agent is refused.
func TestAgentsClaimTodos(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		const agents, list = 8, 40
		srv := startServer(t, serverConfig{URL: db.url(t)})
		var ops []planOp
		for i := range list {
			ops = append(ops, put(fmt.Sprintf("todo/%02d", i), map[string]any{"n": i}))
		}
		ref := makeSession(t, srv, ops...)
		var all errgroup.Group
		for i := range agents {
			s := view(t, openClient(t), ref)
			all.Go(func() error {
				for {
					c, err := claimFirst(t, s, time.Minute)
					if err != nil || c.Key == "" {
						return err
					}
					b := s.Batch()
					b.Patch(c.Key, map[string]any{"by": i}).WithClaim(c.Claim)
					b.Put("done/"+strings.TrimPrefix(c.Key, "todo/"), i)
					b.Remove(c.Key).WithClaim(c.Claim)
					if _, err := b.CommitWait(bounded(t)); err != nil {
						return err
					}
				}
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatalf("an agent was refused: %v", err)
		}
		claimed := map[string]int{}
		for _, e := range readLog(t, view(t, openClient(t), ref)) {
			if e.Method == session.MethodClaim {
				claimed[e.Key]++
			}
		}
		for key, n := range claimed {
			if n != 1 {
				t.Errorf("%s was claimed %d times", key, n)
			}
		}
		state, err := view(t, openClient(t), ref).Snapshot(bounded(t))
		if err != nil || len(claimed) != list || len(state.Entries) != list {
			t.Errorf("%d todos were claimed, %d are done: %v", len(claimed), len(state.Entries), err)
		}
	})
}

// TestAWorkerIsKilled: its todo is another's once the lease is over, and what the worker sends when it is
// started again changes nothing.
func TestAWorkerIsKilled(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		srv := startServer(t, serverConfig{URL: db.url(t)})
		ref := makeSession(t, srv, put("todo/1", map[string]any{"title": "paint the boat"}))
		tail := newHome(t).follow("session", "tail", "@"+writeRef(t, ref), "--follow", "--json")
		await := func(method string) {
			t.Helper()
			if _, ok := tail.out.await(tail.done, func(l string) bool { return strings.Contains(l, `"method":"`+method+`"`) }); !ok {
				t.Fatalf("there is no %s:\n%s%s", method, tail.out.text(), tail.err.text())
			}
		}
		claim := batch(ref, op("claim", arg("prefix", "todo/"), arg("lease", 1000)))
		batches := []planBatch{claim}
		for i := range 2000 {
			work := op("patch", arg("key", "todo/1"), arg("patch", map[string]any{"by": "the dead", "n": i}),
				planArg{Name: "claim", Ref: &planRef{Op: opID(claim.ID, 0), Path: "claim"}})
			batches = append(batches, batch(ref, work))
		}
		worker := newAgent(t, plan{Batches: batches})
		worker.start("")
		await("patch")
		worker.run.kill()
		await("lapse")
		other := view(t, openClient(t), ref)
		c, err := claimFirst(t, other, time.Hour)
		if err != nil || c.Key != "todo/1" {
			t.Fatalf("the other gets %+v: %v", c, err)
		}
		worker.start("")
		late := 0
		for _, outcomes := range worker.finish() {
			for _, o := range outcomes {
				if o.Reason == fault.Conflict {
					late++
				}
			}
		}
		page, err := other.Get(bounded(t), "todo/1")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range readLog(t, other) {
			if e.Cursor > c.Claim {
				t.Errorf("the late worker made event %d, %s", e.Cursor, e.Method)
			}
		}
		var value struct{ By string }
		if got := page.Entries[0].Claim; got == nil || got.Cursor != c.Claim || late == 0 || json.Unmarshal(page.Entries[0].Payload, &value) != nil || value.By != "the dead" {
			t.Errorf("the claim is %+v, the value %s, %d late ops were refused", got, page.Entries[0].Payload, late)
		}
		if verified, err := other.Verify(bounded(t), nil); err != nil || len(verified.Findings)+len(verified.Differences) > 0 {
			t.Errorf("verified: %+v, %v", verified, err)
		}
	})
}

// TestAClaimIsBroken: who holds the right ends another's claim, from Go and from the shell, and the log says who.
func TestAClaimIsBroken(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		srv := startServer(t, serverConfig{URL: db.url(t)})
		ref := makeSession(t, srv, put("todo/1", 1), put("todo/2", 2))
		owner, worker := view(t, openClient(t), ref), view(t, openClient(t), ref)
		shared := func(rights capability.Rights) string {
			b := owner.Batch()
			made, _ := b.Share(client.ShareOptions{Rights: rights, Actor: "owner/" + strings.ReplaceAll(rights.String(), ",", "-")})
			if _, err := b.CommitWait(bounded(t)); err != nil {
				t.Fatal(err)
			}
			return "@" + writeRef(t, made)
		}
		first, err := claimFirst(t, worker, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		second, err := claimFirst(t, worker, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		b := owner.Batch()
		b.Release(first.Key, first.Claim)
		if _, err := b.CommitWait(bounded(t)); err != nil {
			t.Errorf("the owner: %v", err)
		}
		line := fmt.Sprintf(`{"method":"release","key":%q,"claim":%d}`, second.Key, second.Claim)
		h := newHome(t)
		h.refused(line, "conflict", []string{"the right break"}, "session", "append", shared(capability.Append), "-", "--wait")
		h = newHome(t)
		h.feed(line, "session", "append", shared(capability.Append|capability.Break), "-", "--wait")
		late := worker.Batch()
		late.Patch(second.Key, map[string]any{"by": "the late"}).WithClaim(second.Claim)
		if _, err := late.CommitWait(bounded(t)); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("the late worker: %v", err)
		}
		var got []string
		for _, e := range readLog(t, owner) {
			if e.Method == session.MethodRelease {
				got = append(got, fmt.Sprint(e.Key, " ", e.Actor, string(e.Payload)))
			}
		}
		want := []string{fmt.Sprintf(`todo/1 owner{"claim":%d,"broken":true}`, first.Claim), fmt.Sprintf(`todo/2 owner/append-break{"claim":%d,"broken":true}`, second.Claim)}
		if !slices.Equal(got, want) {
			t.Errorf("the log says %q, want %q", got, want)
		}
	})
}
