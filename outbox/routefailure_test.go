package outbox

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// refReadErrDB fails to read refs so many times.
type refReadErrDB struct {
	sqlstore.Database
	fail atomic.Int64
}

func (d *refReadErrDB) Read(ctx context.Context, f func(sqlstore.Querier) error) error {
	return d.Database.Read(ctx, func(q sqlstore.Querier) error { return f(refReadErrQuerier{q, d}) })
}

type refReadErrQuerier struct {
	sqlstore.Querier
	db *refReadErrDB
}

func (q refReadErrQuerier) Query(ctx context.Context, sql string, args []any, each func(sqlstore.Scanner) error) error {
	if (sql == q.db.Refs().All || sql == q.db.Refs().Since) && q.db.fail.Add(-1) >= 0 {
		return fault.Unavailable.With("too many connections")
	}
	return q.Querier.Query(ctx, sql, args, each)
}

// TestRefsCannotBeReadForAMoment has the database fail when the sender looks up
// how a stream is opened: that is tried again, and stops nothing.
func TestRefsCannotBeReadForAMoment(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		db := &refReadErrDB{Database: b.db}
		useDB(b, db)
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
