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
	"github.com/mooring-rpc/mooring/ledger"
)

var (
	runTime  = flag.Duration("for", 10*time.Second, "how long histories are made, on both databases together")
	runSeed  = flag.Uint64("seed", 0, "the first plan's seed; the next plan's is one more. 0 takes the clock's")
	runPlans = flag.Uint64("plans", 0, "how many plans there are, to be played again and again; 0 is always another")
)

const (
	replicas = 3 // server processes on Postgres
	crews    = 6 // histories under way at once, each with its clients and connections
)

func TestHistories(t *testing.T) {
	binary := build(t)
	t.Run("postgres", func(t *testing.T) {
		linearizable(t, serve(t, binary, replicas, pgtest.URL(t)), *runTime*3/5)
	})
	t.Run("sqlite", func(t *testing.T) {
		linearizable(t, serve(t, binary, 1, ""), *runTime*2/5)
	})
}

// linearizable makes histories for so long and fails with the first that is refused.
func linearizable(t *testing.T, s servers, d time.Duration) {
	t.Helper()
	began := time.Now()
	totals, bad := s.histories(t.Context(), func(*totals) bool { return time.Since(began) > d })
	totals.show(t, time.Since(began))
	if bad != nil {
		bad.report(t)
		return
	}
	totals.checkBreadth(t)
}

// verdict is a history that is not in order.
type verdict struct {
	seed   uint64
	result porcupine.CheckResult
	err    error // the history came to an early end
	h      history
}

// histories plays plans, some at a time, until enough, or one of them is bad.
func (s servers) histories(ctx context.Context, enough func(*totals) bool) (*totals, *verdict) {
	seed := *runSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	all := &totals{seed: seed, counts: map[string]int{}}
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
				pl := makePlan(seed+n, len(s.addresses))
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
		t.Logf("Porcupine's page: %s", v.page(t))
	}
	t.Logf("to play this plan again and again (what meets is up to the machine):\n"+
		"go run ./internal/pgtest/cmd/pgtest -- go test -tags linear -run '^%s$' -count 1 -v -timeout 0 ./internal/linear -seed %d -plans 1 -for 1m",
		strings.ReplaceAll(t.Name(), "/", "$/^"), v.seed)
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
	longest   int           // calls in a history
	checking  time.Duration // in all
	slowest   time.Duration // check of one history
	counts    map[string]int
}

func (a *totals) add(h history, retries map[string]int, checked time.Duration) {
	a.histories++
	a.calls += len(h)
	a.longest = max(a.longest, len(h))
	a.checking += checked
	a.slowest = max(a.slowest, checked)
	for code, n := range retries {
		a.counts["to come again: "+code] += n
	}
	for _, s := range h {
		for _, what := range s.kinds() {
			a.counts[what]++
		}
	}
}

// kinds are the words under which a call is counted.
func (s seen) kinds() (words []string) {
	c, a := s.call, s.answer
	name := [...]string{"apply", "Session.revoke", "Session.revoke epoch", "describe", "events", "restore"}[c.kind]
	switch {
	case a.lost:
		return []string{name + " lost"}
	case a.refused != fault.None:
		return []string{name + " " + a.refused.String()}
	case c.kind != callApply:
		return []string{name}
	}
	if !a.told {
		words = append(words, "apply repeated")
	}
	for i, o := range a.outcomes[:c.batch.n] {
		word := [...]string{"put", "share", "revoke", "bumpEpoch"}[c.batch.ops[i].kind] + " " + o.status.String()
		if o.reason != fault.None && o.status != ledger.Conflict {
			word += " " + o.reason.String()
		}
		if o.unchanged {
			word += " unchanged"
		}
		words = append(words, word)
	}
	return words
}

func (a *totals) show(t *testing.T, d time.Duration) {
	t.Helper()
	t.Logf("seed %d: %d histories in %v (%.1f a second), %d calls (at most %d in one), checked in %v (at most %v for one)",
		a.seed, a.histories, d.Round(time.Second), float64(a.histories)/d.Seconds(), a.calls, a.longest,
		a.checking.Round(time.Millisecond), a.slowest.Round(time.Microsecond))
	for _, what := range slices.Sorted(maps.Keys(a.counts)) {
		t.Logf("%8d %s", a.counts[what], what)
	}
}

// checkBreadth fails the test if histories do not meet what they are about.
func (a *totals) checkBreadth(t *testing.T) {
	t.Helper()
	if a.histories < 200 || *runPlans > 0 {
		return // too few to tell
	}
	for _, what := range []string{
		"put applied", "put applied unchanged", "put conflict", "put denied revoked", "put denied stale_epoch", "put denied missing_right",
		"put batch_aborted revoked", "share applied", "share denied revoked", "share denied stale_epoch", "share rejected already_exists",
		"share rejected widening", "revoke applied", "revoke applied unchanged", "revoke denied revoked", "revoke denied missing_right",
		"bumpEpoch applied", "bumpEpoch denied stale_epoch", "Session.revoke", "Session.revoke revoked", "Session.revoke epoch",
		"describe", "events", "events revoked", "events stale_epoch", "restore", "restore not_yet_known", "apply repeated",
	} {
		if a.counts[what] == 0 {
			t.Errorf("in %d histories there was no %q: the plans do not reach it any more", a.histories, what)
		}
	}
	if a.counts["to come again: internal"] > 0 {
		t.Error("a server answered internal: see its log")
	}
}
