// The decision whether to poll a socket before the reader is parked.
//
// Waking a parked goroutine, by way of the poller, an idle processor and the scheduler, takes longer than a call on the same
// machine or in the same rack: two programs that call one another by turns spend most of their time in it. So a reader that
// expects an answer at once polls the socket for a moment, as mutexes spin before they sleep (Karlin, Li,
// Manasse, Owicki: Empirical Studies of Competitive Spinning for a Shared-Memory Multiprocessor, SOSP 1991). It polls only
// while that has paid lately, lets other goroutines run in between, and no more than half of the processors do it. Without it,
// one echo after the other runs at 0.31 of the speed (docs/benchmarks.md, "Tricks on trial").

package socket

// spinResult is the result of polling.
type spinResult int

const (
	spinMissed   spinResult = iota // nothing arrived
	spinUnneeded                   // input was there already: there was nothing to wait for
	spinHit                        // input arrived while polling
)

// spinPolicy decides from recent results whether to poll.
type spinPolicy struct {
	credit  int8 // polls while it is positive
	skipped int8 // reads without polling since the last attempt
}

const (
	maxCredit  = 8
	missCost   = 2  // so that it goes on only where two of three attempts succeed
	retryAfter = 32 // reads without a credit until the next attempt
)

// shouldSpin reports whether to poll before this read.
func (r *spinPolicy) shouldSpin() bool {
	if r.credit > 0 {
		return true
	}
	if r.skipped++; r.skipped < retryAfter {
		return false
	}
	r.skipped = 0
	return true
}

// record records the result of polling. Input that is there already is read without waiting, so polling is a small waste.
func (r *spinPolicy) record(o spinResult) {
	switch o {
	case spinHit:
		r.credit = min(r.credit+1, maxCredit)
	case spinUnneeded:
		r.credit = max(r.credit-1, 0)
	case spinMissed:
		r.credit = max(r.credit-missCost, 0)
	}
}
