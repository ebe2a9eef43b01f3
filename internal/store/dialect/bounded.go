// Statements that read payloads up to a byte limit. A row's weight is its payload's length and a
// fixed overhead; rows are returned up to and including the one that exceeds the limit, so that the
// caller, adding up, detects it.

package dialect

import (
	"fmt"
	"strings"
)

// rowOverhead is the weight of a row besides its payload.
const rowOverhead = 64

// RowSize is what a row with a payload weighs.
func RowSize(payload []byte) int { return rowOverhead + len(payload) }

// Bounded is statement for a SELECT of columns, the payload among them, with the limit as
// its single value. It has no order, since sorting requires reading all rows. The remaining rows
// are not sent: SQLite stops when its caller does; Postgres would send all rows, so the statement
// keeps a running sum, without reading large payloads for it.
func Bounded(columns, selected, text string) *Statement {
	text += fmt.Sprintf(" LIMIT CAST({1} AS BIGINT) / %d + 1", rowOverhead)
	s := Both(columns, text)
	names := strings.NewReplacer("v.", "q.", "e.", "q.").Replace(selected)
	s.Postgres = Both(columns, fmt.Sprintf(`
		SELECT %s FROM (
			SELECT q.*, SUM(COALESCE(octet_length(q.payload), 0) + %d) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM (%s) q) q
		WHERE COALESCE(q.before, 0) <= CAST({1} AS BIGINT)`, names, rowOverhead, text)).Postgres
	return s
}

// Page is statement for a SELECT of columns, from rows in the order of their key, which is
// below end: at most {most} of them. The caller takes rows up to a total weight of {bytes}, the
// first however heavy it is, and then stops. SQLite reads no more then; Postgres would send all of
// them, so the statement ends with the row after the one that exceeds {bytes}. To find it, Postgres
// reads neither large payloads nor any row beyond it. weight is a row's, and not more than the
// caller counts for it.
func Page(columns, from, key, end, weight, most, bytes string) *Statement {
	text := func(end string) *Statement {
		return Both("", fmt.Sprintf(`SELECT %s %s AND %s < %s ORDER BY %s LIMIT %s`, columns, from, key, end, key, most))
	}
	s := text(end)
	s.Postgres = text(fmt.Sprintf(`COALESCE((
		SELECT q.key FROM (
			SELECT %s AS key, SUM(%s) OVER (ORDER BY %s ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS before
			%s AND %s < %s ORDER BY %s LIMIT %s) q
		WHERE q.before > %s ORDER BY q.key LIMIT 1), %s)`, key, weight, key, from, key, end, key, most, bytes, end)).Postgres
	return s
}
