package outbox

// The SQL of the refs. The databases differ in how they find the rows written since a reading,
// so each has its own statements.

import (
	"context"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
)

// refSQL are the statements for refs. $1 is the box in all of them.
type refSQL struct {
	all         string // all rows, and the mark with which a later reading begins
	since       string // the rows that were written since a mark, and the next mark
	one         string
	insert      string // a new row, in place of a dropped one
	update      string
	setStatus   string // a ref's status, from an answer
	drop        string // replaces the row by one with RoleGone
	dropRefused string // the same for the owner's ref of a session that was never created
	repoint     string // makes rows that stand for a ref stand for another one
	restamp     string // restamps rows of another database, whose stamps are ahead of this one's
}

const refColumns = `id, ref, role, external, label, redemption, saved_at, confirmed, rights, narrow, dead`

// refStatements makes the statements. stamp is the SQL expression for the stamp of a row
// written now, mark for the text that says what is visible now; later is the condition that row
// r was written since the mark $2. settled tells whether a statement sees everything that is
// committed, and ours whether the present transaction may have written r itself.
func refStatements(stamp, mark, later, settled, ours string) *refSQL {
	put := strings.NewReplacer("{stamp}", stamp, "{mark}", mark, "{later}", later, "{settled}", settled, "{ours}", ours, "{columns}", refColumns).Replace
	read := func(which string) string {
		return put(`SELECT {mark}, {settled}, COALESCE({ours}, false), COALESCE(r.id, ''), COALESCE(r.ref, ''), COALESCE(r.role, ''),
				COALESCE(r.external, ''), COALESCE(r.label, ''), COALESCE(r.redemption, ''), COALESCE(r.saved_at, 0),
				COALESCE(r.confirmed, 0), COALESCE(r.rights, 0), COALESCE(r.narrow, 0), COALESCE(r.dead, 0)
			FROM (SELECT 1 AS one) AS o LEFT JOIN mooring_outbox_ref AS r ON r.box = $1` + which + `
			ORDER BY r.saved_at, r.id`)
	}
	return &refSQL{
		all:   read(``),
		since: read(` AND {later}`),
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
		dropRefused: put(`UPDATE mooring_outbox_ref SET ref = '', role = '` + string(refs.RoleGone) + `', external = '', label = '', redemption = '',
				saved_at = $3, change = {stamp}
			WHERE box = $1 AND id = $2 AND role = '` + string(SessionOwner) + `' AND dead <> 0 AND confirmed = 0`),
		drop: put(`UPDATE mooring_outbox_ref SET ref = '', role = '` + string(refs.RoleGone) + `', external = '', label = '', redemption = '',
				saved_at = $3, confirmed = 0, rights = 0, narrow = 0, dead = 0, change = {stamp}
			WHERE box = $1 AND (id = $2 OR role = '` + string(refs.RoleRotated) + `' AND label = $2)`),
		repoint: put(`UPDATE mooring_outbox_ref SET label = $3, ref = $4, change = {stamp}
			WHERE box = $1 AND role = '` + string(refs.RoleRotated) + `' AND label = $2`),
		restamp: put(`UPDATE mooring_outbox_ref SET change = {stamp} WHERE box = $1 AND change > (SELECT {stamp})`),
	}
}

// The stamp in Postgres is the transaction id, and the mark the snapshot, which lists the
// transactions that were in progress: none of their writes is missed. (A counting column would
// make writers wait for each other until they commit, and some of them are callers'
// transactions.) A snapshot never lists its own transaction; so one that has an id, and may
// write refs under it, gives no mark. A SQLite file has one writer at a time.
var (
	postgresRefs = refStatements(`txid_current()`,
		`CASE WHEN txid_current_if_assigned() IS NULL THEN CAST(txid_current_snapshot() AS TEXT) ELSE '' END`,
		`r.change >= txid_snapshot_xmin(`+sinceParam+`) AND NOT txid_visible_in_snapshot(r.change, `+sinceParam+`)`,
		`current_setting('transaction_isolation') = 'read committed'`, `r.change >= txid_current_if_assigned()`)
	sqliteRefs = refStatements(nextStamp, `CAST(`+nextStamp+` AS TEXT)`, `r.change >= CAST($2 AS INTEGER)`, `true`, `false`)
)

const (
	sinceParam = `CAST(CAST($2 AS TEXT) AS txid_snapshot)`
	nextStamp  = `(SELECT COALESCE(MAX(change), 0) + 1 FROM mooring_outbox_ref WHERE box = $1)`
)

// sqlOldRefs selects the refs that sweeping removes. The row that was written last stays, so
// that stamps only rise.
const (
	whereOldGone = `role = '` + string(refs.RoleGone) + `' AND saved_at < $2 AND change < (SELECT MAX(change) FROM mooring_outbox_ref WHERE box = $1)`
	sqlOldRefs   = `SELECT id, role FROM mooring_outbox_ref WHERE box = $1 AND ` + whereOldGone + `
		UNION ALL SELECT id, role FROM mooring_outbox_ref AS r WHERE box = $1 AND role = '` + string(SessionOwner) + `' AND dead <> 0
			AND confirmed = 0 AND saved_at < $2
			AND NOT EXISTS (SELECT 1 FROM mooring_outbox_batch AS b WHERE b.box = $1 AND b.session = r.target)`
	sqlSweepRefs = `DELETE FROM mooring_outbox_ref WHERE box = $1 AND ` + whereOldGone
)

const sqlRotating = `SELECT ` + refColumns + ` FROM mooring_outbox_ref WHERE box = $1 AND role = '` + string(refs.RoleRotating) + `' AND label = $2`

func scanRef(scan scanner, before ...any) (r refs.Row, err error) {
	var role string
	var rights, dead int64
	var narrow int
	err = scan(append(before, &r.ID, &r.Text, &role, &r.External, &r.Label, &r.Redemption, &r.Saved, &r.Confirmed, &rights, &narrow, &dead)...)
	r.Role, r.Rights, r.Restricted, r.Dead = Role(role), capability.Rights(rights), narrow != 0, fault.Code(dead)
	return r, err
}

// refsSince is the result of a reading of the refs.
type refsSince struct {
	rows         []refs.Row
	ours         []refs.Row // that the present transaction may have written, and may roll back
	next         string     // with which a later reading can begin; "" if unknown
	sawCommitted bool       // all that is committed was visible
}

// refsSince reads the rows that were written since mark; all if it is "".
func (t *tables) refsSince(ctx context.Context, q querier, mark string) (found refsSince, err error) {
	sql, args := t.db.refs().all, []any{t.box}
	if mark != "" {
		sql, args = t.db.refs().since, append(args, mark)
	}
	err = q.query(ctx, sql, args, func(scan scanner) error {
		var ours bool
		r, err := scanRef(scan, &found.next, &found.sawCommitted, &ours)
		switch {
		case err != nil || r.ID == "":
		case ours:
			found.ours = append(found.ours, r)
		default:
			found.rows = append(found.rows, r)
		}
		return err
	})
	return found, err
}

// ref reads a row; one for which exists is false if there is none. lock is "" or the dialect's
// lockRows.
func (t *tables) ref(ctx context.Context, q querier, id, lock string) (r refs.Row, err error) {
	err = q.query(ctx, t.db.refs().one+lock, []any{t.box, id}, func(scan scanner) (err error) {
		r, err = scanRef(scan)
		return err
	})
	return r, err
}

// insertRef writes a new row; false if there is one already.
func (t *tables) insertRef(ctx context.Context, q querier, r *refs.Row) (bool, error) {
	n, err := q.exec(ctx, t.db.refs().insert, t.box, r.ID, r.Text, string(r.Role), r.External, r.Label, r.Redemption, r.Saved,
		r.Confirmed, int64(r.Rights), boolToInt(r.Restricted), int64(r.Dead), capability.Target(r.ID))
	return n > 0, err
}

func (t *tables) updateRef(q querier, r *refs.Row) {
	q.enqueue(t.db.refs().update, []any{t.box, r.ID, r.Text, string(r.Role), r.External, r.Label, r.Confirmed, int64(r.Rights),
		boolToInt(r.Restricted), int64(r.Dead)}, nil)
}

// dropRef drops a ref, and the refs that it has replaced: they have its secret too.
func (t *tables) dropRef(q querier, id string, at int64) {
	q.enqueue(t.db.refs().drop, []any{t.box, id, at}, nil)
}

// changeRef reads the row of an id and writes the row that change returns, unless they are
// equal. change gets a row for which exists is false if there is none, or if it was dropped.
func (t *tables) changeRef(ctx context.Context, q querier, id string, change func(old refs.Row) (refs.Row, error)) (now refs.Row, err error) {
	for {
		old, err := t.ref(ctx, q, id, t.db.lockRows())
		if err != nil {
			return old, err
		}
		now, err := change(old)
		if err != nil || now == old {
			return old, err
		}
		if old.Exists() {
			t.updateRef(q, &now)
			return now, nil
		}
		now.ID = id
		if made, err := t.insertRef(ctx, q, &now); err != nil || made {
			return now, err
		}
	}
}

// writeRefStatus writes updates, along with the transaction's other statements.
func (t *tables) writeRefStatus(q querier, news []refs.Update) {
	for _, n := range news {
		at := int64(0)
		if !n.Status.Confirmed.IsZero() {
			at = n.Status.Confirmed.UnixMilli()
		}
		q.enqueue(t.db.refs().setStatus, []any{t.box, n.ID, at, int64(n.Status.Rights), int64(n.Status.Dead)}, nil)
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
