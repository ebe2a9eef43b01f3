package outbox

// Commits whose end is not known: the connection breaks between COMMIT and its
// answer.

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// ambiguousDB loses the answer to the transaction that writes a batch.
type ambiguousDB struct {
	sqlstore.Database
	t     sqlstore.Tables
	batch atomic.Pointer[string] // whose transaction; nil for none
	after func()                 // called before the failure is told
	undo  bool                   // it was rolled back after all
}

func makeAmbiguous(b *Box) *ambiguousDB {
	u := &ambiguousDB{Database: b.db, t: b.t}
	useDB(b, u)
	return u
}

func (u *ambiguousDB) Write(ctx context.Context, f func(sqlstore.Querier) error) (bool, error) {
	id := u.batch.Load()
	mine := false
	ambiguous, err := u.Database.Write(ctx, func(q sqlstore.Querier) error {
		if err := f(q); err != nil || id == nil {
			return err
		}
		row, err := u.t.Batch(ctx, q, *id, "")
		if mine = row != nil; mine && u.undo {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if mine && (err == nil || u.undo) {
		u.batch.Store(nil)
		u.after()
		return true, io.ErrUnexpectedEOF
	}
	return ambiguous, err
}

func TestCommitOfUnknownEnd(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		u := makeAmbiguous(b)
		srv := newFakeServer()
		ctx := limited(t)
		session := withSession(t, b)
		run(t, b, srv)
		tickets := []Ticket{commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})}
		wait(t, b, tickets[0]) // the stream is open

		// The loop is busy elsewhere, so that all depends on the worker, which
		// has another batch to commit at once.
		busy := make(chan struct{})
		free := sync.OnceFunc(func() { close(busy) })
		t.Cleanup(free)
		begun := make(chan struct{})
		b.sender.Post(func(*machine.Machine, time.Time) { close(begun); <-busy })
		<-begun
		next := make(chan Ticket, 1)
		u.after = func() {
			go func() {
				ticket, err := b.Commit(ctx, Batch{Session: session, Ops: []Op{put("3")}})
				if err != nil {
					t.Errorf("commit: %v", err)
				}
				next <- ticket
			}()
			eventually(t, "it is queued", func() bool {
				return b.w.Pending() > 0
			})
		}
		id := opid.NewBatch()
		u.batch.Store(&id)
		tickets = append(tickets, commit(t, b, Batch{ID: id, Session: session, Ops: []Op{put("2")}}), <-next)
		free()
		for _, ticket := range tickets {
			wait(t, b, ticket)
		}
		checkLog(t, srv.log(session), tickets)
		rows, err := b.List(ctx, Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			if r.Seq != uint64(i+1) {
				t.Errorf("row %d has seq %d", i, r.Seq)
			}
		}

		// If it is not there, the error says so, and under which id to ask again.
		u.after, u.undo = func() {}, true
		id = opid.NewBatch()
		u.batch.Store(&id)
		batch := Batch{ID: id, Session: session, Ops: []Op{put("4")}}
		if _, err := b.Commit(ctx, batch); !errors.Is(err, fault.Unavailable) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("rolled back: %v", err)
		}
		wait(t, b, commit(t, b, batch))
	})
}
