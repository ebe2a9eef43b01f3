package outbox

// What those who wait are told, and what is remembered for those who come late.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/outcomes"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// hookedDB tells of every statement that is about to read outside the sender's
// and the committers' transactions.
type hookedDB struct {
	sqlstore.Database
	before func(sql string)
}

type hookedQuerier struct {
	sqlstore.Querier
	before func(sql string)
}

func (o hookedDB) Read(ctx context.Context, f func(sqlstore.Querier) error) error {
	return o.Database.Read(ctx, func(q sqlstore.Querier) error { return f(hookedQuerier{q, o.before}) })
}

func (o hookedQuerier) Query(ctx context.Context, sql string, args []any, each func(sqlstore.Scanner) error) error {
	o.before(sql)
	return o.Querier.Query(ctx, sql, args, each)
}

// standStill stops a stream, as if by another process that has the lease.
func standStill(t *testing.T, b *Box, session string) {
	t.Helper()
	err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
		now, err := b.db.Now(ctx, q)
		if err != nil {
			return err
		}
		another := b.t
		another.HolderID = "another"
		_, err = q.Exec(ctx, sqlstore.SQLTakeLease, b.t.Box, another.HolderID, now+time.Hour.Milliseconds(), 1, 0, time.Hour.Milliseconds())
		another.SetStopped(q, session, fault.ServerBehind, "on request")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goesOn checks that neither who waits for a batch nor who waits for all is told
// of a standstill.
func goesOn(t *testing.T, b *Box, x Ticket) {
	t.Helper()
	if _, finished, err := b.outcomes(limited(t), x.Batch); finished || err != nil {
		t.Errorf("wait: %t, %v", finished, err)
	}
	if left, stuck, err := b.remaining(limited(t)); left == 0 || stuck != nil || err != nil {
		t.Errorf("drain: %d, %v, %v", left, stuck, err)
	}
}

func depends(on ...Ticket) Op {
	op := put("1")
	for _, t := range on {
		op.DependsOn = append(op.DependsOn, t.Ops...)
	}
	return op
}

// TestAnyNeedDecides has a batch need an op of a stream that stands still, and
// one that is refused: that decides it, without another look now and then.
func TestAnyNeedDecides(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Poll = time.Hour
		b := p.open(t, cfg)
		srv := newFakeServer()
		ctx := limited(t)
		bad, other, mine := withSession(t, b), withSession(t, b), withSession(t, b)
		refuse := make(chan struct{})
		srv.before = func(batch *ledger.Batch) (error, bool) {
			switch batch.Session {
			case bad:
				return fault.ServerBehind.With("on request"), false
			case other:
				<-refuse
			}
			return nil, false
		}
		x := commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
		y := commit(t, b, Batch{Session: other, Ops: []Op{{Method: "reject"}}})
		z := commit(t, b, Batch{Session: mine, Ops: []Op{depends(x, y)}})
		run(t, b, srv)
		if _, err := b.Wait(ctx, x.Batch); !errors.Is(err, fault.ServerBehind) {
			t.Fatal(err)
		}
		eventually(t, "it waits, and no look is due", func() bool {
			waits := make(chan bool, 1)
			b.sender.Post(func(m *machine.Machine, _ time.Time) {
				s := m.Streams[mine]
				waits <- s != nil && len(s.BlockedOn) > 0 && !s.Recheck
			})
			select {
			case is := <-waits:
				return is
			case <-ctx.Done():
				return false
			}
		})
		goesOn(t, b, z)
		close(refuse)
		if outs, err := b.Wait(ctx, z.Batch); err != nil || outs[0].Status != ledger.Skipped || outs[0].Cause != y.Ops[0] {
			t.Errorf("%+v, %v", outs, err)
		}
	})
}

// TestDecidedBatchDoesNotStandStill: what is left to do for it needs no server.
func TestDecidedBatchDoesNotStandStill(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		bad, other, mine := withSession(t, b), withSession(t, b), withSession(t, b)
		x := commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
		y := commit(t, b, Batch{Session: other, Ops: []Op{put("2")}})
		z := commit(t, b, Batch{Session: mine, Ops: []Op{depends(x, y)}})
		if err := b.Drop(limited(t), y.Ops[0]); err != nil {
			t.Fatal(err)
		}
		standStill(t, b, bad)
		goesOn(t, b, z)
	})
}

// TestStoppedStreamIsSeenAtOneMoment has a batch leave while a look goes from one
// statement to the next, and the one behind it be held up.
func TestStoppedStreamIsSeenAtOneMoment(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		for i, look := range []func(*Box, string) error{
			func(b *Box, batch string) error { _, _, err := b.outcomes(limited(t), batch); return err },
			func(b *Box, _ string) error { _, stuck, err := b.remaining(limited(t)); return errors.Join(stuck, err) },
		} {
			b := p.fresh(i).open(t, quick())
			bad, mine := withSession(t, b), withSession(t, b)
			x := commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
			y := commit(t, b, Batch{Session: mine, Ops: []Op{put("2")}})
			z := commit(t, b, Batch{Session: mine, Ops: []Op{depends(x)}})
			standStill(t, b, bad)
			var row *sqlstore.BatchRow
			err := b.db.Read(limited(t), func(q sqlstore.Querier) (err error) {
				row, err = b.t.Batch(limited(t), q, y.Batch, "")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			left := false
			useDB(b, hookedDB{b.db, func(sql string) {
				if left || sql != sqlstore.SQLNextUnsequenced {
					return
				}
				left = true
				err := b.w.Do(limited(t), func(_ context.Context, q sqlstore.Querier) error {
					b.t.SetSeq(q, row.Num, 1, nil, intent.Tally{})
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}})
			if err := look(b, y.Batch); err != nil || !left {
				t.Errorf("it is on its way (%t): %v", left, err)
			}
			if _, _, err := b.outcomes(limited(t), z.Batch); !errors.Is(err, fault.ServerBehind) {
				t.Errorf("the one behind: %v", err)
			}
		}
	})
}

// TestLooksThatCostLittle: while nothing stands still, whoever waits for a batch reads
// neither what it refers to nor what is in it.
func TestLooksThatCostLittle(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		one, two := withSession(t, b), withSession(t, b)
		var xs []Ticket
		for range 20 {
			xs = append(xs, commit(t, b, Batch{Session: one, Ops: []Op{put("1")}}))
		}
		z := commit(t, b, Batch{Session: two, Ops: []Op{depends(xs...)}})
		var asked []string
		useDB(b, hookedDB{b.db, func(sql string) { asked = append(asked, sql) }})
		for name, x := range map[string]Ticket{"plain": xs[0], "with references": z} {
			asked = nil
			if goesOn(t, b, x); len(asked) > 6 || slices.ContainsFunc(asked, func(sql string) bool { return strings.Contains(sql, "body") }) {
				t.Errorf("%s: %d statements: %q", name, len(asked), asked)
			}
		}
	})
}

// TestDamagedNeed: a row that cannot be read ends nobody's waiting for another.
func TestDamagedNeed(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		bad, mine, other := withSession(t, b), withSession(t, b), withSession(t, b)
		commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
		y := commit(t, b, Batch{Session: other, Ops: []Op{put("2")}})
		z := commit(t, b, Batch{Session: mine, Ops: []Op{depends(y)}})
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			_, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET body = $1 WHERE batch = $2", []byte("junk"), y.Batch)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		standStill(t, b, bad)
		goesOn(t, b, z)
	})
}

// TestSkippedOpNeedsNothing has an op be skipped that needs an op of a stream
// which stands still, too: its batch does not wait for that.
func TestSkippedOpNeedsNothing(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		bad, mine := withSession(t, b), withSession(t, b)
		srv.before = func(batch *ledger.Batch) (error, bool) {
			if batch.Session == bad {
				return fault.ServerBehind.With("on request"), false
			}
			return nil, false
		}
		x := commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
		y := commit(t, b, Batch{Session: mine, Ops: []Op{put("2")}})
		z := commit(t, b, Batch{Session: mine, Ops: []Op{depends(x, y), put("3")}})
		if err := b.Drop(limited(t), y.Ops[0]); err != nil {
			t.Fatal(err)
		}
		run(t, b, srv)
		if got := statuses(wait(t, b, z)); got[0] != ledger.Skipped || got[1] != ledger.Applied {
			t.Error(got)
		}
	})
}

// TestInFlightIsNotDelayed by what is behind it in its session, nor is what waits for
// it.
func TestInFlightIsNotDelayed(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		bad, two, three := withSession(t, b), withSession(t, b), withSession(t, b)
		x := commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
		y := commit(t, b, Batch{Session: two, Ops: []Op{put("2")}})
		behind := commit(t, b, Batch{Session: two, Ops: []Op{depends(x)}})
		z := commit(t, b, Batch{Session: three, Ops: []Op{depends(y)}})
		standStill(t, b, bad)
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			r, err := b.t.Batch(ctx, q, y.Batch, "")
			if err == nil {
				b.t.SetSeq(q, r.Num, 1, nil, intent.Tally{})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		goesOn(t, b, y)
		goesOn(t, b, z)
		if _, _, err := b.outcomes(limited(t), behind.Batch); !errors.Is(err, fault.ServerBehind) {
			t.Errorf("the one behind: %v", err)
		}
	})
}

// TestDrainTellsHowFarItIs, from nothing to all there was, and counts what is committed
// meanwhile.
func TestDrainTellsHowFarItIs(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		for range 3 {
			commit(t, b, Batch{Session: session, Ops: []Op{put("1"), put("2")}})
		}
		var progress [][2]int
		err := b.Drain(limited(t), func(done, total int) {
			if progress = append(progress, [2]int{done, total}); len(progress) == 1 {
				commit(t, b, Batch{Session: session, Ops: []Op{put("3")}})
				run(t, b, newFakeServer())
			}
		})
		if err != nil || progress[0] != [2]int{0, 6} {
			t.Fatalf("%v, %v", progress, err)
		}
		for i, one := range progress[1:] {
			if last := progress[i]; one[0] <= last[0] || one[1] < last[1] || one[0] > one[1] {
				t.Errorf("%v after %v", one, last)
			}
		}
		if last := progress[len(progress)-1]; last[0] != last[1] || last[0] < 6 || last[0] > 7 {
			t.Errorf("in the end %v", last)
		}
		progress = nil
		if err := b.Drain(limited(t), func(done, total int) { progress = append(progress, [2]int{done, total}) }); err != nil || !slices.Equal(progress, [][2]int{{0, 0}}) {
			t.Errorf("of nothing: %v, %v", progress, err)
		}
	})
}

// TestReadingDoesNotQueryTheSender: while this process sends, waiting for what was committed
// here costs no reading at first.
func TestReadingDoesNotQueryTheSender(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, srv := p.open(t, quick()), newFakeServer()
		session := withSession(t, b)
		near := func(batch string) outcomes.Source {
			_, ch, near := b.hub.Subscribe(batch)
			b.hub.Unsubscribe(batch, ch)
			return near
		}
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		if got := near(x.Batch); got != outcomes.FromDatabase {
			t.Errorf("nobody sends: %d", got)
		}
		sent := make(chan outcomes.Source, 1)
		srv.before = func(*ledger.Batch) (error, bool) {
			select {
			case sent <- near(x.Batch):
			default: // it is sent again
			}
			return nil, false
		}
		stop := run(t, b, srv)
		wait(t, b, x)
		if got := <-sent; got != outcomes.FromSender {
			t.Errorf("it was loaded and sent: %d", got)
		}
		stop()
		if got := near(commit(t, b, Batch{Session: session, Ops: []Op{put("2")}}).Batch); got != outcomes.FromDatabase {
			t.Errorf("nobody sends any more: %d", got)
		}
	})
}
