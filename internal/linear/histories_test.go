//go:build linear

package linear

// Histories by the thousand. "make linearize" runs them, or
//
//	go run ./internal/pgtest/cmd/pgtest -- go test -tags linear -run Histories -count 1 -v -timeout 0 ./internal/linear -for 10m

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/ledger"
)

var (
	runTime  = flag.Duration("for", 10*time.Second, "how long histories are made, in all parts together")
	runPlans = flag.Uint64("plans", 0, "how many plans there are, to be played again and again; 0 is always another")
)

const (
	replicas = 3 // server processes on Postgres
	crews    = 6 // histories under way at once, each with its clients and connections
)

func TestHistories(t *testing.T) {
	binary := build(t)
	t.Run("postgres", func(t *testing.T) {
		linearizable(t, serve(t, binary, replicas, pgtest.URL(t)), *runTime*2/5)
	})
	t.Run("postgres and kill -9", func(t *testing.T) {
		s := serve(t, binary, replicas, pgtest.URL(t))
		ctx, cancel := context.WithCancel(t.Context())
		var reaping sync.WaitGroup
		reaping.Go(func() {
			killed, err := s.reap(ctx)
			if err != nil {
				t.Error(err)
			}
			t.Logf("killed %d servers", killed)
		})
		linearizable(t, s, *runTime/5)
		cancel()
		reaping.Wait()
	})
	t.Run("sqlite", func(t *testing.T) {
		linearizable(t, serve(t, binary, 1, ""), *runTime*2/5)
	})
}

// linearizable makes histories for so long and fails with the first that is refused.
func linearizable(t *testing.T, s servers, d time.Duration) {
	t.Helper()
	began := time.Now()
	totals, bad := s.histories(t.Context(), seed.Of(t), false, func(*totals) bool { return time.Since(began) > d })
	totals.show(t, time.Since(began))
	if bad != nil {
		bad.report(t)
		return
	}
	totals.checkDefects(t)
	totals.checkBreadth(t)
}

// verdict is a history that is not in order.
type verdict struct {
	seed   uint64
	result porcupine.CheckResult
	err    error // the history came to an early end
	h      history
}

// histories plays plans of a seed and those after it, some at a time, until enough, or one of them is bad.
func (s servers) histories(ctx context.Context, seed uint64, stern bool, enough func(*totals) bool) (*totals, *verdict) {
	all := &totals{seed: seed, counts: map[string]map[string]int{}}
	var mu sync.Mutex
	var bad *verdict
	next := uint64(0)
	var working sync.WaitGroup
	for range crews {
		working.Go(func() {
			crew := make([]*client, maxClients)
			for i := range crew {
				crew[i] = &client{number: i, addresses: s.addresses, peers: make([]*peer, len(s.addresses))}
				defer crew[i].close()
			}
			for {
				mu.Lock()
				if bad != nil || enough(all) {
					mu.Unlock()
					return
				}
				n := next
				next++
				mu.Unlock()
				if *runPlans > 0 {
					n %= *runPlans
				}
				pl := makePlan(seed+n, len(s.addresses), stern)
				h, retries, err := play(ctx, s.space, crew, pl)
				from := time.Now()
				result := h.check()
				mu.Lock()
				all.add(h, retries, time.Since(from))
				if bad == nil && (result != porcupine.Ok || err != nil) {
					bad = &verdict{pl.seed, result, err, h}
				}
				mu.Unlock()
			}
		})
	}
	working.Wait()
	return all, bad
}

// report fails the test with all there is to say of a history.
func (v *verdict) report(t *testing.T) {
	t.Helper()
	if v.err != nil {
		t.Errorf("the history of seed %d came to an early end: %v", v.seed, v.err)
	}
	switch v.result {
	case porcupine.Unknown:
		t.Errorf("the history of seed %d could not be checked in %v: make histories smaller or the model faster", v.seed, checkTime)
	case porcupine.Illegal:
		t.Errorf("the history of seed %d is not linearizable", v.seed)
	}
	t.Logf("the calls, in the order in which they were made:\n%s", v.h)
	if v.result == porcupine.Illegal {
		t.Log(v.oddities())
		t.Logf("Porcupine's page: %s", v.page(t))
	}
	t.Logf("to play this plan again and again (what meets is up to the machine):\n"+
		"SEED=%d go run ./internal/pgtest/cmd/pgtest -- go test -tags linear -run '^%s$' -count 1 -v -timeout 0 ./internal/linear -plans 1 -for 1m",
		v.seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
}

// oddities says which calls are to be looked at first.
func (v *verdict) oddities() string {
	odd := v.h.odd()
	if len(odd) == 0 {
		return "more than one answer must have been another for it to be in order"
	}
	return fmt.Sprintf("it would be in order if this had been answered otherwise (or this, where there are more):\n%s", odd)
}

// page writes Porcupine's page to where it outlives the test.
func (v *verdict) page(t *testing.T) string {
	dir, err := os.MkdirTemp("", fmt.Sprintf("mooring-history-%d-", v.seed))
	if err != nil {
		t.Fatal(err)
	}
	path, err := v.h.visualize(dir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// totals are what histories came to.
type totals struct {
	seed      uint64
	histories int
	calls     int
	longest   int                       // calls in a history
	checking  time.Duration             // in all
	slowest   time.Duration             // check of one history
	counts    map[string]map[string]int // what was called, or sent → what it came to
}

func (a *totals) add(h history, retries map[string]int, checked time.Duration) {
	a.histories++
	a.calls += len(h)
	a.longest = max(a.longest, len(h))
	a.checking += checked
	a.slowest = max(a.slowest, checked)
	for code, n := range retries {
		a.count("to come again", code, n)
	}
	for _, s := range h {
		s.count(func(what, result string) { a.count(what, result, 1) })
	}
}

func (a *totals) count(what, result string, n int) {
	if a.counts[what] == nil {
		a.counts[what] = map[string]int{}
	}
	a.counts[what][result] += n
}

// count counts a call, and the ops of a batch one by one.
func (s seen) count(one func(what, result string)) {
	c, a := s.call, s.answer
	name := [...]string{"batch", "Session.revoke", "Session.revoke epoch", "describe", "events", "restore"}[c.kind]
	switch {
	case a.lost:
		one(name, "lost")
		return
	case a.refused != fault.None:
		one(name, a.refused.String())
		return
	case c.kind == callApply && !a.cursorKnown:
		one(name, "repeated")
	default:
		one(name, "answered")
	}
	for i, o := range a.outcomes[:c.batch.n] {
		result := o.status.String()
		switch {
		case o.unchanged:
			result = "unchanged"
		case o.reason != fault.None && o.status != ledger.Conflict:
			result += " " + o.reason.String()
		}
		one([...]string{"put", "share", "revoke", "bumpEpoch", "revert", "unrevert"}[c.batch.ops[i].kind], result)
	}
}

func (a *totals) show(t *testing.T, d time.Duration) {
	t.Helper()
	t.Logf("seed %d: %d histories in %v (%.1f a second), %d calls (at most %d in one), checked in %v (at most %v for one)",
		a.seed, a.histories, d.Round(time.Second), float64(a.histories)/d.Seconds(), a.calls, a.longest,
		a.checking.Round(time.Millisecond), a.slowest.Round(time.Microsecond))
	for _, what := range slices.Sorted(maps.Keys(a.counts)) {
		results := a.counts[what]
		var words []string
		for _, result := range slices.SortedFunc(maps.Keys(results), func(x, y string) int { return results[y] - results[x] }) {
			words = append(words, fmt.Sprintf("%d %s", results[result], result))
		}
		t.Logf("  %s: %s", what, strings.Join(words, ", "))
	}
}

// checkBreadth fails the test if histories do not meet what they are about.
func (a *totals) checkBreadth(t *testing.T) {
	t.Helper()
	if a.histories < 200 || *runPlans > 0 {
		return // too few to tell
	}
	for what, results := range map[string][]string{
		"put": {"applied", "unchanged", "conflict", "denied revoked", "denied stale_epoch", "denied missing_right",
			"batch_aborted revoked", "batch_aborted conflict", "rejected reverted", "batch_aborted reverted"},
		"revert":               {"applied", "unchanged", "rejected not_found", "denied revoked", "denied stale_epoch", "denied missing_right"},
		"unrevert":             {"applied", "rejected not_reverted", "denied revoked"},
		"share":                {"applied", "denied revoked", "denied stale_epoch", "rejected already_exists", "rejected widening"},
		"revoke":               {"applied", "unchanged", "denied revoked", "denied missing_right"},
		"bumpEpoch":            {"applied", "denied stale_epoch"},
		"Session.revoke":       {"answered", "revoked", "missing_right", "lost"},
		"Session.revoke epoch": {"answered"},
		"describe":             {"answered"},
		"events":               {"answered", "revoked", "stale_epoch"},
		"restore":              {"answered", "not_yet_known"},
		"batch":                {"answered", "repeated"},
	} {
		for _, result := range results {
			if a.counts[what][result] == 0 {
				t.Errorf("in %d histories no %s came to %s: the plans do not reach it any more", a.histories, what, result)
			}
		}
	}
}

// checkDefects fails the test if servers failed at something, which clients do
// not notice: they come again.
func (a *totals) checkDefects(t *testing.T) {
	t.Helper()
	for what, results := range a.counts {
		if n := results[fault.Internal.String()]; n > 0 {
			t.Errorf("%s: the servers answered internal %d times, which is a defect of theirs", what, n)
		}
	}
}
