package outbox

// What those who wait are told, and what is remembered for those who come late.

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestOutcomesAreKeptAMoment(t *testing.T) {
	t.Parallel()
	var n notices
	here := func(batch string) bool {
		outs, ch, _ := n.add(batch)
		if ch != nil {
			n.remove(batch, ch)
		}
		return outs != nil
	}
	finish := func(batch string, ops int) {
		n.tell(batch, make([]ledger.Outcome, ops), false)
		n.stored(batch)
	}
	const each = 64
	for i := range 100 {
		finish(strconv.Itoa(i), each)
		if i%10 == 0 { // a new holder of the lease got the same answer again
			finish(strconv.Itoa(i), each)
		}
		for j := range i + 1 {
			if want := i-j < keepOutcomes/each; here(strconv.Itoa(j)) != want {
				t.Fatalf("after batch %d: batch %d is here: %t", i, j, !want)
			}
		}
	}
	n.tell("unstored", make([]ledger.Outcome, 1), false)
	finish("large", keepOutcomes+1)
	if here("large") || here("99") || !here("unstored") {
		t.Error("the bound is not kept, or what is not stored is forgotten")
	}
	n.tell("another's", make([]ledger.Outcome, 1), true)
	if here("another's") {
		t.Error("what is stored already, whoever did, is kept and never forgotten")
	}
	for range 2 { // told of more than is kept, and told again of what is stored
		n.tell("twice", make([]ledger.Outcome, keepOutcomes+1), false)
		n.tell("twice", make([]ledger.Outcome, keepOutcomes+1), false)
		n.stored("twice")
		n.stored("twice")
	}
	finish("last", 1)
	n.tell("last", make([]ledger.Outcome, 2), false)
	n.swept()
	if here("last") || len(n.arrived) != 1 || len(n.lately) != 0 || n.kept != 0 {
		t.Errorf("after a sweep: %v, %v", n.arrived, n.lately)
	}
}

// overheard tells of every statement that is about to read outside the sender's
// and the committers' transactions.
type overheard struct {
	database
	before func(sql string)
}

type overheardQuerier struct {
	querier
	before func(sql string)
}

func (o overheard) read(ctx context.Context, f func(querier) error) error {
	return o.database.read(ctx, func(q querier) error { return f(overheardQuerier{q, o.before}) })
}

func (o overheardQuerier) query(ctx context.Context, sql string, args []any, each func(scanner) error) error {
	o.before(sql)
	return o.querier.query(ctx, sql, args, each)
}

// standStill stops a stream, as if by another process that has the lease.
func standStill(t *testing.T, b *Box, session string) {
	t.Helper()
	err := b.w.do(limited(t), func(ctx context.Context, q querier) error {
		now, err := b.db.now(ctx, q)
		if err != nil {
			return err
		}
		another := b.t
		another.me = "another"
		_, err = q.exec(ctx, sqlTakeLease, b.t.box, another.me, now+time.Hour.Milliseconds(), 1, 0, time.Hour.Milliseconds())
		another.stop(q, session, fault.ServerBehind, "told to")
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
				return fault.ServerBehind.With("told to"), false
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
			b.withLoop(func(l *loop) {
				l.post(func(time.Time) {
					s := l.m.streams[mine]
					waits <- s != nil && len(s.owed) > 0 && !s.relook
				})
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

// TestStandstillIsSeenAtOneMoment has a batch leave while a look goes from one
// statement to the next, and the one behind it be held up.
func TestStandstillIsSeenAtOneMoment(t *testing.T) {
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
			var row *batchRow
			err := b.db.read(limited(t), func(q querier) (err error) {
				row, err = b.t.batch(limited(t), q, y.Batch, "")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			left := false
			b.db = overheard{b.db, func(sql string) {
				if left || sql != sqlNextWaiting {
					return
				}
				left = true
				err := b.w.do(limited(t), func(_ context.Context, q querier) error {
					b.t.giveSeq(q, row.num, 1, nil, tally{})
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}}
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
		b.db = overheard{b.db, func(sql string) { asked = append(asked, sql) }}
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
		err := b.w.do(limited(t), func(ctx context.Context, q querier) error {
			_, err := q.exec(ctx, "UPDATE mooring_outbox_batch SET body = $1 WHERE batch = $2", []byte("junk"), y.Batch)
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
				return fault.ServerBehind.With("told to"), false
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

// TestWhoIsMadeToLook is told so once.
func TestWhoIsMadeToLook(t *testing.T) {
	t.Parallel()
	var n notices
	_, first, _ := n.add("a")
	_, second, _ := n.add("a")
	n.look()
	if len(first) != 1 || len(second) != 1 || len(n.waiting) != 0 {
		t.Fatalf("%d and %d words, and %d batches are waited for", len(first), len(second), len(n.waiting))
	}
	n.tell("a", make([]ledger.Outcome, 1), false)
	if outs := <-first; outs != nil {
		t.Errorf("told %v", outs)
	}
}

// TestWhatIsOnItsWayIsNotHeldUp by what is behind it in its session, nor is what waits for
// it.
func TestWhatIsOnItsWayIsNotHeldUp(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		bad, two, three := withSession(t, b), withSession(t, b), withSession(t, b)
		x := commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
		y := commit(t, b, Batch{Session: two, Ops: []Op{put("2")}})
		behind := commit(t, b, Batch{Session: two, Ops: []Op{depends(x)}})
		z := commit(t, b, Batch{Session: three, Ops: []Op{depends(y)}})
		standStill(t, b, bad)
		err := b.w.do(limited(t), func(ctx context.Context, q querier) error {
			r, err := b.t.batch(ctx, q, y.Batch, "")
			if err == nil {
				b.t.giveSeq(q, r.num, 1, nil, tally{})
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
		var told [][2]int
		err := b.Drain(limited(t), func(done, total int) {
			if told = append(told, [2]int{done, total}); len(told) == 1 {
				commit(t, b, Batch{Session: session, Ops: []Op{put("3")}})
				run(t, b, newFakeServer())
			}
		})
		if err != nil || told[0] != [2]int{0, 6} {
			t.Fatalf("%v, %v", told, err)
		}
		for i, one := range told[1:] {
			if last := told[i]; one[0] <= last[0] || one[1] < last[1] || one[0] > one[1] {
				t.Errorf("%v after %v", one, last)
			}
		}
		if last := told[len(told)-1]; last[0] != last[1] || last[0] < 6 || last[0] > 7 {
			t.Errorf("in the end %v", last)
		}
		told = nil
		if err := b.Drain(limited(t), func(done, total int) { told = append(told, [2]int{done, total}) }); err != nil || !slices.Equal(told, [][2]int{{0, 0}}) {
			t.Errorf("of nothing: %v, %v", told, err)
		}
	})
}

// TestWhoSendsIsNotAskedForByReading: while this process sends, waiting for what was committed
// here costs no reading at first.
func TestWhoSendsIsNotAskedForByReading(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, srv := p.open(t, quick()), newFakeServer()
		session := withSession(t, b)
		near := func(batch string) nearness {
			_, ch, near := b.told.add(batch)
			b.told.remove(batch, ch)
			return near
		}
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		if got := near(x.Batch); got != notHere {
			t.Errorf("nobody sends: %d", got)
		}
		sent := make(chan nearness, 1)
		srv.before = func(*ledger.Batch) (error, bool) {
			select {
			case sent <- near(x.Batch):
			default: // it is sent again
			}
			return nil, false
		}
		stop := run(t, b, srv)
		wait(t, b, x)
		if got := <-sent; got != withSender {
			t.Errorf("it was loaded and sent: %d", got)
		}
		stop()
		if got := near(commit(t, b, Batch{Session: session, Ops: []Op{put("2")}}).Batch); got != notHere {
			t.Errorf("nobody sends any more: %d", got)
		}
	})
}

func TestNearness(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		near        nearness
		pause, next time.Duration
		look        bool
	}{
		{notHere, pollFirst, pollFirst, true},
		{notHere, pollMost, pollMost, true},
		{queuedHere, pollFirst, pollHere, false},
		{queuedHere, 2 * pollFirst, 2 * pollFirst, true},
		{withSender, pollFirst, pollSent, false},
		{withSender, pollMost, pollSent, true},
	} {
		if look, next := c.near.poll(c.pause); look != c.look || next != c.next {
			t.Errorf("%d after %v: %t, then in %v", c.near, c.pause, look, next)
		}
	}
	var n notices
	near := func(batch string) nearness {
		_, ch, near := n.add(batch)
		n.remove(batch, ch)
		return near
	}
	n.queued("a")
	if got := near("a"); got != queuedHere {
		t.Errorf("queued: %d", got)
	}
	n.sent("a")
	n.queued("a")
	if got := near("a"); got != withSender {
		t.Errorf("sent: %d", got)
	}
	n.tell("a", nil, true)
	if got := near("a"); got != notHere {
		t.Errorf("told: %d", got)
	}
	n.sent("b")
	n.look()
	if got := near("b"); got != notHere {
		t.Errorf("a stream has stopped: %d", got)
	}
	for i := range mostQueued + 1 {
		n.queued(strconv.Itoa(i))
	}
	if near(strconv.Itoa(mostQueued-1)) != queuedHere || near(strconv.Itoa(mostQueued)) != notHere {
		t.Error("the bound is not kept")
	}
	n.grounded()
	if got := near("0"); got != notHere {
		t.Errorf("nobody sends any more: %d", got)
	}
}
