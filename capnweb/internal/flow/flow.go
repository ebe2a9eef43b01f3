// Package flow decides how many bytes of a stream may be in flight: a window that follows the path's capacity. A stream of package
// capnweb asks it, under a lock of its own. It touches nothing but the clock that it is given; a window is between 64 KiB and what
// its maker allows.
package flow

import "time"

const (
	initialWindow = 256 << 10
	minWindow     = 64 << 10
	windowGain    = 2                // the window relative to the bytes per round trip: room to find that the path carries more
	rateSamples   = 10               // round trips over which the best rate counts
	minRTTAge     = 10 * time.Second // how long the shortest round trip counts
)

// Window controls the flow of one stream. It has no lock and no timer: the writer calls Full before each chunk, waits while
// it is true, and reports what is sent and acked.
//
// It aims to keep twice the path's capacity in flight. The capacity is the best recent rate at which chunks were acked,
// times the shortest recent round trip: longer ones are queues. While the window limits the stream, the rate follows it, and
// so it doubles each round trip until something else is the limit. Chunks sent while the writer had no more to write measure
// the writer, not the path: they can only raise the rate. A round trip is only known to be short when nothing queues, so now
// and then the window is made small for one.
type Window struct {
	now      func() time.Time
	size     int // bytes
	maxBytes int

	inFlight    int
	delivered   int64     // bytes acked in total
	deliveredAt time.Time // the last ack, or the first send after silence

	minRTT      time.Duration // the shortest recent one; 0 before the first
	minRTTAt    time.Time
	probeWindow int           // window while the round trip is being probed, else 0
	probeRTT    time.Duration // the shortest round trip of the probe; 0 before the first

	round     int // counts round trips
	roundEnds int64
	rates     [rateSamples]float64 // the best of each round, bytes per second
}

// Chunk is the record of a chunk that the window needs when it is acked.
type Chunk struct {
	bytes         int
	at            time.Time
	delivered     int64
	deliveredAt   time.Time
	windowLimited bool // it filled the window
	probing       bool // it was sent during a probe
}

// New returns the window of a stream of which at most this many bytes may be in flight.
func New(now func() time.Time, most int) *Window {
	most = max(most, minWindow)
	return &Window{now: now, size: min(initialWindow, most), maxBytes: most}
}

// Full reports whether to wait before the next chunk. An empty window accepts any chunk, however large.
func (w *Window) Full() bool {
	size := w.size
	if w.probeWindow > 0 {
		size = min(size, w.probeWindow)
	}
	return w.inFlight >= size
}

// OnSend counts a chunk that is sent.
func (w *Window) OnSend(bytes int) Chunk {
	now := w.now()
	if w.inFlight == 0 {
		w.deliveredAt = now // silence is not the path's slowness
	}
	calm := w.inFlight < w.probeWindow
	w.inFlight += bytes
	return Chunk{bytes, now, w.delivered, w.deliveredAt, w.inFlight >= w.size, calm}
}

// OnError counts a chunk that failed, or will not be acked.
func (w *Window) OnError(c Chunk) { w.inFlight -= c.bytes }

// OnAck counts an acked chunk, and adjusts the window.
func (w *Window) OnAck(c Chunk) {
	now := w.now()
	w.inFlight -= c.bytes
	w.delivered += int64(c.bytes)
	w.deliveredAt = now
	best := w.bestRate()
	over := c.delivered >= w.roundEnds // everything in flight when the round began is acked
	if over {
		w.round++
		w.roundEnds = w.delivered
		w.rates[w.round%rateSamples] = 0
	}
	w.measure(now, c, over)

	took := now.Sub(c.deliveredAt)
	if took <= 0 || w.minRTT <= 0 { // faster than the clock resolves
		if c.windowLimited {
			w.resize(float64(w.size) * windowGain)
		}
		return
	}
	rate := float64(w.delivered-c.delivered) / took.Seconds()
	if !c.windowLimited {
		rate = max(rate, best)
	}
	if at := &w.rates[w.round%rateSamples]; !c.probing {
		*at = max(*at, rate)
	}
	carried := w.bestRate() * w.minRTT.Seconds()
	if size := carried * windowGain; c.windowLimited || size > float64(w.size) {
		w.resize(size)
	}
	if w.probeWindow == 0 && now.Sub(w.minRTTAt) > minRTTAge {
		w.probeWindow, w.probeRTT = max(int(carried/2), 1), 0
	}
}

// measure updates the shortest round trip. over says that a round ends.
func (w *Window) measure(now time.Time, c Chunk, over bool) {
	rtt := now.Sub(c.at)
	if w.minRTT <= 0 || rtt <= w.minRTT {
		w.minRTT, w.minRTTAt = rtt, now
		w.probeWindow = 0
		return
	}
	if w.probeWindow == 0 {
		return
	}
	if over && w.probeRTT > 0 {
		w.minRTT, w.minRTTAt, w.probeWindow = min(w.probeRTT, rtt), now, 0
		return
	}
	if c.probing && (w.probeRTT == 0 || rtt < w.probeRTT) {
		w.probeRTT = rtt
	}
}

func (w *Window) bestRate() (best float64) {
	for _, r := range w.rates {
		best = max(best, r)
	}
	return best
}

// resize sets the window within its bounds.
func (w *Window) resize(bytes float64) {
	w.size = int(min(max(bytes, minWindow), float64(w.maxBytes)))
}
