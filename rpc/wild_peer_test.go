// A wild peer: it knows what is alive on both sides, says things that hit it, and now and then lies: with numbers one
// off, used up or of another kind, with tags that do not fit, with pointers and bytes that are wrong. Its other half is
// wildProgram, behind the vat. Dice decide everything: random ones with a seed, or a fuzzer's bytes.

package rpc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// dice decide. When a fuzzer's bytes are used up all is over.
type dice struct {
	rnd   *rand.Rand
	bytes []byte
	left  int // steps, for random ones
}

func seeded(seed uint64) *dice {
	d := &dice{rnd: rand.New(rand.NewPCG(seed, 7))}
	d.left = 20 + d.n(100)
	if d.n(50) == 0 {
		d.left *= 20
	}
	return d
}

// n gives a number below k.
func (d *dice) n(k int) int {
	switch {
	case d.rnd != nil:
		return d.rnd.IntN(k)
	case len(d.bytes) == 0:
		return 0
	case k > 256 && len(d.bytes) > 1:
		v := int(d.bytes[0]) | int(d.bytes[1])<<8
		d.bytes = d.bytes[2:]
		return v % k
	}
	v := int(d.bytes[0])
	d.bytes = d.bytes[1:]
	return v % k
}

func (d *dice) over() bool {
	if d.rnd == nil {
		return len(d.bytes) == 0
	}
	d.left--
	return d.left < 0
}

// wild is one connection of a wild peer.
type wild struct {
	d      *dice
	c      *Conn
	p      *wildProgram
	b      *books
	pen    pen
	client bool // the vat is the client, the peer the server
	lies   int  // one message in so many is a lie; 0 is none
	sent   int  // messages
	logged []string
	panics []string
	story  *[]string // what happened, if somebody wants to read it
}

// wildLimits are low, so that they are met.
var wildLimits = Limits{
	MessageBytes: 64 << 10, Segments: 16, Traversal: 1 << 20, Nesting: 32, Answers: 48, AnswerBytes: 256 << 10,
	Exports: 48, Imports: 48, QueuedCalls: 12, QueuedBytes: 256 << 10, Questions: 40,
}

func newWild(d *dice, t Transport, threads bool) *wild {
	w := &wild{d: d, b: newBooks(), client: d.n(2) == 1, lies: []int{0, 200, 40, 8}[d.n(4)]}
	w.p = &wildProgram{d: d, threads: threads}
	w.p.made.Add(1)
	w.p.boot = &wildObject{p: w.p}
	w.b.honest = w.lies == 0
	w.c = NewConn(t, Config{Bootstrap: w.p.boot, Limits: wildLimits, Trace: w.trace, Logger: slog.New(wildLog{w: w})})
	w.p.c = w.c
	w.p.counted(w.c.boot)
	return w
}

func (w *wild) trace(dir string, m rpccp.Message) {
	if w.story != nil {
		*w.story = append(*w.story, dir+" "+formatMessage(m))
	}
	w.b.trace(dir, m)
}

// wildLog counts the log's lines about connections, and panics of the core.
type wildLog struct {
	slog.Handler
	w *wild
}

func (wildLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l wildLog) Handle(_ context.Context, r slog.Record) error {
	l.w.p.mu.Lock()
	defer l.w.p.mu.Unlock()
	switch {
	case strings.HasPrefix(r.Message, "connection "):
		l.w.logged = append(l.w.logged, r.Message)
	case strings.HasPrefix(r.Message, "message handler panicked"), strings.HasPrefix(r.Message, "a notification"):
		l.w.panics = append(l.w.panics, r.Message)
		r.Attrs(func(a slog.Attr) bool { l.w.panics = append(l.w.panics, a.String()); return true })
	}
	return nil
}

func (w *wild) tell(what string) {
	if w.story != nil {
		*w.story = append(*w.story, what)
	}
}

// runManual runs one connection without goroutines, and says what was wrong.
func (w *wild) runManual() error {
	w.c.loop.Manual = true
	ctx := noWaitCtx
	for !w.d.over() && !w.b.ended {
		switch act := w.d.n(8); {
		case act == 7 || w.client && act > 3:
			w.tell("the program: " + w.p.step(ctx))
		default:
			w.c.mu.Lock()
			frame := w.message()
			if w.c.ended == nil && frame != nil {
				w.take(frame)
			}
			w.c.unlockAndRun()
		}
		if w.d.n(3) > 0 {
			w.drain()
		}
	}
	w.drain()
	w.c.mu.Lock()
	if w.c.ended == nil {
		w.b.compare(&w.c.core)
		w.b.check(!w.p.boot.gone.Load(), "the bootstrap object is released already")
	}
	w.c.unlockAndRun()
	w.finish()
	return w.verdict()
}

// take has the vat take a message in, in memory that is then used for another.
func (w *wild) take(frame []byte) {
	for len(frame) > 0 && w.c.ended == nil {
		one, rest, err := framing.Split(frame, w.c.limits.frame())
		if err == nil {
			err = w.c.handle(one)
		}
		if err != nil {
			w.c.loop.EndLocked(abortEnding(err))
		}
		frame = rest
	}
	for i := range w.pen.b {
		w.pen.b[i] = 0xa5
	}
}

// drain delivers what is due, on the connection and within the vat.
func (w *wild) drain() {
	for {
		w.c.mu.Lock()
		w.c.out.TakeMessages()
		w.c.mu.Unlock()
		w.c.loop.Deliver()
		due := w.p.due
		if len(due) == 0 {
			return
		}
		w.p.due = nil
		for _, f := range due {
			f()
		}
	}
}

// finish ends the connection in one of the ways it can end, and lets go of everything.
func (w *wild) finish() {
	switch w.d.n(4) {
	case 0:
		w.c.Close("over")
	case 1:
		w.c.loop.End(transportEnding(io.ErrUnexpectedEOF))
	case 2:
		w.c.loop.End(transportEnding(io.EOF))
	case 3:
		_ = w.c.Drain(noWaitCtx, "over") // its error is the context's
	}
	w.settle(w.drain)
}

// settle waits until nothing is left.
func (w *wild) settle(drain func()) {
	for end := time.Now().Add(settleTime); ; runtime.Gosched() {
		w.c.failOrphans()
		drain()
		if w.p.letGo() && w.p.made.Load() == w.p.freed.Load() {
			break
		}
		if time.Now().After(end) {
			break
		}
	}
}

// verdict checks that nothing is left and nothing went wrong.
func (w *wild) verdict() error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	s := w.c.Stats()
	switch {
	case w.b.wrong != "":
		return fmt.Errorf("the vat broke the protocol: %s", w.b.wrong)
	case len(w.panics) > 0:
		return fmt.Errorf("the vat panicked: %s", w.panics)
	case w.p.made.Load() != w.p.freed.Load() || w.p.twice.Load() > 0:
		return fmt.Errorf("of %d objects %d were released, %d twice or used after", w.p.made.Load(), w.p.freed.Load(),
			w.p.twice.Load())
	case s.Questions+s.Answers+s.Exports+s.Imports+s.Embargoes+s.QueuedCalls != 0:
		return fmt.Errorf("tables are not empty: %+v", s)
	case len(w.c.lanes) != 0:
		return fmt.Errorf("%d promises remember the connection", len(w.c.lanes))
	case slices.ContainsFunc(w.p.counts, func(n *localCap) bool { return n.refs.Load() != 0 }):
		return fmt.Errorf("an object's references are not counted right")
	case len(w.logged) > 1:
		return fmt.Errorf("the end was logged as %q", w.logged)
	case w.lies == 0 && !w.p.threads && w.c.loop.Ending().Abort != nil: // with threads messages cross
		return fmt.Errorf("the vat aborted an honest peer: %s", w.c.loop.Ending().Abort)
	}
	return nil
}

// settleTime is how long all may take to be released. Without goroutines it takes no time at all.
const settleTime = 20 * time.Second
