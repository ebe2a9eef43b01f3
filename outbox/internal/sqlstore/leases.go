package sqlstore

// The lease in the outbox's own row.

import (
	"context"
	"time"
)

// holder_pid shows that the holder lives: a backend's number, or LivenessHeld; 0 if unknown.
const (
	SQLTakeLease = `UPDATE mooring_outbox SET holder = $2, lease_until = $3, incarnation = incarnation + $4, holder_pid = $5, lease_for = $6
		WHERE box = $1`
	sqlRenewLease       = `UPDATE mooring_outbox SET lease_until = $3 WHERE box = $1 AND holder = $2`
	SQLHolderPID        = `UPDATE mooring_outbox SET holder_pid = $3 WHERE box = $1 AND holder = $2`
	sqlRaiseIncarnation = `UPDATE mooring_outbox SET incarnation = incarnation + 1 WHERE box = $1 AND holder = $2`
	sqlReleaseLease     = `UPDATE mooring_outbox SET holder = '', lease_until = 0 WHERE box = $1 AND holder = $2`
	SQLResetInFlight    = `UPDATE mooring_outbox_batch SET state = 0 WHERE box = $1 AND state = 1 AND num >= $2`
	SQLClearStopped     = `UPDATE mooring_outbox_stream SET stopped = 0, reason = '' WHERE box = $1 AND stopped > 0`
)

// TakeOver writes the lease of a new holder, makes the rows in flight pending again, and lets all
// streams run.
func (t *Tables) TakeOver(ctx context.Context, q Querier, until, step int64, pid int, lease, lowWater int64) error {
	if _, err := q.Exec(ctx, SQLTakeLease, t.Box, t.HolderID, until, step, pid, lease); err != nil {
		return err
	}
	if _, err := q.Exec(ctx, SQLResetInFlight, t.Box, lowWater); err != nil {
		return err
	}
	_, err := q.Exec(ctx, SQLClearStopped, t.Box)
	return err
}

// RenewLease renews the lease, if it is this Box's.
func (t *Tables) RenewLease(ctx context.Context, q Querier, until int64) (isHolder bool, err error) {
	n, err := q.Exec(ctx, sqlRenewLease, t.Box, t.HolderID, until)
	return n == 1, err
}

// SetHolderPID stores the pid by which others see that the holder lives.
func (t *Tables) SetHolderPID(q Querier, pid int64) {
	q.Enqueue(SQLHolderPID, []any{t.Box, t.HolderID, pid}, nil)
}

// RaiseIncarnation raises the incarnation by one, if the lease is this Box's.
func (t *Tables) RaiseIncarnation(ctx context.Context, q Querier) (isHolder bool, err error) {
	n, err := q.Exec(ctx, sqlRaiseIncarnation, t.Box, t.HolderID)
	return n == 1, err
}

const sqlAddIncarnation = `UPDATE mooring_outbox SET incarnation = incarnation + $2 WHERE box = $1`

// AddIncarnation raises the incarnation by step, whether or not this process has the lease.
func (t *Tables) AddIncarnation(ctx context.Context, q Querier, step int64) error {
	_, err := q.Exec(ctx, sqlAddIncarnation, t.Box, step)
	return err
}

// ReleaseLease gives the lease back, if it is this Box's.
func (t *Tables) ReleaseLease(ctx context.Context, q Querier) error {
	_, err := q.Exec(ctx, sqlReleaseLease, t.Box, t.HolderID)
	return err
}

const sqlHolder = `SELECT holder FROM mooring_outbox WHERE box = $1`

// IsHolder sets *isHolder to whether the lease is this Box's.
func (t *Tables) IsHolder(q Querier, isHolder *bool) {
	q.Enqueue(sqlHolder, []any{t.Box}, func(scan Scanner) error {
		holder := ""
		err := scan(&holder)
		*isHolder = holder == t.HolderID
		return err
	})
}

// DefaultLease is how long a lease lasts, unless the outbox's Config says otherwise.
const DefaultLease = 10 * time.Second
