// The decision whether to ask a socket again before the reader is parked.
//
// Waking what is parked, by way of the poller, an idle processor and the scheduler, takes longer than a call on the same
// machine or in the same rack does: two programs that call one another by turns spend most of their time in it. So who
// expects an answer at once asks the socket again and again for a moment, as mutexes spin before they sleep (Karlin, Li,
// Manasse, Owicki: Empirical Studies of Competitive Spinning for a Shared-Memory Multiprocessor, SOSP 1991). It asks only
// while that has paid lately, lets other goroutines run in between, and no more than half of the processors do it.

package socket

// spinResult is what came of asking.
type spinResult int

const (
	spinMissed   spinResult = iota // nothing came
	spinUnneeded                   // it was here already: there was nothing to wait for
	spinHit                        // it came while we asked
)

// spinPolicy decides from what came of it lately whether to ask.
type spinPolicy struct {
	credit  int8 // while there is some
	skipped int8 // reads since the last attempt without
}

const (
	maxCredit  = 8
	missCost   = 2  // so that it goes on only where two of three attempts succeed
	retryAfter = 32 // reads without a credit until the next attempt
)

// shouldSpin says whether to ask before this read.
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

// record takes in what came of asking. What is here already is read without being waited for, so asking is a waste, if a
// small one.
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
