package outbox

// The suite: what an outbox promises, on both databases.

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(childVar); kind != "" {
		os.Exit(child(kind))
	}
	if args := os.Getenv(txChildVar); args != "" {
		os.Exit(txChild(args))
	}
	exit := pgtest.Reuse()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := shared.drop(); err != nil {
			fmt.Fprintln(os.Stderr, "drop the tests' database:", err)
			code = max(code, 1)
		}
		exit(code)
	}))
}

// shared is one database for all tests that need no database of their own: an
// outbox's name keeps them apart.
var shared testDatabase

type testDatabase struct {
	once sync.Once
	url  string
	name string
	err  error
}

func (d *testDatabase) get(tb testing.TB) string {
	d.once.Do(func() { d.err = d.create() })
	if d.err != nil {
		tb.Fatalf("no Postgres for this test: %v", d.err)
	}
	return d.url
}

func (d *testDatabase) create() error {
	server, err := pgtest.ServerURL(context.Background())
	if err != nil {
		return err
	}
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	name := "outbox_" + strings.ToLower(ulid.Make().String())
	if err := admin(server, "CREATE DATABASE "+name); err != nil {
		return err
	}
	u.Path = "/" + name
	d.url, d.name = u.String(), name
	return nil
}

func (d *testDatabase) drop() error {
	if d.name == "" {
		return nil
	}
	server, err := pgtest.ServerURL(context.Background())
	if err != nil {
		return err
	}
	return admin(server, "DROP DATABASE "+d.name+" WITH (FORCE)")
}

func admin(server, sql string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// place is where a test's outboxes are: Boxes opened in one place are the same
// outbox, as seen by several processes.
type place struct {
	kind string
	at   string // path or URL
	name string
}

var placeNames atomic.Int64

// quick is a Config whose waiting times suit tests.
func quick() Config {
	return Config{Poll: 10 * time.Millisecond, AckDelay: 2 * time.Millisecond, Lease: 2 * time.Second,
		Backoff: Backoff{Initial: 2 * time.Millisecond, Max: 20 * time.Millisecond}}
}

func (p place) open(tb testing.TB, cfg Config) *Box {
	tb.Helper()
	b, err := p.tryOpen(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return b
}

func (p place) tryOpen(cfg Config) (*Box, error) {
	if p.kind == "sqlite" {
		return openSQLite(context.Background(), p.at, cfg)
	}
	return openPostgres(context.Background(), p.at, p.name, cfg)
}

// newPlace makes a fresh place of a kind.
func newPlace(tb testing.TB, kind string) place {
	if kind == "sqlite" {
		return place{kind, filepath.Join(tb.TempDir(), "outbox ?#%.db"), ""}
	}
	u, err := url.Parse(shared.get(tb))
	if err != nil {
		tb.Fatal(err)
	}
	query := u.Query()
	query.Set("pool_max_conns", "32") // for all tests that run at once
	u.RawQuery = query.Encode()
	return place{kind, u.String(), fmt.Sprintf("box %d", placeNames.Add(1))}
}

// both runs a test on SQLite and on Postgres.
func both(t *testing.T, f func(t *testing.T, p place)) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, newPlace(t, kind))
		})
	}
}

// limited is a context that a test which hangs runs into.
func limited(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// limitedRapid is limited for a property; its timer ends by itself.
func limitedRapid(*rapid.T) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(30*time.Second, cancel)
	return ctx
}

// useDB puts a database in the place of a Box's own.
func useDB(b *Box, db sqlstore.Database) { b.db, b.w.DB = db, db }

func newSession() string { return "ses_" + ulid.Make().String() }
func newSpace() string   { return "spc_" + ulid.Make().String() }

// withSession gives a Box a session with a ref to send through.
func withSession(tb testing.TB, b *Box) string {
	s := newSession()
	testRef(tb, b, s, RefMeta{Role: SessionOwner})
	return s
}

// run starts the sender and returns what stops it.
func run(tb testing.TB, b *Box, link Link) (stop func()) {
	stop = runIn(tb, b, link)
	tb.Cleanup(stop)
	return stop
}

// failer is what testing and rapid have in common.
type failer interface {
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func runIn(t failer, b *Box, link Link) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx, link) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, fault.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
}

func put(value string) Op {
	return Op{Method: "put", Args: []ledger.Arg{{Name: "v", JSON: []byte(value)}}}
}

func commit(tb testing.TB, b *Box, batch Batch) Ticket {
	tb.Helper()
	t, err := b.Commit(limited(tb), batch)
	if err != nil {
		tb.Fatalf("commit: %v", err)
	}
	return t
}

func wait(tb testing.TB, b *Box, t Ticket) []ledger.Outcome {
	tb.Helper()
	outs, err := b.Wait(limited(tb), t.Batch)
	if err != nil {
		st, _ := b.Status(context.Background())
		tb.Fatalf("wait for %s: %v (%+v)", t.Batch, err, st)
	}
	return outs
}

// statuses are the outcomes' statuses, in order.
func statuses(outs []ledger.Outcome) (s []ledger.Status) {
	for _, o := range outs {
		s = append(s, o.Status)
	}
	return s
}

// eventually polls until f holds.
func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !f(); <-tick.C {
		if time.Now().After(end) {
			tb.Fatalf("never: %s", what)
		}
	}
}

// onLoop has f see what the sender has in hand; false if nobody sends just now.
func onLoop(b *Box, f func(m *machine.Machine)) bool {
	done := make(chan struct{})
	if !b.sender.Post(func(m *machine.Machine, _ time.Time) {
		f(m)
		close(done)
	}) {
		return false
	}
	select {
	case <-done:
		return true
	case <-time.After(time.Second): // its term has ended
		return false
	}
}

func TestCommitIsDurableAndSentOnce(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		var tickets []Ticket
		for i := range 5 { // offline
			tickets = append(tickets, commit(t, b, Batch{Session: session, Ops: []Op{put(fmt.Sprint(i)), put(fmt.Sprint(10 + i))}}))
		}
		st, err := b.Status(limited(t))
		if err != nil || st.Pending != 10 || st.InFlight != 0 || len(st.Streams) != 1 || st.Streams[0].Unfinished != 10 {
			t.Fatalf("offline: %+v, %v", st, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}

		srv := newFakeServer()
		b = p.open(t, quick())
		run(t, b, srv)
		for i := range 200 { // online
			tickets = append(tickets, commit(t, b, Batch{Session: session, Ops: []Op{put(fmt.Sprint(100 + i))}}))
		}
		for _, ticket := range tickets {
			for i, o := range wait(t, b, ticket) {
				if o.Status != ledger.Applied || o.OpID != ticket.Ops[i] {
					t.Fatalf("outcome %+v of op %s", o, ticket.Ops[i])
				}
			}
		}
		checkLog(t, srv.log(session), tickets)
		eventually(t, "all stored", func() bool {
			st, err := b.Status(limited(t))
			return err == nil && st.Acked == 210 && st.Unfinished() == 0 && st.Sending && st.Incarnation == 1
		})
		// Tickets give the same in another process.
		other := p.open(t, quick())
		if outs := wait(t, other, tickets[3]); outs[1].Cursor != 8 || string(outs[1].Result) != `{"cursor":8,"args":{"v":13}}` {
			t.Fatalf("in another process: %+v", outs)
		}
	})
}

// checkLog checks that exactly the tickets' ops applied, each once, batches
// whole and in order.
func checkLog(tb testing.TB, log []fakeEvent, tickets []Ticket) {
	tb.Helper()
	i := 0
	for _, t := range tickets {
		for _, op := range t.Ops {
			if i >= len(log) || log[i].op != op || log[i].batch != t.Batch {
				tb.Fatalf("event %d is not op %s of batch %s (%d events)", i+1, op, t.Batch, len(log))
			}
			i++
		}
	}
	if i != len(log) {
		tb.Fatalf("%d events, want %d", len(log), i)
	}
}

func TestOutcomesOfEveryKind(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		srv := newFakeServer()
		run(t, b, srv)
		id := opid.NewBatch()
		ref := func(i int, path string) Op {
			return Op{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: opid.Of(id, i), Path: path}}}}
		}
		ticket := commit(t, b, Batch{ID: id, Session: session, Ops: []Op{
			put(`{"a":[1, 2.0]}`), ref(0, "args.v.a.1"), {Method: "reject"}, ref(2, "cursor"), {Method: "deny"},
			{Method: "put", DependsOn: []string{opid.Of(id, 4)}}, ref(0, "nothing"), {Method: "put", Expected: ledger.Expect{Set: true, Cursor: 7}},
			{Method: "put", Expected: ledger.Expect{Set: true}},
		}})
		outs := wait(t, b, ticket)
		want := []ledger.Status{ledger.Applied, ledger.Applied, ledger.Rejected, ledger.Skipped, ledger.Denied, ledger.Skipped, ledger.Rejected, ledger.Conflict, ledger.Applied}
		if fmt.Sprint(statuses(outs)) != fmt.Sprint(want) {
			t.Fatalf("got %v, want %v", statuses(outs), want)
		}
		if got := string(outs[1].Result); got != `{"cursor":2,"args":{"v":2.0}}` {
			t.Errorf("a reference became %s", got)
		}
		atomic := commit(t, b, Batch{Session: session, Atomic: true, Ops: []Op{put("1"), {Method: "reject"}}})
		if got := statuses(wait(t, b, atomic)); got[0] != ledger.BatchAborted || got[1] != ledger.BatchAborted {
			t.Errorf("atomic: %v", got)
		}
		eventually(t, "stored", func() bool {
			st, err := b.Status(limited(t))
			return err == nil && st.Unfinished() == 0
		})
		rows, err := b.List(limited(t), Filter{Session: session})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, r := range rows {
			got = append(got, r.State.String())
			if r.Seq != uint64(i+1) || r.Outcome == nil || r.Attempts != 1 {
				t.Errorf("row %d: %+v", i, r)
			}
		}
		if fmt.Sprint(got) != "[acked acked failed skipped failed skipped failed failed acked failed failed]" {
			t.Errorf("states %v", got)
		}
		failed, err := b.List(limited(t), Filter{States: []State{Skipped}, Limit: 1})
		if err != nil || len(failed) != 1 || failed[0].Op != ticket.Ops[3] {
			t.Errorf("filtered: %+v, %v", failed, err)
		}
	})
}

func TestCommitRefusals(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Limits = Limits{BatchOps: 3, PayloadBytes: 100, BatchBytes: 150, Rows: 5}
		b := p.open(t, cfg)
		session := withSession(t, b)
		id := opid.NewBatch()
		long := func(n int) string { return fmt.Sprintf("%q", make([]byte, n))[:n-1] + `"` }
		_ = long
		big := func(n int) Op {
			s := make([]byte, n)
			for i := range s {
				s[i] = 'x'
			}
			s[0], s[n-1] = '"', '"'
			return put(string(s))
		}
		for name, c := range map[string]struct {
			batch Batch
			code  fault.Code
		}{
			"no ops":            {Batch{Session: session}, fault.Malformed},
			"session":           {Batch{Session: "x", Ops: []Op{put("1")}}, fault.Malformed},
			"batch id":          {Batch{ID: "x", Session: session, Ops: []Op{put("1")}}, fault.Malformed},
			"op id":             {Batch{Session: session, Ops: []Op{{ID: "x", Method: "put"}}}, fault.Malformed},
			"json":              {Batch{Session: session, Ops: []Op{put("{")}}, fault.Malformed},
			"method":            {Batch{Session: session, Ops: []Op{{}}}, fault.Malformed},
			"too many":          {Batch{Session: session, Ops: []Op{put("1"), put("1"), put("1"), put("1")}}, fault.TooLarge},
			"too big":           {Batch{Session: session, Ops: []Op{big(101)}}, fault.TooLarge},
			"too big together":  {Batch{Session: session, Ops: []Op{big(90), big(90)}}, fault.TooLarge},
			"unknown reference": {Batch{Session: session, Ops: []Op{{Method: "put", DependsOn: []string{ulid.Make().String()}}}}, fault.BadReference},
			"later reference": {Batch{ID: id, Session: session, Ops: []Op{
				{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: opid.Of(id, 1)}}}}, put("1")}}, fault.BadReference},
			"itself": {Batch{ID: id, Session: session, Ops: []Op{
				{Method: "put", DependsOn: []string{opid.Of(id, 0)}}}}, fault.BadReference},
			"no ref":      {Batch{Session: newSession(), Ops: []Op{put("1")}}, fault.NotFound},
			"unknown via": {Batch{Session: session, Via: session + ".o", Ops: []Op{put("1")}}, fault.NotFound},
			"no space":    {Batch{Session: session, Ops: []Op{{Method: "create"}}}, fault.NotFound},
			"late create": {Batch{Session: session, Ops: []Op{put("1"), {Method: "create"}}}, fault.Malformed},
		} {
			if _, err := b.Commit(limited(t), c.batch); !errors.Is(err, c.code) {
				t.Errorf("%s: %v, want %s", name, err, c.code)
			}
		}
		canceledCtx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := b.Commit(canceledCtx, Batch{Session: session, Ops: []Op{put("1")}}); err != nil && !errors.Is(err, fault.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		st, err := b.Status(limited(t))
		if err != nil || st.Pending > 1 || st.Bytes > 100 {
			t.Fatalf("something was kept: %+v, %v", st, err)
		}
		left := 5 - st.Pending
		for range left {
			commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		}
		if _, err := b.Commit(limited(t), Batch{Session: session, Ops: []Op{put("1")}}); !errors.Is(err, fault.OutboxFull) {
			t.Fatalf("full: %v", err)
		}
		srv := newFakeServer()
		run(t, b, srv)
		if err := b.Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
	})
}

func TestCommittingAgainIsTheSameTicket(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		first := commit(t, b, Batch{Session: session, Ops: []Op{put("1"), put("2")}})
		batch := Batch{ID: first.Batch, Session: session, Ops: []Op{put("1"), put("2")}}
		if again := commit(t, b, batch); fmt.Sprint(again) != fmt.Sprint(first) {
			t.Fatalf("%v, want %v", again, first)
		}
		srv := newFakeServer()
		run(t, b, srv)
		wait(t, b, first)
		if again := commit(t, b, batch); fmt.Sprint(again) != fmt.Sprint(first) {
			t.Fatalf("%v, want %v", again, first)
		}
		batch.Ops = batch.Ops[:1]
		if _, err := b.Commit(limited(t), batch); !errors.Is(err, fault.AlreadyExists) {
			t.Fatalf("another batch under the id: %v", err)
		}
		op := ulid.Make().String()
		named := Batch{ID: opid.NewBatch(), Session: session, Ops: []Op{{ID: op, Method: "put"}}}
		if ticket, again := commit(t, b, named), commit(t, b, named); fmt.Sprint(again) != fmt.Sprint(ticket) {
			t.Fatalf("with an op id: %v, want %v", again, ticket)
		}
		if _, err := b.Commit(limited(t), Batch{Session: session, Ops: []Op{{ID: op, Method: "put"}}}); !errors.Is(err, fault.AlreadyExists) {
			t.Fatalf("an op id again: %v", err)
		}
		if _, err := b.Commit(limited(t), Batch{Session: session, Ops: []Op{{ID: first.Ops[1], Method: "put"}}}); !errors.Is(err, fault.AlreadyExists) {
			t.Fatalf("the id of another batch's op: %v", err)
		}
		if err := b.Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		if n := len(srv.log(session)); n != 3 {
			t.Fatalf("%d events, want 3", n)
		}
		if st, err := b.Status(limited(t)); err != nil || st.Incarnation != 1 {
			t.Errorf("a commit that was refused made the sender begin anew: %+v, %v", st, err)
		}
	})
}

func TestRefs(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, other := p.open(t, quick()), p.open(t, quick())
		ctx := limited(t)
		session, space := newSession(), newSpace()
		share := testRef(t, b, session, RefMeta{Label: "given"})
		owner := testRef(t, b, session, RefMeta{Role: SessionOwner, External: "ses_outside"})
		root := testRef(t, b, space, RefMeta{})
		for target, want := range map[string]capability.Ref{session: owner, "ses_outside": owner, space: root, "": root} {
			got, err := other.RefFor(ctx, target, 0)
			if err != nil || got.ID != want.ID || !got.Secret.Equal(want.Secret) || got.Redemption == "" {
				t.Errorf("for %q: %v, %v", target, got.ID, err)
			}
		}
		saved, err := b.Ref(ctx, share.ID)
		if err != nil || saved.Label != "given" || saved.Role != Shared {
			t.Fatalf("%+v, %v", saved.RefMeta, err)
		}
		if err := b.PutRef(ctx, share, RefMeta{Role: Shared, Label: "new"}); err != nil {
			t.Fatal(err)
		}
		if again, _ := b.Ref(ctx, share.ID); again.Label != "new" || again.Redemption != saved.Redemption {
			t.Errorf("put again: %+v", again.RefMeta)
		}
		testRef(t, b, newSession(), RefMeta{External: "ses_outside"}) // told by others, who may call theirs as they like
		if got, err := b.RefFor(ctx, "ses_outside", 0); err != nil || got.ID != owner.ID {
			t.Errorf("another's session of that name: %v, %v", got.Ref, err)
		}
		testRef(t, b, newSession(), RefMeta{Role: SessionOwner, External: "ses_outside"})
		if _, err := b.RefFor(ctx, "ses_outside", 0); !errors.Is(err, fault.Ambiguous) {
			t.Errorf("two sessions with one external id: %v", err)
		}
		if err := b.DropRef(ctx, share.ID, false); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Ref(ctx, share.ID); !errors.Is(err, fault.NotFound) {
			t.Errorf("dropped: %v", err)
		}
		if all, err := other.Refs(ctx); err != nil || len(all) != 4 {
			t.Errorf("%d refs, %v", len(all), err)
		}
		if err := b.PutRef(ctx, capability.Ref{Hosts: []string{"h:1"}}, RefMeta{}); !errors.Is(err, fault.BadRefText) {
			t.Errorf("an address: %v", err)
		}
	})
}

// testAddress is where test refs point; nobody listens there.
var testAddress = capability.Ref{Hosts: []string{"127.0.0.1:7600"}}
