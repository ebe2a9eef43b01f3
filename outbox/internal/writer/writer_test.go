package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// TestTransactionBounds: which jobs go together, which wait for company, and how long.
func TestTransactionBounds(t *testing.T) {
	t.Parallel()
	const delay = time.Minute // AckDelay
	jobs := func(n int, like Job) (js []*Job) {
		for range n {
			j := like
			js = append(js, &j)
		}
		return js
	}
	lazy, commit, other := Job{Lazy: true}, Job{Commit: true}, Job{}
	withdrawn := Job{Commit: true, state: jobWithdrawn}
	for name, c := range map[string]struct {
		before  func(w *Writer)
		jobs    [][]*Job
		after   func(w *Writer)
		takes   string // lazy ones, commits, others
		left    int
		atMost  time.Duration // to wait, if nothing is taken
		atLeast time.Duration
	}{
		"nothing":                         {takes: "0 0 0", atMost: time.Hour, atLeast: time.Hour},
		"a lazy one":                      {jobs: [][]*Job{jobs(1, lazy)}, takes: "0 0 0", left: 1, atMost: delay, atLeast: delay / 2},
		"a lazy one that has waited":      {jobs: [][]*Job{jobs(1, lazy)}, after: func(w *Writer) { w.oldest = w.oldest.Add(-delay) }, takes: "1 0 0"},
		"many lazy ones":                  {jobs: [][]*Job{jobs(MaxLazyJobs, lazy)}, takes: fmt.Sprint(MaxLazyJobs, 0, 0)},
		"one less":                        {jobs: [][]*Job{jobs(MaxLazyJobs-1, lazy)}, takes: "0 0 0", left: MaxLazyJobs - 1, atMost: delay, atLeast: delay / 2},
		"a lazy one when it is closed":    {jobs: [][]*Job{jobs(1, lazy)}, after: func(w *Writer) { w.closing = true }, takes: "1 0 0"},
		"nothing when it is closed":       {after: func(w *Writer) { w.closing = true }, takes: "0 0 0"},
		"a commit leaves lazy ones":       {jobs: [][]*Job{jobs(1, commit), jobs(2, lazy), jobs(1, commit)}, takes: "0 2 0", left: 2},
		"a commit takes those along":      {jobs: [][]*Job{jobs(2, lazy), jobs(1, commit)}, after: func(w *Writer) { w.oldest = w.oldest.Add(-delay) }, takes: "2 1 0"},
		"another takes lazy ones along":   {jobs: [][]*Job{jobs(1, lazy), jobs(1, commit), jobs(1, other), jobs(1, lazy)}, takes: "2 1 1"},
		"no more than it has room for":    {jobs: [][]*Job{jobs(maxGroupJobs-1, commit), jobs(3, other)}, takes: fmt.Sprint(0, maxGroupJobs-1, 1), left: 2},
		"one that was taken back":         {jobs: [][]*Job{jobs(1, withdrawn), jobs(1, commit), jobs(2, withdrawn)}, takes: "0 1 0"},
		"only such":                       {jobs: [][]*Job{jobs(2, withdrawn)}, takes: "0 0 0"},
		"lazy ones that failed":           {before: func(w *Writer) { w.requeue(jobs(2*MaxLazyJobs, lazy)) }, takes: "0 0 0", left: 2 * MaxLazyJobs, atMost: delay / 2, atLeast: delay / 4},
		"such when it is closed":          {before: func(w *Writer) { w.requeue(jobs(1, lazy)); w.closing = true }, takes: "0 0 0", left: 1, atMost: delay / 2, atLeast: delay / 4},
		"such with what cannot wait":      {before: func(w *Writer) { w.requeue(jobs(2, lazy)) }, jobs: [][]*Job{jobs(1, other)}, takes: "2 0 1"},
		"such with a commit":              {before: func(w *Writer) { w.requeue(jobs(2, lazy)) }, jobs: [][]*Job{jobs(1, commit)}, takes: "0 1 0", left: 2},
		"a lazy one after what goes soon": {before: func(w *Writer) { w.oldest = time.Now().Add(-time.Hour) }, jobs: [][]*Job{jobs(1, commit), jobs(1, lazy)}, takes: "0 1 0", left: 1},
	} {
		w := &Writer{Config: Config{Delay: delay}, RetryDelay: delay / 2}
		if c.before != nil {
			c.before(w)
		}
		for _, js := range c.jobs {
			for _, j := range js {
				if !w.enqueue(j) {
					t.Fatal("closed")
				}
			}
		}
		if c.after != nil {
			c.after(w)
		}
		var n [3]int
		group, wait := w.nextGroup()
		for _, j := range group {
			switch {
			case j.Lazy:
				n[0]++
			case j.Commit:
				n[1]++
			default:
				n[2]++
			}
			if j.state != jobTaken {
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
			if !j.Lazy {
				urgent++
			}
		}
		if w.urgent != urgent {
			t.Errorf("%s: counts %d that are urgent of %d", name, w.urgent, urgent)
		}
	}
}

// TestFailedTransaction: jobs that are well go through by themselves, a
// lazy one that fails is tried again and holds up its stream, and where the database is
// in trouble all lazy ones wait.
func TestFailedTransaction(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Options{Now: time.Now, Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	bad := fault.Internal.With("on request")
	for name, c := range map[string]struct {
		jobs  string // a stream and a number; with an X those that fail; - is no stream, ! not lazy
		err   error
		tries int // of all lazy ones by now
		last  bool
		done  string // in order
		fails string
		again string
		tried string // of those, whose fault it was
	}{
		"all is well":                      {jobs: "a1 !2 b3", done: "a1 !2 b3"},
		"an urgent one fails":              {jobs: "a1 !2X a3", err: bad, done: "a1 !2X a3", fails: "!2X"},
		"an urgent one fails by itself":    {jobs: "!1X", err: bad, done: "!1X", fails: "!1X"},
		"a lazy one fails":                 {jobs: "a1 a2X !3 a4 b5 -6", err: bad, done: "a1 !3 b5 -6", again: "a2X a4", tried: "a2X"},
		"a lazy one fails by itself":       {jobs: "a1X", err: bad, again: "a1X", tried: "a1X"},
		"one without a stream fails":       {jobs: "-1X -2 a3", err: bad, done: "-2 a3", again: "-1X", tried: "-1X"},
		"a lazy one is given up":           {jobs: "a1X a2", err: bad, tries: MaxLazyTries - 1, done: "a1X a2", fails: "a1X"},
		"one is not given up yet":          {jobs: "a1X a2", err: bad, tries: MaxLazyTries - 2, again: "a1X a2", tried: "a1X"},
		"a lazy one fails in the end":      {jobs: "a1X a2 b3", err: bad, last: true, done: "a1X a2 b3", fails: "a1X"},
		"the database is away":             {jobs: "a1X !2 b3", err: fault.Unavailable.With("on request"), done: "!2", fails: "!2", again: "a1X b3"},
		"it is away, for one":              {jobs: "a1X", err: fault.Unavailable.With("on request"), again: "a1X"},
		"the disk is full":                 {jobs: "a1 b2X !3 c4", err: fault.DiskFull.With("on request"), done: "a1 !3", again: "b2X c4"},
		"the file cannot be written":       {jobs: "a1 b2X !3 c4", err: fault.Usage.With("on request"), done: "a1 !3", again: "b2X c4"},
		"it gives way for ever":            {jobs: "a1 b2X !3 c4", err: sqlstore.ErrTxConflict, done: "a1 !3", again: "b2X c4"},
		"it takes too long":                {jobs: "a1 b2X !3 c4", err: fmt.Errorf("write: %w", context.DeadlineExceeded), done: "a1 !3", again: "b2X c4"},
		"it is in trouble, at the end":     {jobs: "a1X !2", err: fault.DiskFull.With("on request"), last: true, done: "a1X !2", fails: "a1X"},
		"trouble is nobody's fault":        {jobs: "a1X", err: fault.DiskFull.With("on request"), tries: MaxLazyTries, again: "a1X"},
		"an urgent one that is in trouble": {jobs: "!1X a2", err: fault.DiskFull.With("on request"), done: "!1X a2", fails: "!1X"},
	} {
		w := &Writer{Config: Config{DB: db, Logger: slog.New(slog.DiscardHandler), Observe: func(error) {}}, ctx: t.Context(), RetryDelay: time.Hour}
		waiting := &Job{Lazy: true}
		w.enqueue(waiting)
		var group []*Job
		var done, fails, again, tried []string
		names := make(map[*Job]string)
		for _, one := range strings.Fields(c.jobs) {
			j := &Job{Lazy: one[0] != '!', state: jobTaken, tries: c.tries, Stream: strings.Trim(one[:1], "-!")}
			j.Run = func(context.Context, sqlstore.Querier) error {
				if strings.HasSuffix(one, "X") {
					return c.err
				}
				return nil
			}
			j.Done = func(err error, _ bool) {
				done = append(done, one)
				if err != nil {
					fails = append(fails, one)
					if !errors.Is(err, c.err) {
						t.Errorf("%s: %s: %v", name, one, err)
					}
				}
			}
			names[j] = one
			group = append(group, j)
		}
		w.runGroup(group, c.last)
		for _, j := range w.jobs[:len(w.jobs)-1] {
			again = append(again, names[j])
			if j.tries > c.tries {
				tried = append(tried, names[j])
			}
			if j.state != jobQueued {
				t.Errorf("%s: %s is in state %d", name, names[j], j.state)
			}
		}
		if w.jobs[len(w.jobs)-1] != waiting {
			t.Errorf("%s: what waits is not behind those that failed", name)
		}
		for _, x := range []struct {
			what, want string
			got        []string
		}{{"done", c.done, done}, {"failed", c.fails, fails}, {"tried again", c.again, again}, {"at fault", c.tried, tried}} {
			if !slices.Equal(x.got, strings.Fields(x.want)) {
				t.Errorf("%s: %s: %v, want %s", name, x.what, x.got, x.want)
			}
		}
	}
}
