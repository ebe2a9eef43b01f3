package outbox

// Outboxes of before each session had a secret of its own.

import (
	"database/sql"
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/migrations"
	outboxsql "github.com/mooring-rpc/mooring/migrations/outboxsql"
	schema "github.com/mooring-rpc/mooring/migrations/outboxsql/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// before is a set as it was before a migration.
func before(t *testing.T, set migrations.Schema, name string) migrations.Schema {
	t.Helper()
	files, err := fs.Glob(set.Files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	old := fstest.MapFS{}
	for _, f := range files {
		if f >= name {
			continue
		}
		data, err := fs.ReadFile(set.Files, f)
		if err != nil {
			t.Fatal(err)
		}
		old[f] = &fstest.MapFile{Data: data}
	}
	set.Files = old
	return set
}

// TestOldStreamsGoOn: sessions whose servers know the outbox by its old secret are
// opened with that, whether anything of them was finished or not, and others with
// secrets that cannot be found out with it.
func TestOldStreamsGoOn(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p, driver, set := newPlace(t, kind), "sqlite", before(t, migrations.Schema{Name: "outbox", Dialect: goose.DialectSQLite3, Table: schema.Table, Files: schema.Files}, "00006_stream_secrets.sql")
			if kind == "postgres" {
				p.at, driver, set = pgtest.URL(t), "pgx", before(t, outboxsql.Postgres, "00007_stream_secrets.sql")
			} else {
				p.at = filepath.Join(t.TempDir(), "outbox.db") // nothing in it means something in a URL
			}
			old := capability.NewSecret()
			finished, flying, never := newSession(), newSession(), newSession()
			func() {
				db, err := sql.Open(driver, p.at)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				if err := migrations.Up(t.Context(), db, set); err != nil {
					t.Fatal(err)
				}
				exec := func(stmt string, args ...any) {
					t.Helper()
					if _, err := db.ExecContext(t.Context(), stmt, args...); err != nil {
						t.Fatal(err)
					}
				}
				name := p.name
				if name == "" {
					name = defaultName
				}
				exec("INSERT INTO mooring_outbox (name, id, secret) VALUES ($1, 'obx_01KT0000000000000000000000', $2)", name, old.Reveal())
				exec("INSERT INTO mooring_outbox_stream (box, session, last_seq) VALUES (1, $1, 1)", finished)
				bd := &intent.Batch{Ops: []intent.Op{{ID: opid.Of("01KT0000000000000000000001", 0), Method: "put", Args: put("1").Args}}}
				exec(`INSERT INTO mooring_outbox_batch (box, batch, session, state, first_seq, ops, bytes, created_at, body)
					VALUES (1, '01KT0000000000000000000001', $1, 1, 1, 1, 10, $2, $3)`, flying, time.Now().UnixMilli(), bd.Encode(flying, "01KT0000000000000000000001"))
			}()

			b, srv := p.open(t, quick()), newFakeServer()
			for _, session := range []string{finished, flying, never} {
				testRef(t, b, session, RefMeta{})
			}
			for session, last := range map[string]uint64{finished: 1, flying: 0} {
				srv.streams[session+b.ID()] = &fakeStreamRow{row: ledger.Stream{Session: session, Outbox: b.ID(), LastSeq: last, AckedThrough: last},
					history: ledger.NewHistory(nil), hash: old.Hash()}
			}
			run(t, b, srv)
			for _, session := range []string{finished, flying, never} {
				if o := wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("2")}}))[0]; o.Status != ledger.Applied {
					t.Errorf("%+v", o)
				}
			}
			if n := len(srv.log(flying)); n != 2 {
				t.Errorf("%d ops of the session arrived that has an old one on its way", n)
			}
			if row := srv.streams[never+b.ID()]; row.hash == old.Hash() || row.hash == old.StreamSecret(never).Hash() {
				t.Error("a session that is new is shown what old ones' servers can find out")
			}
		})
	}
}
