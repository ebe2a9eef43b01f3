package outbox

// What a durable commit costs, alone and while it is being sent, against the
// bare insert of a row of the same size into the same kind of database.

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
)

// benchOp is an op of about 300 bytes.
func benchOp() Op {
	return Op{Method: "put", Args: []ledger.Arg{{Name: "key", JSON: []byte(`"message/msg_01"`)},
		{Name: "payload", JSON: []byte(`{"text":"` + strings.Repeat("x", 240) + `"}`)}}}
}

func benchBatch(session string, n int) Batch {
	b := Batch{ID: opid.NewBatch(), Session: session}
	for range n {
		b.Ops = append(b.Ops, benchOp())
	}
	return b
}

func BenchmarkCommit(b *testing.B) {
	for _, kind := range []string{"sqlite", "postgres"} {
		p := newPlace(b, kind)
		for _, n := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/offline/%d", kind, n), func(b *testing.B) {
				box := p.fresh(n).open(b, Config{})
				benchCommit(b, box, n, false)
			})
			b.Run(fmt.Sprintf("%s/sent/%d", kind, n), func(b *testing.B) {
				box := p.fresh(100+n).open(b, Config{})
				benchCommit(b, box, n, true)
			})
		}
		b.Run(kind+"/bare/1", func(b *testing.B) { benchBare(b, p) })
		b.Run(kind+"/parallel/1", func(b *testing.B) {
			box := p.fresh(1000).open(b, Config{})
			session := withSession(b, box)
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := box.Commit(context.Background(), benchBatch(session, 1)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// benchCommit commits one batch after the other; sent waits for each one's
// outcome, as a writer does that goes on when its append is acknowledged.
func benchCommit(b *testing.B, box *Box, n int, sent bool) {
	session := withSession(b, box)
	ctx := context.Background()
	if sent {
		stop := run(b, box, newFakeServer())
		defer stop()
		if ticket, err := box.Commit(ctx, benchBatch(session, 1)); err != nil {
			b.Fatal(err)
		} else if _, err := box.Wait(ctx, ticket.Batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		ticket, err := box.Commit(ctx, benchBatch(session, n))
		if err != nil {
			b.Fatal(err)
		}
		if sent {
			if _, err := box.Wait(ctx, ticket.Batch); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
}

func benchBare(b *testing.B, p place) {
	body := []byte(strings.Repeat("x", 320))
	ctx := context.Background()
	var n atomic.Int64
	var insert func() error
	if p.kind == "sqlite" {
		db, err := sql.Open("sqlite", "file:"+b.TempDir()+"/bare.db?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		if _, err := db.Exec("CREATE TABLE bare (num INTEGER PRIMARY KEY, id TEXT UNIQUE, body BLOB)"); err != nil {
			b.Fatal(err)
		}
		st, err := db.Prepare("INSERT INTO bare (id, body) VALUES (?, ?)")
		if err != nil {
			b.Fatal(err)
		}
		defer st.Close()
		insert = func() error { _, err := st.Exec(opid.NewBatch(), body); return err }
	} else {
		pool, err := pgxpool.New(ctx, p.at)
		if err != nil {
			b.Fatal(err)
		}
		defer pool.Close()
		if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS bare (num BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id TEXT UNIQUE, body BYTEA)"); err != nil {
			b.Fatal(err)
		}
		insert = func() error {
			_, err := pool.Exec(ctx, "INSERT INTO bare (id, body) VALUES ($1, $2)", opid.NewBatch(), body)
			return err
		}
	}
	b.ResetTimer()
	for range b.N {
		if err := insert(); err != nil {
			b.Fatal(err)
		}
		n.Add(1)
	}
}

// BenchmarkReplay sends what was committed while there was no server; an op is
// one batch.
func BenchmarkReplay(b *testing.B) {
	for _, kind := range []string{"sqlite", "postgres"} {
		b.Run(kind, func(b *testing.B) {
			box := newPlace(b, kind).open(b, Config{})
			session := withSession(b, box)
			for range b.N {
				if _, err := box.Commit(context.Background(), benchBatch(session, 1)); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			stop := run(b, box, newFakeServer())
			defer stop()
			if err := box.Drain(context.Background(), nil); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
		})
	}
}

// BenchmarkPoolSize has 64 writers, each with an outbox of its own, wait for every answer, over four connections and over 32 by
// turns: what the default costs, as a ratio.
func BenchmarkPoolSize(b *testing.B) {
	const writers, batches = 64, 16
	took := make(map[int]time.Duration)
	rounds := make(map[int]func())
	srv := newFakeServer()
	for _, conns := range []int{4, 32} {
		u, err := url.Parse(shared.get(b))
		if err != nil {
			b.Fatal(err)
		}
		query := u.Query()
		query.Set("pool_max_conns", strconv.Itoa(conns))
		u.RawQuery = query.Encode()
		boxes, sessions := make([]*Box, writers), make([]string, writers)
		for i := range boxes {
			boxes[i] = place{"postgres", u.String(), newSession()}.open(b, Config{})
			sessions[i] = withSession(b, boxes[i])
			run(b, boxes[i], srv)
		}
		rounds[conns] = func() {
			began := time.Now()
			var all sync.WaitGroup
			for i, box := range boxes {
				all.Go(func() {
					for range batches {
						x, err := box.Commit(context.Background(), benchBatch(sessions[i], 1))
						if err == nil {
							_, err = box.Wait(context.Background(), x.Batch)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			took[conns] += time.Since(began)
		}
		rounds[conns]() // its connections are made
	}
	clear(took)
	b.ResetTimer()
	for n := range b.N {
		for _, conns := range [][]int{{4, 32}, {32, 4}}[n%2] {
			rounds[conns]()
		}
	}
	b.ReportMetric(float64(b.N*writers*batches)/took[4].Seconds(), "ops/s-of-4")
	b.ReportMetric(took[32].Seconds()/took[4].Seconds(), "of-32")
}
