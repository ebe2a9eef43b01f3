//go:build unix

// The server as a process sees it: starting, stopping, the HTTP side, and a
// database that fails.

package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
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

func (s *opening) OpenStream(ctx context.Context, key session.StreamKey, hash [32]byte, incarnation uint64) (*ledger.Stream, error) {
	s.begun <- struct{}{}
	return s.Store.OpenStream(ctx, key, hash, incarnation)
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
	p.t.Cleanup(p.subscribing(p.restore(m.owner), k, 0, windowMin, true).Release)
	k.until(p.t, "a piece", func() bool { return len(k.pieces) > 0 })
	return k
}

// untilQueued waits until the committers have got n submissions, in a
// transaction or before it.
func untilQueued(t *testing.T, s *Server, n int) {
	t.Helper()
	untilSubmitted(t, s, n, func(c *committer) int {
		have := c.running
		for _, l := range c.lines {
			have += len(l.works)
		}
		return have
	})
}

// untilBegun waits until n submissions are in transactions.
func untilBegun(t *testing.T, s *Server, n int) {
	t.Helper()
	untilSubmitted(t, s, n, func(c *committer) int { return c.running })
}

// untilRest waits until nothing is in a transaction, as what has just been answered may
// be still.
func untilRest(t *testing.T, s *Server) {
	t.Helper()
	until.True(t, "the committers rest", func() bool {
		s.commit.mu.Lock()
		defer s.commit.mu.Unlock()
		return s.commit.running == 0
	})
}

func untilSubmitted(t *testing.T, s *Server, n int, count func(*committer) int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.commit.mu.Lock()
		have := count(s.commit)
		s.commit.mu.Unlock()
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

// spoiled fails transactions on demand.
type spoiled struct {
	Store
	spoil   atomic.Pointer[func(session.Tx) (session.Tx, error)]
	updates atomic.Int64
}

func (s *spoiled) Update(ctx context.Context, fn func(session.Tx) error) error {
	return s.update(ctx, s.Store.Update, fn)
}

func (s *spoiled) Guess(ctx context.Context, fn func(session.Tx) error) error {
	return s.update(ctx, s.Store.Guess, fn)
}

func (s *spoiled) update(ctx context.Context, do func(context.Context, func(session.Tx) error) error, fn func(session.Tx) error) error {
	s.updates.Add(1)
	return do(ctx, func(tx session.Tx) error {
		if spoil := s.spoil.Load(); spoil != nil {
			var err error
			if tx, err = (*spoil)(tx); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}

// poisoned fails when it is to save an event with a certain text.
type poisoned struct {
	session.Tx
	text string
	how  string
}

func (p poisoned) Save(ctx context.Context, c *session.Changes) error {
	for _, e := range c.Events {
		if strings.Contains(string(e.Payload), p.text) {
			switch p.how {
			case "panics":
				panic("poisoned")
			case "takes too long": // as the stores say it
				return fmt.Errorf("save: %w", fault.GivenUp(context.DeadlineExceeded, nil))
			}
			return errors.New("a statement failed that never does")
		}
	}
	return p.Tx.Save(ctx, c)
}

func TestFailingGroupIsTriedOneByOne(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]fault.Code{"fails": fault.Internal, "panics": fault.Internal, "takes too long": fault.Unavailable} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			st := &spoiled{Store: sqliteStore(t)}
			r := start(t, st, func(c *Config) { c.Transactions = 1 })
			p := r.dial()
			var all []*made
			for range 5 {
				all = append(all, r.create(p))
			}
			poison := func(tx session.Tx) (session.Tx, error) { return poisoned{tx, "poison", how}, nil }
			st.spoil.Store(&poison)
			release := holdWriter(t, st.Store)
			var flying []*rpc.Promise
			for i, m := range all {
				o := put(i)
				if i == 2 {
					o = op("put", "key", "session", "payload", map[string]string{"x": "poison"})
				}
				flying = append(flying, applying(t, m.stream, m.batch(o)))
			}
			untilQueued(t, r.server, len(all))
			release()
			for i, f := range flying {
				ack := readReply(t, f)
				if i == 2 {
					wantRefusal(t, "the one that fails", ack, want, 0)
					if strings.Contains(ack.refusal.Message, "statement") || strings.Contains(ack.refusal.Message, "poison") {
						t.Errorf("the refusal tells of our insides: %v", ack.refusal)
					}
				} else if ack.refusal != nil || ack.applied != 1 {
					t.Errorf("batch %d: %+v", i, ack)
				}
			}
			st.spoil.Store(nil)
			all[2].box.seq--
			if ack := p.must(all[2].stream, all[2].batch(put(9))); ack.applied != 1 {
				t.Errorf("its stream goes on: %+v", ack)
			}
		})
	}
}

func TestDatabaseAwayIsSaidAndSurvived(t *testing.T) {
	t.Parallel()
	st := &spoiled{Store: sqliteStore(t)}
	r := start(t, st, nil)
	p := r.dial()
	m := r.create(p)
	away := func(session.Tx) (session.Tx, error) {
		return nil, fault.Unavailable.With("the database does not answer")
	}
	st.spoil.Store(&away)
	before := st.updates.Load()
	b := m.batch(put(1))
	wantRefusal(t, "while it is away", p.apply(m.stream, b), fault.Unavailable, 0)
	if n := st.updates.Load() - before; n != 1 {
		t.Errorf("%d transactions were tried", n)
	}
	st.spoil.Store(nil)
	if ack := p.must(m.stream, b); ack.applied != 1 {
		t.Errorf("when it is back: %+v", ack)
	}
}

// overdue is a database that takes longer than it may, once late is set.
type overdue struct {
	Store
	late atomic.Bool
}

// limit is for as long as no held lock ever takes.
func (s *overdue) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if !s.late.Load() {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, 20*time.Millisecond)
}

func (s *overdue) Guess(ctx context.Context, fn func(session.Tx) error) error {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	return s.Store.Guess(ctx, func(tx session.Tx) error { return fn(limited{tx, ctx}) })
}

func (s *overdue) OpenStream(ctx context.Context, key session.StreamKey, hash [32]byte, incarnation uint64) (*ledger.Stream, error) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	return s.Store.OpenStream(ctx, key, hash, incarnation)
}

func (s *overdue) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string) (*session.Page, error) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	if s.late.CompareAndSwap(true, false) { // the next read is in time
		<-ctx.Done()
	}
	return s.Store.ReadLog(ctx, id, after, maxBytes, maxEvents, refs)
}

// limited is a transaction within ctx.
type limited struct {
	session.Tx
	ctx context.Context
}

func (l limited) Load(_ context.Context, w *session.Want) (*session.Rows, error) {
	return l.Tx.Load(l.ctx, w)
}

func (l limited) Save(_ context.Context, c *session.Changes) error { return l.Tx.Save(l.ctx, c) }

// holdSession keeps a session's row until release.
func holdSession(t *testing.T, st Store, id string) (release func()) {
	t.Helper()
	return holdTx(t, st, func(tx session.Tx) error {
		_, err := tx.Load(context.Background(), &session.Want{Sessions: []string{id}})
		return err
	})
}

// Nobody has given up but us: the same may be asked for again.
func TestDatabaseThatTakesTooLongIsUnavailable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		slow := &overdue{Store: st}
		r := start(t, slow, nil)
		p := r.dial()
		m := r.create(p)
		release := holdSession(t, st, m.id)
		slow.late.Store(true)
		b := m.batch(put(1))
		wantRefusal(t, "a batch", p.apply(m.stream, b), fault.Unavailable, 0)
		_, _, err := p.opening(m.sess, newBox()).Wait(within(t))
		if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != fault.Unavailable {
			t.Errorf("a stream: %v", err)
		}
		slow.late.Store(false)
		release()
		if ack := p.must(m.stream, b); ack.applied != 1 {
			t.Errorf("the batch again: %+v", ack)
		}
	})
}

// A client goes on following whatever passes by itself.
func TestSlowReadEndsNoClientsSubscription(t *testing.T) {
	t.Parallel()
	slow := &overdue{Store: sqliteStore(t)}
	r := start(t, slow, nil)
	m := r.create(r.dial())
	ref := m.owner
	ref.Hosts = []string{strings.TrimPrefix(httpOf(t, r), "http://")}
	c, err := client.Open(t.Context(), client.Config{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(within(t), ref)
	if err != nil {
		t.Fatal(err)
	}
	slow.late.Store(true)
	var trouble error
	for e, err := range s.Follow(within(t), client.SubscribeOptions{Trouble: func(err error) { trouble = err }}) {
		if err != nil || e.Cursor != 1 {
			t.Errorf("event %d, %v", e.Cursor, err)
		}
		break
	}
	wantCode(t, "the trouble on the way", trouble, fault.Unavailable)
}

func TestPostgresKilledAndBack(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t)
	r := start(t, postgresStore(t, pg.Database()), func(c *Config) { c.PollInterval = 50 * time.Millisecond })
	web := httpOf(t, r)
	p := r.dial()
	m := r.create(p)
	k := newRecorder()
	defer p.subscribe(m.sess, k, 0).Release()
	k.untilCursor(t, 1)
	pg.Kill()
	b := m.batch(put(1))
	wantRefusal(t, "while it is away", p.apply(m.stream, b), fault.Unavailable, 0)
	if status, _ := get(t, web+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("readyz says %d while the database is away", status)
	}
	if status, _ := get(t, web+"/healthz"); status != http.StatusOK {
		t.Errorf("healthz says %d while the database is away", status)
	}
	pg.Start()
	deadline := time.Now().Add(patience)
	for {
		ack := p.apply(m.stream, b)
		if ack.refusal == nil {
			break
		}
		if ack.refusal.Code != fault.Unavailable || time.Now().After(deadline) {
			t.Fatalf("when it is back: %v", ack.refusal)
		}
	}
	k.untilCursor(t, 2)
	k.consecutive(t, 0)
}

func TestBootstrapKeepsTheOwner(t *testing.T) {
	t.Parallel()
	st, dir := sqliteStore(t), t.TempDir()
	here := capability.Ref{Hosts: []string{"127.0.0.1:7600"}}
	path := filepath.Join(dir, OwnerFile)
	first, err := Bootstrap(t.Context(), st, dir, here, true)
	if err != nil || !first.Created || first.Path != path {
		t.Fatalf("the first start: %+v, %v", first, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v, %v", info.Mode(), err)
	}
	before, _ := os.ReadFile(path)
	again, err := Bootstrap(t.Context(), st, dir, here, true)
	after, _ := os.ReadFile(path)
	if err != nil || again.Created || again.Space != first.Space || string(before) != string(after) {
		t.Fatalf("the second start: %+v, %v", again, err)
	}
	moved := capability.Ref{TLS: true, Hosts: []string{"a.example:7600", "b.example:7600"}, Prefix: "p"}
	if _, err = Bootstrap(t.Context(), st, dir, moved, true); err != nil {
		t.Fatal(err)
	}
	ref, err := readOwner(path)
	if err != nil || ref.Address() != "moorings://a.example,b.example/p" || !strings.HasSuffix(string(before), ref.Secret.RevealText()+"\n") {
		t.Errorf("after a move: %v, %v", ref, err)
	}

	elsewhere, err := Bootstrap(t.Context(), st, t.TempDir(), here, true)
	if err != nil || elsewhere.Created || elsewhere.Path != "" || elsewhere.Space != first.Space {
		t.Errorf("with another folder: %+v, %v", elsewhere, err)
	}
	strange, err := Bootstrap(t.Context(), sqliteStore(t), dir, here, true)
	if err != nil || !strange.Created || strange.Space != first.Space {
		t.Errorf("with a new database the folder's owner is its owner: %+v, %v", strange, err)
	}
	other, otherDir := sqliteStore(t), t.TempDir()
	if _, err := Bootstrap(t.Context(), other, otherDir, here, true); err != nil {
		t.Fatal(err)
	}
	if o, err := Bootstrap(t.Context(), other, dir, here, true); err != nil || !o.Strange {
		t.Errorf("with a folder of another database: %+v, %v", o, err)
	}
	if err := os.WriteFile(path, []byte("mooring://h/spc_1#secret-text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Bootstrap(t.Context(), st, dir, here, true)
	wantCode(t, "a damaged file", err, fault.BadRefText)
	if strings.Contains(err.Error(), "secret-text") {
		t.Errorf("the error repeats the file: %v", err)
	}
}

func TestTwoServersStartAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	here := capability.Ref{Hosts: []string{"127.0.0.1:7600"}}
	shared := t.TempDir()
	dirs := []string{shared, shared, t.TempDir(), t.TempDir()}
	owners := make([]*Owner, len(dirs))
	var wg sync.WaitGroup
	for i, dir := range dirs {
		st := postgresStore(t, url)
		wg.Go(func() {
			var err error
			if owners[i], err = Bootstrap(t.Context(), st, dir, here, false); err != nil {
				t.Errorf("server %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	created := 0
	for i, o := range owners {
		if o.Created {
			created++
		}
		if o.Space != owners[0].Space {
			t.Errorf("server %d has space %s, server 0 has %s", i, o.Space, owners[0].Space)
		}
		_, err := os.Stat(filepath.Join(dirs[i], OwnerFile))
		if (o.Path == "") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("server %d: path %q, but the file: %v", i, o.Path, err)
		}
	}
	if created != 1 {
		t.Errorf("%d servers made the space", created)
	}
}

func TestAuditHasDenialsAndCountsOfStrangers(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, oneWindow)
	p := r.dial()
	m := r.create(p)
	forged := m.owner.With(m.owner.ID, capability.NewSecret())
	for range 7 {
		wantCode(t, "a stranger", p.restoreErr(forged, ""), fault.UnknownRef)
	}
	blind := p.share(m, "rights", []string{"append"}, "actor", "owner/blind")
	_, _, err := call(t, p.restore(blind), sessionEvents, words(2, 0), nil)
	wantCode(t, "a denial", err, fault.MissingRight)
	r.stop()
	page, err := st.ReadAudit(t.Context(), m.id, 0, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[capability.AuditAct]*capability.AuditRow{}
	for _, row := range page.Rows {
		found[row.Act] = row
	}
	if s := found[capability.AuditStranger]; s == nil || s.Count != 7 || s.Reason != fault.UnknownRef {
		t.Errorf("strangers: %+v", s)
	}
	if d := found[capability.AuditDenial]; d == nil || d.Ref != blind.ID || d.Reason != fault.MissingRight || d.Actor != "owner/blind" || d.Subject != "events" {
		t.Errorf("the denial: %+v", d)
	}
	if found[capability.AuditRedeem] == nil || found[capability.AuditShare] == nil {
		t.Errorf("no redeem or share among %d rows", len(page.Rows))
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
