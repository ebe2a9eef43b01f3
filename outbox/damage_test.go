package outbox

// Rows that cannot be read, and what cannot be written.

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// TestDamagedRows has rows that cannot be read: one without a seq is set aside,
// one with a seq stops its stream and no other.
func TestDamagedRows(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		ctx := limited(t)
		one, two := withSession(t, b), withSession(t, b)
		x := commit(t, b, Batch{Session: one, Ops: []Op{put("1")}})
		y := commit(t, b, Batch{Session: one, Ops: []Op{put("2")}})
		damage(t, b, "body", x, "")
		stop := run(t, b, srv)
		wait(t, b, y)
		if _, err := b.Wait(ctx, x.Batch); !errors.Is(err, fault.OutboxDamaged) {
			t.Errorf("the damaged one: %v", err)
		}
		if err := b.Drain(ctx, nil); !errors.Is(err, fault.OutboxDamaged) || !strings.Contains(err.Error(), x.Batch) {
			t.Fatalf("drain, with a row set aside: %v", err)
		}
		stop()
		z := commit(t, b, Batch{Session: one, Ops: []Op{put("3")}})
		damage(t, b, "body", z, ", first_seq = 2, state = 1")
		run(t, b, srv)
		wait(t, b, commit(t, b, Batch{Session: two, Ops: []Op{put("4")}}))
		if err := b.Drain(ctx, nil); !errors.Is(err, fault.OutboxDamaged) {
			t.Errorf("drain: %v", err)
		}
		if rows, err := b.List(ctx, Filter{States: []State{Failed}}); err != nil || len(rows) == 0 {
			t.Errorf("%v, %v", rows, err)
		}
	})
}

// damage makes a column of a batch's row unreadable, and sets others.
func damage(t *testing.T, b *Box, column string, x Ticket, set string) {
	t.Helper()
	err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
		n, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET "+column+" = $1"+set+" WHERE batch = $2", []byte("junk"), x.Batch)
		if n != 1 {
			t.Errorf("%d rows damaged", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVerbsOnADamagedRow is skipped, and what is behind it goes on.
func TestVerbsOnADamagedRow(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		one, two := withSession(t, b), withSession(t, b)
		link := srv.awayFor(two)
		x := commit(t, b, Batch{Session: one, Ops: []Op{put("1")}})
		y := commit(t, b, Batch{Session: one, Ops: []Op{depends(x)}})
		z := commit(t, b, Batch{Session: one, Ops: []Op{put("2")}})
		h := commit(t, b, Batch{Session: two, Ops: []Op{put("3")}})
		i := commit(t, b, Batch{Session: two, Ops: []Op{depends(z)}})
		damage(t, b, "body", x, "")
		if _, err := b.Commit(limited(t), Batch{Session: one, Ops: []Op{depends(x)}}); !errors.Is(err, fault.OutboxDamaged) {
			t.Errorf("committed before it is set aside: %v", err)
		}
		stop := run(t, b, link)
		if o := wait(t, b, y)[0]; o.Status != ledger.Skipped || o.Reason != fault.OutboxDamaged || o.Cause != x.Ops[0] {
			t.Errorf("of a row that was never sent: %+v", o)
		}
		wait(t, b, z)
		stop()
		if _, err := b.Commit(limited(t), Batch{Session: one, Ops: []Op{depends(x)}}); !errors.Is(err, fault.OutboxDamaged) {
			t.Errorf("committed now: %v", err)
		}

		damage(t, b, "outcomes", z, "")
		link.down.Store(false)
		run(t, b, link)
		wait(t, b, h)
		if o := wait(t, b, i)[0]; o.Status != ledger.Skipped || o.Cause != z.Ops[0] {
			t.Errorf("of a row that has ended: %+v", o)
		}
		if err := b.Drain(limited(t), nil); !errors.Is(err, fault.OutboxDamaged) || !strings.Contains(err.Error(), x.Batch) {
			t.Errorf("drain: %v", err)
		}
	})
}

// TestDamagedRowInFlight stops its stream, with what refers to it in there, and no other.
func TestDamagedRowInFlight(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		one, two, three := withSession(t, b), withSession(t, b), withSession(t, b)
		srv.hold.Lock()
		stop := run(t, b, srv)
		x := commit(t, b, Batch{Session: one, Ops: []Op{put("1")}})
		eventually(t, "it is with the server", func() bool { return len(srv.log(one)) == 1 })
		y := commit(t, b, Batch{Session: one, Ops: []Op{depends(x)}})
		eventually(t, "what needs it has a seq", func() bool {
			rows, err := b.List(limited(t), Filter{Op: y.Ops[0]})
			return err == nil && rows[0].Seq == 2
		})
		stop()
		srv.hold.Unlock()
		z := commit(t, b, Batch{Session: two, Ops: []Op{depends(x)}})
		damage(t, b, "body", x, "")
		run(t, b, srv)
		wait(t, b, commit(t, b, Batch{Session: three, Ops: []Op{put("1")}}))
		for i, batch := range []Ticket{x, y, z} {
			_, err := b.Wait(limited(t), batch.Batch)
			if still, ok := errors.AsType[*StreamStoppedError](err); !ok || still.Session != one || still.Code != fault.OutboxDamaged {
				t.Errorf("batch %d: %v", i, err)
			}
		}
	})
}

// TestRowOfANewerBinary stops its stream and stays, for the newer binary to send.
func TestRowOfANewerBinary(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		one, two := withSession(t, b), withSession(t, b)
		w := commit(t, b, Batch{Session: one, Ops: []Op{put("1")}})
		x := commit(t, b, Batch{Session: one, Ops: []Op{put("2")}})
		y := commit(t, b, Batch{Session: one, Ops: []Op{put("3")}})
		z := commit(t, b, Batch{Session: two, Ops: []Op{depends(x)}})
		version := func(column string, v byte, x Ticket) {
			t.Helper()
			err := b.db.Read(limited(t), func(q sqlstore.Querier) error {
				return q.Query(t.Context(), "SELECT "+column+" FROM mooring_outbox_batch WHERE batch = $1", []any{x.Batch}, func(scan sqlstore.Scanner) error {
					var data []byte
					err := scan(&data)
					data[0] = v
					return errors.Join(err, b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
						_, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET "+column+" = $1 WHERE batch = $2", data, x.Batch)
						return err
					}))
				})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		version("body", intent.OpsVersion+1, x)
		stop := run(t, b, srv)
		wait(t, b, w)
		for i, batch := range []Ticket{x, y, z} {
			if _, err := b.Wait(limited(t), batch.Batch); !errors.Is(err, fault.Incompatible) {
				t.Errorf("batch %d: %v", i, err)
			}
		}
		if rows, err := b.List(limited(t), Filter{Batch: x.Batch}); err != nil || rows[0].State != Pending || rows[0].LastError == "" {
			t.Errorf("%+v, %v", rows, err)
		}
		if n, err := b.sender.Sweep(limited(t), inAMonth(), 10); n != 0 || !errors.Is(err, fault.Incompatible) {
			t.Errorf("%d swept, and one of them may be what it refers to: %v", n, err)
		}
		if err := b.Drop(limited(t), x.Ops[0]); !errors.Is(err, fault.Incompatible) {
			t.Errorf("drop: %v", err)
		}
		stop()
		version("body", intent.OpsVersion, x)
		run(t, b, srv)
		if err := b.Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		checkLog(t, srv.log(one), []Ticket{w, x, y})
		wait(t, b, z)
		version("outcomes", intent.OpsVersion+1, x)
		if _, _, err := b.outcomes(limited(t), x.Batch); !errors.Is(err, fault.Incompatible) {
			t.Errorf("outcomes: %v", err)
		}
	})
}

// TestTextThatNoDatabaseTakes: what a server writes into its errors keeps nobody's outcomes from being stored.
func TestTextThatNoDatabaseTakes(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		refused, stopped, good := withSession(t, b), withSession(t, b), withSession(t, b)
		const text = "NUL \x00, no UTF-8 \xff"
		var once sync.Once
		srv.before = func(batch *ledger.Batch) (err error, _ bool) {
			switch batch.Session {
			case refused:
				once.Do(func() { err = fault.Overloaded.With(text) })
			case stopped:
				err = fault.ServerBehind.With(text)
			}
			return err, false
		}
		commit(t, b, Batch{Session: refused, Ops: []Op{put("1")}})
		x := commit(t, b, Batch{Session: stopped, Ops: []Op{put("1")}})
		run(t, b, srv)
		commit(t, b, Batch{Session: good, Ops: []Op{put("1")}})
		eventually(t, "the answers are stored", func() bool {
			st, err := b.Status(limited(t))
			return err == nil && st.Acked == 2
		})
		_, err := b.Wait(limited(t), x.Batch)
		if still, ok := errors.AsType[*StreamStoppedError](err); !ok || still.Reason != "server_behind: NUL \ufffd, no UTF-8 \ufffd" {
			t.Errorf("%q", err)
		}
	})
}

func TestStorableText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", sqlstore.MaxColumnText-1)
	for text, want := range map[string]string{
		"": "", "as it is": "as it is", "a\x00b\x00": "a\ufffdb\ufffd", "a\xff\xfeb": "a\ufffdb",
		long + "y": long + "y", long + "yz": long + "y …", long + "ä": long + " …", long + "äz": long + " …",
	} {
		if got := sqlstore.ColumnText(text); got != want {
			t.Errorf("%.20q… became %.20q…", text, got)
		}
	}
}

// choosyDB fails where a batch's outcomes are to be stored, as where a page of its table is damaged.
type choosyDB struct {
	sqlstore.Database
	num atomic.Int64 // the batch's row
}

type choosyQuerier struct {
	sqlstore.Querier
	num int64
	met *bool
}

func (d *choosyDB) Write(ctx context.Context, f func(sqlstore.Querier) error) (bool, error) {
	return d.Database.Write(ctx, func(q sqlstore.Querier) error {
		met := false
		err := f(choosyQuerier{q, d.num.Load(), &met})
		if met {
			return errors.New("its page is damaged")
		}
		return err
	})
}

func (q choosyQuerier) Enqueue(sql string, args []any, one func(sqlstore.Scanner) error) {
	if sql == sqlstore.SQLFinish || sql == sqlstore.SQLFinishBody {
		*q.met = *q.met || args[1] == q.num
	}
	q.Querier.Enqueue(sql, args, one)
}

// TestAnAnswerThatCannotBeStored stops its stream, and the server keeps it for the next term.
func TestAnAnswerThatCannotBeStored(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		b.w.RetryDelay = 5 * time.Millisecond
		db := &choosyDB{Database: b.db}
		srv := newFakeServer()
		ctx := limited(t)
		bad, good := withSession(t, b), withSession(t, b)
		x := commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
		commit(t, b, Batch{Session: bad, Ops: []Op{put("2")}})
		commit(t, b, Batch{Session: good, Ops: []Op{put("3")}})
		err := b.db.Read(ctx, func(q sqlstore.Querier) error {
			r, err := b.t.Batch(ctx, q, x.Batch, "")
			db.num.Store(r.Num)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		useDB(b, db)
		stop := run(t, b, srv)
		eventually(t, "its stream stands still, and all else is stored", func() bool {
			st, err := b.Status(ctx)
			return err == nil && st.Acked == 2 && len(st.Streams) == 1 && st.Streams[0].Stopped == fault.Internal
		})
		if n := srv.ackedThrough(bad, b.ID()); n != 0 {
			t.Errorf("acknowledged through %d", n)
		}
		stop()
		db.num.Store(0)
		run(t, b, srv)
		if o := wait(t, b, x)[0]; o.Status != ledger.Applied || o.Cursor != 1 {
			t.Errorf("%+v", o)
		}
		if err := b.Drain(ctx, nil); err != nil {
			t.Error(err)
		}
	})
}
