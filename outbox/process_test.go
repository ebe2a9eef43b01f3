package outbox

// Several processes on one outbox: takeover, fencing, being killed.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestTakeover(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Lease = time.Hour
		one, two := p.open(t, cfg), p.open(t, cfg)
		srv := newFakeServer()
		ctx := limited(t)
		session := withSession(t, one)
		stop := run(t, one, srv)
		first := commit(t, one, Batch{Session: session, Ops: []Op{put("1")}})
		wait(t, two, first)
		run(t, two, srv) // waits its turn
		theirs := commit(t, two, Batch{Session: session, Ops: []Op{put("2")}})
		wait(t, two, theirs) // sent by the other
		if st, err := two.Status(ctx); err != nil || st.Sending || st.Incarnation != 1 || st.LeasedUntil.IsZero() {
			t.Fatalf("%+v, %v", st, err)
		}
		// The holder is gone with something in flight: the other takes over when
		// the lease has lapsed, resets it and sends it again.
		srv.hold.Lock()
		flying := commit(t, one, Batch{Session: session, Ops: []Op{put("3")}})
		eventually(t, "it is with the server", func() bool { return len(srv.log(session)) == 3 })
		one.crash()
		stop()
		lapse(t, two)
		srv.hold.Unlock()
		if o := wait(t, two, flying)[0]; o.Cursor != 3 || o.Status != ledger.Applied {
			t.Errorf("%+v", o)
		}
		if st, err := two.Status(ctx); err != nil || !st.Sending || st.Incarnation != 2 {
			t.Errorf("%+v, %v", st, err)
		}
		if n := len(srv.log(session)); n != 3 {
			t.Errorf("%d events, want 3", n)
		}
	})
}

// lapse has the lease on an outbox be over, as if its time had passed.
func lapse(t *testing.T, b *Box) {
	t.Helper()
	if err := b.w.do(t.Context(), func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, "UPDATE mooring_outbox SET lease_until = 0 WHERE box = $1", b.t.box)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestFencedHolder lets a holder go on that has lost its lease without noticing:
// it gives out no seq and stops when the server says so.
func TestFencedHolder(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Lease = time.Hour // the old holder finds nothing out by itself
		cfg.Poll = time.Hour
		one, two := p.open(t, cfg), p.open(t, quick())
		for _, b := range []*Box{one, two} {
			if db, ok := b.db.(*sqliteDB); ok {
				db.mark = t.TempDir() // no file: leases alone decide
			}
		}
		srv := newFakeServer()
		ctx := limited(t)
		session := withSession(t, one)
		stop := run(t, one, srv)
		defer stop()
		wait(t, one, commit(t, one, Batch{Session: session, Ops: []Op{put("1")}}))

		lapse(t, two)
		tk, _, err := two.acquire(ctx, &waiter{step: 1})
		if err != nil || tk == nil || tk.incarnation != 2 {
			t.Fatalf("took over with %+v, %v", tk, err)
		}
		late := commit(t, one, Batch{Session: session, Ops: []Op{put("2")}})
		rows, err := one.List(ctx, Filter{Batch: late.Batch})
		if err != nil || rows[0].Seq != 0 || rows[0].State != Pending {
			t.Fatalf("the old holder gave out a seq: %+v, %v", rows, err)
		}
		leading := make(chan error, 1)
		lead, end := context.WithCancel(ctx)
		go func() { leading <- two.lead(lead, srv, tk) }()
		if o := wait(t, two, late)[0]; o.Cursor != 2 {
			t.Errorf("%+v", o)
		}
		end()
		if err := <-leading; !errors.Is(err, context.Canceled) {
			t.Errorf("the new holder ended with %v", err)
		}
	})
}

func boxRowOf(t *testing.T, b *Box) (row boxRow) {
	t.Helper()
	err := b.db.read(limited(t), func(q querier) (err error) {
		row, err = b.t.readBox(limited(t), q, "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// TestClockPutBack: of a holder that does not renew it a lease lasts no longer than it was taken for, though the clock says so.
func TestClockPutBack(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		set := func(column string, value int64) {
			t.Helper()
			err := b.w.do(limited(t), func(ctx context.Context, q querier) error {
				_, err := q.exec(ctx, "UPDATE mooring_outbox SET holder = 'other', "+column+" = $2 WHERE box = $1", b.t.box, value)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		w := &waiter{step: 1}
		try := func(want bool, what string) {
			t.Helper()
			tk, _, err := b.acquire(limited(t), w)
			if err != nil || (tk != nil) != want {
				t.Errorf("%s: %+v, %v", what, tk, err)
			}
		}
		minutes := time.Minute.Milliseconds()
		set("lease_until", time.Now().Add(time.Hour).UnixMilli())
		set("lease_for", 10*minutes)
		try(false, "seen for the first time")
		w.since = w.since.Add(-9 * time.Minute)
		try(false, "not renewed for nine minutes of ten")
		w.since = w.since.Add(-time.Minute)
		set("lease_until", time.Now().Add(time.Hour+time.Minute).UnixMilli())
		try(false, "renewed")
		w.since = w.since.Add(-10 * time.Minute)
		try(true, "not renewed for ten minutes")
		if row := boxRowOf(t, b); row.holder != b.me || row.leaseFor != b.cfg.Lease.Milliseconds() {
			t.Errorf("%+v", row)
		}
		set("lease_until", time.Now().Add(time.Hour).UnixMilli())
		set("lease_for", 0)
		try(false, "of an older binary")
		w.since = w.since.Add(-b.cfg.Lease)
		try(true, "of an older binary, not renewed")
	})
}

// haltedDB writes nothing while it is halted, as in a process that was stopped.
type haltedDB struct {
	database
	mu   sync.Mutex
	goOn chan struct{} // not nil while it is halted
}

func (d *haltedDB) halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.goOn = make(chan struct{})
}

func (d *haltedDB) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.goOn)
	d.goOn = nil
}

func (d *haltedDB) write(ctx context.Context, f func(querier) error) (bool, error) {
	d.mu.Lock()
	goOn := d.goOn
	d.mu.Unlock()
	if goOn != nil {
		<-goOn
	}
	return d.database.write(ctx, f)
}

// TestFormerHolderStopsNoStream has a holder be stopped when it was about to write that a stream stands still. When it
// goes on another sends, and that stream runs.
func TestFormerHolderStopsNoStream(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Poll = time.Hour
		cfg.Lease = 300 * time.Millisecond
		refused := make(chan struct{}, 1)
		cfg.Logger = slog.New(heard{slog.DiscardHandler, func(message string) {
			if message == "a stream stands still until someone decides" {
				refused <- struct{}{}
			}
		}})
		one, two, three := p.open(t, cfg), p.open(t, quick()), p.open(t, quick())
		for _, b := range []*Box{one, two} {
			if db, ok := b.db.(*sqliteDB); ok {
				db.mark = t.TempDir() // no file: leases alone decide
			}
		}
		db := &haltedDB{database: one.db}
		one.db = db
		session := withSession(t, one)
		srv, other := newFakeServer(), newFakeServer()
		srv.before = func(*ledger.Batch) (error, bool) { db.halt(); return fault.Revoked.With("told to"), false }
		x := commit(t, one, Batch{Session: session, Ops: []Op{put("1")}})
		run(t, one, srv)
		<-refused
		done := make(chan struct{})
		one.withLoop(func(l *loop) { l.post(func(time.Time) { close(done) }) })
		<-done // the loop has done what it had to
		other.hold.Lock()
		release := sync.OnceFunc(other.hold.Unlock)
		defer release()
		run(t, two, other)
		eventually(t, "the other sends", func() bool { return len(other.log(session)) == 1 })
		db.resume()
		if err := one.w.do(limited(t), func(context.Context, querier) error { return nil }); err != nil { // takes along what waits
			t.Fatal(err)
		}
		if _, finished, err := three.outcomes(limited(t), x.Batch); finished || err != nil {
			t.Errorf("its sender waits for an answer, and who waits for the batch is told %t, %v", finished, err)
		}
		rows, err := three.List(limited(t), Filter{Batch: x.Batch})
		if err != nil || rows[0].LastError != "" {
			t.Errorf("%+v, %v", rows, err)
		}
		release()
		wait(t, three, x)
	})
}

// lateLink is a server that hears of nothing before the gate is open.
type lateLink struct {
	*fakeServer
	gate chan struct{}
}

func (l lateLink) OpenStream(ctx context.Context, req StreamRequest) (Stream, error) {
	s := &lateStream{calls: make(chan func(Stream), 10), end: make(chan struct{})}
	go func() {
		select {
		case <-l.gate:
		case <-s.end:
			return
		}
		inner, err := l.fakeServer.OpenStream(context.WithoutCancel(ctx), req)
		if err != nil {
			panic(err)
		}
		defer inner.Close()
		for {
			select {
			case call := <-s.calls:
				call(inner)
			case <-s.end:
				return
			}
		}
	}()
	return s, nil
}

type lateStream struct {
	calls chan func(Stream)
	end   chan struct{}
}

func (s *lateStream) Apply(b *ledger.Batch, done func(Reply)) {
	s.calls <- func(inner Stream) { inner.Apply(b, done) }
}
func (s *lateStream) Acknowledge(through uint64) {
	s.calls <- func(inner Stream) { inner.Acknowledge(through) }
}
func (s *lateStream) Opened(context.Context) (uint64, error) { return 0, nil }
func (s *lateStream) Done() <-chan struct{}                  { return nil }
func (s *lateStream) Close()                                 { close(s.end) }

// TestFormerHolderAcknowledgesNothing has a holder that does not know that it is one no more store an outcome. A batch that
// the new one has given its seqs refers to it still, and the server has not heard of the new one: so it must not forget it.
func TestFormerHolderAcknowledgesNothing(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Poll, cfg.Lease = time.Hour, time.Hour
		one := p.open(t, cfg)
		cfg.Poll, cfg.Lease = time.Hour, 50*time.Millisecond
		two := p.open(t, cfg)
		for _, b := range []*Box{one, two} {
			if db, ok := b.db.(*sqliteDB); ok {
				db.mark = t.TempDir() // no file: leases alone decide
			}
		}
		session := withSession(t, one)
		srv := newFakeServer()
		srv.hold.Lock()
		release := sync.OnceFunc(srv.hold.Unlock)
		defer release()
		run(t, one, srv)
		x := commit(t, one, Batch{Session: session, Ops: []Op{put("1")}})
		eventually(t, "it is with the server", func() bool { return len(srv.log(session)) == 1 })
		lapse(t, two)
		late := lateLink{srv, make(chan struct{})}
		run(t, two, late)
		eventually(t, "the other sends", func() bool { return two.w.lanes.sends() })
		y := commit(t, two, Batch{Session: session, Ops: []Op{{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: x.Ops[0], Path: "cursor"}}}}}})
		eventually(t, "what refers to it has its seq", func() bool {
			rows, err := two.List(limited(t), Filter{Batch: y.Batch})
			return err == nil && rows[0].Seq == 2
		})
		release()
		eventually(t, "its outcome is stored, unless the former holder has noticed", func() bool {
			_, finished, err := two.outcomes(limited(t), x.Batch)
			return finished && err == nil || !one.w.lanes.sends()
		})
		eventually(t, "the former holder has noticed, or told the server", func() bool {
			return !one.w.lanes.sends() || srv.ackedThrough(session, one.id) > 0
		})
		close(late.gate)
		if o := wait(t, two, y)[0]; o.Status != ledger.Applied {
			t.Errorf("what refers to it: %+v", o)
		}
	})
}

// TestTransactionsFindTheHolder: one that needs to know is told whether the lease is its Box's, with a commit in it or without.
func TestTransactionsFindTheHolder(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		one, two := p.open(t, quick()), p.open(t, quick())
		session := withSession(t, one)
		run(t, two, newFakeServer())
		eventually(t, "the second one has the lease", func() bool { return two.w.lanes.sends() })
		for _, b := range []*Box{one, two} {
			for _, committing := range []bool{false, true, false} {
				var held *bool
				err := b.w.do(limited(t), func(_ context.Context, q querier) error {
					held = b.share(q, false)
					if committing {
						row := &batchRow{id: ulid.Make().String(), session: session, ops: 1, body: []byte("{}")}
						b.t.insertBatch(q, row, 0, b.share(q, true), func(int64, bool) {})
					}
					return nil
				})
				if err != nil || *held != (b == two) {
					t.Errorf("held by the second: %v; committing: %v: %v, %v", b == two, committing, *held, err)
				}
			}
		}
	})
}

// TestCreatingGoesWithItsRow: how a session is reached is kept with the outcome of its create, and not when that was stored
// by another.
func TestCreatingGoesWithItsRow(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		var st streamRow
		err := b.w.do(limited(t), func(ctx context.Context, q querier) error {
			rows, _, err := b.t.waiting(ctx, q, session, 1, 1)
			if err != nil {
				return err
			}
			b.t.creating(q, rows[0].num, "space", "owner")
			b.t.finish(q, rows[0].num, 1, tally{}, 1, nil, nil)
			b.t.creating(q, rows[0].num, "another", "owner")
			st, err = b.t.stream(ctx, q, session)
			return err
		})
		if err != nil || st.spaceRef != "space" {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

// TestServerFencesOldFile gives the server a newer incarnation than the outbox
// knows, as after restoring its file: it catches up.
func TestServerFencesOldFile(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		session := withSession(t, b)
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		srv.streams[session+b.ID()] = &fakeStreamRow{row: ledger.Stream{Session: session, Outbox: b.ID(), Incarnation: 100},
			history: ledger.NewHistory(nil), hash: b.secret.StreamSecret(session).Hash()}
		run(t, b, srv)
		if o := wait(t, b, x)[0]; o.Status != ledger.Applied {
			t.Errorf("%+v", o)
		}
	})
}

// TestRunTwice: the second Run waits for the first to end, and then sends over its
// own link.
func TestRunTwice(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		one, two := newFakeServer(), newFakeServer()
		stop := run(t, b, one)
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
		run(t, b, two)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := b.Run(ctx, two); err != nil {
			t.Errorf("one that is given up: %v", err)
		}
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("2")}}))
		stop()
		if n := len(one.log(session)); n != 2 {
			t.Errorf("%d batches went out over the first link", n)
		}
		other := withSession(t, b)
		wait(t, b, commit(t, b, Batch{Session: other, Ops: []Op{put("3")}}))
		if n := len(two.log(other)); n != 1 {
			t.Errorf("%d batches went out over the second link", n)
		}
	})
}

func TestManyCommittersAtOnce(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		boxes := []*Box{p.open(t, quick()), p.open(t, quick())}
		srv := newFakeServer()
		sessions := []string{withSession(t, boxes[0]), withSession(t, boxes[0])}
		run(t, boxes[0], srv)
		var wg sync.WaitGroup
		var mu sync.Mutex
		m := make(map[string][]Ticket)
		for w := range 8 {
			wg.Go(func() {
				for i := range 25 {
					s := sessions[(w+i)%2]
					ticket, err := boxes[w%2].Commit(context.Background(), Batch{Session: s, Ops: []Op{put(fmt.Sprint(i)), put("0")}})
					if err != nil {
						t.Errorf("commit: %v", err)
						return
					}
					mu.Lock()
					key := fmt.Sprint(w, s)
					m[key] = append(m[key], ticket)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if err := boxes[1].Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		at := make(map[string]int)
		for _, s := range sessions {
			log := srv.log(s)
			if len(log) != 200 {
				t.Errorf("%d events, want 200", len(log))
			}
			for i, e := range log {
				at[e.op] = i
			}
		}
		for who, tickets := range m {
			last := -1
			for _, ticket := range tickets {
				a, b := at[ticket.Ops[0]], at[ticket.Ops[1]]
				if a <= last || b != a+1 {
					t.Fatalf("%s: ops at %d and %d after %d", who, a, b, last)
				}
				last = b
			}
		}
	})
}

// The children of this test binary: they commit and are killed.
const (
	childVar     = "MOORING_OUTBOX_TEST_CHILD" // place kind, and what to do
	childPlace   = "MOORING_OUTBOX_TEST_PLACE"
	childName    = "MOORING_OUTBOX_TEST_NAME"
	childSession = "MOORING_OUTBOX_TEST_SESSION"
)

// neverReached is a crash point that no outbox passes: the child sends, with a
// lease of an hour, until it is killed from outside.
const neverReached = crashpoint.ServerCommitBefore

// child commits batches of two and prints each one's id when Commit has
// returned, for ever; it is to be killed.
func child(kind string) int {
	p := place{kind, os.Getenv(childPlace), os.Getenv(childName)}
	cfg := quick()
	if os.Getenv(crashpoint.Env) == neverReached {
		cfg.Lease = time.Hour
	}
	b, err := p.tryOpen(cfg)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	ctx := context.Background()
	if os.Getenv(crashpoint.Env) != "" {
		go func() { _ = b.Run(ctx, newFakeServer()) }()
	}
	for i := range 100_000 {
		ticket, err := b.Commit(ctx, Batch{Session: os.Getenv(childSession), Ops: []Op{put(fmt.Sprint(i)), put("0")}})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println(ticket.Batch)
	}
	return 0
}

// childOf is what a child calls its connections to Postgres.
func childOf(p place) string { return "child of " + p.name }

// startChild runs the test binary as a committing process; lines are what it
// prints until it ends.
func startChild(t *testing.T, p place, session, arm string) (kill func(), ended <-chan struct{}, lines func() []string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+p.kind, childPlace+"="+p.at, childName+"="+p.name, childSession+"="+session, crashpoint.Env+"="+arm,
		"PGAPPNAME="+childOf(p))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []string
	over := make(chan struct{})
	go func() {
		defer close(over)
		for s := bufio.NewScanner(out); s.Scan(); {
			mu.Lock()
			got = append(got, s.Text())
			mu.Unlock()
		}
		_ = cmd.Wait()
	}()
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-over
	})
	t.Cleanup(kill)
	return kill, over, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), got...)
	}
}

func TestKilledRightAfterCommit(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		kill, _, lines := startChild(t, p, session, "")
		eventually(t, "it has committed", func() bool { return len(lines()) >= 20 })
		kill()
		committed := lines()
		srv := newFakeServer()
		run(t, b, srv)
		if err := b.Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		log := srv.log(session)
		// At most one more than it said: killed between durable and told.
		if len(log) != 2*len(committed) && len(log) != 2*len(committed)+2 {
			t.Fatalf("%d events of %d batches", len(log), len(committed))
		}
		for i, id := range committed {
			if strings.HasPrefix(id, "error") {
				t.Fatal(id)
			}
			if log[2*i].batch != id || log[2*i+1].batch != id {
				t.Fatalf("batch %d is not where it belongs", i)
			}
		}
	})
}

// TestKilledAtEveryStep kills a sending process at each named step and lets
// another finish. The child's server dies with it, so this shows that nothing
// committed is lost and nothing is sent out of order, not that the ledger dedupes.
func TestKilledAtEveryStep(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		for i, point := range []string{crashpoint.OutboxCommitBefore, crashpoint.OutboxCommitAfter, crashpoint.OutboxSeqBefore,
			crashpoint.OutboxSeqAfter, crashpoint.OutboxSendAfter, crashpoint.OutboxAckBefore, crashpoint.OutboxAckAfter} {
			t.Run(point, func(t *testing.T) {
				t.Parallel()
				p := p.fresh(i)
				cfg := quick()
				cfg.Lease = 100 * time.Millisecond
				b := p.open(t, cfg)
				session := withSession(t, b)
				arm := point
				if strings.HasPrefix(point, "outbox.commit") {
					arm += ":7"
				}
				_, dead, lines := startChild(t, p, session, arm)
				srv := newFakeServer()
				select {
				case <-dead:
				case <-limited(t).Done():
					t.Fatal("it lives")
				}
				committed := lines()
				acked, err := b.List(limited(t), Filter{States: []State{Acked}})
				if err != nil {
					t.Fatal(err)
				}
				// What the dead server had answered and the child had stored.
				srv.streams[session+b.ID()] = &fakeStreamRow{row: ledger.Stream{Session: session, Outbox: b.ID(), Incarnation: 1,
					LastSeq: uint64(len(acked)), AckedThrough: uint64(len(acked))}, history: ledger.NewHistory(nil), hash: b.secret.StreamSecret(session).Hash()}
				run(t, b, srv)
				if err := b.Drain(limited(t), nil); err != nil {
					t.Fatal(err)
				}
				rows, err := b.List(limited(t), Filter{})
				if err != nil {
					t.Fatal(err)
				}
				if n := len(rows) - 2*len(committed); n != 0 && n != 2 {
					t.Fatalf("%d rows of %d batches", len(rows), len(committed))
				}
				for i, r := range rows {
					if r.State != Acked || r.Seq != uint64(i+1) || i/2 < len(committed) && committed[i/2] != r.Batch {
						t.Fatalf("row %d: %+v", i, r)
					}
				}
				if n := len(srv.log(session)); n != len(rows)-len(acked) {
					t.Errorf("%d events, want %d", n, len(rows)-len(acked))
				}
			})
		}
	})
}
