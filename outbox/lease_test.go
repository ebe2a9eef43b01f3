package outbox

// Who may take the lease, what a takeover finds, and what only who has the lease changes.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// setBox sets columns of the outbox's own row.
func setBox(t *testing.T, b *Box, set string, args ...any) {
	t.Helper()
	err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
		_, err := q.Exec(ctx, "UPDATE mooring_outbox SET "+set+" WHERE box = $1", append([]any{b.t.Box}, args...)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLeaseRules(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Lease = time.Hour
		b := p.open(t, cfg)
		const minute, day = int64(time.Minute / time.Millisecond), int64(24 * time.Hour / time.Millisecond)
		for name, c := range map[string]struct {
			holder string
			until  int64 // from now on
			lasts  int64 // as its holder said
			pid    int64
			seen   time.Duration // the lease has looked so for this long
			waiter lease.Waiter
			taken  bool
			again  time.Duration // when to try again, about
			mark   bool          // it is for a database with marks
		}{
			"nobody's":                               {holder: "", taken: true},
			"our own":                                {holder: b.t.HolderID, until: minute, taken: true},
			"another's":                              {holder: "x", until: minute, again: time.Minute},
			"lapsed":                                 {holder: "x", until: -1, taken: true},
			"not renewed for as long as ours last":   {holder: "x", until: day, seen: time.Hour, taken: true},
			"seen for less than that":                {holder: "x", until: day, seen: time.Hour - time.Minute, again: 24 * time.Hour},
			"not renewed for as long as it lasts":    {holder: "x", until: day, lasts: 2 * minute, seen: 2 * time.Minute, taken: true},
			"renewed more seldom than ours":          {holder: "x", until: day, lasts: day, seen: 2 * time.Hour, again: 24 * time.Hour},
			"of a dead one":                          {holder: "x", until: minute, pid: sqlstore.LivenessHeld, waiter: lease.Waiter{HasLiveness: true}, taken: true, mark: true},
			"of one that never had the mark":         {holder: "x", until: minute, waiter: lease.Waiter{HasLiveness: true}, again: time.Minute, mark: true},
			"of one that lives and is late":          {holder: "x", until: -1, pid: sqlstore.LivenessHeld, waiter: lease.Waiter{LivenessTaken: true}, again: time.Hour / 2, mark: true},
			"late for half a lease":                  {holder: "x", until: -1, pid: sqlstore.LivenessHeld, seen: time.Hour / 2, waiter: lease.Waiter{LivenessTaken: true}, taken: true, mark: true},
			"late, and another has the mark":         {holder: "x", until: -1, waiter: lease.Waiter{LivenessTaken: true}, taken: true, mark: true},
			"living, by a clock that was put back":   {holder: "x", until: day, pid: sqlstore.LivenessHeld, seen: time.Hour, waiter: lease.Waiter{LivenessTaken: true}, taken: true, mark: true},
			"living, with a lease that looks lapsed": {holder: "x", until: day, pid: sqlstore.LivenessHeld, lasts: minute, seen: time.Minute, waiter: lease.Waiter{LivenessTaken: true}, again: time.Hour / 2, mark: true},
		} {
			if c.mark && p.kind == "postgres" {
				continue
			}
			now := time.Now()
			setBox(t, b, "incarnation = 7, holder = $2, lease_until = $3, lease_for = $4, holder_pid = $5", c.holder, now.UnixMilli()+c.until, c.lasts, c.pid)
			w := c.waiter
			w.Step, w.Holder, w.Until, w.Since = 3, c.holder, now.UnixMilli()+c.until, now.Add(-c.seen)
			tk, until, err := b.lease.TryAcquire(limited(t), &w)
			if err != nil || (tk != nil) != c.taken {
				t.Errorf("%s: %v, %v", name, tk, err)
				continue
			}
			row := boxRowOf(t, b)
			if !c.taken {
				if until > c.again || until < c.again-10*time.Second || row.Holder != c.holder || row.Incarnation != 7 {
					t.Errorf("%s: again in %v, %+v", name, until, row)
				}
				continue
			}
			pid := int64(0)
			if c.waiter.HasLiveness {
				pid = sqlstore.LivenessHeld
			}
			left := time.Until(time.UnixMilli(row.LeaseUntil))
			if tk.Incarnation != 10 || row.Incarnation != 10 || row.Holder != b.t.HolderID || row.HolderPID != pid || row.LeaseFor != cfg.Lease.Milliseconds() ||
				left > cfg.Lease+time.Minute || left < cfg.Lease-time.Minute {
				t.Errorf("%s: %+v, left behind %+v", name, tk, row)
			}
		}
	})
}

// TestTakeoverFindsUnansweredOps: all that the former holder gave seqs and had no answer to, in
// their order, from the mark on; each is to be sent again.
func TestTakeoverFindsUnansweredOps(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		one, two := withSession(t, b), withSession(t, b)
		var batches []string
		for _, session := range []string{one, one, one, two, one, two} {
			batches = append(batches, commit(t, b, Batch{Session: session, Ops: []Op{put("1"), put("2")}}).Batch)
		}
		low := int64(0)
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			for i, set := range []string{"state = 2, first_seq = 1", "state = 1, first_seq = 5", "state = 1, first_seq = 3", "state = 0, first_seq = 1"} {
				if _, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET "+set+" WHERE batch = $1", batches[i]); err != nil {
					return err
				}
			}
			row, err := b.t.Batch(ctx, q, batches[1], "")
			b.t.SetHighWater(q, one, 9, 0)
			b.t.SetHighWater(q, one, 8, 0)
			low = row.Num
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		setBox(t, b, "low = $2", low)
		tk, _, err := b.lease.TryAcquire(limited(t), &lease.Waiter{Step: 1})
		if err != nil || tk == nil {
			t.Fatal(tk, err)
		}
		var found []string
		for _, r := range tk.Rows {
			found = append(found, r.ID)
		}
		if want := []string{batches[3], batches[2], batches[1]}; fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", found, want)
		}
		if len(tk.Unsequenced) != 2 || tk.Streams[one].LastSeq != 9 || len(tk.Streams) != 2 {
			t.Errorf("%v wait, of %+v", tk.Unsequenced, tk.Streams)
		}
		for session, next := range map[string]uint64{one: 10, two: 3} {
			if la := b.w.Seqs.AddStream(session, 0); la.Next != next || la.TxNext != next {
				t.Errorf("the next seq is %d, want %d", la.Next, next)
			}
		}
		if la := b.w.Seqs.AddStream(one, 0); len(la.Pending) != 2 || la.Bytes != len(tk.Rows[1].Body)+len(tk.Rows[2].Body) {
			t.Errorf("on their way: %+v", la)
		}
		states := make(map[string]int)
		err = b.db.Read(limited(t), func(q sqlstore.Querier) error {
			for _, id := range batches {
				r, err := b.t.Batch(limited(t), q, id, "")
				if err != nil {
					return err
				}
				states[id] = r.State
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range batches {
			if want := map[bool]int{true: sqlstore.RowFinished, false: sqlstore.RowPending}[i == 0]; states[id] != want {
				t.Errorf("row %d has state %d", i, states[id])
			}
		}
	})
}

// TestOnlyTheHolderChanges what is the sender's to change.
func TestOnlyTheHolderChanges(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		former, holder := p.open(t, quick()), p.open(t, quick())
		session := withSession(t, holder)
		sent := commit(t, holder, Batch{Session: session, Ops: []Op{put("1")}})
		fresh := commit(t, holder, Batch{Session: session, Ops: []Op{put("2")}})
		if tk, _, err := holder.lease.TryAcquire(limited(t), &lease.Waiter{Step: 1}); err != nil || tk == nil {
			t.Fatal(tk, err)
		}
		num := int64(0)
		look := func() (text string) {
			t.Helper()
			ctx := limited(t)
			err := holder.db.Read(ctx, func(q sqlstore.Querier) error {
				for _, x := range []Ticket{sent, fresh} {
					r, err := holder.t.Batch(ctx, q, x.Batch, "")
					if err != nil {
						return err
					}
					num = r.Num
					text += fmt.Sprintln(r.State, r.Attempts, r.NextRetry, r.LastError)
				}
				stopped := 0
				err := q.Query(ctx, "SELECT stopped FROM mooring_outbox_stream WHERE box = $1", []any{holder.t.Box}, func(scan sqlstore.Scanner) error { return scan(&stopped) })
				text += fmt.Sprintln(boxRowOf(t, holder), stopped)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		err := holder.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			_, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET state = 2, first_seq = 1 WHERE batch = $1", sent.Batch)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		setBox(t, holder, "lease_until = lease_until - 1, holder_pid = 77")
		last := look()
		err = holder.w.Do(limited(t), func(_ context.Context, q sqlstore.Querier) error {
			for n := range num { // it has ended
				holder.t.MarkInFlight(q, n)
				holder.t.RecordAttempt(q, n, 5, 6, "why")
			}
			return nil
		})
		if now := look(); err != nil || now != last {
			t.Errorf("%v, from\n%sto\n%s", err, last, now)
		}
		later := func(f func(b *Box, q sqlstore.Querier)) func(*Box) (bool, error) {
			return func(b *Box) (bool, error) {
				return b == holder, b.w.Do(limited(t), func(_ context.Context, q sqlstore.Querier) error { f(b, q); return nil })
			}
		}
		for _, c := range []struct {
			name   string
			change func(*Box) (held bool, err error)
		}{
			{"mark sent", later(func(b *Box, q sqlstore.Querier) { b.t.MarkInFlight(q, num) })},
			{"note", later(func(b *Box, q sqlstore.Querier) { b.t.RecordAttempt(q, num, 3, 4, "why") })},
			{"stop", later(func(b *Box, q sqlstore.Querier) { b.t.SetStopped(q, session, fault.Revoked, "why") })},
			{"raise the mark", later(func(b *Box, q sqlstore.Querier) { b.t.RaiseLowWater(q) })},
			{"keep what is alive", later(func(b *Box, q sqlstore.Querier) {
				q.Enqueue(sqlstore.SQLHolderPID, []any{b.t.Box, b.t.HolderID, 78}, nil)
			})},
			{"raise the incarnation", func(b *Box) (bool, error) { return b.lease.RaiseIncarnation(limited(t)) }},
			{"renew", func(b *Box) (bool, error) { return b.lease.Renew(limited(t)) }},
			{"release", func(b *Box) (bool, error) { return b == holder, b.lease.Release(limited(t)) }},
		} {
			for _, b := range []*Box{former, holder} {
				held, err := c.change(b)
				now := look()
				if err != nil || held != (b == holder) || (now != last) != (b == holder) {
					t.Errorf("%s, the holder (%t): %t, %v, from\n%sto\n%s", c.name, b == holder, held, err, last, now)
				}
				last = now
			}
		}
	})
}

// TestWhereTheMarkGoes: up to the first row that has a seq and no end, past those without
// a seq, and down to what gets a seq behind it.
func TestWhereTheMarkGoes(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		var batches []string
		for range 4 {
			batches = append(batches, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}).Batch)
		}
		if tk, _, err := b.lease.TryAcquire(limited(t), &lease.Waiter{Step: 1}); err != nil || tk == nil {
			t.Fatal(tk, err)
		}
		for i, c := range []struct {
			row    int // that is changed
			change func(q sqlstore.Querier, num int64)
			mark   int // the row that it is at then; 4 is the one that comes next
		}{
			{1, func(q sqlstore.Querier, num int64) { b.t.SetSeq(q, num, 1, nil, intent.Tally{}); b.t.RaiseLowWater(q) }, 1},
			{2, func(q sqlstore.Querier, num int64) { b.t.SetSeq(q, num, 2, nil, intent.Tally{}); b.t.RaiseLowWater(q) }, 1},
			{1, func(q sqlstore.Querier, num int64) {
				b.t.Finish(q, num, 1, intent.Tally{}, 0, nil, nil)
				b.t.RaiseLowWater(q)
			}, 2},
			{2, func(q sqlstore.Querier, num int64) { // a takeover makes it pending
				q.Enqueue(sqlstore.SQLResetInFlight, []any{b.t.Box, num}, nil)
				b.t.RaiseLowWater(q)
			}, 2},
			{2, func(q sqlstore.Querier, num int64) {
				b.t.Finish(q, num, 1, intent.Tally{}, 0, nil, nil)
				b.t.RaiseLowWater(q)
			}, 4},
			{0, func(q sqlstore.Querier, num int64) {
				b.t.LowerLowWater(q, num)
				b.t.SetSeq(q, num, 3, nil, intent.Tally{})
			}, 0},
			{3, func(q sqlstore.Querier, num int64) { b.t.LowerLowWater(q, num) }, 0},
			{0, func(q sqlstore.Querier, num int64) { b.t.RaiseLowWater(q) }, 0},
		} {
			var nums [5]int64
			err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
				for i, id := range batches {
					r, err := b.t.Batch(ctx, q, id, "")
					if err != nil {
						return err
					}
					nums[i], nums[4] = r.Num, r.Num+1
				}
				c.change(q, nums[c.row])
				return nil
			})
			if low := boxRowOf(t, b).LowWater; err != nil || low != nums[c.mark] {
				t.Errorf("step %d: the mark is at %d of %v, %v", i, low, nums, err)
			}
		}
	})
}

// TestAnEndStays: what is finished is not finished again in another way.
func TestAnEndStays(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		x := commit(t, b, Batch{Session: withSession(t, b), Ops: []Op{put("1")}})
		var got string
		for _, body := range [][]byte{[]byte("a body"), nil, []byte("another")} {
			err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
				r, err := b.t.Batch(ctx, q, x.Batch, "")
				if err != nil {
					return err
				}
				b.t.Finish(q, r.Num, 100+int64(len(body)), intent.Tally{Failed: 1}, len(body), fmt.Append(nil, len(body)), body)
				r, err = b.t.Batch(ctx, q, x.Batch, "")
				got = fmt.Sprintf("%d %d %d %s %s", r.State, r.Finished, r.Attempts, r.Outcomes, r.Body)
				return err
			})
			if err != nil || got != "2 106 6 6 a body" {
				t.Errorf("%s, %v", got, err)
			}
		}
	})
}
