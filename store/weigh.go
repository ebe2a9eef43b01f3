// Statements that read payloads up to a bound. A row weighs what its payload has
// and something for itself; rows are given up to and with the one that goes over
// the bound, so that who counts them sees that it was passed.

package store

import (
	"fmt"
	"strings"
)

// rowWeight is what a row weighs beside its payload.
const rowWeight = 64

func weight(payload []byte) int { return rowWeight + len(payload) }

// weighed is statement for a SELECT of columns, the payload among them, with the
// bound as its single value. It has no order, since sorting takes reading all.
// What is left is not sent: SQLite stops where its caller does; Postgres would
// send all that there is, so it sums up as it goes, without reading large
// payloads for that.
func weighed(columns, selected, text string) *Statement {
	text += fmt.Sprintf(" LIMIT CAST({1} AS BIGINT) / %d + 1", rowWeight)
	s := statement(columns, text)
	names := strings.NewReplacer("v.", "q.", "e.", "q.").Replace(selected)
	s.Postgres = statement(columns, fmt.Sprintf(`
		SELECT %s FROM (
			SELECT q.*, SUM(COALESCE(octet_length(q.payload), 0) + %d) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM (%s) q) q
		WHERE COALESCE(q.before, 0) <= CAST({1} AS BIGINT)`, names, rowWeight, text)).Postgres
	return s
}
