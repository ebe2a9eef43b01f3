// How much of a stream may be under way: a window in bytes that follows what the path takes.

package capnweb

import "time"

const (
	initialWindow = 256 << 10
	minWindow     = 64 << 10
	windowGain    = 2                // the window over what one round trip carries: room to find out that it carries more
	rateSamples   = 10               // round trips for which the best rate counts
	minRTTAge     = 10 * time.Second // for how long the shortest round trip counts
)

// window controls the flow of one stream. It holds no lock and no timer: whoever writes asks full before each chunk,
// waits while it says yes, and tells what is sent and what became of it.
//
// It wants to keep under way what the path carries in a round trip, twice over. What it carries is the best rate at which
// chunks were acknowledged of late, times the shortest round trip of late: longer ones are queues. While the window is
// what holds the stream up, the rate follows it, and so it doubles each round trip until something else does. Chunks sent
// while the writer had no more to say tell of the writer, not of the path: they can only raise the rate. A round trip is
// only known to be short when nothing queues, so now and then the window is made small for one.
type window struct {
	now      func() time.Time
	size     int // bytes
	maxBytes int

	inFlight    int
	delivered   int64     // bytes acknowledged in all
	deliveredAt time.Time // the last time, or when something was first sent after silence

	minRTT      time.Duration // the shortest of late; 0 before the first
	minRTTAt    time.Time
	probeWindow int           // while the round trip is measured anew: what may be under way, else 0
	probeRTT    time.Duration // the shortest round trip measured so; 0 before the first

	round     int // counts round trips
	roundEnds int64
	rates     [rateSamples]float64 // the best of each round, bytes a second
}

// sentChunk is what the window wants back when a chunk is acknowledged.
type sentChunk struct {
	bytes         int
	at            time.Time
	delivered     int64
	deliveredAt   time.Time
	windowLimited bool // the window was full with it
	probing       bool // it was sent while the round trip is measured
}

// newWindow makes the window of a stream of which most bytes may be under way.
func newWindow(now func() time.Time, most int) *window {
	most = max(most, minWindow)
	return &window{now: now, size: min(initialWindow, most), maxBytes: most}
}

// full says whether to wait before the next chunk. An empty window takes any chunk, however large.
func (w *window) full() bool {
	size := w.size
	if w.probeWindow > 0 {
		size = min(size, w.probeWindow)
	}
	return w.inFlight >= size
}

// onSend counts a chunk that leaves.
func (w *window) onSend(bytes int) sentChunk {
	now := w.now()
	if w.inFlight == 0 {
		w.deliveredAt = now // silence is not the path's slowness
	}
	calm := w.inFlight < w.probeWindow
	w.inFlight += bytes
	return sentChunk{bytes, now, w.delivered, w.deliveredAt, w.inFlight >= w.size, calm}
}

// onError counts a chunk that failed, or of which nothing will be heard.
func (w *window) onError(c sentChunk) { w.inFlight -= c.bytes }

// onAck counts a chunk that the peer has taken, and sets the window by it.
func (w *window) onAck(c sentChunk) {
	now := w.now()
	w.inFlight -= c.bytes
	w.delivered += int64(c.bytes)
	w.deliveredAt = now
	best := w.bestRate()
	over := c.delivered >= w.roundEnds // all that was under way when the round began is acknowledged
	if over {
		w.round++
		w.roundEnds = w.delivered
		w.rates[w.round%rateSamples] = 0
	}
	w.measure(now, c, over)

	took := now.Sub(c.deliveredAt)
	if took <= 0 || w.minRTT <= 0 { // faster than the clock can tell
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

// measure keeps the shortest round trip. over says that a round ends.
func (w *window) measure(now time.Time, c sentChunk, over bool) {
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

func (w *window) bestRate() (best float64) {
	for _, r := range w.rates {
		best = max(best, r)
	}
	return best
}

// resize sets the window within its bounds.
func (w *window) resize(bytes float64) {
	w.size = int(min(max(bytes, minWindow), float64(w.maxBytes)))
}
