//go:build unix

// Stopping: what runs is finished, what waits is not begun, and nobody holds it up.

package node

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestDrainFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, nil)
	p, idle := r.dial(), r.dial()
	m := r.create(p)
	k := newRecorder()
	sub := p.subscribe(m.sess, k, 0)
	defer sub.Release()
	k.untilCursor(t, 1)
	if err := idle.restoreErr(m.owner, "x"); err != nil {
		t.Fatal(err)
	}

	untilRest(t, r.server)
	release := holdWriter(t, st)
	running := applying(t, m.stream, m.batch(put(1)))
	queued := applying(t, m.stream, m.batch(put(2)))
	untilQueued(t, r.server, 2)
	stopped := r.stopping()
	k.untilDraining(t)
	<-idle.conn.Done() // has nothing running
	near, far := rpc.Pipe()
	wantCode(t, "a new connection", r.server.ServeConn(far), fault.Draining)
	_ = near.Close(1000, "")
	release()
	for i, f := range []*rpc.Promise{running, queued} {
		if ack := readReply(t, f); ack.refusal != nil || ack.applied != 1 {
			t.Errorf("batch %d, which was there before the end: %+v", i, ack)
		}
	}
	<-stopped
	if at := rowOf(t, st, m.id).Cursor; at != 3 {
		t.Errorf("the session is at %d", at)
	}
}

// Who takes nothing of a snapshot keeps nobody else from being told of the end, and
// answered.
func TestSlowSnapshotDelaysNoDraining(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, func(c *Config) { c.DrainTimeout = time.Hour })
	p, idle, slow := r.dial(), r.dial(), r.dial()
	m := r.create(p)
	k := stalledSnapshot(slow, m)
	if err := idle.restoreErr(m.owner, "x"); err != nil {
		t.Fatal(err)
	}
	untilRest(t, r.server)
	release := holdWriter(t, st)
	running := applying(t, m.stream, m.batch(put(1)))
	untilQueued(t, r.server, 1)
	stopped := r.stopping()
	k.untilDraining(t)
	<-idle.conn.Done() // has nothing running
	release()
	if ack := readReply(t, running); ack.refusal != nil || ack.applied != 1 {
		t.Errorf("a batch that was there before the end: %+v", ack)
	}
	<-stopped
}

// opening is a store that says when a stream is being opened.
type opening struct {
	Store
	begun chan struct{}
}

func (s *opening) OpenStream(ctx context.Context, o session.StreamRequest) (*ledger.Stream, error) {
	s.begun <- struct{}{}
	return s.Store.OpenStream(ctx, o)
}

// Stopping takes no longer than it may, whatever the database does: calls that are
// finished when their connections have gone, batches, and the audit.
func TestStoppingTakesNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		opens := &opening{Store: st, begun: make(chan struct{}, 2)}
		r := start(t, opens, func(c *Config) { c.DrainTimeout, c.CommitTimeout = 200*time.Millisecond, time.Hour })
		p := r.dial()
		m := r.create(p)
		<-opens.begun
		release := holdSession(t, st, m.id)
		p.opening(m.sess, newBox())
		<-opens.begun
		applying(t, m.stream, m.batch(put(1)))
		untilBegun(t, r.server, 1)
		r.stop() // or it says that the server does not end
		release()
	})
}

// stalledSnapshot is a subscriber who takes nothing of m's state, of which a piece is
// on its way.
func stalledSnapshot(p *peer, m *made) *recorder {
	filler := strings.Repeat("x", 4<<10)
	for n := range 8 {
		p.must(m.stream, m.batch(op("put", "key", fmt.Sprintf("message/large_%d", n), "payload", map[string]string{"x": filler})))
	}
	k := newRecorder()
	k.hold = true
	p.t.Cleanup(p.subscribing(p.restore(m.owner), k, 0, fanout.MinWindow, true).Release)
	k.until(p.t, "a piece", func() bool { return len(k.pieces) > 0 })
	return k
}

// untilQueued waits until the committers have got n submissions, in a transaction or
// not.
func untilQueued(t *testing.T, s *Server, n int) {
	t.Helper()
	untilSubmitted(t, s, n, func(c commit.Stats) int { return c.InFlight + c.Pending })
}

// untilBegun waits until n submissions are in transactions.
func untilBegun(t *testing.T, s *Server, n int) {
	t.Helper()
	untilSubmitted(t, s, n, func(c commit.Stats) int { return c.InFlight })
}

// untilRest waits until nothing is in a transaction, as what has just been answered may
// be still.
func untilRest(t *testing.T, s *Server) {
	t.Helper()
	until.True(t, "the committers rest", func() bool { return s.committer.Stats().InFlight == 0 })
}

func untilSubmitted(t *testing.T, s *Server, n int, count func(commit.Stats) int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		have := count(s.committer.Stats())
		if have >= n {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d submissions, want %d", have, n)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestDeadCallersWorkIsDropped(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, nil)
	p, gone := r.dial(), r.dial()
	m := r.create(p)
	b := newBox()
	stream := gone.open(gone.restore(m.owner), b)
	gone.must(stream, b.batch(m.id, put(0)))
	untilRest(t, r.server)
	release := holdWriter(t, st)
	applying(t, m.stream, m.batch(put(1))) // occupies a committer
	untilBegun(t, r.server, 1)
	var waiting []*ledger.Batch
	for n := range 5 {
		waiting = append(waiting, b.batch(m.id, put(n+10)))
		applying(t, stream, waiting[n])
	}
	untilQueued(t, r.server, 6)
	gone.leave()
	<-gone.conn.Done()
	deadline := time.Now().Add(patience)
	for r.connections() > 1 {
		if time.Now().After(deadline) {
			t.Fatal("the connection is still there")
		}
		runtime.Gosched()
	}
	release()
	p.must(m.stream, m.batch(put(2)))
	if at := rowOf(t, st, m.id).Cursor; at != 4 {
		t.Errorf("the session is at %d: work of a dead connection was done that had not begun", at)
	}
	// Nothing is lost: it comes again.
	back := r.dial()
	stream = back.open(back.restore(m.owner), b)
	for _, w := range waiting {
		if ack := back.must(stream, w); ack.applied != 1 {
			t.Errorf("again: %+v", ack)
		}
	}
}

func (r *rig) connections() int { return r.server.connections.Count() }
