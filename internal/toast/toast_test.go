package toast

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

func TestFast(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	url := pgtest.URL(t)
	// compression is what a connection has before and after; on servers that give no choice, what they have.
	compression := func(url string) (before, after string) {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		now := func() (is string) {
			if err := conn.QueryRow(ctx, `SELECT coalesce(current_setting('default_toast_compression', true), 'pglz')`).Scan(&is); err != nil {
				t.Fatal(err)
			}
			return is
		}
		before = now()
		if err := Fast(ctx, conn); err != nil {
			t.Fatal(err)
		}
		return before, now()
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var known, choice bool
	err = conn.QueryRow(ctx, `SELECT coalesce(bool_or('lz4' = ANY (enumvals)), false), count(*) > 0 FROM pg_settings
		WHERE name = 'default_toast_compression'`).Scan(&known, &choice)
	if err != nil {
		t.Fatal(err)
	}
	if before, after := compression(url); known && after != "lz4" || !known && after != before {
		t.Errorf("%s became %s, where the server knows lz4: %t", before, after, known)
	}
	if !choice {
		return
	}
	if _, after := compression(url + "&default_toast_compression=pglz"); after != "pglz" {
		t.Errorf("%s, where pglz was chosen", after)
	}
}
