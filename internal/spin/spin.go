// Package spin has a connection's reader ask for bytes a few times more before its goroutine is parked.
//
// Waking what is parked, by way of the poller, an idle processor and the scheduler, takes longer than a call on the same
// machine or in the same rack does: two programs that call one another by turns spend most of their time in it. So who
// expects an answer at once asks the socket again and again for a moment, as mutexes spin before they sleep (Karlin, Li,
// Manasse, Owicki: Empirical Studies of Competitive Spinning for a Shared-Memory Multiprocessor, SOSP 1991). It asks only
// while that has paid lately, lets other goroutines run in between, and no more than half of the processors do it.
package spin

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// longest is how long to ask at most. A peer that is parked itself takes half of that to answer the first time, and only
// when both have answered at once do both find that it pays.
const longest = 100 * time.Microsecond

// spinning is how many of this process ask at present.
var spinning atomic.Int32

// Waiter waits before the reads of one connection. It is for who reads: nothing of it may be called concurrently.
// A nil Waiter is valid and never waits.
type Waiter struct {
	raw    syscall.RawConn
	ask    func(fd uintptr) bool // made once, so that asking allocates nothing
	came   bool                  // what ask found
	most   int32                 // of all connections that may ask at once
	rhythm rhythm
}

// New makes a Waiter for a connection over a socket, TLS on top or not. It is nil where there is nothing to be gained:
// with one processor, on systems whose sockets cannot be asked, and for connections without one.
func New(conn net.Conn) *Waiter {
	return newWaiter(conn, int32(runtime.GOMAXPROCS(0)/2))
}

func newWaiter(conn net.Conn, most int32) *Waiter {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok || !canAsk || most == 0 {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	w := &Waiter{raw: raw, most: most, rhythm: rhythm{credit: 1}}
	w.ask = func(fd uintptr) bool {
		w.came = readable(fd)
		return true // whatever it says: do not park
	}
	return w
}

// Wait returns when there is something to be read (an error among it), or a moment later if there is not. It may return
// at once, too: the read that follows is what waits.
func (w *Waiter) Wait() {
	if w == nil || !w.rhythm.tries() {
		return
	}
	if spinning.Add(1) <= w.most {
		w.rhythm.learn(w.spin())
	}
	spinning.Add(-1)
}

// outcome is what came of asking.
type outcome int

const (
	late  outcome = iota // nothing came
	here                 // it was here already: there was nothing to wait for
	timed                // it came while we asked
)

func (w *Waiter) spin() outcome {
	begun := time.Now()
	for first := true; ; first = false {
		w.came = false
		switch err := w.raw.Read(w.ask); {
		case err != nil: // closed, or beyond its deadline, as the read will say
			return here
		case w.came && first:
			return here
		case w.came:
			return timed
		case time.Since(begun) >= longest:
			return late
		}
		runtime.Gosched()
	}
}

// rhythm decides from what came of it lately whether to ask.
type rhythm struct {
	credit  int8 // while there is some
	skipped int8 // reads since the last attempt without
}

const (
	mostCredit = 8
	lateCosts  = 2  // so that it goes on only where two of three attempts succeed
	skips      = 32 // reads without a credit until the next attempt
)

// tries says whether to ask before this read.
func (r *rhythm) tries() bool {
	if r.credit > 0 {
		return true
	}
	if r.skipped++; r.skipped < skips {
		return false
	}
	r.skipped = 0
	return true
}

// learn takes in what came of asking. What is here already is read without being waited for, so asking is a waste, if a
// small one.
func (r *rhythm) learn(o outcome) {
	switch o {
	case timed:
		r.credit = min(r.credit+1, mostCredit)
	case here:
		r.credit = max(r.credit-1, 0)
	case late:
		r.credit = max(r.credit-lateCosts, 0)
	}
}
