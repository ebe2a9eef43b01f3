//go:build unix

// Who gets a place for a snapshot when there are few.

package fanout

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
)

// asker is a connection that asks for places.
type asker struct {
	*snapshotSlots
	conn *Flow
	ref  string
	gone chan struct{}
	slow chan struct{} // closed when it has to go
	has  *snapshotSlot
}

func (a *asker) Done() <-chan struct{} { return a.gone }

func (p *snapshotSlots) asker(address string) *asker {
	a := &asker{snapshotSlots: p, conn: &Flow{address: address, snapshotSem: make(chan struct{}, 1)}, gone: make(chan struct{}), slow: make(chan struct{})}
	a.conn.done, a.ref = a.Done, fmt.Sprintf("%p", a)
	return a
}

// asks asks for a place; ok says, at rest, whether it is there, and how asking ended.
func (a *asker) asks(ctx context.Context) (ok func() (bool, *fault.Error)) {
	var end atomic.Pointer[*fault.Error]
	go func() {
		got, refused := a.acquire(ctx, a.conn, a.ref, func() { close(a.slow) })
		if refused == nil {
			a.has = got
		}
		end.Store(&refused)
	}()
	return func() (bool, *fault.Error) {
		synctest.Wait()
		if refused := end.Load(); refused != nil {
			return *refused == nil, *refused
		}
		return false, nil
	}
}

func TestPlacesAreSharedByConnectionAndAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSnapshotSlots(3, time.Minute, new(admission.LimitHits))
		one, two, three, other := p.asker("a"), p.asker("a"), p.asker("a"), p.asker("b")
		ctx := t.Context()
		has := func(label string, ok func() (bool, *fault.Error), want bool) {
			t.Helper()
			if got, refused := ok(); got != want || refused != nil {
				t.Fatalf("%s has a place: %v, %v", label, got, refused)
			}
		}
		has("the first", one.asks(ctx), true)
		second := one.asks(ctx)
		has("another of its connection", second, false)
		has("another connection", two.asks(ctx), true)
		third := three.asks(ctx)
		has("a third of their address", third, false)
		has("another address", other.asks(ctx), true)
		last := p.asker("b").asks(ctx)
		has("one more of that", last, false)
		one.release(one.has)
		has("the third, who came first", third, true)
		has("the first connection's second", second, false)
		has("who came last", last, false)
		three.release(three.has)
		has("who came last, whose address had fewer", last, true)
		two.release(two.has)
		has("the first connection's second, at last", second, true)
		if len(p.waiting) != 0 {
			t.Errorf("%d are in line", len(p.waiting))
		}
	})
}

func TestWaitingForAPlaceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hit := new(admission.LimitHits)
		p := newSnapshotSlots(1, time.Minute, hit)
		hog := p.asker("a")
		hog.asks(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		limited, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		left, late, gone, patient := p.asker("b"), p.asker("c"), p.asker("d"), p.asker("e")
		asked := map[string]func() (bool, *fault.Error){
			"who gave up": left.asks(ctx), "whose time was over": late.asks(limited), "whose connection ended": gone.asks(t.Context()),
			"who waits":            patient.asks(t.Context()),
			"who waits behind him": patient.asks(t.Context()),
		}
		synctest.Wait()
		cancel()
		close(gone.gone)
		ended := func(label string, want fault.Code) {
			t.Helper()
			got, refused := asked[label]()
			if got || want == fault.None && refused != nil || want != fault.None && (refused == nil || refused.Code != want) {
				t.Errorf("%s: %v, %v", label, got, refused)
			}
		}
		ended("who gave up", fault.Canceled)
		ended("whose connection ended", fault.Canceled)
		time.Sleep(2 * time.Second)
		ended("whose time was over", fault.Unavailable)
		ended("who waits", fault.None)
		time.Sleep(time.Minute)
		ended("who waits", fault.Overloaded)
		ended("who waits behind him", fault.Overloaded)
		if hit.Count(admission.LimitSnapshots) != 2 || len(p.waiting) != 0 {
			t.Errorf("the bound was met %d times, %d are in line", hit.Count(admission.LimitSnapshots), len(p.waiting))
		}
		hog.release(hog.has)
		for _, a := range []*asker{left, late, patient} {
			if got, refused := a.asks(t.Context())(); !got {
				t.Errorf("afterwards: %v", refused)
			}
			a.release(a.has)
		}
	})
}

// A ref leaves a place to all others, and of those in line who has fewest comes first.
func TestPlacesAreSharedByRef(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSnapshotSlots(3, time.Minute, new(admission.LimitHits))
		ask := func(address, ref string) (*asker, func() (bool, *fault.Error)) {
			a := p.asker(address)
			a.ref = ref
			return a, a.asks(t.Context())
		}
		has := func(label string, ok func() (bool, *fault.Error), want bool) {
			t.Helper()
			if got, refused := ok(); got != want || refused != nil {
				t.Fatalf("%s has a place: %v, %v", label, got, refused)
			}
		}
		one, first := ask("a", "link")
		has("the first", first, true)
		two, second := ask("b", "link")
		has("the second", second, true)
		_, third := ask("c", "link")
		has("a third of the same ref", third, false)
		other, own := ask("d", "own")
		has("another's", own, true)
		_, more := ask("d", "own")
		has("one more of that", more, false)
		_, late := ask("e", "third")
		has("who came last", late, false)
		two.release(two.has)
		has("who came last, and has none", late, true)
		one.release(one.has)
		has("who came first", third, true)
		other.release(other.has)
		has("the other's", more, true)
	})
}

// While others wait, who takes less than the least rate has to go, the slowest first; who takes enough, and who hinders
// nobody, stays.
func TestSlowTakersLeaveTheirPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSnapshotSlots(3, time.Minute, new(admission.LimitHits))
		fast, slow, slower := p.asker("a"), p.asker("b"), p.asker("c")
		for _, a := range []*asker{fast, slow, slower} {
			if ok, refused := a.asks(t.Context())(); !ok {
				t.Fatal(refused)
			}
		}
		ended := func(a *asker) bool {
			select {
			case <-a.slow:
				return true
			default:
				return false
			}
		}
		takes := func(seconds int) {
			for range seconds {
				for a, bytes := range map[*asker]int{fast: minSnapshotRate + 1, slow: minSnapshotRate / 2, slower: minSnapshotRate / 8} {
					p.sent(a.has, bytes)
					p.acked(a.has)
				}
				time.Sleep(time.Second)
				synctest.Wait()
			}
		}
		takes(30)
		if ended(fast) || ended(slow) || ended(slower) {
			t.Error("one had to go though nobody waits")
		}
		waits := p.asker("d")
		got := waits.asks(t.Context())
		got()
		takes(1)
		if ended(fast) || ended(slow) || !ended(slower) {
			t.Errorf("had to go: %v %v %v", ended(fast), ended(slow), ended(slower))
		}
		slower.release(slower.has)
		if ok, refused := got(); !ok {
			t.Errorf("who waited has no place: %v", refused)
		}
		takes(10)
		if ended(fast) || ended(slow) || ended(waits) {
			t.Error("one had to go though nobody waits any more")
		}
	})
}
