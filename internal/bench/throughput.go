package main

// The number of ops per second through the whole path, against the bare program.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/measure"
)

// load is what the writers do: how many there are, of how many ops their batches
// are, and how many of them each commits at the same time, as an agent with
// several tasks does.
type load struct {
	writers, batch, atOnce int
}

func (l load) String() string {
	text := fmt.Sprintf("%d writers, batches of %d", l.writers, l.batch)
	if l.atOnce > 1 {
		text += fmt.Sprintf(", %d at once", l.atOnce)
	}
	return text
}

// loads are every number of writers with every batch size, one at a time, and
// once many at a time: the most writers with the smallest batches.
func (o *options) loads() []load {
	var loads []load
	for _, size := range o.batches {
		for _, writers := range o.writers {
			loads = append(loads, load{writers, size, 1})
		}
	}
	if o.atOnce > 1 {
		loads = append(loads, load{slices.Max(o.writers), slices.Min(o.batches), o.atOnce})
	}
	return loads
}

// throughput measures every load.
func (b *bench) throughput(ctx context.Context, db string, r *report) error {
	for _, l := range b.opts.loads() {
		t, err := b.throughputOf(ctx, db, l)
		if err != nil {
			return fmt.Errorf("%v: %w", l, err)
		}
		r.throughput = append(r.throughput, t)
	}
	return nil
}

// throughputRow is one line of the table. Rates are ops a second, medians; the
// ratios are medians of the rounds' own. insert is the bare program's best with
// INSERT, best its best of all.
type throughputRow struct {
	db string
	load
	path, same, insert, best float64
	toSame, toInsert, toBest float64
	technique                technique
}

func (b *bench) throughputOf(ctx context.Context, db string, l load) (t throughputRow, err error) {
	t = throughputRow{db: db, load: l}
	what := fmt.Sprintf("%s, %v", db, l)
	b.progress.Printf("%s: sampling", what)
	var s *sample
	if err := b.onRig(ctx, db, func(r *rig) (err error) {
		s, err = r.takeSample(ctx, l.batch)
		return err
	}); err != nil {
		return t, err
	}
	bare := &bareRuns{bench: b, db: db, sample: s, writers: l.writers}
	best, err := bare.tune(ctx, what)
	if err != nil {
		return t, err
	}
	hows := append([]technique{{batches: 1, conns: min(l.writers, maxConns), bulk: best[0].bulk}}, best...)
	if _, err := bare.try(ctx, hows[0]); err != nil { // tells how much to write
		return t, err
	}
	var path []float64
	rates, ratios := make([][]float64, len(hows)), make([][]float64, len(hows))
	for i := range b.opts.rounds {
		before, err := b.freshPathRate(ctx, db, l)
		if err != nil {
			return t, err
		}
		now := make([]float64, len(hows))
		text := ""
		for k, how := range hows {
			if now[k], err = bare.rate(ctx, how); err != nil {
				return t, err
			}
			text += fmt.Sprintf(" %.0f/s with %v;", now[k], how)
		}
		// Other programs come and go meanwhile: it runs before and after.
		after, err := b.freshPathRate(ctx, db, l)
		if err != nil {
			return t, err
		}
		mean := (before + after) / 2
		path = append(path, mean)
		for k := range hows {
			rates[k], ratios[k] = append(rates[k], now[k]), append(ratios[k], mean/now[k])
		}
		b.progress.Printf("%s, round %d of %d: path %.0f/s, bare%s", what, i+1, b.opts.rounds, mean, strings.TrimSuffix(text, ";"))
	}
	t.path = measure.Median(path)
	t.same, t.toSame = measure.Median(rates[0]), measure.Median(ratios[0])
	for k, how := range hows[1:] {
		rate, ratio := measure.Median(rates[k+1]), measure.Median(ratios[k+1])
		if rate > t.insert && how.inserts() {
			t.insert, t.toInsert = rate, ratio
		}
		if rate > t.best {
			t.best, t.toBest, t.technique = rate, ratio, how
		}
	}
	return t, nil
}

// onRig runs f on a server of its own, whose databases are empty.
func (b *bench) onRig(ctx context.Context, db string, f func(*rig) error) error {
	r, err := b.newRig(ctx, db, "path")
	if err != nil {
		return err
	}
	return errors.Join(f(r), r.close())
}

// freshPathRate is the path's rate on databases that are about empty, as the bare program has them each
// time; a shorter run before it warms the server up: most of the memory that a process uses is new
// to it in its first second, which is not what is measured.
func (b *bench) freshPathRate(ctx context.Context, db string, l load) (rate float64, err error) {
	err = b.onRig(ctx, db, func(r *rig) (err error) {
		if b.opts.rounds > 1 {
			if _, err := r.pathRate(ctx, l, b.span()/2); err != nil {
				return err
			}
		}
		rate, err = r.pathRate(ctx, l, b.span())
		return err
	})
	return rate, err
}

// pathAlone is the path's side of throughput.
func (b *bench) pathAlone(ctx context.Context, db string) error {
	for _, l := range b.opts.loads() {
		if err := b.pathAloneOf(ctx, db, l); err != nil {
			return fmt.Errorf("%v: %w", l, err)
		}
	}
	return nil
}

func (b *bench) pathAloneOf(ctx context.Context, db string, l load) error {
	for range b.opts.rounds {
		rate, err := b.freshPathRate(ctx, db, l)
		if err != nil {
			return err
		}
		b.progress.Printf("%s, %v: path %.0f/s", db, l, rate)
	}
	return b.onRig(ctx, db, func(r *rig) error {
		return b.profiled(fmt.Sprintf("%s-%dx%dx%d", db, l.writers, l.batch, l.atOnce), func() error {
			_, err := r.pathRate(ctx, l, b.span())
			return err
		})
	})
}

// maxInFlight is how many ops a writer may have committed that are not acked: enough
// to keep the path busy, few enough for a short measurement to be mostly of
// commits and acks side by side, and not of the one and then the other.
const maxInFlight = 512

// pathRate runs so many new writers for a time and gives ops acked a second,
// from the first Commit to the last ack.
func (r *rig) pathRate(ctx context.Context, l load, span time.Duration) (rate float64, err error) {
	ws := make([]*writer, l.writers)
	defer func() {
		for _, w := range ws {
			if w != nil {
				err = errors.Join(err, w.client.Close())
			}
		}
	}()
	for i := range ws {
		if ws[i], err = r.newWriter(ctx); err != nil {
			return 0, err
		}
	}
	errs := make([]error, l.writers*l.atOnce)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range errs {
		wg.Go(func() { errs[i] = ws[i/l.atOnce].append(ctx, l, start.Add(span)) })
	}
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	total := uint64(0)
	for _, w := range ws {
		if err := w.settled(ctx); err != nil {
			return 0, err
		}
		total += w.n.Load()
	}
	return float64(total) / took.Seconds(), nil
}

// append commits batches, one after the other, until a time, and waits until
// all are acked. It lets a bounded number of ops be on their way.
func (w *writer) append(ctx context.Context, l load, until time.Time) error {
	var window []client.Ticket // every half window's last
	half := max(maxInFlight/2/l.batch/l.atOnce, 1)
	var last client.Ticket
	for i := 1; time.Now().Before(until); i++ {
		t, err := w.commit(ctx, l.batch)
		if err != nil {
			return err
		}
		if last = t; i%half != 0 {
			continue
		}
		if window = append(window, t); len(window) == 2 {
			if err := applied(ctx, window[0]); err != nil {
				return err
			}
			window = window[1:]
		}
	}
	if last.Batch == "" {
		return nil // its turn never came
	}
	return applied(ctx, last) // acks come in order
}

// bareRuns are the bare program's runs against one line of the table.
type bareRuns struct {
	bench   *bench
	db      string
	sample  *sample
	writers int
	rates   map[technique]float64 // as last measured
}

// rate writes about a span's worth of rows, as far as it is known how many those are, and gives
// ops a second.
func (r *bareRuns) rate(ctx context.Context, t technique) (float64, error) {
	rate, _, err := r.timed(ctx, t, r.bench.span())
	return rate, err
}

// tries is how often try runs a technique at most.
const tries = 4

// try is rate for a technique of which little is known: it goes on until it has run for
// about half a span. What is fastest for a moment need not be so for long.
func (r *bareRuns) try(ctx context.Context, t technique) (rate float64, err error) {
	half := r.bench.span() / 2
	for range tries {
		var took time.Duration
		if rate, took, err = r.timed(ctx, t, half); err != nil || took > half*3/4 || r.bench.opts.rounds == 1 {
			break
		}
	}
	return rate, err
}

func (r *bareRuns) timed(ctx context.Context, t technique, span time.Duration) (rate float64, took time.Duration, err error) {
	ops := 2000.0
	if known := r.rates[t]; known > 0 {
		ops = known * span.Seconds()
	}
	perWriter := int(math.Ceil(ops / float64(r.writers*r.sample.size())))
	if took, err = r.run(ctx, t, perWriter); err != nil {
		return 0, 0, err
	}
	rate = float64(r.writers*perWriter*r.sample.size()) / took.Seconds()
	if r.rates == nil {
		r.rates = map[technique]float64{}
	}
	r.rates[t] = rate
	return rate, took, nil
}

func (r *bareRuns) run(ctx context.Context, t technique, perWriter int) (took time.Duration, err error) {
	rows := r.sample.repeat(r.writers, perWriter)
	target, err := r.bench.bareTarget(ctx, r.db)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, target.close(ctx)) }()
	if took, err = runBare(ctx, target, rows, t); err != nil {
		return 0, fmt.Errorf("bare program, %v: %w", t, err)
	}
	return took, nil
}

// bulks are the ways in which the bare program sends rows, those that are looked for together.
var bulks = map[string][][]string{"postgres": {{"arrays"}, {"copy"}}, "sqlite": {{"rows", "values"}}}

// finalists is how many techniques of a kind are measured in every round: one look at each, on a
// machine that is noisy, does not tell which is the best.
const finalists = 2

// tune looks for the bare program's best techniques: the best INSERTs first, then the best COPYs,
// where there are such.
func (r *bareRuns) tune(ctx context.Context, what string) (best []technique, err error) {
	for _, bulks := range bulks[r.db] {
		ts, err := r.bestOf(ctx, what, bulks)
		if err != nil {
			return nil, err
		}
		best = append(best, ts...)
	}
	return best, nil
}

// bestOf looks for the best of some ways to send rows: first the size of its transactions, then
// how many connections, then the others of these ways. The best comes first.
func (r *bareRuns) bestOf(ctx context.Context, what string, bulks []string) ([]technique, error) {
	from := technique{batches: max(1000/r.sample.size(), 1), conns: min(2, r.writers), bulk: bulks[0]}
	if r.bench.opts.rounds == 1 { // the smoke test
		return []technique{from}, nil
	}
	var tried []technique
	try := func(t technique) error {
		if slices.Contains(tried, t) || r.writers < t.conns {
			return nil
		}
		r.bench.progress.Printf("%s: the bare program with %v", what, t)
		if _, err := r.try(ctx, t); err != nil {
			return err
		}
		tried = append(tried, t)
		slices.SortFunc(tried, func(a, b technique) int { return cmp.Compare(r.rates[b], r.rates[a]) })
		return nil
	}
	for _, ops := range []int{1000, 300, 100, 4000} {
		t := from
		t.batches = max(ops/r.sample.size(), 1)
		if err := try(t); err != nil {
			return nil, err
		}
	}
	for _, bulk := range bulks {
		from = tried[0]
		for _, n := range []int{from.conns, 1, 4, 8} {
			t := from
			t.bulk, t.conns = bulk, n
			if err := try(t); err != nil {
				return nil, err
			}
		}
	}
	return tried[:min(finalists, len(tried))], nil
}
