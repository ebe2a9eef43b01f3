// Sessions, spaces and external ids: statements and scans.

package txn

import (
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// SessionColumns are the columns that ScanSession scans.
const SessionColumns = `s.id, s.space, s.external, s.life, s.cursor, s.base, s.head, s.epoch, s.auth_gen, s.created, s.updated, s.creator,
	s.bytes, s.spared, s.ordered_by, s.forgotten, s.needs, s.origin, s.origin_cursor, s.origin_message,
	s.parent, s.parent_key, s.above, s.reverted, s.reverts_left, s.compacted, s.forks`

var (
	shareSpace = dialect.PostgresOnly("", `SELECT id FROM spaces WHERE id = {1} FOR SHARE`)
	LockSpace  = dialect.PostgresOnly("", `SELECT id FROM spaces WHERE id = {1} FOR UPDATE`)

	// ensureSessions creates the Absent rows, in id order like the list, so that two transactions
	// that create the same ones wait at the first and do not deadlock.
	ensureSessions = dialect.Both("t", `
		INSERT INTO sessions (id, spared) SELECT a, 0 FROM {w} WHERE true ON CONFLICT (id) DO NOTHING`)

	LockSessions = dialect.Both("t", `
		SELECT `+SessionColumns+` FROM sessions s
		WHERE s.id IN (SELECT a FROM {w}) ORDER BY s.id {lock}`).RowByRow(`
		SELECT ` + SessionColumns + ` FROM sessions s WHERE s.id = $1`)

	ReadSessions = dialect.Both("t", `
		SELECT `+SessionColumns+` FROM {w} CROSS JOIN sessions s WHERE s.id = w.a`)

	saveSessions = dialect.Both("tttiiibiiiitiiii", `
		INSERT INTO sessions (id, space, external, life, cursor, base, head, epoch, auth_gen, created, updated, creator, bytes, spared, ordered_by, needs)
		{values} ON CONFLICT (id) DO UPDATE SET
			space = excluded.space, external = excluded.external, life = excluded.life, cursor = excluded.cursor,
			base = excluded.base, head = excluded.head, epoch = excluded.epoch, auth_gen = excluded.auth_gen,
			created = excluded.created, updated = excluded.updated, creator = excluded.creator,
			bytes = excluded.bytes, spared = excluded.spared, ordered_by = excluded.ordered_by, needs = excluded.needs`)

	// saveOrigins writes of new sessions what they were forked from.
	saveOrigins = dialect.Both("ttit", `
		UPDATE sessions SET origin = w.b, origin_cursor = w.c, origin_message = w.d FROM {w} WHERE sessions.id = w.a`)

	// saveParents writes of new sessions whose children they are.
	saveParents = dialect.Both("tttt", `
		UPDATE sessions SET parent = w.b, parent_key = w.c, above = w.d FROM {w} WHERE sessions.id = w.a`)

	// readExternals selects the first living session with an external id, among the sessions
	// created under one ref of the space; '' where there is none.
	readExternals = dialect.Both("ttt", `
		SELECT w.a, w.b, w.c, coalesce((
			SELECT s.id FROM sessions s
			WHERE s.space = w.a AND s.external = w.c AND s.external <> '' AND s.life = 1 AND w.b = (
				SELECT g.parent_tail FROM grants g WHERE g.target = s.id AND g.owner = 1 ORDER BY g.revoked LIMIT 1)
			ORDER BY s.id LIMIT 1), '')
		FROM {w}`)

	// claimExternals inserts into the table externals, which has one session for each external id,
	// the first. Servers of the previous version, which allow only one, read it.
	claimExternals = dialect.Both("ttt", `
		INSERT INTO externals (space, external, session) {values} ON CONFLICT (space, external) DO NOTHING`)

	// dropExternals removes sessions from it; their rows keep their external ids.
	dropExternals = dialect.Both("t", `
		DELETE FROM externals WHERE (space, external) IN (
			SELECT s.space, s.external FROM {w} CROSS JOIN sessions s CROSS JOIN externals x
			WHERE s.id = w.a AND x.space = s.space AND x.external = s.external AND x.session = s.id)`)

	ReadMeta = dialect.Both("", `SELECT value FROM meta WHERE name = {1}`)
)

// ScanSession scans a session's row and, behind its columns, more.
func ScanSession(row dialect.Scanner, more ...any) (*session.Row, error) {
	var (
		s                            session.Row
		life, order, forgotten       uint8
		cursor, base, epoch, authGen int64
		needs, at                    int64
		head                         []byte
		reverted, left, compacted    string
		forks                        string
	)
	dest := []any{&s.ID, &s.Space, &s.External, &life, &cursor, &base, &head, &epoch, &authGen, &s.Created, &s.Updated, &s.Creator, &s.Bytes, &s.ExemptBytes, &order, &forgotten, &needs, &s.Origin.Session, &at, &s.Origin.Message,
		&s.Parent.Session, &s.Parent.Key, &s.Parent.Above, &reverted, &left, &compacted, &forks}
	if err := row.Scan(append(dest, more...)...); err != nil {
		return nil, err
	}
	s.Life, s.Cursor, s.Base, s.Epoch, s.AuthGen = session.Life(life), uint64(cursor), uint64(base), uint64(epoch), uint64(authGen)
	copy(s.Head[:], head)
	s.Origin.Cursor = uint64(at)
	if err := scanReverts(&s, reverted, left, compacted); err != nil {
		return nil, err
	}
	if err := ScanForks(&s, forks); err != nil {
		return nil, err
	}
	s.Order, s.Forgotten, s.Needs = session.Order(order), forgotten > 0, session.Features(needs)
	return &s, nil
}

func sessionValues(s *session.Row) []any {
	return []any{s.ID, s.Space, s.External, int64(s.Life), int64(s.Cursor), int64(s.Base), s.Head[:],
		int64(s.Epoch), int64(s.AuthGen), s.Created, s.Updated, s.Creator, s.Bytes, s.ExemptBytes, int64(s.Order), int64(s.Needs)}
}

// QueueRow queues a read of a session's row; to is set if there is one.
func QueueRow(run dialect.Runner, read *dialect.Statement, id string, to **session.Row) {
	run.Queue(read, TextRows([]string{id}), nil, func(row dialect.Scanner) (err error) {
		*to, err = ScanSession(row)
		return err
	})
}

// SplitRef splits a ref id into its target (session or space) and its tail.
func SplitRef(ref string) (target, tail string) {
	target, tail, _ = strings.Cut(ref, ".")
	return target, tail
}

// refIn returns how the rows of a session name a ref: by its tail, and one that is not of the session, but acts
// in it, by its whole id.
func refIn(session, ref string) string {
	if target, tail := SplitRef(ref); target == session {
		return tail
	}
	return ref
}

// refOf is the inverse of refIn.
func refOf(session, name string) string {
	if name == "" || capability.Target(name) != "" {
		return name
	}
	return JoinRef(session, name)
}

// JoinRef is the inverse of SplitRef.
func JoinRef(target, tail string) string {
	if tail == "" {
		return target
	}
	return target + "." + tail
}

// SessionsByID returns a callback that puts sessions into a map; more are destinations of further
// columns.
func SessionsByID(rows map[string]*session.Row, more ...any) func(dialect.Scanner) error {
	return func(row dialect.Scanner) error {
		r, err := ScanSession(row, more...)
		if err == nil {
			rows[r.ID] = r
		}
		return err
	}
}

// QueueAccess queues the statements that every read begins with.
func QueueAccess(run dialect.Runner, sight *session.Access, id string, refIDs []string) {
	sight.Grants = make(map[string]*capability.Grant, len(refIDs))
	run.QueueNow(dialect.SetClock(&sight.Now))
	if id != "" {
		QueueRow(run, ReadSessions, id, &sight.Row)
	}
	if len(refIDs) > 0 {
		run.Queue(ReadGrants, RefRows(refIDs), nil, GrantsByID(sight.Grants))
	}
	if others := session.OtherSessions(id, refIDs); id != "" && len(others) > 0 {
		sight.Others = map[string]*session.Row{}
		run.Queue(ReadSessions, TextRows(others), nil, SessionsByID(sight.Others))
	}
}
