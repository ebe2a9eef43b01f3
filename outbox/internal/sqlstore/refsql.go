package sqlstore

// The SQL of the refs. The databases differ in how they find the rows written since a reading,
// so each has its own statements.

import (
	"context"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
)

// RefSQL are the statements for refs. $1 is the box in all of them.
type RefSQL struct {
	All         string // all rows, and the mark with which a later reading begins
	Since       string // the rows that were written since a mark, and the next mark
	one         string
	insert      string // a new row, in place of a dropped one
	update      string
	setStatus   string // a ref's status, from an answer
	drop        string // replaces the row by one with RoleGone
	DropRefused string // the same for the owner's ref of a session that was never created
	repoint     string // makes rows that stand for a ref stand for another one
	Restamp     string // restamps rows of another database, whose stamps are ahead of this one's
}

const refColumns = `id, ref, role, external, label, redemption, saved_at, confirmed, rights, narrow, dead`

// refStatements makes the statements. stamp is the SQL expression for the stamp of a row
// written now, mark for the text that says what is visible now; later is the condition that row
// r was written since the mark $2. settled tells whether a statement sees everything that is
// committed, and ours whether the present transaction may have written r itself.
func refStatements(stamp, mark, later, settled, ours string) *RefSQL {
	put := strings.NewReplacer("{stamp}", stamp, "{mark}", mark, "{later}", later, "{settled}", settled, "{ours}", ours, "{columns}", refColumns).Replace
	read := func(which string) string {
		return put(`SELECT {mark}, {settled}, COALESCE({ours}, false), COALESCE(r.id, ''), COALESCE(r.ref, ''), COALESCE(r.role, ''),
				COALESCE(r.external, ''), COALESCE(r.label, ''), COALESCE(r.redemption, ''), COALESCE(r.saved_at, 0),
				COALESCE(r.confirmed, 0), COALESCE(r.rights, 0), COALESCE(r.narrow, 0), COALESCE(r.dead, 0)
			FROM (SELECT 1 AS one) AS o LEFT JOIN mooring_outbox_ref AS r ON r.box = $1` + which + `
			ORDER BY r.saved_at, r.id`)
	}
	return &RefSQL{
		All:   read(``),
		Since: read(` AND {later}`),
		one:   put(`SELECT {columns} FROM mooring_outbox_ref WHERE box = $1 AND id = $2`),
		insert: put(`INSERT INTO mooring_outbox_ref (box, {columns}, target, change)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, {stamp})
			ON CONFLICT (box, id) DO UPDATE SET ref = excluded.ref, role = excluded.role, external = excluded.external,
				label = excluded.label, redemption = excluded.redemption, saved_at = excluded.saved_at,
				confirmed = excluded.confirmed, rights = excluded.rights, narrow = excluded.narrow, dead = excluded.dead,
				change = excluded.change
			WHERE mooring_outbox_ref.role = '` + string(refs.RoleGone) + `'`),
		update: put(`UPDATE mooring_outbox_ref SET ref = $3, role = $4, external = $5, label = $6, confirmed = $7, rights = $8,
				narrow = $9, dead = $10, change = {stamp} WHERE box = $1 AND id = $2`),
		setStatus: put(`UPDATE mooring_outbox_ref SET confirmed = CASE WHEN CAST($3 AS BIGINT) > 0 THEN CAST($3 AS BIGINT) ELSE confirmed END,
				rights = CASE WHEN CAST($4 AS INTEGER) > 0 THEN CAST($4 AS INTEGER) ELSE rights END, dead = $5, change = {stamp}
			WHERE box = $1 AND id = $2 AND role NOT IN ('` + string(refs.RoleGone) + `', '` + string(refs.RoleRotated) + `', '` + string(refs.RoleRotating) + `')`),
		DropRefused: put(`UPDATE mooring_outbox_ref SET ref = '', role = '` + string(refs.RoleGone) + `', external = '', label = '', redemption = '',
				saved_at = $3, change = {stamp}
			WHERE box = $1 AND id = $2 AND role = '` + string(refs.SessionOwner) + `' AND dead <> 0 AND confirmed = 0`),
		drop: put(`UPDATE mooring_outbox_ref SET ref = '', role = '` + string(refs.RoleGone) + `', external = '', label = '', redemption = '',
				saved_at = $3, confirmed = 0, rights = 0, narrow = 0, dead = 0, change = {stamp}
			WHERE box = $1 AND (id = $2 OR role = '` + string(refs.RoleRotated) + `' AND label = $2)`),
		repoint: put(`UPDATE mooring_outbox_ref SET label = $3, ref = $4, change = {stamp}
			WHERE box = $1 AND role = '` + string(refs.RoleRotated) + `' AND label = $2`),
		Restamp: put(`UPDATE mooring_outbox_ref SET change = {stamp} WHERE box = $1 AND change > (SELECT {stamp})`),
	}
}

// The stamp in Postgres is the transaction id, and the mark the snapshot, which lists the
// transactions that were in progress: none of their writes is missed. (A counting column would
// make writers wait for each other until they commit, and some of them are callers'
// transactions.) A snapshot never lists its own transaction; so one that has an id, and may
// write refs under it, gives no mark. A SQLite file has one writer at a time.
var (
	PostgresRefs = refStatements(`txid_current()`,
		`CASE WHEN txid_current_if_assigned() IS NULL THEN CAST(txid_current_snapshot() AS TEXT) ELSE '' END`,
		`r.change >= txid_snapshot_xmin(`+sinceParam+`) AND NOT txid_visible_in_snapshot(r.change, `+sinceParam+`)`,
		`current_setting('transaction_isolation') = 'read committed'`, `r.change >= txid_current_if_assigned()`)
	SQLiteRefs = refStatements(nextStamp, `CAST(`+nextStamp+` AS TEXT)`, `r.change >= CAST($2 AS INTEGER)`, `true`, `false`)
)

const (
	sinceParam = `CAST(CAST($2 AS TEXT) AS txid_snapshot)`
	nextStamp  = `(SELECT COALESCE(MAX(change), 0) + 1 FROM mooring_outbox_ref WHERE box = $1)`
)

// SQLOldRefs selects the refs that sweeping removes. The row that was written last stays, so
// that stamps only rise.
const (
	whereOldGone = `role = '` + string(refs.RoleGone) + `' AND saved_at < $2 AND change < (SELECT MAX(change) FROM mooring_outbox_ref WHERE box = $1)`
	SQLOldRefs   = `SELECT id, role FROM mooring_outbox_ref WHERE box = $1 AND ` + whereOldGone + `
		UNION ALL SELECT id, role FROM mooring_outbox_ref AS r WHERE box = $1 AND role = '` + string(refs.SessionOwner) + `' AND dead <> 0
			AND confirmed = 0 AND saved_at < $2
			AND NOT EXISTS (SELECT 1 FROM mooring_outbox_batch AS b WHERE b.box = $1 AND b.session = r.target)`
	sqlSweepRefs = `DELETE FROM mooring_outbox_ref WHERE box = $1 AND ` + whereOldGone
)

func scanRef(scan Scanner, before ...any) (r refs.Row, err error) {
	var role string
	var rights, dead int64
	var narrow int
	err = scan(append(before, &r.ID, &r.Text, &role, &r.External, &r.Label, &r.Redemption, &r.Saved, &r.Confirmed, &rights, &narrow, &dead)...)
	r.Role, r.Rights, r.Restricted, r.Dead = refs.Role(role), capability.Rights(rights), narrow != 0, fault.Code(dead)
	return r, err
}

// RefsSince is the result of a reading of the refs.
type RefsSince struct {
	Rows         []refs.Row
	Ours         []refs.Row // that the present transaction may have written, and may roll back
	Next         string     // with which a later reading can begin; "" if unknown
	SawCommitted bool       // all that is committed was visible
}

// RefsSince reads the rows that were written since mark; all if it is "".
func (t *Tables) RefsSince(ctx context.Context, q Querier, mark string) (found RefsSince, err error) {
	sql, args := t.DB.Refs().All, []any{t.Box}
	if mark != "" {
		sql, args = t.DB.Refs().Since, append(args, mark)
	}
	err = q.Query(ctx, sql, args, func(scan Scanner) error {
		var ours bool
		r, err := scanRef(scan, &found.Next, &found.SawCommitted, &ours)
		switch {
		case err != nil || r.ID == "":
		case ours:
			found.Ours = append(found.Ours, r)
		default:
			found.Rows = append(found.Rows, r)
		}
		return err
	})
	return found, err
}

// Ref reads a row; one for which exists is false if there is none. lock is "" or the dialect's
// LockRows.
func (t *Tables) Ref(ctx context.Context, q Querier, id, lock string) (r refs.Row, err error) {
	err = q.Query(ctx, t.DB.Refs().one+lock, []any{t.Box, id}, func(scan Scanner) (err error) {
		r, err = scanRef(scan)
		return err
	})
	return r, err
}

// InsertRef writes a new row; false if there is one already.
func (t *Tables) InsertRef(ctx context.Context, q Querier, r *refs.Row) (bool, error) {
	n, err := q.Exec(ctx, t.DB.Refs().insert, t.Box, r.ID, r.Text, string(r.Role), r.External, r.Label, r.Redemption, r.Saved,
		r.Confirmed, int64(r.Rights), boolToInt(r.Restricted), int64(r.Dead), capability.Target(r.ID))
	return n > 0, err
}

func (t *Tables) UpdateRef(q Querier, r *refs.Row) {
	q.Enqueue(t.DB.Refs().update, []any{t.Box, r.ID, r.Text, string(r.Role), r.External, r.Label, r.Confirmed, int64(r.Rights),
		boolToInt(r.Restricted), int64(r.Dead)}, nil)
}

// DropRef drops a ref, and the refs that it has replaced: they have its secret too.
func (t *Tables) DropRef(q Querier, id string, at int64) {
	q.Enqueue(t.DB.Refs().drop, []any{t.Box, id, at}, nil)
}

// ChangeRef reads the row of an id and writes the row that change returns, unless they are
// equal. change gets a row for which exists is false if there is none, or if it was dropped.
func (t *Tables) ChangeRef(ctx context.Context, q Querier, id string, change func(old refs.Row) (refs.Row, error)) (now refs.Row, err error) {
	for {
		old, err := t.Ref(ctx, q, id, t.DB.LockRows())
		if err != nil {
			return old, err
		}
		now, err := change(old)
		if err != nil || now == old {
			return old, err
		}
		if old.Exists() {
			t.UpdateRef(q, &now)
			return now, nil
		}
		now.ID = id
		if made, err := t.InsertRef(ctx, q, &now); err != nil || made {
			return now, err
		}
	}
}

// WriteRefStatus writes updates, along with the transaction's other statements.
func (t *Tables) WriteRefStatus(q Querier, news []refs.Update) {
	for _, n := range news {
		at := int64(0)
		if !n.Status.Confirmed.IsZero() {
			at = n.Status.Confirmed.UnixMilli()
		}
		q.Enqueue(t.DB.Refs().setStatus, []any{t.Box, n.ID, at, int64(n.Status.Rights), int64(n.Status.Dead)}, nil)
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// OldRefs returns the refs that sweeping removes: the owner's of sessions that were never created,
// and whether there are rows of refs that were dropped.
func (t *Tables) OldRefs(ctx context.Context, q Querier, before int64) (unmade []string, dropped bool, err error) {
	err = q.Query(ctx, SQLOldRefs, []any{t.Box, before}, func(scan Scanner) error {
		var id, role string
		err := scan(&id, &role)
		if refs.Role(role) == refs.RoleGone {
			dropped = true
		} else {
			unmade = append(unmade, id)
		}
		return err
	})
	return unmade, dropped, err
}

// SweepRefs removes the refs that OldRefs has found.
func (t *Tables) SweepRefs(q Querier, unmade []string, before int64) {
	for _, id := range unmade {
		q.Enqueue(t.DB.Refs().DropRefused, []any{t.Box, id, before}, nil)
	}
	q.Enqueue(sqlSweepRefs, []any{t.Box, before}, nil)
}

// RestampRefs restamps rows of another database: this one may have been restored to another server.
func (t *Tables) RestampRefs(q Querier) { q.Enqueue(t.DB.Refs().Restamp, []any{t.Box}, nil) }

// RepointRefs makes the refs that old had replaced stand for the ref that has replaced it.
func (t *Tables) RepointRefs(q Querier, old string, by capability.Ref) {
	q.Enqueue(t.DB.Refs().repoint, []any{t.Box, old, by.ID, by.Text()}, nil)
}

// SQLInFlightVia counts the rows to which the outbox's sender, in whatever process, has given
// seqs under a ref and that have no outcomes yet.
const SQLInFlightVia = `SELECT count(*) FROM mooring_outbox_batch
	WHERE box = $1 AND num >= (SELECT low FROM mooring_outbox WHERE box = $1) AND state = 1 AND first_seq > 0 AND via = $2`

// InFlightVia counts the rows in flight under a ref, whichever process sends.
func (t *Tables) InFlightVia(ctx context.Context, q Querier, ref string) (n int, err error) {
	err = q.Query(ctx, SQLInFlightVia, []any{t.Box, ref}, func(scan Scanner) error { return scan(&n) })
	return n, err
}
