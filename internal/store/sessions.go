// Sessions, spaces and external ids: statements and scans.

package store

import (
	"fmt"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

const sessionColumns = `s.id, s.space, s.external, s.life, s.cursor, s.base, s.head, s.epoch, s.auth_gen, s.created, s.updated, s.creator,
	s.bytes, s.spared, s.ordered_by, s.forgotten, s.needs, s.origin, s.origin_cursor, s.origin_message,
	s.parent, s.parent_key, s.above, s.reverted, s.reverts_left, s.compacted, s.forks`

// infoPrefix selects the beginning of the info of a session s, mostly all of it: lists show titles,
// and an info may be of any size.
var infoPrefix = fmt.Sprintf(`(SELECT substr(%s, 1, %d) FROM entries e WHERE e.session = s.id AND e.key = 'session')`, entryValue, maxInfoBytes)

// maxInfoBytes is how many bytes of an info are read for a list.
const maxInfoBytes = 64 << 10

// sessionListSQL selects a space's sessions; part is the conditions and order of the list.
func sessionListSQL(part string, args int) string {
	return listingSQL(`s.space = {1} AND s.space <> '' AND `+part, args)
}

// listingSQL selects the sessions of a list; part, with so many arguments, is its conditions and order. Five more are the same for
// each (see listScan): of the list is skipped {offset}, and {bound} sessions are examined, of which at most {limit} are
// selected, the deleted ones too if {deleted} is 1, that may have the {search} text.
//
// Those are more than have it: titles are not up to date in titles_due, and SQLite's lower is that of ASCII. The info that has
// the title is read of the selected sessions only.
func listingSQL(part string, args int) string {
	names := []string{}
	for i, name := range []string{"{offset}", "{bound}", "{deleted}", "{search}", "{limit}"} {
		names = append(names, name, fmt.Sprintf("{%d}", args+1+i))
	}
	return strings.NewReplacer(names...).Replace(`SELECT ` + sessionColumns + `, s.title, ` + infoPrefix + ` FROM (
			SELECT ` + sessionColumns + `, s.title FROM sessions s WHERE ` + part + ` LIMIT {bound} OFFSET {offset}) AS s
		WHERE (s.life <> 2 OR CAST({deleted} AS BIGINT) = 1) AND ({search} = ''
			OR {instr}(substr(s.title, 2), {search}) > 0 OR {instr}(lower(s.id), {search}) > 0 OR {instr}(lower(s.origin), {search}) > 0
			OR {instr}(lower(s.external), {search}) > 0 OR octet_length(s.external) > length(s.external)
			OR EXISTS (SELECT 1 FROM titles_due d WHERE d.session = s.id))
		LIMIT {limit}`)
}

var (
	shareSpace = postgresStatement("", `SELECT id FROM spaces WHERE id = {1} FOR SHARE`)
	lockSpace  = postgresStatement("", `SELECT id FROM spaces WHERE id = {1} FOR UPDATE`)

	// ensureSessions creates the Absent rows, in id order like the list, so that two transactions
	// that create the same ones wait at the first and do not deadlock.
	ensureSessions = statement("t", `
		INSERT INTO sessions (id, spared) SELECT a, 0 FROM {w} WHERE true ON CONFLICT (id) DO NOTHING`)

	lockSessions = statement("t", `
		SELECT `+sessionColumns+` FROM sessions s
		WHERE s.id IN (SELECT a FROM {w}) ORDER BY s.id {lock}`).rowByRow(`
		SELECT ` + sessionColumns + ` FROM sessions s WHERE s.id = $1`)

	readSessions = statement("t", `
		SELECT `+sessionColumns+` FROM {w} CROSS JOIN sessions s WHERE s.id = w.a`)

	saveSessions = statement("tttiiibiiiitiiii", `
		INSERT INTO sessions (id, space, external, life, cursor, base, head, epoch, auth_gen, created, updated, creator, bytes, spared, ordered_by, needs)
		{values} ON CONFLICT (id) DO UPDATE SET
			space = excluded.space, external = excluded.external, life = excluded.life, cursor = excluded.cursor,
			base = excluded.base, head = excluded.head, epoch = excluded.epoch, auth_gen = excluded.auth_gen,
			created = excluded.created, updated = excluded.updated, creator = excluded.creator,
			bytes = excluded.bytes, spared = excluded.spared, ordered_by = excluded.ordered_by, needs = excluded.needs`)

	// saveOrigins writes of new sessions what they were forked from.
	saveOrigins = statement("ttit", `
		UPDATE sessions SET origin = w.b, origin_cursor = w.c, origin_message = w.d FROM {w} WHERE sessions.id = w.a`)

	// saveParents writes of new sessions whose children they are.
	saveParents = statement("tttt", `
		UPDATE sessions SET parent = w.b, parent_key = w.c, above = w.d FROM {w} WHERE sessions.id = w.a`)

	listOldest = statement("", sessionListSQL(`s.id > {2} ORDER BY s.id`, 2))
	listNewest = statement("", sessionListSQL(`s.id < {2} ORDER BY s.id DESC`, 2))

	// listChanged uses the index by minute of change, and sorts within a minute.
	listChanged = statement("", sessionListSQL(`s.minute <= {2} AND (s.updated, s.id) < ({3}, {4})
			ORDER BY s.minute DESC, s.updated DESC, s.id DESC`, 4))

	listTitled = statement("", sessionListSQL(`(s.title, s.id) > ({2}, {3}) ORDER BY s.title, s.id`, 3))

	// listChildren lists the children of a session.
	listChildren = statement("", listingSQL(`s.above = (SELECT `+chain+` FROM sessions t WHERE t.id = {1}) AND s.above <> '' AND s.id > {2} ORDER BY s.id`, 2))

	// readActivity reads of sessions, each with its cursor, by whom the last event is, and whether a turn is being written
	// at {1}.
	readActivity = statement("ti", `
		SELECT w.a, e.ref, e.actor, (SELECT count(*) FROM turns t {by turns_streaming} WHERE t.session = w.a AND t.status = 1 AND t.lease > {1})
		FROM {w} CROSS JOIN events e WHERE e.session = w.a AND e.cursor = w.b`)

	// readExternals selects the first living session with an external id, among the sessions
	// created under one ref of the space; '' where there is none.
	readExternals = statement("ttt", `
		SELECT w.a, w.b, w.c, coalesce((
			SELECT s.id FROM sessions s
			WHERE s.space = w.a AND s.external = w.c AND s.external <> '' AND s.life = 1 AND w.b = (
				SELECT g.parent_tail FROM grants g WHERE g.target = s.id AND g.owner = 1 ORDER BY g.revoked LIMIT 1)
			ORDER BY s.id LIMIT 1), '')
		FROM {w}`)

	// findByExternal selects the living sessions with an external id, newest first.
	findByExternal = statement("", `
		SELECT s.id FROM sessions s
		WHERE s.space = {1} AND s.external = {2} AND s.external <> '' AND s.life = 1 ORDER BY s.id DESC LIMIT {3}`)

	// claimExternals inserts into the table externals, which has one session for each external id,
	// the first. Servers of the previous version, which allow only one, read it.
	claimExternals = statement("ttt", `
		INSERT INTO externals (space, external, session) {values} ON CONFLICT (space, external) DO NOTHING`)

	// dropExternals removes sessions from it; their rows keep their external ids.
	dropExternals = statement("t", `
		DELETE FROM externals WHERE (space, external) IN (
			SELECT s.space, s.external FROM {w} CROSS JOIN sessions s CROSS JOIN externals x
			WHERE s.id = w.a AND x.space = s.space AND x.external = s.external AND x.session = s.id)`)

	insertSpace = statement("", `INSERT INTO spaces (id, created) VALUES ({1}, {2})`)
	claimMeta   = statement("", `INSERT INTO meta (name, value) VALUES ({1}, {2}) ON CONFLICT (name) DO NOTHING`)
	readMeta    = statement("", `SELECT value FROM meta WHERE name = {1}`)
)

func scanSession(row Scanner, more ...any) (*session.Row, error) {
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
	if err := scanForks(&s, forks); err != nil {
		return nil, err
	}
	s.Order, s.Forgotten, s.Needs = session.Order(order), forgotten > 0, session.Features(needs)
	return &s, nil
}

func sessionValues(s *session.Row) []any {
	return []any{s.ID, s.Space, s.External, int64(s.Life), int64(s.Cursor), int64(s.Base), s.Head[:],
		int64(s.Epoch), int64(s.AuthGen), s.Created, s.Updated, s.Creator, s.Bytes, s.ExemptBytes, int64(s.Order), int64(s.Needs)}
}

// queueRow queues a read of a session's row; to is set if there is one.
func queueRow(run Runner, read *Statement, id string, to **session.Row) {
	run.Queue(read, textRows([]string{id}), nil, func(row Scanner) (err error) {
		*to, err = scanSession(row)
		return err
	})
}

// textRows returns values as rows of a list with one column.
func textRows(values []string) [][]any {
	list := make([][]any, len(values))
	for i, v := range values {
		list[i] = []any{v}
	}
	return list
}

// splitRef splits a ref id into its target (session or space) and its tail.
func splitRef(ref string) (target, tail string) {
	target, tail, _ = strings.Cut(ref, ".")
	return target, tail
}

// refIn returns how the rows of a session name a ref: by its tail, and one that is not of the session, but acts
// in it, by its whole id.
func refIn(session, ref string) string {
	if target, tail := splitRef(ref); target == session {
		return tail
	}
	return ref
}

// refOf is the inverse of refIn.
func refOf(session, name string) string {
	if name == "" || capability.Target(name) != "" {
		return name
	}
	return joinRef(session, name)
}

// joinRef is the inverse of splitRef.
func joinRef(target, tail string) string {
	if tail == "" {
		return target
	}
	return target + "." + tail
}
