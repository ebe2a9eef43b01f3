package pgtune

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

func connect(t *testing.T, url string) (context.Context, *pgx.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	Config(cfg)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return ctx, conn
}

// connectIn is connect, for statements in a mode.
func connectIn(t *testing.T, url string, mode pgx.QueryExecMode) (context.Context, *pgx.Conn) {
	t.Helper()
	ctx, conn := connect(t, url)
	config := conn.Config()
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return ctx, conn
}

// setting is what a connection has; empty where the server knows no such thing.
func setting(t *testing.T, ctx context.Context, conn *pgx.Conn, name string) (is string) {
	t.Helper()
	if err := conn.QueryRow(ctx, `SELECT coalesce(current_setting($1, true), '')`, name).Scan(&is); err != nil {
		t.Fatal(err)
	}
	return is
}

func TestConnection(t *testing.T) {
	t.Parallel()
	const compression = "default_toast_compression"
	ctx, conn := connect(t, pgtest.URL(t))
	if got := fmt.Sprintf("%T", conn.PgConn().Conn()); got != "*socket.directConn" {
		t.Errorf("its socket is read as a %s", got)
	}
	var lz4 bool
	err := conn.QueryRow(ctx, `SELECT coalesce(bool_or('lz4' = ANY (enumvals)), false) FROM pg_settings WHERE name = $1`, compression).Scan(&lz4)
	if err != nil {
		t.Fatal(err)
	}
	want := setting(t, ctx, conn, compression)
	if lz4 {
		want = "lz4"
	}
	if _, err := conn.Exec(ctx, "SET default_transaction_isolation = 'repeatable read'; SET default_transaction_read_only = on", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if err := Connection(ctx, conn); err != nil {
		t.Fatal(err)
	}
	if isolation := setting(t, ctx, conn, "transaction_isolation"); isolation != "read committed" {
		t.Errorf("its transactions are %s", isolation)
	}
	if got := setting(t, ctx, conn, compression); got != want {
		t.Errorf("it compresses with %q, want %q", got, want)
	}
	if bytea, _ := conn.TypeMap().TypeForOID(pgtype.ByteaOID); fmt.Sprintf("%T", bytea.Codec) != "*pgtune.bytesCodec" {
		t.Errorf("it sends bytes with a %T", bytea.Codec)
	}
	for name, want := range map[string]string{"idle_in_transaction_session_timeout": "1min", "tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10",
		"tcp_keepalives_count": "3"} {
		if got := setting(t, ctx, conn, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for _, name := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit", "transaction_read_only"} {
		if got := setting(t, ctx, conn, name); got != "off" {
			t.Errorf("%s is %s", name, got)
		}
	}
}

func TestExplicitSettingsStay(t *testing.T) {
	t.Parallel()
	const compression = "default_toast_compression"
	ctx, conn := connect(t, pgtest.URL(t))
	chosen := setting(t, ctx, conn, compression)
	if chosen != "" { // else the server gives no choice, and is not to be asked for one
		chosen = "pglz"
		if _, err := conn.Exec(ctx, "SET default_toast_compression = pglz"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(ctx, "SET idle_in_transaction_session_timeout = '5s'; SET tcp_keepalives_idle = 20", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if err := Connection(ctx, conn); err != nil {
		t.Fatal(err)
	}
	for name, chosen := range map[string]string{compression: chosen, "idle_in_transaction_session_timeout": "5s", "tcp_keepalives_idle": "20"} {
		if got := setting(t, ctx, conn, name); got != chosen {
			t.Errorf("%s is %q, where %q was chosen", name, got, chosen)
		}
	}
}

func TestTheNameSomebodyGaveStays(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig("postgres://localhost/db?application_name=mine")
	if err != nil {
		t.Fatal(err)
	}
	if Config(cfg); cfg.RuntimeParams["application_name"] != "mine" {
		t.Errorf("its name is %q", cfg.RuntimeParams["application_name"])
	}
}

// spy is a message that shows what a connection collects in.
type spy struct{ buffer []byte }

func (*spy) Frontend()           {}
func (*spy) Decode([]byte) error { return nil }
func (s *spy) Encode(dst []byte) ([]byte, error) {
	s.buffer = dst
	return dst, nil
}

// TestSend: batches of all sizes arrive as they are, one after the other, on connections that share their buffers, and none
// keeps one, whatever its mode.
func TestSend(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	modes := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}
	for c, mode := range append(modes, modes...) {
		t.Run(fmt.Sprint(c, mode), func(t *testing.T) {
			t.Parallel()
			ctx, conn := connectIn(t, url, mode)
			for i, size := range []int{0, 1, 300, minBuffer - 1, minBuffer, 100_000, minBuffer + 1, 2 * maxBuffer, 10, 70_000} {
				if size > maxBuffer && c > 0 {
					continue // it takes long
				}
				batch, bytes := &pgx.Batch{}, 0
				for k := range 3 {
					want := strings.Repeat(fmt.Sprint(k, c, i%10), size/3)
					bytes += len(want)
					batch.Queue(`SELECT $1::text`, want).QueryRow(func(row pgx.Row) error {
						var got string
						if err := row.Scan(&got); err != nil || got != want {
							t.Errorf("%d bytes: got %d, want %d, %v", size, len(got), len(want), err)
						}
						return nil
					})
				}
				if i == 6 { // what the database refuses leaves nothing behind
					batch.Queue(`SELECT 1/0`)
				}
				if err := Send(ctx, conn, batch, bytes); (err != nil) != (i == 6) {
					t.Errorf("%d bytes: %v", size, err)
				}
				var kept spy
				if conn.PgConn().Frontend().Send(&kept); len(kept.buffer) > 0 || cap(kept.buffer) >= minBuffer {
					t.Errorf("%d bytes: the connection goes on in a buffer of %d with %d in it", size, cap(kept.buffer), len(kept.buffer))
				}
			}
		})
	}
}

func TestBuffer(t *testing.T) {
	t.Parallel()
	b := NewBuffer()
	small := b.Take(nil, 1)
	if len(small) != 0 || cap(small) < minBuffer {
		t.Errorf("%d of %d bytes: pgx would keep it", len(small), cap(small))
	}
	next := b.Take([]byte("before"), 10)
	if string(next) != "before" || &next[0] != &small[:1][0] {
		t.Errorf("%q, in other memory", next)
	}
	if large := b.Take(next, 3*minBuffer); string(large) != "before" || cap(large) < 3*minBuffer+len("before") {
		t.Errorf("%q, with room for %d", large, cap(large))
	}
	b.Free()
}
