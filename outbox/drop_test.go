package outbox

// Giving ops up, and trying them again.

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

func TestRetryNamesTheOld(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		ctx := limited(t)
		session := withSession(t, b)
		stop := run(t, b, srv)
		x := commit(t, b, Batch{Session: session, Ops: []Op{{Method: "reject"}}})
		y := commit(t, b, Batch{Session: session, Ops: []Op{{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: x.Ops[0], Path: "cursor"}}}}, put("1")}})
		if got := statuses(wait(t, b, y)); got[0] != ledger.Skipped || got[1] != ledger.Applied {
			t.Fatal(got)
		}
		if _, err := b.Retry(ctx, y.Ops[1]); !errors.Is(err, fault.Usage) {
			t.Errorf("retry of an acked op: %v", err)
		}
		if err := b.Drain(ctx, nil); err != nil { // its outcome is stored
			t.Fatal(err)
		}
		retries := func(op string) Batch { return Batch{Session: session, Ops: []Op{{Method: "put", Retries: op}}} }
		if _, err := b.Commit(ctx, retries(y.Ops[1])); !errors.Is(err, fault.Usage) {
			t.Errorf("one that retries an acked op: %v", err)
		}
		stop()
		late := commit(t, b, Batch{Session: session, Ops: []Op{put("2")}})
		if _, err := b.Commit(ctx, retries(late.Ops[0])); !errors.Is(err, fault.Usage) {
			t.Errorf("one that retries an op which waits: %v", err)
		}
		again, err := b.Retry(ctx, x.Ops[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Retry(ctx, x.Ops[0]); !errors.Is(err, fault.AlreadyExists) {
			t.Errorf("retried twice: %v", err)
		}
		same := Batch{ID: again.Batch, Session: session, Ops: []Op{{Method: "reject", Retries: x.Ops[0]}}}
		if ticket, err := b.Commit(ctx, same); err != nil || !slices.Equal(ticket.Ops, again.Ops) {
			t.Errorf("the retry committed again: %v, %v", ticket, err)
		}
		rows, err := b.List(ctx, Filter{Op: again.Ops[0]})
		if err != nil || len(rows) != 1 || rows[0].Retries != x.Ops[0] || rows[0].Method != "reject" || rows[0].State != Pending {
			t.Fatalf("%+v, %v", rows, err)
		}
		// What is skipped for want of it follows the new op.
		y2, err := b.Retry(ctx, y.Ops[0])
		if err != nil {
			t.Fatal(err)
		}
		run(t, b, srv)
		if o := wait(t, b, again)[0]; o.Status != ledger.Rejected || o.OpID == x.Ops[0] {
			t.Errorf("retried: %+v", o)
		}
		if o := wait(t, b, y2)[0]; o.Status != ledger.Skipped || o.Cause != again.Ops[0] {
			t.Errorf("the one that needs it: %+v", o)
		}
	})
}

// TestRetryBehindItsReader: a batch that waited for something else when the op it needs was retried is not sent before
// the retry, which is behind it.
func TestRetryBehindItsReader(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		one, two := withSession(t, b), withSession(t, b)
		link := srv.awayFor(two)
		x := commit(t, b, Batch{Session: one, Ops: []Op{{Method: "deny"}}})
		w := commit(t, b, Batch{Session: two, Ops: []Op{put("1")}})
		commit(t, b, Batch{Session: one, Ops: []Op{depends(w)}})
		y := commit(t, b, Batch{Session: one, Ops: []Op{depends(x)}}) // is not looked at before w is through
		run(t, b, link)
		failed(t, b, x)
		if _, err := b.Retry(limited(t), x.Ops[0]); err != nil {
			t.Fatal(err)
		}
		link.down.Store(false)
		if o := wait(t, b, y)[0]; o.Status != ledger.Skipped || o.Cause != x.Ops[0] {
			t.Errorf("%+v", o)
		}
	})
}

// failed waits until a batch's first op has failed, and that is stored.
func failed(t *testing.T, b *Box, x Ticket) {
	t.Helper()
	eventually(t, "it has failed", func() bool {
		rows, err := b.List(limited(t), Filter{Op: x.Ops[0]})
		return err == nil && rows[0].State == Failed
	})
}

// TestRetryMakesNoCircle: of two queues whose heads need each other's retried op, or what is behind it, none waits for ever.
func TestRetryMakesNoCircle(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		one, two := withSession(t, b), withSession(t, b)
		link := srv.awayFor(two)
		x := commit(t, b, Batch{Session: one, Ops: []Op{{Method: "deny"}}})
		commit(t, b, Batch{Session: two, Ops: []Op{put("0")}})
		y := commit(t, b, Batch{Session: two, Ops: []Op{depends(x)}})
		w := commit(t, b, Batch{Session: two, Ops: []Op{put("1")}})
		z := commit(t, b, Batch{Session: one, Ops: []Op{depends(w)}})
		run(t, b, link)
		failed(t, b, x)
		again, err := b.Retry(limited(t), x.Ops[0])
		if err != nil {
			t.Fatal(err)
		}
		link.down.Store(false)
		for i, want := range []ledger.Status{ledger.Skipped, ledger.Applied, ledger.Applied, ledger.Denied} {
			if o := wait(t, b, []Ticket{y, w, z, again}[i])[0]; o.Status != want {
				t.Errorf("batch %d: %+v", i, o)
			}
		}
	})
}

func TestDropBeforeSeq(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		ctx := limited(t)
		session := withSession(t, b)
		id := opid.NewBatch()
		x := commit(t, b, Batch{ID: id, Session: session, Ops: []Op{put("1"), {Method: "put", DependsOn: []string{opid.Of(id, 0)}}, put("3")}})
		y := commit(t, b, Batch{Session: session, Ops: []Op{{Method: "put", DependsOn: []string{x.Ops[0]}}}})
		whole := commit(t, b, Batch{Session: session, Atomic: true, Ops: []Op{put("5"), put("6")}})
		if err := b.Drop(ctx, x.Ops[0]); err != nil {
			t.Fatal(err)
		}
		if err := b.Drop(ctx, x.Ops[0]); !errors.Is(err, fault.Usage) {
			t.Errorf("dropped twice: %v", err)
		}
		if err := b.Drop(ctx, whole.Ops[1]); err != nil {
			t.Fatal(err)
		}
		if outs := wait(t, b, whole); outs[0].Status != ledger.BatchAborted || outs[0].Cause != whole.Ops[1] || outs[0].Reason != fault.Voided {
			t.Errorf("an atomic batch: %+v", outs)
		}
		if err := b.Drop(ctx, opid.NewBatch()); !errors.Is(err, fault.NotFound) {
			t.Errorf("unknown: %v", err)
		}
		run(t, b, srv)
		if got := statuses(wait(t, b, x)); fmt.Sprint(got) != fmt.Sprint([]ledger.Status{ledger.Voided, ledger.Skipped, ledger.Applied}) {
			t.Errorf("%v", got)
		}
		if o := wait(t, b, y)[0]; o.Status != ledger.Skipped || o.Cause != x.Ops[0] {
			t.Errorf("%+v", o)
		}
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if log := srv.log(session); len(log) != 1 || log[0].op != x.Ops[2] {
			t.Errorf("%+v", log)
		}
		st, err := b.Status(ctx)
		if err != nil || st.Void != 2 || st.Skipped != 2 || st.Acked != 1 || st.Failed != 1 {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

// TestListOfDecidedOps: an op that was dropped or skipped while the others of its batch wait counts as what it is.
func TestListOfDecidedOps(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		if err := b.Drop(limited(t), x.Ops[0]); err != nil {
			t.Fatal(err)
		}
		y := commit(t, b, Batch{Session: session, Ops: []Op{depends(x), put("2"), put("3")}})
		check := func(left int, void ...string) {
			t.Helper()
			st, err := b.Status(limited(t))
			if err != nil || st.Unfinished() != left || st.Skipped != 1 || st.Void != len(void) || left > 0 && st.Streams[0].Unfinished != left {
				t.Errorf("%+v, %v", st, err)
			}
			for state, want := range map[State][]string{Skipped: y.Ops[:1], Void: void} {
				rows, err := b.List(limited(t), Filter{States: []State{state}})
				var got []string
				for _, r := range rows {
					got = append(got, r.Op)
				}
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: %v, want %v, %v", state, got, want, err)
				}
			}
		}
		check(2, x.Ops[0])
		st, err := b.Status(limited(t))
		if err != nil {
			t.Fatal(err)
		}
		db := &seen{Database: b.db} // what is finished need not be read for what is not
		useDB(b, db)
		queue, err := b.Queue(limited(t))
		useDB(b, db.Database)
		if err != nil || slices.Contains(db.reads, sqlstore.SQLFinishedCounts) || queue.Unfinished() != 2 || queue.Bytes != st.Bytes || !slices.Equal(queue.Streams, st.Streams) {
			t.Errorf("the queue: %+v, %v, read by %q", queue, err, db.reads)
		}
		if err := b.Drop(limited(t), y.Ops[1]); err != nil {
			t.Fatal(err)
		}
		check(1, x.Ops[0], y.Ops[1])
		run(t, b, newFakeServer())
		wait(t, b, y)
		if err := b.Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		check(0, x.Ops[0], y.Ops[1])
	})
}

// TestDropThatComesTooLate, between the answer and its being stored, is not asked for any more when that is stored.
func TestDropThatComesTooLate(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Lease = time.Hour
		b := p.open(t, cfg)
		db := &haltedDB{Database: b.db}
		useDB(b, db)
		session := withSession(t, b)
		srv := newFakeServer()
		srv.before = func(*ledger.Batch) (error, bool) { db.halt(); return nil, false }
		run(t, b, srv)
		x := commit(t, b, Batch{Session: session, Ops: []Op{{Method: "reject"}}})
		wait(t, b, x)
		if err := p.open(t, quick()).Drop(limited(t), x.Ops[0]); err != nil {
			t.Fatal(err)
		}
		db.resume()
		failed(t, b, x)
		rows, err := b.List(limited(t), Filter{Op: x.Ops[0]})
		if err != nil || rows[0].Dropping {
			t.Errorf("%+v, %v", rows, err)
		}
	})
}

// TestDropOfWhatAStreamIsOpenedFor, by the sender's own process and by another: its server is not dialled any more.
func TestDropOfWhatAStreamIsOpenedFor(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, other := p.open(t, quick()), p.open(t, quick())
		session := withSession(t, b)
		link := newFakeServer().awayFor(session)
		run(t, b, link)
		for _, dropper := range []*Box{b, other} {
			x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
			tries := link.tries.Load()
			eventually(t, "it is tried", func() bool { return link.tries.Load() > tries })
			if err := dropper.Drop(limited(t), x.Ops[0]); err != nil {
				t.Fatal(err)
			}
			eventually(t, "its stream is gone", func() bool {
				n := 0
				return onLoop(b, func(m *machine.Machine) { n = len(m.Streams) }) && n == 0
			})
		}
	})
}

// TestDropAfterSeq drops ops that have a seq: one whose batch the server has
// recorded, its answer lost, and one that never reached it.
func TestDropAfterSeq(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		ctx := limited(t)
		session := withSession(t, b)
		warm := commit(t, b, Batch{Session: session, Ops: []Op{put("0")}})
		reached := make(chan struct{}, 100)
		srv.hold.Lock()
		srv.before = func(*ledger.Batch) (error, bool) { reached <- struct{}{}; return nil, false }
		run(t, b, srv)
		<-reached // the first batch is recorded, its answer is held back
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1"), put("2")}})
		y := commit(t, b, Batch{Session: session, Ops: []Op{{Method: "put", DependsOn: []string{x.Ops[1]}}}})
		eventually(t, "they have seqs", func() bool {
			rows, err := b.List(ctx, Filter{States: []State{InFlight}})
			return err == nil && len(rows) == 4
		})
		srv.setDown(fault.Disconnected.With("away"))
		other := p.open(t, quick()) // another process drops
		for _, op := range []string{warm.Ops[0], x.Ops[1]} {
			if err := other.Drop(ctx, op); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := b.List(ctx, Filter{Op: x.Ops[1]})
		if err != nil || !rows[0].Dropping || rows[0].State != InFlight {
			t.Fatalf("%+v, %v", rows, err)
		}
		eventually(t, "the sender has noticed", func() bool {
			n := make(chan int, 1)
			b.sender.Post(func(m *machine.Machine, _ time.Time) { n <- len(m.StreamOf(session).Drops) })
			select {
			case n := <-n:
				return n == 2
			case <-ctx.Done():
				return false
			}
		})
		srv.hold.Unlock()
		srv.setDown(nil)
		if o := wait(t, b, warm)[0]; o.Status != ledger.Applied {
			t.Errorf("recorded before the drop: %+v", o)
		}
		if got := statuses(wait(t, b, x)); got[0] != ledger.Applied || got[1] != ledger.Voided {
			t.Errorf("never recorded: %v", got)
		}
		if o := wait(t, b, y)[0]; o.Status != ledger.Skipped || o.Cause != x.Ops[1] {
			t.Errorf("what needs it: %+v", o)
		}
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		st, err := b.Status(ctx)
		if err != nil || st.Void != 1 || st.Acked != 2 || st.Skipped != 1 || st.Incarnation < 2 {
			t.Errorf("%+v, %v", st, err)
		}
		rows, err = b.List(ctx, Filter{Op: x.Ops[1]})
		if err != nil || rows[0].State != Void || rows[0].Dropping || rows[0].Seq != 3 {
			t.Errorf("%+v, %v", rows, err)
		}
	})
}

// TestDropOfWhatIsOnItsWay drops an op that a server has been sent and has not come to. It comes to it once it has said how
// far it is, before the void arrives: too late. What it came to before that stands.
func TestDropOfWhatIsOnItsWay(t *testing.T) {
	for name, c := range map[string]struct {
		next    bool // another sender settles the drop, not the one that sent the op
		earlier bool // the server comes to the op before it is asked how far it is
	}{
		"one sender":           {},
		"the next sender":      {next: true},
		"one sender, earlier":  {earlier: true},
		"next sender, earlier": {next: true, earlier: true},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, p place) {
				b := p.open(t, quick())
				session := withSession(t, b)
				srv := newFakeServer()
				sent, arrive, arrived := make(chan struct{}), make(chan struct{}), make(chan struct{})
				isSent, comesTo := sync.OnceFunc(func() { close(sent) }), sync.OnceFunc(func() { close(arrive) })
				void := func(b *ledger.Batch) bool { return b.Ops[0].Method == ledger.MethodVoid }
				srv.before = func(b *ledger.Batch) (error, bool) {
					if void(b) {
						comesTo()
						<-arrived
					} else {
						isSent()
						<-arrive
					}
					return nil, false
				}
				var come sync.Once
				srv.after = func(b *ledger.Batch) (lost bool) {
					if !void(b) {
						come.Do(func() { close(arrived); lost = true })
					}
					return lost
				}
				stop := run(t, b, srv)
				x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
				<-sent
				srv.setDown(fault.Disconnected.With("away"))
				if c.next {
					stop()
				}
				if c.earlier {
					comesTo()
					<-arrived
				}
				if err := b.Drop(limited(t), x.Ops[0]); err != nil {
					t.Fatal(err)
				}
				srv.setDown(nil)
				if c.next {
					run(t, b, srv)
				}
				want, events := ledger.Voided, 0
				if c.earlier {
					want, events = ledger.Applied, 1
				}
				if o := wait(t, b, x)[0]; o.Status != want || len(srv.log(session)) != events {
					t.Errorf("%+v, and the session has %+v", o, srv.log(session))
				}
			})
		})
	}
}
