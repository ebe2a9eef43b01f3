package outbox

// Several processes on one outbox: takeover, fencing, being killed.

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
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
	if err := b.w.Do(t.Context(), func(ctx context.Context, q sqlstore.Querier) error {
		_, err := q.Exec(ctx, "UPDATE mooring_outbox SET lease_until = 0 WHERE box = $1", b.t.Box)
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
			if db, ok := b.db.(*sqlite.DB); ok {
				db.LivenessPath = t.TempDir() // no file: leases alone decide
			}
		}
		srv := newFakeServer()
		ctx := limited(t)
		session := withSession(t, one)
		stop := run(t, one, srv)
		defer stop()
		wait(t, one, commit(t, one, Batch{Session: session, Ops: []Op{put("1")}}))

		lapse(t, two)
		tk, _, err := two.lease.TryAcquire(ctx, &lease.Waiter{Step: 1})
		if err != nil || tk == nil || tk.Incarnation != 2 {
			t.Fatalf("took over with %+v, %v", tk, err)
		}
		late := commit(t, one, Batch{Session: session, Ops: []Op{put("2")}})
		rows, err := one.List(ctx, Filter{Batch: late.Batch})
		if err != nil || rows[0].Seq != 0 || rows[0].State != Pending {
			t.Fatalf("the old holder gave out a seq: %+v, %v", rows, err)
		}
		leading := make(chan error, 1)
		lead, end := context.WithCancel(ctx)
		go func() { leading <- two.Run(lead, srv) }()
		if o := wait(t, two, late)[0]; o.Cursor != 2 {
			t.Errorf("%+v", o)
		}
		end()
		if err := <-leading; err != nil {
			t.Errorf("the new holder ended with %v", err)
		}
	})
}

func boxRowOf(t *testing.T, b *Box) (row sqlstore.BoxRow) {
	t.Helper()
	err := b.db.Read(limited(t), func(q sqlstore.Querier) (err error) {
		row, err = b.t.ReadBox(limited(t), q, "")
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
			setBox(t, b, "holder = 'other', "+column+" = $2", value)
		}
		w := &lease.Waiter{Step: 1}
		try := func(want bool, what string) {
			t.Helper()
			tk, _, err := b.lease.TryAcquire(limited(t), w)
			if err != nil || (tk != nil) != want {
				t.Errorf("%s: %+v, %v", what, tk, err)
			}
		}
		minutes := time.Minute.Milliseconds()
		set("lease_until", time.Now().Add(time.Hour).UnixMilli())
		set("lease_for", 10*minutes)
		try(false, "seen for the first time")
		w.Since = w.Since.Add(-9 * time.Minute)
		try(false, "not renewed for nine minutes of ten")
		w.Since = w.Since.Add(-time.Minute)
		set("lease_until", time.Now().Add(time.Hour+time.Minute).UnixMilli())
		try(false, "renewed")
		w.Since = w.Since.Add(-10 * time.Minute)
		try(true, "not renewed for ten minutes")
		if row := boxRowOf(t, b); row.Holder != b.t.HolderID || row.LeaseFor != b.cfg.Lease.Milliseconds() {
			t.Errorf("%+v", row)
		}
		set("lease_until", time.Now().Add(time.Hour).UnixMilli())
		set("lease_for", 0)
		try(false, "of an older binary")
		w.Since = w.Since.Add(-b.cfg.Lease)
		try(true, "of an older binary, not renewed")
	})
}

// TestCreatingGoesWithItsRow: how a session is reached is kept with the outcome of its create, and not when that was stored
// by another.
func TestCreatingGoesWithItsRow(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		var st sqlstore.StreamRow
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			rows, _, err := b.t.LockUnsequenced(ctx, q, session, 1, 1)
			if err != nil {
				return err
			}
			b.t.SetCreateRefs(q, rows[0].Num, "space", "owner")
			b.t.Finish(q, rows[0].Num, 1, intent.Tally{}, 1, nil, nil)
			b.t.SetCreateRefs(q, rows[0].Num, "another", "owner")
			st, err = b.t.Stream(ctx, q, session)
			return err
		})
		if err != nil || st.SpaceRef != "space" {
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
			history: ledger.NewHistory(nil), hash: b.sender.Secret.StreamSecret(session).Hash()}
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
	childStands  = "MOORING_OUTBOX_TEST_STANDS"
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
	if os.Getenv(childStands) != "" {
		return standInside(ctx, b)
	}
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

// standInside changes the outbox's row and says so, and commits when it has read a byte.
func standInside(ctx context.Context, b *Box) int {
	_, err := b.db.Write(ctx, func(q sqlstore.Querier) error {
		if _, err := q.Exec(ctx, "UPDATE mooring_outbox SET holder = holder WHERE box = $1", b.t.Box); err != nil {
			return err
		}
		fmt.Println("inside")
		_, err := os.Stdin.Read(make([]byte, 1))
		return err
	})
	if err != nil {
		fmt.Println("error", err)
		return 1
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
					LastSeq: uint64(len(acked)), AckedThrough: uint64(len(acked))}, history: ledger.NewHistory(nil), hash: b.sender.Secret.StreamSecret(session).Hash()}
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
