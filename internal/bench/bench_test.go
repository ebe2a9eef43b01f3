package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/measure"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestMain(m *testing.M) {
	agentMain() // the test's program is the agent, too
	url, err := pgtest.ServerURL(context.Background())
	if err == nil {
		err = os.Setenv(envURL, url)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no Postgres for these tests:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// The bare program leaves what the path leaves: as many rows in every table, of
// the same length in every column.
func TestBareWritesWhatThePathWrites(t *testing.T) {
	t.Parallel()
	for _, db := range []string{"sqlite", "postgres"} {
		for _, bulk := range map[string][]string{"sqlite": {"rows", "values"}, "postgres": {"arrays", "copy"}}[db] {
			t.Run(db+"/"+bulk, func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				b := &bench{opts: options{postgres: os.Getenv(envURL), rounds: 1}, dir: t.TempDir(), progress: measure.NewProgress(&bytes.Buffer{})}
				defer func() {
					if err := b.close(context.WithoutCancel(ctx)); err != nil {
						t.Error(err)
					}
				}()
				rig, err := b.newRig(ctx, db, "path")
				if err != nil {
					t.Fatal(err)
				}
				s, err := rig.takeSample(ctx, 5)
				if err != nil {
					t.Fatal(err)
				}
				url := func(p *pgPair) [2]string { return [2]string{p.client, p.server} }
				var pathURL, bareURL [2]string
				if db == "postgres" {
					pathURL = url(rig.pair)
				} else {
					pathURL = [2]string{filepath.Join(rig.dir, "writer1", "outbox.db"), filepath.Join(rig.dir, "server", "mooring.db")}
				}
				path := footprints(t, db, pathURL)
				if err := rig.close(); err != nil {
					t.Fatal(err)
				}

				target, err := b.bareTarget(ctx, db)
				if err != nil {
					t.Fatal(err)
				}
				rows := s.repeat(1, sampleBatches)
				if _, err := runBare(ctx, target, rows, technique{batches: 3, conns: 1, bulk: bulk}); err != nil {
					t.Fatal(err)
				}
				switch target := target.(type) {
				case *barePostgres:
					bareURL = url(target.pair)
				case *bareSQLite:
					bareURL = [2]string{filepath.Join(target.dir, "outbox0.db"), filepath.Join(target.dir, "server.db")}
				}
				bare := footprints(t, db, bareURL)
				if err := target.close(context.WithoutCancel(ctx)); err != nil {
					t.Fatal(err)
				}
				// The bare program's records are pruned, the path's last ones only after a second without an append.
				if path["records"] != bare["records"] {
					bare["records"] = recordsPrint(rows[0])
				}
				for table, want := range path {
					if got := bare[table]; got != want {
						t.Errorf("%s\nthe path: %s\nbare:     %s", table, want, got)
					}
				}
			})
		}
	}
}

// recordsPrint is the footprint of a writer's records, were they all there.
func recordsPrint(w *writerRows) string {
	bytes := 0
	for _, b := range w.batches {
		bytes += len(b.record)
	}
	n := len(w.batches)
	return fmt.Sprintf("%d rows, session %d, outbox %d, outcomes %d", n, n*len(w.session), n*len(w.outbox), bytes)
}

// footprints sums up what the appends left in the tables: rows, and bytes in
// every column of text or bytes.
func footprints(t *testing.T, kind string, urls [2]string) map[string]string {
	t.Helper()
	prints := map[string]string{}
	for i, tables := range [2]map[string]string{
		{"mooring_outbox_batch": "ops > 1", "mooring_outbox_stream": "last_seq > 1"},
		{"events": "method = 'put'", "entries": "true", "sessions": "true", "streams": "true", "records": "true"},
	} {
		var db *sql.DB
		if kind == "postgres" {
			conf, err := pgx.ParseConfig(urls[i])
			if err != nil {
				t.Fatal(err)
			}
			db = stdlib.OpenDB(*conf)
		} else {
			var err error
			if db, err = sql.Open("sqlite", urls[i]); err != nil {
				t.Fatal(err)
			}
		}
		for table, where := range tables {
			prints[table] = footprint(t, db, table, where)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return prints
}

func footprint(t *testing.T, db *sql.DB, table, where string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+table+" WHERE "+where)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	n, bytes := 0, make([]int, len(columns))
	for ; rows.Next(); n++ {
		values := make([]any, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			switch v := v.(type) {
			case string:
				bytes[i] += len(v)
			case []byte:
				bytes[i] += len(v)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	print := fmt.Sprintf("%d rows", n)
	for i, c := range columns {
		if c == "payload" && table == "entries" || bytes[i] > 0 {
			print += fmt.Sprintf(", %s %d", c, bytes[i])
		}
	}
	return print
}

// testSample is a sample made by hand.
func testSample(batches, size int) *sample {
	s := &sample{session: "ses_" + strings.Repeat("0", 26), space: "spc_" + strings.Repeat("0", 26)}
	for range batches {
		b := sampleBatch{via: s.session + ".o1", body: []byte("body"), slim: []byte("slim"), outcomes: []byte("outcomes")}
		for i := range size {
			b.events = append(b.events, session.Event{Session: s.session, Ref: s.session + ".o1", Cursor: uint64(i), Payload: opPayload(nil, uint64(i))})
		}
		s.batches = append(s.batches, b)
	}
	return s
}

func TestRepeatedRowsHaveTheirOwnKeys(t *testing.T) {
	t.Parallel()
	writers := testSample(2, 3).repeat(4, 5)
	keys, ops := map[string]bool{}, map[string]bool{}
	var sums, hashes [8]map[byte]bool // what stands at their first places
	for i := range sums {
		sums[i], hashes[i] = map[byte]bool{}, map[byte]bool{}
	}
	for _, w := range writers {
		cursor, seq := uint64(1), int64(2)
		for i, b := range w.batches {
			if b.num != int64(i+1) || b.first != seq || b.last() != seq+2 {
				t.Fatalf("batch %d: num %d, seq %d to %d", i, b.num, b.first, b.last())
			}
			seq = b.last() + 1
			rec, err := ledger.UnmarshalRecord(b.record)
			if err != nil || rec.BatchID != b.id || len(rec.Outcomes) != 3 || int64(rec.LastSeq()) != b.last() {
				t.Fatalf("record %+v, %v", rec, err)
			}
			for k, e := range b.events {
				cursor++
				if e.Cursor != cursor || e.Session != w.session || !strings.HasPrefix(e.Ref, w.session) {
					t.Fatalf("event %+v at %d of %s", e, cursor, w.session)
				}
				key := e.Session + e.Key
				if keys[key] || ops[e.Op] || b.entries[k].Key != e.Key || b.entries[k].Cursor != cursor {
					t.Fatalf("event %+v, entry %+v", e, b.entries[k])
				}
				keys[key], ops[e.Op] = true, true
				for i := range sums {
					sums[i][e.Sum[i]], hashes[i][e.Hash[i]] = true, true
				}
			}
		}
	}
	if len(keys) != 4*5*3 {
		t.Fatalf("%d rows", len(keys))
	}
	for i := range sums {
		// Of 60 bytes some 53 differ. Where they are alike, records are compressed, and much smaller than the path's.
		if len(sums[i]) < 30 || len(hashes[i]) < 30 {
			t.Errorf("place %d of sums has %d values, of hashes %d", i, len(sums[i]), len(hashes[i]))
		}
	}
}

// Sessions are written in no order of their ids, as sessions that are there are appended to.
func TestWritersAreInNoOrder(t *testing.T) {
	t.Parallel()
	writers := testSample(1, 1).repeat(64, 1)
	if slices.IsSortedFunc(writers, func(a, b *writerRows) int { return strings.Compare(a.session, b.session) }) {
		t.Error("the bare program loads sessions in the order of their index")
	}
}

func TestEveryBatchIsWrittenAndMarkedOnce(t *testing.T) {
	t.Parallel()
	writers := testSample(1, 2).repeat(3, 7)
	written, marked := map[string]int{}, map[string]int{}
	for _, c := range interleave(writers, 3) {
		if len(c.new) > 3 || c.ops() != 2*len(c.new) {
			t.Fatalf("a transaction of %d batches, %d ops", len(c.new), c.ops())
		}
		for _, b := range c.acked {
			if marked[b.id]++; written[b.id] != 1 {
				t.Fatalf("batch %s marked before it was written", b.id)
			}
		}
		for _, b := range c.new {
			written[b.id]++
		}
	}
	if len(written) != 21 || len(marked) != 21 {
		t.Fatalf("%d written, %d marked", len(written), len(marked))
	}
	for id := range written {
		if written[id] != 1 || marked[id] != 1 {
			t.Fatalf("batch %s: written %d times, marked %d times", id, written[id], marked[id])
		}
	}
}

// Both ways to send rows are looked at, with transactions of every size and every number of
// connections, and the fastest ones are measured.
func TestTheBestIsLookedFor(t *testing.T) {
	t.Parallel()
	for db, kinds := range map[string][][]string{"sqlite": {{"rows", "values"}}, "postgres": {{"arrays"}, {"copy"}}} {
		t.Run(db, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			b := &bench{opts: options{postgres: os.Getenv(envURL), rounds: 2, seconds: 0.01}, dir: t.TempDir(), progress: measure.NewProgress(&bytes.Buffer{})}
			defer func() {
				if err := b.close(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}()
			r := &bareRuns{bench: b, db: db, sample: testSample(2, 100), writers: 8}
			best, err := r.tune(ctx, db)
			if err != nil {
				t.Fatal(err)
			}
			if len(best) != finalists*len(kinds) {
				t.Fatalf("it measures %v", best)
			}
			for i, bulks := range kinds {
				of := best[i*finalists : (i+1)*finalists]
				var slower []float64
				sizes, conns, seen := map[int]bool{}, map[int]bool{}, map[string]bool{}
				for how, rate := range r.rates {
					if !slices.Contains(bulks, how.bulk) {
						continue
					}
					sizes[how.batches], conns[how.conns], seen[how.bulk] = true, true, true
					if !slices.Contains(of, how) {
						slower = append(slower, rate)
					}
				}
				if len(sizes) != 4 || len(conns) != 4 || len(seen) != len(bulks) {
					t.Errorf("%v: it tried %v", bulks, r.rates)
				}
				if r.rates[of[0]] < r.rates[of[1]] || r.rates[of[1]] < slices.Max(slower) {
					t.Errorf("%v: of %v it measures %v", bulks, r.rates, of)
				}
			}
		})
	}
}

// Every key is put once, and those that are put together are of many lists.
func TestKeysArePutInNoOrder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{listKeys, 3 * listKeys, 70 * listKeys} {
		put, lists := make([]bool, n), map[int]bool{}
		for i := range n {
			k := nthPut(n, i)
			if put[k] {
				t.Fatalf("of %d keys, %d is put twice", n, k)
			}
			if put[k] = true; i < 100 {
				lists[k/listKeys] = true
			}
		}
		if len(lists) != min(n/listKeys, listsTogether) {
			t.Errorf("of %d keys, the first 100 are of %d lists", n, len(lists))
		}
	}
	if a, b := ownKey(2*listKeys-1), ownKey(2*listKeys); a >= b || !strings.HasPrefix(a, listPrefix(1)) || !strings.HasPrefix(b, listPrefix(2)) {
		t.Errorf("%s and %s", a, b)
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	var list []time.Duration
	for i := range 100 {
		list = append(list, time.Duration(100-i))
	}
	if q := quantilesOf(list); q.p50 != 51 || q.p99 != 100 {
		t.Errorf("quantiles of 1 to 100: %+v", q)
	}
}

func TestBadCommandLines(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"--db mysql", "--writers 0", "--batches x", "--parts speed", "--rounds 0", "--at-once 0", "--keys 1000", "--keys 2500", "--followed 0", "more", "--nope"} {
		if _, err := parse(strings.Fields(line), &bytes.Buffer{}); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
	o, err := parse(strings.Fields("--quick --rounds 3 --db sqlite"), &bytes.Buffer{})
	if err != nil || o.rounds != 3 || o.seconds >= 1 || !slices.Equal(o.databases, []string{"sqlite"}) {
		t.Errorf("%+v, %v", o, err)
	}
}
