package migrations

import (
	"database/sql"
	"testing"
)

// partitioned are the columns with a session's or a space's id by which tables can
// be spread, by the name that each table has for it.
var partitioned = map[string]bool{
	"session": true, // of one session
	"space":   true, // of one space
	"target":  true, // of a session or a space, whichever a ref is for
}

// ownKey are the tables that are sessions or spaces themselves.
var ownKey = map[string]string{"sessions": "id", "spaces": "id"}

// exceptions are the tables whose key begins with something else, and why.
var exceptions = map[string]struct{ column, why string }{
	"meta":          {"name", "a few rows about the whole database, the same wherever the rest is"},
	"replicas":      {"id", "a few rows about the servers, the same wherever the rest is"},
	"search_rows":   {"id", "on SQLite, which cannot be spread, an index of words names rows by numbers"},
	"public_shares": {"id", "a public id stands in URLs and names no session, so it is all that there is to look one up with"},
}

// keysOf gives the first column of every unique key of every table; "" for a table
// without a primary key. SQLite's index of words has tables of its own.
var keysOf = map[string]string{
	"postgres": `SELECT c.relname, coalesce(a.attname, '')
		FROM pg_class c
		LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique
		LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')`,
	"sqlite": `SELECT m.name, coalesce(p.name, '')
		FROM sqlite_master m
		LEFT JOIN pragma_table_info(m.name) p ON p.pk = 1
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name NOT LIKE 'search_words%'
		UNION
		SELECT m.name, x.name
		FROM sqlite_master m, pragma_index_list(m.name) l, pragma_index_info(l.name) x
		WHERE m.type = 'table' AND m.name NOT LIKE 'search_words%' AND l."unique" = 1 AND x.seqno = 0`,
}

// TestKeysBeginWithTheSession: hash partitions and Citus can take over, since every
// key begins with the id of the session or the space that a row is of.
func TestKeysBeginWithTheSession(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			if err := Up(t.Context(), db, d.set); err != nil {
				t.Fatal(err)
			}
			rows, err := db.Query(keysOf[d.name])
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			seen := map[string]bool{}
			for rows.Next() {
				var table, column string
				if err := rows.Scan(&table, &column); err != nil {
					t.Fatal(err)
				}
				if seen[table] = true; table == d.set.Table { // goose's own
					continue
				}
				e, excepted := exceptions[table]
				switch {
				case excepted && column == e.column:
				case column == "":
					t.Errorf("%s has no key", table)
				case !partitioned[column] && (column != ownKey[table]):
					t.Errorf("a key of %s begins with %s", table, column)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			for table, e := range exceptions {
				if !seen[table] || e.why == "" {
					t.Errorf("there is no table %s to be excepted, or no reason to", table)
				}
			}
			checkTables(t, db, seen)
		})
	}
}

// checkTables fails the test if the query did not see the tables that there are.
func checkTables(t *testing.T, db *sql.DB, seen map[string]bool) {
	t.Helper()
	for _, table := range []string{"sessions", "spaces", "externals", "events", "entries", "turns", "streams", "records", "grants",
		"redemptions", "uses", "audit", "audit_log", "audit_heads"} {
		if _, err := db.Exec("SELECT 1 FROM " + table + " WHERE false"); err != nil || !seen[table] {
			t.Errorf("table %s: seen %v, %v", table, seen[table], err)
		}
	}
}
