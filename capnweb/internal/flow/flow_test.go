// The window of streams, over links that exist on paper only.

package flow

import (
	"testing"
	"time"
)

// link carries chunks at a rate, one behind the other, and acknowledges each a delay after it was through.
type link struct {
	now   time.Time
	rate  float64 // bytes a second
	delay time.Duration
	free  time.Time // when what was sent is through
	sent  []linkChunk
	took  int64 // bytes acknowledged
}

type linkChunk struct {
	Chunk
	back time.Time
}

func (l *link) send(w *Window, bytes int) {
	if l.free.Before(l.now) {
		l.free = l.now
	}
	if l.rate > 0 {
		l.free = l.free.Add(time.Duration(float64(bytes) / l.rate * float64(time.Second)))
	}
	l.sent = append(l.sent, linkChunk{w.OnSend(bytes), l.free.Add(l.delay)})
}

// ack lets time go on to the next acknowledgement.
func (l *link) ack(w *Window) {
	c := l.sent[0]
	l.sent = l.sent[1:]
	l.now = c.back
	l.took += int64(c.bytes)
	w.OnAck(c.Chunk)
}

// stream writes as fast as the window lets it, for a time.
func (l *link) stream(w *Window, chunk int, d time.Duration) (rate float64) {
	start, took := l.now, l.took
	for l.now.Sub(start) < d {
		for !w.Full() {
			l.send(w, chunk)
		}
		l.ack(w)
	}
	return float64(l.took-took) / l.now.Sub(start).Seconds()
}

func (l *link) drain(w *Window) {
	for len(l.sent) > 0 {
		l.ack(w)
	}
}

func newLink(rate float64, delay time.Duration, most int) (*link, *Window) {
	l := &link{now: time.Unix(1000, 0), rate: rate, delay: delay}
	return l, New(func() time.Time { return l.now }, most)
}

func TestWindowFindsThePath(t *testing.T) {
	const huge = 1 << 30
	for _, c := range []struct {
		name        string
		rate        float64
		delay       time.Duration
		chunk, most int
		least, high int     // where the window is in the end
		used        float64 // share of the link's rate
	}{
		{"a fast and far link is filled", 125e6, 80 * time.Millisecond, 16 << 10, huge, 10e6, 25e6, 0.95},
		{"a slow one keeps the least", 100e3, 20 * time.Millisecond, 4 << 10, huge, minWindow, minWindow, 0.99},
		{"one in between", 1e6, 200 * time.Millisecond, 8 << 10, huge, 200e3, 450e3, 0.95},
		{"bounded by the most", 125e6, 80 * time.Millisecond, 16 << 10, 1 << 20, 1 << 20, 1 << 20, 0.09},
		{"chunks larger than the window", 1e6, 50 * time.Millisecond, 1 << 20, huge, minWindow, 3 << 20, 0.9},
		{"no delay at all", 1e9, 0, 256 << 10, huge, minWindow, huge, 0.99},
		{"a most below the least", 1e6, 10 * time.Millisecond, 1 << 10, 1, minWindow, minWindow, 0.9},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, w := newLink(c.rate, c.delay, c.most)
			l.stream(w, c.chunk, 3*time.Second)
			rate := l.stream(w, c.chunk, 6*time.Second)
			if w.size < c.least || w.size > c.high {
				t.Errorf("the window is %d", w.size)
			}
			if rate < c.rate*c.used {
				t.Errorf("%.0f bytes a second of %.0f", rate, c.rate)
			}
			l.drain(w)
			if w.inFlight != 0 {
				t.Errorf("%d bytes under way that are not", w.inFlight)
			}
		})
	}
}

// A path that becomes slower gets a smaller window, one that becomes faster a larger one.
func TestWindowFollowsThePath(t *testing.T) {
	l, w := newLink(10e6, 50*time.Millisecond, 1<<30)
	l.stream(w, 8<<10, 10*time.Second)
	before := w.size
	l.rate = 2e6
	l.stream(w, 8<<10, time.Minute)
	if w.size > before/2 {
		t.Errorf("a fifth of the rate: the window went from %d to %d", before, w.size)
	}
	l.rate = 20e6
	if rate := l.stream(w, 8<<10, 20*time.Second); rate < 15e6 || w.size < before {
		t.Errorf("ten times the rate: %.0f bytes a second, window %d", rate, w.size)
	}
}

// A writer that has little to say learns nothing about the path, and loses nothing.
func TestWindowOfASlowWriter(t *testing.T) {
	l, w := newLink(10e6, 50*time.Millisecond, 1<<30)
	l.stream(w, 8<<10, 10*time.Second)
	before := w.size
	l.drain(w)
	for range 500 {
		l.now = l.now.Add(time.Second)
		l.send(w, 100)
		l.ack(w)
	}
	if w.size < before*9/10 {
		t.Errorf("the window went from %d to %d", before, w.size)
	}
}

// Nothing happens faster than the clock can tell in a process of its own.
func TestWindowWithoutTime(t *testing.T) {
	l, w := newLink(0, 0, 4<<20)
	for range 10000 {
		for !w.Full() {
			l.send(w, 1<<10)
		}
		l.ack(w)
	}
	if w.size != 4<<20 {
		t.Errorf("the window is %d", w.size)
	}
}

func TestWindowCounts(t *testing.T) {
	l, w := newLink(1e6, time.Millisecond, 1<<20)
	if w.size != initialWindow || w.Full() {
		t.Fatal("it begins wrong")
	}
	a, b := w.OnSend(initialWindow-1), Chunk{}
	if w.Full() {
		t.Error("full a byte too early")
	}
	if b = w.OnSend(1); !w.Full() || a.windowLimited || !b.windowLimited {
		t.Error("not full")
	}
	l.now = l.now.Add(time.Second)
	w.OnError(a)
	if w.inFlight != 1 || w.delivered != 0 || w.size != initialWindow {
		t.Error("a failed chunk counts as taken")
	}
	w.OnError(b)
	if c := w.OnSend(10 << 20); !c.windowLimited || !w.Full() {
		t.Error("a large chunk does not fill it")
	}
}

// Acknowledgements that were held up and come all at once are not taken for a fast path.
func TestWindowAcksInBursts(t *testing.T) {
	l, w := newLink(1e6, 100*time.Millisecond, 1<<30)
	for range 200 {
		for !w.Full() {
			l.send(w, 4<<10)
		}
		at := l.sent[len(l.sent)-1].back
		for i := range l.sent {
			l.sent[i].back = at
		}
		l.drain(w)
	}
	if w.size > 2<<20 {
		t.Errorf("the window is %d, for 100 kB a round trip", w.size)
	}
}
