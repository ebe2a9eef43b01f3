package main

// The lines of the table, and how one is measured.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/measure"
)

// benchCase is what one line measures.
type benchCase struct {
	wire      string
	followers int
	sessions  int     // followed by each of them
	events    int     // of each session, in a round
	batch     int     // of them committed at a time
	rate      float64 // deliveries a second; 0: as fast as it goes
	replicas  int     // servers, on Postgres if there are several
	waits     bool    // for who reads nothing
	aim       aims
}

// aims are what the ratios are to be; 0 for none.
type aims struct{ rate, p50, p99 float64 }

// cases are all lines.
func cases() []benchCase {
	one := benchCase{wire: wireCapnp, followers: 100, sessions: 1, batch: 1, replicas: 1}
	with := func(change func(c *benchCase)) benchCase {
		c := one
		change(&c)
		return c
	}
	return []benchCase{
		with(func(c *benchCase) { c.followers, c.events = 1, 3000 }),
		with(func(c *benchCase) { c.events, c.aim.rate = 3000, 0.8 }),
		with(func(c *benchCase) { c.followers, c.events, c.aim.rate = 1000, 400, 0.6 }),
		with(func(c *benchCase) { c.followers, c.events = 5000, 80 }),
		with(func(c *benchCase) { c.events, c.batch = 6000, 100 }),
		with(func(c *benchCase) { c.followers, c.events, c.batch, c.aim.rate = 1000, 1000, 100, 2 }),
		with(func(c *benchCase) { c.sessions, c.events = 100, 40 }),
		with(func(c *benchCase) { c.followers, c.events, c.rate, c.aim.p50, c.aim.p99 = 200, 600, 40_000, 2, 3 }),
		with(func(c *benchCase) { c.followers, c.events, c.rate = 500, 400, 100_000 }),
		with(func(c *benchCase) { c.wire, c.events = wireCapnweb, 600 }),
		with(func(c *benchCase) { c.wire, c.events, c.aim.rate = wireSSE, 1500, 0.7 }),
		with(func(c *benchCase) { c.wire, c.events = wirePage, 600 }),
		with(func(c *benchCase) { c.replicas, c.events = 2, 1500 }),
		with(func(c *benchCase) { c.replicas, c.followers, c.events, c.rate = 2, 200, 600, 40_000 }),
	}
}

// bareWire is the bare server's.
func (c *benchCase) bareWire() string {
	if c.wire == wireSSE || c.wire == wirePage {
		return wireBareSSE
	}
	return wireBare
}

// small is the case for a smoke test.
func (c benchCase) small() benchCase {
	c.followers, c.events, c.rate = max(c.followers/20, 1), max(c.events/20, c.batch), c.rate/20
	c.sessions = min(c.sessions, 5)
	return c
}

func (c *benchCase) label() string {
	text := fmt.Sprintf("%s, %d followers", c.wire, c.followers)
	if c.sessions > 1 {
		text += fmt.Sprintf(" of %d sessions", c.sessions)
	}
	if c.replicas > 1 {
		text += fmt.Sprintf(", %d replicas", c.replicas)
	}
	if c.batch > 1 {
		text += fmt.Sprintf(", batches of %d", c.batch)
	}
	if c.rate > 0 {
		return text + fmt.Sprintf(", %.0f/s", c.rate)
	}
	return text + ", full speed"
}

// bench is one run.
type bench struct {
	opts     options
	dir      string
	progress *measure.Progress
	leftOut  []string // what was not measured, and why
}

// side is a server, or several, with its followers.
type side struct {
	servers   []process
	followers process
	addresses []string
	bytes     int // of an event on the wire
}

// result is one round of one side.
type result struct {
	rate           float64       // deliveries a second
	p50, p99, p999 time.Duration // from commit to handler
	server, client time.Duration // CPU of a delivery
}

// row is one line of the table.
type row struct {
	c             benchCase
	bytes         int // of an event on the wire
	mooring, bare result
	rate          float64 // median of the rounds' ratios, as the others
	p50, p99      float64
	memory        float64 // of the server, for a follower, bytes
	bareMemory    float64
}

// rig is what a case is measured with.
type rig struct {
	c        benchCase
	dir      string
	owner    string // ref of the servers' owner
	m, plain *side  // Mooring, and a bare server
	w        *writer
	drop     func() error // the database
}

// newRig starts servers and a writer. Nobody follows yet.
func (b *bench) newRig(ctx context.Context, dir string, c benchCase) (_ *rig, err error) {
	b.progress.Printf("%s: connecting", c.label())
	r := &rig{c: c, dir: dir, m: &side{}, plain: &side{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	database := ""
	if c.replicas > 1 {
		if database, r.drop, err = newDatabase(ctx); err != nil {
			return nil, err
		}
	}
	for i := range c.replicas {
		a, err := r.m.serve(ctx, serving{Kind: kindMooring, Dir: filepath.Join(dir, "server"+strconv.Itoa(i)), URL: database, Waits: c.waits})
		if err != nil {
			return nil, err
		}
		if i == 0 {
			r.owner = a.Owner
		}
	}
	if r.w, err = newWriter(ctx, filepath.Join(dir, "writer"), r.owner, c.sessions); err != nil {
		return nil, err
	}
	kind := kindBare
	if c.wire == wireSSE || c.wire == wirePage {
		kind = kindBareSSE
	}
	_, err = r.plain.serve(ctx, serving{Kind: kind})
	return r, err
}

// follow connects followers to both sides, and returns what each costs the servers in memory.
func (r *rig) follow(ctx context.Context) (memory, bare float64, err error) {
	if r.m.bytes, err = r.eventBytes(ctx); err != nil {
		return 0, 0, fmt.Errorf("one follower: %w", err)
	}
	r.plain.bytes = r.m.bytes
	how := following{Wire: r.c.wire, Addresses: r.m.addresses, Refs: r.w.refs, Last: r.w.last, Followers: r.c.followers, Dir: filepath.Join(r.dir, "followers")}
	if memory, err = r.m.follow(ctx, &how); err != nil {
		return 0, 0, err
	}
	bare, err = r.plain.follow(ctx, &following{Wire: r.c.bareWire(), Addresses: r.plain.addresses, Topics: r.c.sessions, Followers: r.c.followers})
	return memory, bare, err
}

// round is one of Mooring; times are those of the commits.
func (r *rig) round(ctx context.Context, profile string) (_ result, times [][]int64, err error) {
	return r.roundOf(r.m, profile, func() error { return r.w.publish(ctx, r.c) })
}

// roundOf is one of followers of Mooring, of what publish has committed.
func (r *rig) roundOf(s *side, profile string, publish func() error) (_ result, times [][]int64, err error) {
	if _, err := r.m.servers[0].ask(request{Commits: true}); err != nil { // those of before
		return result{}, nil, err
	}
	return s.round(r.c, profile, publish, func() ([][]int64, error) {
		a, err := r.m.servers[0].ask(request{Commits: true})
		if err != nil {
			return nil, err
		}
		return a.Times[:r.c.sessions], nil // sessions that nobody follows came after
	})
}

// bareRound is one of the bare server, which publishes at the times of the commits.
func (r *rig) bareRound(times [][]int64) (result, error) {
	var published reply
	x, _, err := r.plain.round(r.c, "", func() (err error) {
		published, err = r.plain.servers[0].ask(request{Publish: &publication{Times: sinceFirst(times), Bytes: r.plain.bytes}})
		return err
	}, func() ([][]int64, error) { return published.Times, nil })
	if err != nil {
		return x, fmt.Errorf("bare: %w", err)
	}
	return x, nil
}

func (r *rig) close() error {
	var err error
	if r.w != nil {
		err = r.w.client.Close()
	}
	err = errors.Join(err, r.plain.stop(), r.m.stop())
	if r.drop != nil {
		err = errors.Join(err, r.drop())
	}
	return err
}

// measure measures one line.
func (b *bench) measure(ctx context.Context, n int, c benchCase) (r row, err error) {
	r.c = c
	rig, err := b.newRig(ctx, filepath.Join(b.dir, strconv.Itoa(n)), c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	if r.memory, r.bareMemory, err = rig.follow(ctx); err != nil {
		return r, err
	}
	r.bytes = rig.m.bytes
	var of, against []result
	for round := range b.opts.rounds {
		b.progress.Printf("%s, round %d of %d", c.label(), round+1, b.opts.rounds)
		profile := ""
		if b.opts.profile != "" && round == b.opts.rounds-1 {
			profile = b.opts.profile + "-" + strconv.Itoa(n)
		}
		x, times, err := rig.round(ctx, profile)
		if err != nil {
			return r, err
		}
		y, err := rig.bareRound(times)
		if err != nil {
			return r, err
		}
		of, against = append(of, x), append(against, y)
		b.progress.Printf("%s: %.0f/s to %.0f/s, p50 %v to %v, p99 %v to %v", c.label(), x.rate, y.rate, x.p50, y.p50, x.p99, y.p99)
	}
	r.mooring, r.bare = medians(of), medians(against)
	r.rate = medianRatio(of, against, func(r *result) float64 { return r.rate })
	r.p50 = medianRatio(of, against, func(r *result) float64 { return float64(r.p50) })
	r.p99 = medianRatio(of, against, func(r *result) float64 { return float64(r.p99) })
	return r, nil
}

// medianRatio is the median of the rounds' ratios.
func medianRatio(of, against []result, f func(*result) float64) float64 {
	var all []float64
	for i := range of {
		all = append(all, f(&of[i])/f(&against[i]))
	}
	return measure.Median(all)
}

// sampled is how many events one follower gets, to see how many bytes one is.
const sampled = 20

// eventBytes is how many bytes an event is on the wire, by itself.
func (r *rig) eventBytes(ctx context.Context) (_ int, err error) {
	one := &side{servers: r.m.servers[:1], addresses: r.m.addresses[:1]}
	defer func() {
		if one.followers.Child != nil {
			err = errors.Join(err, one.followers.Stop())
		}
	}()
	if _, err := one.follow(ctx, &following{Wire: r.c.wire, Addresses: one.addresses, Refs: r.w.refs[:1], Last: r.w.last[:1], Followers: 1, Dir: filepath.Join(r.dir, "one"), Count: true}); err != nil {
		return 0, err
	}
	if _, err := one.followers.ask(request{Expect: &expectation{Events: sampled}}); err != nil {
		return 0, err
	}
	for range sampled {
		if err := r.w.put(ctx, 0, 1); err != nil {
			return 0, err
		}
	}
	a, err := one.followers.ask(request{Await: true})
	return int(a.Bytes) / sampled, err
}

// serve starts a server.
func (s *side) serve(ctx context.Context, how serving) (reply, error) {
	p, err := startProcess(ctx)
	if err != nil {
		return reply{}, err
	}
	s.servers = append(s.servers, p)
	a, err := p.ask(request{Serve: &how})
	s.addresses = append(s.addresses, a.Address)
	return a, err
}

// follow connects the followers, and returns what each costs the servers in memory.
func (s *side) follow(ctx context.Context, how *following) (memory float64, err error) {
	if s.followers, err = startProcess(ctx); err != nil {
		return 0, err
	}
	before, err := s.usage()
	if err != nil {
		return 0, err
	}
	if _, err := s.followers.ask(request{Follow: how}); err != nil {
		return 0, err
	}
	after, err := s.usage()
	return float64(after.RSS-before.RSS) / float64(how.Followers), err
}

// usage is that of the servers.
func (s *side) usage() (u usage, err error) {
	for _, p := range s.servers {
		a, err := p.ask(request{Usage: true})
		if err != nil {
			return u, err
		}
		u.CPU, u.RSS = u.CPU+a.Usage.CPU, u.RSS+a.Usage.RSS
	}
	return u, nil
}

// round has events published and waits until all followers have them; when tells when each was published.
func (s *side) round(c benchCase, profile string, publish func() error, when func() ([][]int64, error)) (r result, times [][]int64, err error) {
	before, err := s.usage()
	if err != nil {
		return r, nil, err
	}
	begin := request{Expect: &expectation{Events: c.events}, Usage: true}
	if profile != "" {
		begin.Profile = profile + "-followers"
		if _, err := s.servers[0].ask(request{Profile: profile + "-server"}); err != nil {
			return r, nil, err
		}
	}
	idle, err := s.followers.ask(begin)
	if err != nil {
		return r, nil, err
	}
	if err := publish(); err != nil {
		return r, nil, err
	}
	end, err := s.followers.ask(request{Await: true, Profiled: profile != ""})
	if err != nil {
		return r, nil, err
	}
	if profile != "" {
		if _, err := s.servers[0].ask(request{Profiled: true}); err != nil {
			return r, nil, err
		}
	}
	used, err := s.followers.ask(request{Usage: true})
	if err != nil {
		return r, nil, err
	}
	after, err := s.usage()
	if err != nil {
		return r, nil, err
	}
	if times, err = when(); err != nil { // a server that has acked a commit tells of it a moment later
		return r, nil, err
	}
	for t := range times {
		if len(times[t]) != c.events {
			return r, nil, fmt.Errorf("%d events were committed, not %d", len(times[t]), c.events)
		}
	}
	late, err := s.followers.ask(request{Against: times})
	if err != nil {
		return r, nil, err
	}
	n := float64(c.followers * c.sessions * c.events)
	first := times[0][0]
	for _, of := range times {
		first = min(first, of[0])
	}
	r.rate = n / time.Duration(end.Last-first).Seconds()
	r.p50, r.p99, r.p999 = time.Duration(late.Delays[0]), time.Duration(late.Delays[1]), time.Duration(late.Delays[2])
	r.server, r.client = time.Duration(float64(after.CPU-before.CPU)/n), time.Duration(float64(used.Usage.CPU-idle.Usage.CPU)/n)
	return r, times, nil
}

// deliver has events published and waits until all followers have them, without what a round measures besides.
func (s *side) deliver(events int, publish func() error) error {
	if err := s.expect(events); err != nil {
		return err
	}
	_, err := s.await(publish)
	return err
}

// expect prepares the followers for what is to come.
func (s *side) expect(events int) error {
	_, err := s.followers.ask(request{Expect: &expectation{Events: events}})
	return err
}

// await has it published and waits until it has come; took is until the last follower has handled the last of it.
func (s *side) await(publish func() error) (took time.Duration, err error) {
	began := time.Now()
	if err := publish(); err != nil {
		return 0, err
	}
	end, err := s.followers.ask(request{Await: true})
	return time.Duration(end.Last - began.UnixNano()), err
}

// stop ends the processes, the followers first.
func (s *side) stop() error {
	var err error
	if s.followers.Child != nil {
		err = s.followers.Stop()
	}
	for _, p := range s.servers {
		err = errors.Join(err, p.Stop())
	}
	return err
}

// sinceFirst returns times after the first of all.
func sinceFirst(times [][]int64) [][]int64 {
	first := times[0][0]
	for _, of := range times {
		first = min(first, of[0])
	}
	since := make([][]int64, len(times))
	for t, of := range times {
		for _, at := range of {
			since[t] = append(since[t], at-first)
		}
	}
	return since
}

// medians are those of rounds, of each figure by itself.
func medians(list []result) result {
	of := func(f func(*result) float64) float64 {
		var all []float64
		for i := range list {
			all = append(all, f(&list[i]))
		}
		return measure.Median(all)
	}
	span := func(f func(*result) time.Duration) time.Duration {
		return time.Duration(of(func(r *result) float64 { return float64(f(r)) }))
	}
	return result{
		rate: of(func(r *result) float64 { return r.rate }),
		p50:  span(func(r *result) time.Duration { return r.p50 }), p99: span(func(r *result) time.Duration { return r.p99 }),
		p999: span(func(r *result) time.Duration { return r.p999 }), server: span(func(r *result) time.Duration { return r.server }),
		client: span(func(r *result) time.Duration { return r.client }),
	}
}

// writer is an outbox with the sessions that are followed.
type writer struct {
	client   *client.Client
	sessions []*client.Session
	refs     []string
	kind     string // of the keys
	payload  int    // bytes of an event's
	n        int    // events so far

	mu   sync.Mutex
	last []uint64 // event of each session
}

// openWriter opens an outbox.
func openWriter(ctx context.Context, dir string) (_ *writer, err error) {
	w := &writer{kind: "bench", payload: eventPayloadBytes}
	w.client, err = client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(dir)})
	return w, err
}

// newWriter opens one and makes sessions.
func newWriter(ctx context.Context, dir, owner string, sessions int) (_ *writer, err error) {
	ref, err := capability.ParseRef(owner)
	if err != nil {
		return nil, err
	}
	w, err := openWriter(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.client.Close())
		}
	}()
	space, err := w.client.Space(ctx, ref)
	if err != nil {
		return nil, err
	}
	for range sessions {
		s, b := space.Create(client.CreateOptions{})
		results, err := b.CommitWait(ctx)
		if err != nil {
			return nil, err
		}
		w.sessions, w.refs, w.last = append(w.sessions, s), append(w.refs, s.Ref().Text()), append(w.last, results[len(results)-1].Cursor)
	}
	return w, nil
}

// eventPayloadBytes is the size of an event's payload.
const eventPayloadBytes = 300

// batch makes events of a session.
func (w *writer) batch(session, size int) *client.Batch {
	b := w.sessions[session].Batch()
	for range size {
		w.n++
		text := fmt.Sprintf(`{"n":%d,"text":"`, w.n)
		b.Put(w.kind+"/"+strconv.Itoa(w.n%1000), json.RawMessage(text+strings.Repeat("x", w.payload-len(text)-2)+`"}`))
	}
	return b
}

func (w *writer) put(ctx context.Context, session, size int) error {
	return w.commit(ctx, session, w.batch(session, size))
}

func (w *writer) commit(ctx context.Context, session int, b *client.Batch) error {
	ticket, err := b.Commit(ctx)
	if err != nil {
		return err
	}
	return w.applied(ctx, session, ticket)
}

// applied waits until a batch is applied.
func (w *writer) applied(ctx context.Context, session int, ticket client.Ticket) error {
	results, err := ticket.Wait(ctx)
	if err == nil {
		err = results.Err()
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[session] = max(w.last[session], results[len(results)-1].Cursor)
	return nil
}

// inFlight is how many batches the writer has committed and not seen applied, as fast as it goes.
const inFlight = 64

// publish puts all events of a round: at a steady rate, or as fast as it goes.
func (w *writer) publish(ctx context.Context, c benchCase) error {
	batches := c.events / c.batch * c.sessions
	slots := make(chan struct{}, inFlight)
	if c.rate > 0 {
		slots = make(chan struct{}, batches)
	}
	pace := time.Duration(float64(time.Second) * float64(c.followers*c.batch) / c.rate)
	start := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, batches)
	for i := range batches {
		if c.rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * pace)))
		}
		slots <- struct{}{}
		b := w.batch(i%c.sessions, c.batch)
		wg.Go(func() {
			errs[i] = w.commit(ctx, i%c.sessions, b)
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// newDatabase makes a database for a case.
func newDatabase(ctx context.Context) (address string, drop func() error, err error) {
	at, err := url.Parse(os.Getenv(envURL))
	if err != nil {
		return "", nil, err
	}
	name := fmt.Sprintf("mooring_fanout_%d", os.Getpid())
	do := func(ctx context.Context, what string) error {
		conn, err := pgx.Connect(ctx, os.Getenv(envURL))
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, what)
		return errors.Join(err, conn.Close(ctx))
	}
	if err := do(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", nil, err
	}
	at.Path = "/" + name
	return at.String(), func() error { return do(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)") }, nil
}

// write prints the table in Markdown.
func write(b *strings.Builder, rows []row) {
	fmt.Fprintf(b, "\nEvents with a payload of %d bytes, from commit to handler, and a bare server that sends messages of the same size at the same times\n\n", eventPayloadBytes)
	b.WriteString("| | bytes | deliveries/s | bare | ratio | aim | p50 ms | p99 | p99.9 | bare p50 | p99 | p99.9 | ratio p50 | aim | p99 | aim | CPU µs server | followers | bare server | followers | KB a follower | bare |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	aim := func(v float64) string {
		if v == 0 {
			return "–"
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1e3) }
	us := func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1e6) }
	for _, r := range rows {
		m, p := &r.mooring, &r.bare
		fmt.Fprintf(b, "| %s |\n", strings.Join(slices.Concat(
			[]string{r.c.label(), strconv.Itoa(r.bytes), fmt.Sprintf("%.0f", m.rate), fmt.Sprintf("%.0f", p.rate), fmt.Sprintf("%.2f", r.rate), aim(r.c.aim.rate)},
			[]string{ms(m.p50), ms(m.p99), ms(m.p999), ms(p.p50), ms(p.p99), ms(p.p999), fmt.Sprintf("%.1f", r.p50), aim(r.c.aim.p50), fmt.Sprintf("%.1f", r.p99), aim(r.c.aim.p99)},
			[]string{us(m.server), us(m.client), us(p.server), us(p.client), fmt.Sprintf("%.1f", r.memory/1024), fmt.Sprintf("%.1f", r.bareMemory/1024)}), " | "))
	}
}
