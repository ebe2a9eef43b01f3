package outbox

// Who commits may find itself running the outbox's transaction and sending: it
// must not come to depend on what only it could do, nor wait for others' reads.

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// logFunc is a log handler that calls f with every message.
type logFunc struct {
	slog.Handler
	f func(message string)
}

func (h logFunc) Handle(_ context.Context, r slog.Record) error { h.f(r.Message); return nil }
func (h logFunc) Enabled(context.Context, slog.Level) bool      { return true }

// TestLoggerThatCommits has what the sender logs committed to the outbox itself.
func TestLoggerThatCommits(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		var b *Box
		var session string
		committed := make(chan error, 8)
		cfg := quick()
		cfg.Logger = slog.New(logFunc{slog.DiscardHandler, func(message string) {
			if message == "a stream has stopped until someone decides" {
				_, err := b.Commit(limited(t), Batch{Session: session, Ops: []Op{put("2")}})
				committed <- err
			}
		}})
		b = p.open(t, cfg)
		session = withSession(t, b)
		lost := newSession()
		ref := testRef(t, b, lost, RefMeta{Role: SessionOwner})
		commit(t, b, Batch{Session: lost, Ops: []Op{put("1")}})
		if err := b.DropRef(limited(t), ref.ID, false); err != nil {
			t.Fatal(err)
		}
		run(t, b, newFakeServer())
		select {
		case err := <-committed:
			if err != nil {
				t.Error(err)
			}
		case <-limited(t).Done():
			t.Fatal("the handler's commit never ends")
		}
	})
}

// slowReads is a database whose reads take long when asked to.
type slowReads struct {
	sqlstore.Database
	slow atomic.Bool
}

func (d *slowReads) Read(ctx context.Context, f func(sqlstore.Querier) error) error {
	if d.slow.Load() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
		}
	}
	return d.Database.Read(ctx, f)
}

// TestCommitDoesNotWaitForReads commits while the database writes and does not
// read: nothing that a commit needs is read.
func TestCommitDoesNotWaitForReads(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		db := &slowReads{Database: b.db}
		useDB(b, db)
		session := withSession(t, b)
		stop := run(t, b, newFakeServer())
		defer stop()
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})) // the stream is open
		db.slow.Store(true)
		defer db.slow.Store(false)
		commit(t, b, Batch{Session: session, Ops: []Op{put("2")}})
	})
}

// watched tells when the sender has taken an answer, and calls first before it
// gets the first one.
type watched struct {
	Link
	first func()
	taken chan struct{}
}

type watchedStream struct {
	Stream
	link *watched
}

func (w *watched) OpenStream(ctx context.Context, req StreamRequest) (Stream, error) {
	s, err := w.Link.OpenStream(ctx, req)
	if err != nil {
		return nil, err
	}
	return &watchedStream{s, w}, nil
}

func (s *watchedStream) Apply(b *ledger.Batch, done func(Reply)) {
	s.Stream.Apply(b, func(r Reply) {
		s.link.first()
		done(r)
		s.link.taken <- struct{}{}
	})
}

// TestAnswersAreNotHeldUp gives an answer after which the stream comes to stand
// still, so that refs are looked for, while the database does not read: whoever
// brings the answer, which is a connection's one goroutine, goes on.
func TestAnswersAreNotHeldUp(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		db := &slowReads{Database: b.db}
		useDB(b, db)
		session := withSession(t, b)
		other := testRef(t, b, session, RefMeta{})
		commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		commit(t, b, Batch{Session: session, Via: other.ID, Ops: []Op{put("2")}})
		if err := b.DropRef(limited(t), other.ID, false); err != nil {
			t.Fatal(err)
		}
		link := &watched{Link: newFakeServer(), first: func() { db.slow.Store(true) }, taken: make(chan struct{}, 10)}
		stop := run(t, b, link)
		defer stop()
		defer db.slow.Store(false)
		select {
		case <-link.taken:
		case <-limited(t).Done():
			t.Fatal("the answer is not taken")
		}
	})
}
