//go:build unix

package fanout

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// holding is a sink whose peer answers when it is told to.
type holding struct {
	bytes   int // that are not answered
	done    []func(error)
	upTo    uint64
	largest int // bytes of one delivery of several events
}

func (h *holding) Events(shown *session.Shown, done func(error)) {
	events := shown.Events
	before := h.bytes
	for _, e := range events {
		h.bytes += e.Bytes()
		h.upTo = e.Cursor
	}
	if len(events) > 1 {
		h.largest = max(h.largest, h.bytes-before)
	}
	h.done = append(h.done, done)
}

func (h *holding) Ended(*fault.Error) bool { return true }

// answer answers all that there is.
func (h *holding) answer() {
	done := h.done
	h.bytes, h.done = 0, nil
	for _, d := range done {
		d(nil)
	}
	synctest.Wait()
}

// A subscriber who has taken nothing yet is sent little; the more it takes, the more is on its way to it, and no more than
// its window.
func TestWindowGrowsWithWhatIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 300 << 10
		log, sink := newLogged(), &holding{}
		for i := range 400 {
			log.append([]int{4 << 10, 100 << 10}[max(0, i-398)])
		}
		h := hubOn(t, log)
		sub := &Subscription{auth: log.grant("owner", ""), conn: wideConnState(), window: initialWindow, windowMax: most, sink: sink, onStart: func(*fault.Error) {}}
		if refused := h.Subscribe(log.row.ID, sub, nil); refused != nil {
			t.Fatal(refused)
		}
		synctest.Wait()
		if sink.bytes == 0 || sink.bytes > initialWindow {
			t.Errorf("%d bytes are sent to who has taken nothing", sink.bytes)
		}
		widest := 0
		for last := uint64(0); sink.upTo > last; {
			last = sink.upTo
			sink.answer()
			if sink.bytes > most {
				t.Errorf("%d bytes are on their way", sink.bytes)
			}
			widest = max(widest, sink.bytes)
		}
		if widest < most-32<<10 || sink.upTo != log.row.Cursor {
			t.Errorf("at most %d bytes were on their way; the subscriber is at %d of %d", widest, sink.upTo, log.row.Cursor)
		}
		if sink.largest > maxDeliveryBytes || sink.largest < maxDeliveryBytes/2 {
			t.Errorf("%d bytes of several events in one delivery", sink.largest)
		}
	})
}

// turns is a sink that starts a goroutine with its first delivery, and notes with which it has run.
type turns struct {
	n, ran atomic.Int64
}

func (s *turns) Events(*session.Shown, func(error)) {
	if s.n.Add(1) == 1 {
		go func() { s.ran.Store(s.n.Load()) }()
	}
}

func (s *turns) Ended(*fault.Error) bool { return true }

// Whoever becomes able to run while a thousand followers are served does not wait for all of them. It is not parallel, as it
// takes all processors but one.
func TestOthersGetATurnBetweenDeliveries(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	sink, fan := &turns{}, &sessionFanout{}
	all := make([]delivery, 1000)
	for i := range all {
		all[i].sub = &Subscription{sink: sink, fanout: fan}
	}
	fan.deliverAll(all)
	if ran := sink.ran.Load(); ran == 0 || ran > 2*burst {
		t.Errorf("another goroutine ran after %d of %d deliveries", ran, len(all))
	}
}
