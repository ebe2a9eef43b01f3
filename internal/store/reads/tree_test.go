package reads

import (
	"database/sql"
	"testing"

	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/plantest"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// TestTreeShowsUses: a ref that was used is shown with how often and when last,
// on both databases, by the statement as it stands.
func TestTreeShowsUses(t *testing.T) {
	t.Parallel()
	plantest.Both(t, func(db *sql.DB, text func(*dialect.Statement) string) {
		for _, ref := range [][]any{{"ses_1", "o1", "", ""}, {"ses_1", "o2", "ses_1", "o1"}} {
			if _, err := db.Exec(`INSERT INTO grants (target, tail, parent_target, parent_tail, owner, epoch, rights, methods, expires,
				visible_from, redeemable, redeemed, created, revoked, cut, revoked_by, label, actor, hash)
				VALUES ($1, $2, $3, $4, 0, 1, 1, 'null', 0, 0, 0, 0, 1, 0, 0, '', '', '', $5)`, append(ref, []byte{})...); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.Exec(`INSERT INTO uses (target, tail, uses, last) VALUES ('ses_1', 'o2', 3, 1234), ('ses_2', 'o1', 9, 9)`); err != nil {
			t.Fatal(err)
		}
		rows, err := db.Query(text(readTree), "ses_1", "o1", "ses_1", "o1", 1, 10)
		if err != nil {
			t.Fatal(err)
		}
		var got [][2]int64
		for rows.Next() {
			var epoch, uses, last int64
			if _, err := txn.ScanGrant(rows, &epoch, &uses, &last); err != nil {
				t.Fatal(err)
			}
			got = append(got, [2]int64{uses, last})
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[0] != [2]int64{0, 0} || got[1] != [2]int64{3, 1234} {
			t.Errorf("uses and last used are %v", got)
		}
	})
}
