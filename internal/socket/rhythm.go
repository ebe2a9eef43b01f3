// The decision whether to ask a socket again before the reader is parked.
//
// Waking what is parked, by way of the poller, an idle processor and the scheduler, takes longer than a call on the same
// machine or in the same rack does: two programs that call one another by turns spend most of their time in it. So who
// expects an answer at once asks the socket again and again for a moment, as mutexes spin before they sleep (Karlin, Li,
// Manasse, Owicki: Empirical Studies of Competitive Spinning for a Shared-Memory Multiprocessor, SOSP 1991). It asks only
// while that has paid lately, lets other goroutines run in between, and no more than half of the processors do it.

package socket

// outcome is what came of asking.
type outcome int

const (
	late  outcome = iota // nothing came
	here                 // it was here already: there was nothing to wait for
	timed                // it came while we asked
)

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
