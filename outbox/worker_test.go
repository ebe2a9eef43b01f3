package outbox

import (
	"fmt"
	"testing"
	"time"
)

// TestWhatATransactionTakes: which jobs go together, which wait for company, and how long.
func TestWhatATransactionTakes(t *testing.T) {
	t.Parallel()
	const delay = time.Minute // AckDelay
	jobs := func(n int, like job) (js []*job) {
		for range n {
			j := like
			js = append(js, &j)
		}
		return js
	}
	lazy, commit, other := job{lazy: true}, job{commit: true}, job{}
	withdrawn := job{commit: true, state: withdrawn}
	for name, c := range map[string]struct {
		before  func(w *worker)
		jobs    [][]*job
		after   func(w *worker)
		takes   string // lazy ones, commits, others
		left    int
		atMost  time.Duration // to wait, if nothing is taken
		atLeast time.Duration
	}{
		"nothing":                         {takes: "0 0 0", atMost: time.Hour, atLeast: time.Hour},
		"a lazy one":                      {jobs: [][]*job{jobs(1, lazy)}, takes: "0 0 0", left: 1, atMost: delay, atLeast: delay / 2},
		"a lazy one that has waited":      {jobs: [][]*job{jobs(1, lazy)}, after: func(w *worker) { w.oldest = w.oldest.Add(-delay) }, takes: "1 0 0"},
		"many lazy ones":                  {jobs: [][]*job{jobs(lazyJobs, lazy)}, takes: fmt.Sprint(lazyJobs, 0, 0)},
		"one less":                        {jobs: [][]*job{jobs(lazyJobs-1, lazy)}, takes: "0 0 0", left: lazyJobs - 1, atMost: delay, atLeast: delay / 2},
		"a lazy one when it is closed":    {jobs: [][]*job{jobs(1, lazy)}, after: func(w *worker) { w.closing = true }, takes: "1 0 0"},
		"nothing when it is closed":       {after: func(w *worker) { w.closing = true }, takes: "0 0 0"},
		"a commit leaves lazy ones":       {jobs: [][]*job{jobs(1, commit), jobs(2, lazy), jobs(1, commit)}, takes: "0 2 0", left: 2},
		"a commit takes those along":      {jobs: [][]*job{jobs(2, lazy), jobs(1, commit)}, after: func(w *worker) { w.oldest = w.oldest.Add(-delay) }, takes: "2 1 0"},
		"another takes lazy ones along":   {jobs: [][]*job{jobs(1, lazy), jobs(1, commit), jobs(1, other), jobs(1, lazy)}, takes: "2 1 1"},
		"no more than it has room for":    {jobs: [][]*job{jobs(groupJobs-1, commit), jobs(3, other)}, takes: fmt.Sprint(0, groupJobs-1, 1), left: 2},
		"one that was taken back":         {jobs: [][]*job{jobs(1, withdrawn), jobs(1, commit), jobs(2, withdrawn)}, takes: "0 1 0"},
		"only such":                       {jobs: [][]*job{jobs(2, withdrawn)}, takes: "0 0 0"},
		"lazy ones that failed":           {before: func(w *worker) { w.giveBack(jobs(2*lazyJobs, lazy)) }, takes: "0 0 0", left: 2 * lazyJobs, atMost: delay / 2, atLeast: delay / 4},
		"such when it is closed":          {before: func(w *worker) { w.giveBack(jobs(1, lazy)); w.closing = true }, takes: "0 0 0", left: 1, atMost: delay / 2, atLeast: delay / 4},
		"such with what cannot wait":      {before: func(w *worker) { w.giveBack(jobs(2, lazy)) }, jobs: [][]*job{jobs(1, other)}, takes: "2 0 1"},
		"such with a commit":              {before: func(w *worker) { w.giveBack(jobs(2, lazy)) }, jobs: [][]*job{jobs(1, commit)}, takes: "0 1 0", left: 2},
		"a lazy one after what goes soon": {before: func(w *worker) { w.oldest = time.Now().Add(-time.Hour) }, jobs: [][]*job{jobs(1, commit), jobs(1, lazy)}, takes: "0 1 0", left: 1},
	} {
		w := &worker{box: &Box{cfg: Config{AckDelay: delay}}, rest: delay / 2}
		if c.before != nil {
			c.before(w)
		}
		for _, js := range c.jobs {
			for _, j := range js {
				if !w.queue(j) {
					t.Fatal("closed")
				}
			}
		}
		if c.after != nil {
			c.after(w)
		}
		var n [3]int
		group, wait := w.take()
		for _, j := range group {
			switch {
			case j.lazy:
				n[0]++
			case j.commit:
				n[1]++
			default:
				n[2]++
			}
			if j.state != taken {
				t.Errorf("%s: a job is in state %d", name, j.state)
			}
		}
		if got := fmt.Sprint(n[0], n[1], n[2]); got != c.takes || len(w.jobs) != c.left {
			t.Errorf("%s: takes %s and leaves %d, want %s and %d", name, got, len(w.jobs), c.takes, c.left)
		}
		if len(group) == 0 && (wait > c.atMost || wait < c.atLeast) {
			t.Errorf("%s: waits for %v", name, wait)
		}
		urgent := 0
		for _, j := range w.jobs {
			if !j.lazy {
				urgent++
			}
		}
		if w.urgent != urgent {
			t.Errorf("%s: counts %d that are urgent of %d", name, w.urgent, urgent)
		}
	}
}
