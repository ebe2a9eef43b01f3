package outbox

// A process that has lost the lease and does not know it yet: what it may still write, and what it must not say.

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// haltedDB writes nothing while it is halted, as in a process that was stopped.
type haltedDB struct {
	sqlstore.Database
	mu   sync.Mutex
	goOn chan struct{} // not nil while it is halted
}

func (d *haltedDB) halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.goOn = make(chan struct{})
}

func (d *haltedDB) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.goOn)
	d.goOn = nil
}

func (d *haltedDB) Write(ctx context.Context, f func(sqlstore.Querier) error) (bool, error) {
	d.mu.Lock()
	goOn := d.goOn
	d.mu.Unlock()
	if goOn != nil {
		<-goOn
	}
	return d.Database.Write(ctx, f)
}

// TestFormerHolderStopsNoStream has a holder be stopped when it was about to write that a stream stands still. When it
// goes on another sends, and that stream runs.
func TestFormerHolderStopsNoStream(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Poll = time.Hour
		cfg.Lease = 300 * time.Millisecond
		refused := make(chan struct{}, 1)
		cfg.Logger = slog.New(logFunc{slog.DiscardHandler, func(message string) {
			if message == "a stream has stopped until someone decides" {
				refused <- struct{}{}
			}
		}})
		one, two, three := p.open(t, cfg), p.open(t, quick()), p.open(t, quick())
		for _, b := range []*Box{one, two} {
			if db, ok := b.db.(*sqlite.DB); ok {
				db.LivenessPath = t.TempDir() // no file: leases alone decide
			}
		}
		db := &haltedDB{Database: one.db}
		useDB(one, db)
		session := withSession(t, one)
		srv, other := newFakeServer(), newFakeServer()
		srv.before = func(*ledger.Batch) (error, bool) { db.halt(); return fault.OutboxDiverged.With("on request"), false }
		x := commit(t, one, Batch{Session: session, Ops: []Op{put("1")}})
		run(t, one, srv)
		<-refused
		done := make(chan struct{})
		one.sender.Post(func(*machine.Machine, time.Time) { close(done) })
		<-done // the loop has done what it had to
		other.hold.Lock()
		release := sync.OnceFunc(other.hold.Unlock)
		defer release()
		run(t, two, other)
		eventually(t, "the other sends", func() bool { return len(other.log(session)) == 1 })
		db.resume()
		if err := one.w.Do(limited(t), func(context.Context, sqlstore.Querier) error { return nil }); err != nil { // takes along what waits
			t.Fatal(err)
		}
		if _, finished, err := three.outcomes(limited(t), x.Batch); finished || err != nil {
			t.Errorf("its sender waits for an answer, and who waits for the batch is told %t, %v", finished, err)
		}
		rows, err := three.List(limited(t), Filter{Batch: x.Batch})
		if err != nil || rows[0].LastError != "" {
			t.Errorf("%+v, %v", rows, err)
		}
		release()
		wait(t, three, x)
	})
}

// lateLink is a server that hears of nothing before the gate is open.
type lateLink struct {
	*fakeServer
	gate chan struct{}
}

func (l lateLink) OpenStream(ctx context.Context, req StreamRequest) (Stream, error) {
	s := &lateStream{calls: make(chan func(Stream), 10), end: make(chan struct{})}
	go func() {
		select {
		case <-l.gate:
		case <-s.end:
			return
		}
		inner, err := l.fakeServer.OpenStream(context.WithoutCancel(ctx), req)
		if err != nil {
			panic(err)
		}
		defer inner.Close()
		for {
			select {
			case call := <-s.calls:
				call(inner)
			case <-s.end:
				return
			}
		}
	}()
	return s, nil
}

type lateStream struct {
	calls chan func(Stream)
	end   chan struct{}
}

func (s *lateStream) Apply(b *ledger.Batch, done func(Reply)) {
	s.calls <- func(inner Stream) { inner.Apply(b, done) }
}
func (s *lateStream) Acknowledge(through uint64) {
	s.calls <- func(inner Stream) { inner.Acknowledge(through) }
}
func (s *lateStream) Opened(context.Context) (uint64, error) { return 0, nil }
func (s *lateStream) Done() <-chan struct{}                  { return nil }
func (s *lateStream) Close()                                 { close(s.end) }

// TestFormerHolderAcknowledgesNothing has a holder that does not know that it is one no more store an outcome. A batch that
// the new one has given its seqs refers to it still, and the server has not heard of the new one: so it must not forget it.
func TestFormerHolderAcknowledgesNothing(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Poll, cfg.Lease = time.Hour, time.Hour
		one, two := p.open(t, cfg), p.open(t, cfg)
		for _, b := range []*Box{one, two} {
			if db, ok := b.db.(*sqlite.DB); ok {
				db.LivenessPath = t.TempDir() // no file: leases alone decide
			}
		}
		session := withSession(t, one)
		srv := newFakeServer()
		srv.hold.Lock()
		release := sync.OnceFunc(srv.hold.Unlock)
		defer release()
		run(t, one, srv)
		x := commit(t, one, Batch{Session: session, Ops: []Op{put("1")}})
		eventually(t, "it is with the server", func() bool { return len(srv.log(session)) == 1 })
		lapse(t, two)
		late := lateLink{srv, make(chan struct{})}
		run(t, two, late)
		eventually(t, "the other sends", func() bool { return two.w.Seqs.IsLeading() })
		y := commit(t, two, Batch{Session: session, Ops: []Op{{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: x.Ops[0], Path: "cursor"}}}}}})
		eventually(t, "what refers to it has its seq", func() bool {
			rows, err := two.List(limited(t), Filter{Batch: y.Batch})
			return err == nil && rows[0].Seq == 2
		})
		release()
		eventually(t, "its outcome is stored, unless the former holder has noticed", func() bool {
			_, finished, err := two.outcomes(limited(t), x.Batch)
			return finished && err == nil || !one.w.Seqs.IsLeading()
		})
		eventually(t, "the former holder has noticed, or told the server", func() bool {
			return !one.w.Seqs.IsLeading() || srv.ackedThrough(session, one.id) > 0
		})
		close(late.gate)
		if o := wait(t, two, y)[0]; o.Status != ledger.Applied {
			t.Errorf("what refers to it: %+v", o)
		}
	})
}

// TestTransactionsFindTheHolder: one that needs to know is told whether the lease is its Box's, with a commit in it or without.
func TestTransactionsFindTheHolder(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		one, two := p.open(t, quick()), p.open(t, quick())
		session := withSession(t, one)
		run(t, two, newFakeServer())
		eventually(t, "the second one has the lease", func() bool { return two.w.Seqs.IsLeading() })
		for _, b := range []*Box{one, two} {
			for _, committing := range []bool{false, true, false} {
				var held *bool
				err := b.w.Do(limited(t), func(_ context.Context, q sqlstore.Querier) error {
					held = b.w.ShareLease(q, false)
					if committing {
						row := &sqlstore.BatchRow{ID: ulid.Make().String(), Session: session, Ops: 1, Body: []byte("{}")}
						b.t.InsertBatch(q, row, 0, b.w.ShareLease(q, true), func(int64, bool) {})
					}
					return nil
				})
				if err != nil || *held != (b == two) {
					t.Errorf("held by the second: %v; committing: %v: %v, %v", b == two, committing, *held, err)
				}
			}
		}
	})
}
