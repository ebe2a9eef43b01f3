package outbox

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

// refReadErrDB fails to read refs so many times.
type refReadErrDB struct {
	database
	fail atomic.Int64
}

func (d *refReadErrDB) read(ctx context.Context, f func(querier) error) error {
	return d.database.read(ctx, func(q querier) error { return f(refReadErrQuerier{q, d}) })
}

type refReadErrQuerier struct {
	querier
	db *refReadErrDB
}

func (q refReadErrQuerier) query(ctx context.Context, sql string, args []any, each func(scanner) error) error {
	if (sql == q.db.refs().all || sql == q.db.refs().since) && q.db.fail.Add(-1) >= 0 {
		return fault.Unavailable.With("too many connections")
	}
	return q.querier.query(ctx, sql, args, each)
}

// TestRefsCannotBeReadForAMoment has the database fail when the sender looks up
// how a stream is opened: that is tried again, and stops nothing.
func TestRefsCannotBeReadForAMoment(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		db := &refReadErrDB{database: b.db}
		b.db = db
		srv := newFakeServer()
		one, two := withSession(t, b), withSession(t, b)
		x := commit(t, b, Batch{Session: one, Ops: []Op{put("1")}})
		b.refs.Forget()
		db.fail.Store(3)
		stop := run(t, b, srv)
		wait(t, b, x)

		// The same for what a former term left behind with a seq.
		srv.hold.Lock()
		y := commit(t, b, Batch{Session: one, Ops: []Op{put("2")}})
		eventually(t, "it is sent", func() bool { return len(srv.log(one)) == 2 })
		stop()
		srv.hold.Unlock()
		z := commit(t, b, Batch{Session: two, Ops: []Op{put("3")}})
		b.refs.Forget()
		db.fail.Store(4)
		run(t, b, srv)
		wait(t, b, y)
		wait(t, b, z)
	})
}
