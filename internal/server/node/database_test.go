//go:build unix

// A database that fails, is away, or takes longer than it may.

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// spoiled fails transactions on demand.
type spoiled struct {
	Store
	spoil   atomic.Pointer[func(session.Tx) (session.Tx, error)]
	updates atomic.Int64
}

func (s *spoiled) Update(ctx context.Context, fn func(session.Tx) error) error {
	s.updates.Add(1)
	return s.Store.Update(ctx, func(tx session.Tx) error {
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
				return fmt.Errorf("save: %w", fault.ContextError(context.DeadlineExceeded, nil))
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
			var log lockbuf.Buffer
			r := start(t, st, func(c *Config) { c.Transactions, c.Log = 1, slog.New(slog.NewTextHandler(&log, nil)) })
			p := r.dial()
			var all []*made
			for range 5 {
				all = append(all, r.create(p))
			}
			poison := func(tx session.Tx) (session.Tx, error) { return poisoned{tx, "poison", how}, nil }
			st.spoil.Store(&poison)
			release := holdWriter(t, st.Store)
			var flying []*rpc.Promise
			var batches []*ledger.Batch
			for i, m := range all {
				o := put(i)
				if i == 2 {
					o = op("put", "key", "session", "payload", map[string]string{"x": "poison"})
				}
				batches = append(batches, m.batch(o))
				flying = append(flying, applying(t, m.stream, batches[i]))
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
					if want == fault.Internal {
						_, incident, _ := strings.Cut(ack.refusal.Message, "at incident ")
						line := regexp.MustCompile(`.*"unexpected error".* incident=` + regexp.QuoteMeta(incident) + " .*").FindString(log.String())
						if incident == "" || !strings.Contains(line, "session="+all[2].id+" batch="+batches[2].BatchID) {
							t.Errorf("told %q, logged:\n%s", ack.refusal.Message, log.String())
						}
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

func (s *overdue) Update(ctx context.Context, fn func(session.Tx) error) error {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	return s.Store.Update(ctx, func(tx session.Tx) error { return fn(limited{tx, ctx}) })
}

func (s *overdue) OpenStream(ctx context.Context, o session.StreamRequest) (*ledger.Stream, error) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	return s.Store.OpenStream(ctx, o)
}

func (s *overdue) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	if s.late.CompareAndSwap(true, false) { // the next read is in time
		<-ctx.Done()
	}
	return s.Store.ReadLog(ctx, id, after, maxBytes, maxEvents, refs, hashesAt...)
}

// limited is a transaction within ctx.
type limited struct {
	session.Tx
	ctx context.Context
}

func (l limited) Load(_ context.Context, w *session.ReadSet) (*session.Rows, error) {
	return l.Tx.Load(l.ctx, w)
}

func (l limited) Save(_ context.Context, c *session.Changes) error { return l.Tx.Save(l.ctx, c) }

// holdSession keeps a session's row until release.
func holdSession(t *testing.T, st Store, id string) (release func()) {
	t.Helper()
	return holdTx(t, st, func(tx session.Tx) error {
		_, err := tx.Load(context.Background(), &session.ReadSet{Sessions: []string{id}})
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
	c, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir())})
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

// A standby answers what is read. What is to be written waits for it to be promoted, and
// balancers are told.
func TestPostgresInRecovery(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t)
	url := pg.Database()
	var log lockbuf.Buffer
	r := start(t, postgresStore(t, url), hasty(&log))
	web := httpOf(t, r)
	p := r.dial()
	m := r.create(p)
	pg.Standby()
	b := m.batch(put(1))
	var refusal *fault.Error
	deadline := time.Now().Add(patience)
	for { // the connections that are gone are said first
		refusal = p.apply(m.stream, b).refusal
		if refusal == nil || refusal.Code != fault.Unavailable || strings.Contains(refusal.Message, "standby") || time.Now().After(deadline) {
			break
		}
	}
	if refusal == nil || refusal.Code != fault.Unavailable || !strings.Contains(refusal.Message, "standby") {
		t.Fatalf("a batch: %v", refusal)
	}
	until.True(t, "readyz says so", func() bool { // its last probe may have met the connections
		status, text := get(t, web+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "standby")
	})
	until.True(t, "it stands", func() bool { return r.metric(`mooring_commits_stopped{cause="read_only"}`) == "1" })
	if n := r.metric(`mooring_commit_failures_total{cause="read_only"}`); n == "" || n == "0" {
		t.Errorf("%q failures are counted", n)
	}
	_, err := postgres.Open(within(t), postgres.Config{URL: url, AllowUnsafe: true})
	wantCode(t, "a server that starts now", err, fault.Unavailable)
	pg.Promote()
	if ack := p.must(m.stream, b); ack.applied != 1 {
		t.Errorf("the batch again: %+v", ack)
	}
	until.True(t, "readyz of what was promoted", func() bool {
		status, _ := get(t, web+"/readyz")
		return status == http.StatusOK
	})
	if _, after, ok := strings.Cut(strings.Join(outageLines(log.String()), "\n"), "begins read_only "); !ok || !strings.Contains(after, "ends ") {
		t.Errorf("the log says:\n%s", log.String())
	}
}
