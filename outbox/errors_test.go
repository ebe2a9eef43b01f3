package outbox

// Which errors verbs give, with the connection to the database cut at each statement.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// cutter ends one connection at one of the messages that are sent over all of them, once they
// are made.
type cutter struct {
	mu    sync.Mutex
	sent  int  // messages
	at    int  // which is the last; 0 for none
	after bool // it arrives, and its answer does not
	hits  int
}

type cutConn struct {
	net.Conn
	of *cutter

	ready, cut bool // guarded by of.mu
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &cutConn{Conn: conn, of: c}, err
}

// set has the connection be cut at the so manieth message from now on.
func (c *cutter) set(at int, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.at, c.after, c.hits = 0, at, after, 0
}

func (c *cutter) hit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits > 0
}

func (c *cutConn) Write(p []byte) (int, error) {
	c.of.mu.Lock()
	if c.ready {
		c.of.sent++
	}
	now, after := c.ready && c.of.sent == c.of.at, c.of.after
	if now {
		c.of.hits++
		c.cut = true
	}
	c.of.mu.Unlock()
	if now && !after {
		_ = c.Conn.Close()
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.of.mu.Lock()
	cut := c.cut
	c.of.mu.Unlock()
	if cut {
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// over is a pool whose connections go over a cutter.
func (c *cutter) over(t *testing.T, at string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DialFunc = c.dial
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		conn.PgConn().Conn().(*cutConn).ready = true
		return nil
	}
	cfg.MaxConns = 3
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// verbsOf are all verbs of a Box that give an error, but for those that end by themselves.
func verbsOf(b *Box, pool *pgxpool.Pool, session string, kept capability.Ref, x Ticket) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Commit": func(ctx context.Context) error {
			_, err := b.Commit(ctx, Batch{Session: session, Ops: []Op{depends(x)}})
			return err
		},
		"CommitTx": func(ctx context.Context) error {
			tx, err := pool.Begin(context.Background())
			if err != nil {
				return nil // the caller's own
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = b.CommitTx(ctx, tx, Batch{Session: session, Ops: []Op{depends(x)}})
			return err
		},
		"Status":   func(ctx context.Context) error { _, err := b.Status(ctx); return err },
		"Queue":    func(ctx context.Context) error { _, err := b.Queue(ctx); return err },
		"List":     func(ctx context.Context) error { _, err := b.List(ctx, Filter{}); return err },
		"Retry":    func(ctx context.Context) error { _, err := b.Retry(ctx, x.Ops[0]); return err },
		"Drop":     func(ctx context.Context) error { return b.Drop(ctx, x.Ops[0]) },
		"Stopped":  func(ctx context.Context) error { _, err := b.Stopped(ctx, session); return err },
		"Sessions": func(ctx context.Context) error { _, err := b.Sessions(ctx); return err },
		"Abandon":  func(ctx context.Context) error { _, err := b.Abandon(ctx, newSession()); return err },
		"NewLog":   func(ctx context.Context) error { _, err := b.newLog(ctx, session); return err },
		"Fence":    func(ctx context.Context) error { return b.fence(ctx, newFakeServer(), &sessionLog{}, session, false) },
		"PlanReconcile": func(ctx context.Context) error {
			_, err := b.planReconcile(ctx, session, &sessionLog{}, ReconcileOptions{})
			return err
		},
		"Reconcile": func(ctx context.Context) error {
			_, err := b.reconcile(ctx, session, &sessionLog{}, ReconcileOptions{})
			return err
		},
		"PutRef": func(ctx context.Context) error {
			return b.PutRef(ctx, testAddress.New(newSession()), RefMeta{Role: Shared})
		},
		"RefAnswered": func(ctx context.Context) error { return b.confirmRef(ctx, kept, RefStatus{}, "") },
		"DropRef":     func(ctx context.Context) error { return b.DropRef(ctx, "ref_none", false) },
		"Refs":        func(ctx context.Context) error { b.refs.Cache = refs.Cache{}; _, err := b.Refs(ctx); return err },
		"Ref": func(ctx context.Context) error {
			b.refs.Cache = refs.Cache{}
			_, err := b.Ref(ctx, kept.ID)
			return err
		},
		"RefFor": func(ctx context.Context) error {
			b.refs.Cache = refs.Cache{}
			_, err := b.RefFor(ctx, session, 0)
			return err
		},
		"BeginRotation": func(ctx context.Context) error {
			_, err := b.beginRotation(ctx, kept.ID, testAddress.New(session))
			return err
		},
		"FinishRotation":  func(ctx context.Context) error { return b.finishRotation(ctx, "ref_none") },
		"AbandonRotation": func(ctx context.Context) error { return b.abandonRotation(ctx, "ref_none") },
		"Rotations":       func(ctx context.Context) error { _, err := b.Rotations(ctx); return err },
		"NewPostgres": func(ctx context.Context) error {
			other, err := newPostgres(ctx, pool, newSession(), quick())
			if err == nil {
				return other.Close()
			}
			return err
		},
	}
}

// elsewhere are the verbs that other tests here are about.
// Rotate's parts are here.
var elsewhere = []string{"Wait", "Drain", "Run", "Close", "Rotate"}

// TestErrorsOfVerbs: whatever a verb was doing when its connection was cut, its error has a
// code, and that says that the database is away.
func TestErrorsOfVerbs(t *testing.T) {
	t.Parallel()
	var cut cutter
	pool := cut.over(t, shared.get(t))
	b, err := newPostgres(limited(t), pool, newSession(), quick())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	session := newSession()
	kept := testRef(t, b, session, RefMeta{Role: SessionOwner})
	x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
	verbs := verbsOf(b, pool, session, kept, x)
	for i, failure := 0, reflect.TypeFor[error](); i < reflect.TypeOf(b).NumMethod(); i++ {
		m := reflect.TypeOf(b).Method(i)
		if n := m.Type.NumOut(); n > 0 && m.Type.Out(n-1) == failure && verbs[m.Name] == nil && !slices.Contains(elsewhere, m.Name) {
			t.Errorf("%s is not tried", m.Name)
		}
	}
	for name, verb := range verbs {
		for _, after := range []bool{false, true} {
			met := 0
			for at := 1; at <= seed.Cases(6); at++ { // to open one takes more, all of the same kind
				cut.set(at, after)
				err := verb(limited(t))
				if err != nil {
					checkCode(t, fmt.Sprintf("%s, cut at %d (%t)", name, at, after), err)
				}
				if !cut.hit() {
					break
				}
				met++
			}
			if met == 0 {
				t.Errorf("%s sends nothing", name)
			}
		}
	}
}

// checkCode fails the test unless an error is the cut's, or the verb's own.
func checkCode(t *testing.T, what string, err error) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code == fault.Internal {
		t.Errorf("%s: %v", what, err)
	}
}

// TestWaitGoesOnOverARestart cuts the connection of those who wait at each statement: they are
// told all the same.
func TestWaitGoesOnOverARestart(t *testing.T) {
	t.Parallel()
	var cut cutter
	name := newSession()
	b, err := newPostgres(limited(t), cut.over(t, shared.get(t)), name, quick())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	p := place{"postgres", shared.get(t), name}
	sender := p.open(t, quick())
	session := withSession(t, sender)
	srv := newFakeServer()
	run(t, sender, srv)
	for _, after := range []bool{false, true} {
		for at := 1; at <= 8; at++ {
			x := commit(t, sender, Batch{Session: session, Ops: []Op{put("1")}})
			cut.set(at, after)
			if _, err := b.Wait(limited(t), x.Batch); err != nil {
				t.Errorf("cut at %d (%t): %v", at, after, err)
			}
			if at > 1 {
				continue
			}
			if !cut.hit() {
				t.Error("nobody was cut off")
			}
			cut.set(at, after)
			if err := b.Drain(limited(t), nil); err != nil || !cut.hit() {
				t.Errorf("drain, cut at %d (%t): %v", at, after, err)
			}
		}
	}
}

// TestEveryErrorHasACode, also what nobody thought of.
func TestEveryErrorHasACode(t *testing.T) {
	t.Parallel()
	unknown := errors.New("unknown")
	for _, c := range []struct {
		err  error
		want fault.Code
	}{
		{unknown, fault.Internal}, {fmt.Errorf("x: %w", unknown), fault.Internal}, {sqlstore.ErrTxConflict, fault.Unavailable}, {sqlstore.ErrUnique, fault.Internal},
		{context.Canceled, fault.Canceled}, {context.DeadlineExceeded, fault.Canceled}, {fault.DiskFull, fault.DiskFull},
		{fault.NotFound.With("x"), fault.NotFound}, {&StreamStoppedError{Code: fault.ServerBehind}, fault.ServerBehind},
		{postgres.Failure(io.ErrUnexpectedEOF), fault.Unavailable}, {postgres.Failure(syscall.ECONNRESET), fault.Unavailable},
		{postgres.Failure(&net.OpError{Err: syscall.EPIPE}), fault.Unavailable}, {postgres.Failure(unknown), fault.Internal},
	} {
		if err := sqlstore.WithCode(c.err); fault.CodeOf(err) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v is %v, want %s", c.err, err, c.want)
		}
	}
	if sqlstore.WithCode(nil) != nil {
		t.Error("nothing is an error")
	}
	dir := t.TempDir()
	for path, want := range map[string]fault.Code{dir: fault.BadArgument, dir + "/none/outbox.db": fault.BadArgument, strings.Repeat("x", 300): fault.BadArgument} {
		if _, err := openSQLite(limited(t), path, Config{}); fault.CodeOf(err) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
