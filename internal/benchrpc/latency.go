package main

// Measuring calls: how many in which time, how long each took, what they cost
// the process.

import (
	"errors"
	"math/bits"
	"runtime"
	"sync"
	"time"
)

// histogram counts durations in buckets 1.6 % wide, so that measuring neither
// allocates nor keeps the garbage collector from its usual pace.
type histogram [2048]uint32

func (h *histogram) add(d time.Duration) {
	n := uint64(max(d, 0))
	shift := max(bits.Len64(n)-7, 0)
	h[min(shift<<6+int(n>>shift), len(h)-1)]++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other {
		h[i] += n
	}
}

func (h *histogram) count() (n uint64) {
	for _, c := range h {
		n += uint64(c)
	}
	return n
}

// quantile gives the middle of the bucket that a share of all durations reaches.
func (h *histogram) quantile(share float64) time.Duration {
	rest := uint64(share * float64(h.count()))
	for i, c := range h {
		if uint64(c) > rest {
			if i < 128 {
				return time.Duration(i)
			}
			shift := i>>6 - 1
			return time.Duration((uint64(i-shift<<6) << shift) + 1<<shift/2)
		}
		rest -= uint64(c)
	}
	return 0
}

// usage is what this process has used so far.
type usage struct {
	CPU     time.Duration
	Mallocs uint64
}

func usageNow() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{CPU: cpuTime(), Mallocs: m.Mallocs}
}

func (u usage) minus(v usage) usage { return usage{u.CPU - v.CPU, u.Mallocs - v.Mallocs} }

// clock times the calls of one goroutine, back to back.
type clock struct {
	last, end time.Time
	took      histogram
}

// tick notes that a call has ended and the next one begins, and says whether
// there is time for that.
func (c *clock) tick() bool {
	now := time.Now()
	c.took.add(now.Sub(c.last))
	c.last = now
	return now.Before(c.end)
}

// measurement is a number of calls on one link.
type measurement struct {
	Calls    uint64
	Elapsed  time.Duration
	P50, P99 time.Duration
	Used     usage // by the client
}

// measure makes calls for a while, so many at a time.
func measured(l link, flight int, span time.Duration) (m measurement, err error) {
	clocks := make([]clock, flight)
	errs := make([]error, flight)
	before, start := usageNow(), time.Now()
	for i := range clocks {
		clocks[i].last, clocks[i].end = start, start.Add(span)
	}
	if f, ok := l.(flooder); ok && flight > 1 {
		errs[0] = f.flood(flight, &clocks[0])
	} else if flight == 1 {
		errs[0] = backToBack(l, &clocks[0])
	} else {
		var all sync.WaitGroup
		for i := range clocks {
			all.Go(func() { errs[i] = backToBack(l, &clocks[i]) })
		}
		all.Wait()
	}
	m.Elapsed, m.Used = time.Since(start), usageNow().minus(before)
	var took histogram
	for i := range clocks {
		took.merge(&clocks[i].took)
	}
	m.Calls, m.P50, m.P99 = took.count(), took.quantile(0.50), took.quantile(0.99)
	return m, errors.Join(errs...)
}

func backToBack(l link, c *clock) error {
	for {
		if err := l.echo(); err != nil {
			return err
		}
		if !c.tick() {
			return nil
		}
	}
}
