package outbox

// How Postgres is told to compress what the outbox writes.

import (
	"testing"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

func TestBodiesAreCompressedFast(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	compression := func(url string) (now string) {
		b := place{"postgres", url, "box"}.open(t, quick())
		if err := b.db.(*postgresDB).pool.QueryRow(limited(t), "SHOW default_toast_compression").Scan(&now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	_, plain, _ := pgBox(t, quick())
	want := "pglz"
	err := plain.QueryRow(limited(t), `SELECT 'lz4' FROM pg_settings
		WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals) UNION ALL SELECT 'pglz' LIMIT 1`).Scan(&want)
	if err != nil {
		t.Fatal(err)
	}
	if got := compression(url); got != want {
		t.Errorf("%s, where the server could have %s", got, want)
	}
	if got := compression(url + "&default_toast_compression=pglz"); got != "pglz" {
		t.Errorf("%s, where pglz was chosen", got)
	}
}
