package outbox

// The sender's behaviour from outside: order across streams, places,
// standing still, coming back.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

func TestBatchWaitsForAnotherStream(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		ctx := limited(t)
		one, two := withSession(t, b), withSession(t, b)
		x := commit(t, b, Batch{Session: one, Ops: []Op{put(`{"deep":"value"}`), {Method: "reject"}}})
		y := commit(t, b, Batch{Session: two, Ops: []Op{
			{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: x.Ops[0], Path: "args.v.deep"}}}},
			{Method: "put", DependsOn: []string{x.Ops[1]}},
			put("3"),
		}})
		z := commit(t, b, Batch{Session: two, Ops: []Op{put("4")}}) // behind y
		srv.hold.Lock()
		run(t, b, srv)
		eventually(t, "the first stream's batch is with the server", func() bool { return len(srv.log(one)) == 1 })
		if n := len(srv.log(two)); n != 0 {
			t.Fatalf("%d events of the session that has to wait", n)
		}
		rows, err := b.List(ctx, Filter{Session: two, States: []State{Pending}})
		if err != nil || len(rows) != 4 || rows[0].Seq != 0 {
			t.Fatalf("waiting rows: %+v, %v", rows, err)
		}
		srv.hold.Unlock()
		outs := wait(t, b, y)
		if got := fmt.Sprint(statuses(outs)); got != fmt.Sprint([]ledger.Status{ledger.Applied, ledger.Skipped, ledger.Applied}) {
			t.Fatalf("statuses %s: %+v", got, outs)
		}
		if string(outs[0].Result) != `{"cursor":1,"args":{"v":"value"}}` || outs[1].Cause != x.Ops[1] || outs[1].Reason != fault.BadPayload {
			t.Fatalf("%+v", outs)
		}
		if wait(t, b, z)[0].Cursor != 3 {
			t.Error("the batch behind was not third")
		}
		// Known results become values in Commit, known failures skip at once.
		known := commit(t, b, Batch{Session: two, Ops: []Op{{Method: "put", Expected: ledger.Expect{Set: true, Ref: &ledger.Ref{Op: z.Ops[0], Path: "cursor"}}}}})
		if o := wait(t, b, known)[0]; o.Status != ledger.Applied {
			t.Errorf("expected_cursor by reference: %+v", o)
		}
		failed := commit(t, b, Batch{Session: two, Ops: []Op{{Method: "put", DependsOn: []string{outs[1].OpID}}}})
		if o := wait(t, b, failed)[0]; o.Status != ledger.Skipped || o.Cause != outs[1].OpID || o.Reason != fault.BadPayload {
			t.Errorf("depends on what was skipped: %+v", o)
		}
		if _, err := b.Commit(ctx, Batch{Session: two, Ops: []Op{{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: z.Ops[0], Path: "no.such"}}}}}}); !errors.Is(err, fault.BadReference) {
			t.Errorf("a path that is not there: %v", err)
		}
		if _, err := b.Commit(ctx, Batch{Session: two, Ops: []Op{{Method: "put", Expected: ledger.Expect{Set: true, Ref: &ledger.Ref{Op: z.Ops[0], Path: "args"}}}}}); !errors.Is(err, fault.BadReference) {
			t.Errorf("a cursor that is none: %v", err)
		}
	})
}

// TestBusySessionsTakeTurns: with places for few, one that always has something on its way does not keep others out.
func TestBusySessionsTakeTurns(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Window.Streams = 1
	b := newPlace(t, "sqlite").open(t, cfg)
	srv := newFakeServer()
	busy, other := withSession(t, b), withSession(t, b)
	ctx, stop := context.WithCancel(context.Background())
	behind := make(chan struct{}) // a batch is answered once the next one is committed
	srv.before = func(batch *ledger.Batch) (error, bool) {
		if batch.Session == busy {
			select {
			case <-behind:
			case <-ctx.Done():
			}
		}
		return nil, false
	}
	last := commit(t, b, Batch{Session: busy, Ops: []Op{put("1")}})
	run(t, b, srv)
	eventually(t, "its stream is open", func() bool { return len(srv.openings()) == 1 })
	var committing sync.WaitGroup
	defer committing.Wait()
	defer stop()
	committing.Go(func() {
		for ctx.Err() == nil {
			next, err := b.Commit(context.Background(), Batch{Session: busy, Ops: []Op{put("1")}})
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case behind <- struct{}{}:
				if _, err := b.Wait(context.Background(), last.Batch); err != nil {
					t.Error(err)
				}
			case <-ctx.Done():
			}
			last = next
		}
	})
	wait(t, b, commit(t, b, Batch{Session: other, Ops: []Op{put("1")}}))
}

// TestWaitingForAServerKeepsNoPayloads: of sessions whose server is away the sender has in memory how they are reached.
func TestWaitingForAServerKeepsNoPayloads(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	srv := newFakeServerDown()
	space := testRef(t, b, newSpace(), RefMeta{})
	large := ledger.Arg{Name: "v", JSON: []byte(`"` + strings.Repeat("x", 100_000) + `"`)}
	made := newSession()
	ref := ledger.Arg{Name: "ref", JSON: fmt.Appendf(nil, "%q", testAddress.New(made).ID)}
	x := commit(t, b, Batch{Session: made, Via: space.ID, Ops: []Op{{Method: "create", Args: []ledger.Arg{large, ref}}, {Method: "put", Args: []ledger.Arg{large}}}})
	y := commit(t, b, Batch{Session: withSession(t, b), Ops: []Op{{Method: "put", Args: []ledger.Arg{large}}}})
	run(t, b, srv)
	eventually(t, "their streams wait, and keep nothing", func() bool {
		heads, kept := 0, ""
		return onLoop(b, func(m *machine.Machine) {
			for _, s := range m.Streams {
				if s.Unsequenced == nil {
					continue
				}
				heads++
				for _, op := range s.Unsequenced.Body.Ops {
					for _, a := range op.Args {
						kept += string(a.JSON)
					}
				}
			}
		}) && heads == 2 && kept == string(ref.JSON)
	})
	srv.setDown(nil)
	b.Wake()
	wait(t, b, x)
	wait(t, b, y)
}

func TestBatchThatTheServerCannotTake(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		session := withSession(t, b)
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1"), put("2")}})
		y := commit(t, b, Batch{Session: session, Ops: []Op{put("3")}})
		srv.before = func(batch *ledger.Batch) (error, bool) {
			if batch.BatchID == x.Batch && batch.Ops[0].Method != ledger.MethodVoid {
				return fault.TooLarge.With("no"), false
			}
			return nil, false
		}
		run(t, b, srv)
		if outs := wait(t, b, x); outs[0].Status != ledger.Rejected || outs[1].Reason != fault.TooLarge {
			t.Errorf("%+v", outs)
		}
		if o := wait(t, b, y)[0]; o.Status != ledger.Applied || o.Cursor != 1 {
			t.Errorf("%+v", o)
		}
	})
}

func TestStreamStandsStillAndOthersGoOn(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		for _, code := range []fault.Code{fault.ServerBehind, fault.OutboxDiverged, fault.UnknownRef} {
			b := p.fresh(int(code)).open(t, quick())
			srv := newFakeServer()
			ctx := limited(t)
			bad, good := withSession(t, b), withSession(t, b)
			refused := true
			srv.before = func(batch *ledger.Batch) (error, bool) {
				if batch.Session == bad && refused {
					return code.With("on request"), false
				}
				return nil, false
			}
			x := commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
			_, notified, _ := b.hub.Subscribe(x.Batch)
			waited := make(chan error, 1)
			go func() {
				_, err := b.Wait(ctx, x.Batch)
				waited <- err
			}()
			stop := run(t, b, srv)
			y := commit(t, b, Batch{Session: good, Ops: []Op{put("1")}})
			wait(t, b, y)
			err := <-waited
			if still, ok := errors.AsType[*StreamStoppedError](err); !ok || still.Session != bad || !errors.Is(err, code) || !strings.Contains(err.Error(), "on request") {
				t.Errorf("wait: %v, want %s", err, code)
			}
			select {
			case <-notified: // who waits need not find out by polling
			case <-ctx.Done():
				t.Error("nobody was told that the stream stopped")
			}
			if err := b.Drain(ctx, nil); !errors.Is(err, code) {
				t.Errorf("drain: %v, want %s", err, code)
			}
			st, err := b.Status(ctx)
			if err != nil || len(st.Streams) != 1 || st.Streams[0].Stopped != code || st.Streams[0].Session != bad || st.Streams[0].LastError == "" {
				t.Errorf("%+v, %v", st, err)
			}
			stop()
			refused = false
			run(t, b, srv) // someone decided
			if o := wait(t, b, x)[0]; o.Status != ledger.Applied {
				t.Errorf("%+v", o)
			}
		}
	})
}

// TestWaitersOfAStoppedStream: batches that need an op of a stream which stands
// still, at first or second hand, wait for whoever decides about that one.
func TestWaitersOfAStoppedStream(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		ctx := limited(t)
		bad, next, last := withSession(t, b), withSession(t, b), withSession(t, b)
		refused := true
		held := make(chan struct{})
		srv.before = func(batch *ledger.Batch) (error, bool) {
			switch {
			case batch.Session == bad && refused:
				return fault.ServerBehind.With("on request"), false
			case batch.Session == last && refused:
				<-held
			}
			return nil, false
		}
		free := commit(t, b, Batch{Session: last, Ops: []Op{put("0")}})
		x := commit(t, b, Batch{Session: bad, Ops: []Op{put("1")}})
		y := commit(t, b, Batch{Session: next, Ops: []Op{{Method: "put", DependsOn: x.Ops}}})
		z := commit(t, b, Batch{Session: last, Ops: []Op{put("2"), {Method: "put", DependsOn: y.Ops}}})
		stop := run(t, b, srv)
		for name, batch := range map[string]string{"its own": x.Batch, "at first hand": y.Batch, "at second hand": z.Batch} {
			_, err := b.Wait(ctx, batch)
			if still, ok := errors.AsType[*StreamStoppedError](err); !ok || still.Session != bad || !errors.Is(err, fault.ServerBehind) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if left, stuck, err := b.remaining(ctx); left != 5 || stuck != nil || err != nil {
			t.Errorf("with a batch on its way: %d ops, %v, %v", left, stuck, err)
		}
		close(held)
		wait(t, b, free) // what is on its way arrives
		err := b.Drain(ctx, nil)
		if still, ok := errors.AsType[*StreamStoppedError](err); !ok || still.Session != bad {
			t.Errorf("drain: %v", err)
		}
		stop()
		refused = false
		run(t, b, srv) // someone decided
		if err := b.Drain(ctx, nil); err != nil {
			t.Error(err)
		}
		for _, o := range wait(t, b, z) {
			if o.Status != ledger.Applied {
				t.Errorf("%+v", o)
			}
		}
	})
}

// TestMarkOfWhatIsFinished: a row that gets no seq, since its server is away, does not hold the mark down below which
// nothing unfinished is looked for, and is found all the same.
func TestMarkOfWhatIsFinished(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		dead, good := withSession(t, b), withSession(t, b)
		link := srv.awayFor(dead)
		x := commit(t, b, Batch{Session: dead, Ops: []Op{put("1")}})
		run(t, b, link)
		for range 5 {
			commit(t, b, Batch{Session: good, Ops: []Op{put("1")}})
		}
		left := func(n int) {
			t.Helper()
			eventually(t, "all else is stored", func() bool {
				st, err := b.Status(limited(t))
				return err == nil && st.Unfinished() == n
			})
		}
		left(1)
		if err := b.w.Do(limited(t), func(_ context.Context, q sqlstore.Querier) error { b.t.RaiseLowWater(q); return nil }); err != nil {
			t.Fatal(err)
		}
		row, rows := sqlstore.BoxRow{}, []*sqlstore.BatchRow{}
		err := b.db.Read(limited(t), func(q sqlstore.Querier) (err error) {
			if row, err = b.t.ReadBox(limited(t), q, ""); err == nil {
				rows, err = b.t.Batches(limited(t), q, sqlstore.SQLList, b.t.Box, row.LowWater-1, "")
			}
			return err
		})
		if err != nil || len(rows) > 0 {
			t.Errorf("the mark is at %d, with %d rows behind it: %v", row.LowWater, len(rows), err)
		}
		link.down.Store(false)
		wait(t, b, x)
		left(0)
	})
}

func TestServerRestoredToBefore(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		session := withSession(t, b)
		run(t, b, srv)
		for range 3 {
			wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
		}
		eventually(t, "acknowledged without a batch", func() bool { return srv.ackedThrough(session, b.ID()) == 3 })
		fresh := newFakeServer() // the server forgot everything
		srv.mu.Lock()
		srv.streams, srv.sessions = fresh.streams, fresh.sessions
		srv.mu.Unlock()
		srv.cutAll()
		commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		if err := b.Drain(limited(t), nil); !errors.Is(err, fault.ServerBehind) {
			t.Fatalf("drain: %v", err)
		}
	})
}

func TestRetriesWithBackoffAndAtOnce(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Backoff = Backoff{Initial: time.Minute, Max: time.Hour}
		b := p.open(t, cfg)
		srv := newFakeServer()
		srv.setDown(fault.Disconnected.With("nobody listens"))
		ctx := limited(t)
		var tickets []Ticket
		for range 5 {
			tickets = append(tickets, commit(t, b, Batch{Session: withSession(t, b), Ops: []Op{put("1")}}))
		}
		run(t, b, srv)
		eventually(t, "an attempt failed and says so", func() bool {
			rows, err := b.List(ctx, Filter{States: []State{Pending}})
			n := 0
			for _, r := range rows {
				if r.Attempts == 1 && r.LastError == "disconnected: nobody listens" && time.Until(r.NextRetry) > 20*time.Second {
					n++
				}
			}
			return err == nil && len(rows) == 5 && n >= 1
		})
		srv.setDown(nil)
		b.Wake()
		for _, ticket := range tickets {
			wait(t, b, ticket)
		}
	})
}

// TestCreateSkippedByCommit: what follows a create that Commit itself skipped reaches a server that says so.
func TestCreateSkippedByCommit(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		first := withSession(t, b)
		space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
		session := newSession()
		owner := testRef(t, b, session, RefMeta{Role: SessionOwner})
		srv.session(session).managed = true
		run(t, b, srv)
		bad := commit(t, b, Batch{Session: first, Ops: []Op{{Method: "deny"}}})
		failed(t, b, bad)
		create := Op{Method: "create", DependsOn: bad.Ops, Args: []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)}}}
		x := commit(t, b, Batch{Session: session, Via: space.ID, Ops: []Op{create}})
		y := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		if o := wait(t, b, x)[0]; o.Status != ledger.Skipped || o.Cause != bad.Ops[0] {
			t.Errorf("%+v", o)
		}
		if o := wait(t, b, y)[0]; o.Status != ledger.Denied || o.Reason != fault.UnknownRef {
			t.Errorf("%+v", o)
		}
		if st, err := b.Status(limited(t)); err != nil || st.Skipped != 1 {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

// TestSessionMadeOffline makes a session, fills it and shares it before there is
// a server: it is opened through the space until create has applied, and
// through its own ref from then on.
func TestSessionMadeOffline(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		ctx := limited(t)
		space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
		session := newSession()
		owner := testRef(t, b, session, RefMeta{Role: SessionOwner})
		srv.session(session).managed = true
		create := Op{Method: "create", Args: []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)}, {Name: "hash", JSON: []byte(`"x"`)}}}
		x := commit(t, b, Batch{Session: session, Via: space.ID, Ops: []Op{create}})
		y := commit(t, b, Batch{Session: session, Ops: []Op{{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: x.Ops[0], Path: "cursor"}}}}}})
		run(t, b, srv)
		wait(t, b, y)
		opened := srv.openings()
		if len(opened) != 1 || opened[0].SpaceRef == nil || opened[0].SpaceRef.ID != space.ID || opened[0].OwnerRef != owner.ID ||
			opened[0].Ref.ID != owner.ID || opened[0].Redemptions[space.ID] == "" || !opened[0].SpaceRef.Secret.Equal(space.Secret) {
			t.Fatalf("opened %+v", opened)
		}
		srv.cutAll()
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("2")}}))
		if opened = srv.openings(); len(opened) != 2 || opened[1].SpaceRef != nil || opened[1].Ref.ID != owner.ID {
			t.Fatalf("opened again %+v", opened[1:])
		}

		// A session whose create is refused stays within reach, so that what
		// follows gets its refusals.
		session = newSession()
		owner = testRef(t, b, session, RefMeta{Role: SessionOwner})
		srv.mu.Lock()
		srv.session(session).managed = true
		srv.mu.Unlock()
		create.Args = []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)}, {Name: "refuse", JSON: []byte("1")}}
		if o := wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{create}}))[0]; o.Status != ledger.Rejected {
			t.Fatalf("%+v", o)
		}
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		srv.cutAll()
		if o := wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))[0]; o.Status != ledger.Denied {
			t.Fatalf("%+v", o)
		}
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = p.open(t, quick())
		run(t, b, srv)
		if o := wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))[0]; o.Status != ledger.Denied {
			t.Fatalf("after a restart: %+v", o)
		}
	})
}

func TestManySessionsFewPlaces(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Window.Streams = 4
		b := p.open(t, cfg)
		srv := newFakeServer()
		var tickets []Ticket
		for range 40 {
			s := withSession(t, b)
			for i := range 3 {
				tickets = append(tickets, commit(t, b, Batch{Session: s, Ops: []Op{put(fmt.Sprint(i))}}))
			}
		}
		most := 0
		srv.before = func(*ledger.Batch) (error, bool) {
			srv.mu.Lock()
			defer srv.mu.Unlock()
			most = max(most, len(srv.links))
			return nil, false
		}
		run(t, b, srv)
		progress := 0
		if err := b.Drain(limited(t), func(done, total int) {
			if done < progress || total != 120 {
				t.Errorf("progress %d of %d after %d", done, total, progress)
			}
			progress = done
		}); err != nil {
			t.Fatal(err)
		}
		if progress != 120 {
			t.Errorf("progress ended at %d", progress)
		}
		for _, ticket := range tickets {
			wait(t, b, ticket)
		}
		srv.mu.Lock()
		defer srv.mu.Unlock()
		if most > 8 { // those being closed are still there for a moment
			t.Errorf("%d streams open at once", most)
		}
	})
}

// A server may be late to see a session that it has made, and is given a few tries; what it does not know then, it has forgotten.
func TestASessionThatTheServerDoesNotKnow(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		for times, want := range map[int]fault.Code{2: fault.None, math.MaxInt: fault.ServerBehind} {
			b := p.open(t, quick())
			session := withSession(t, b)
			srv, left := newFakeServer(), times
			srv.before = func(batch *ledger.Batch) (error, bool) {
				if batch.Ops[0].Seq > 1 && left > 0 {
					left--
					return fault.NotYetKnown.With("on request"), false
				}
				return nil, false
			}
			stop := run(t, b, srv)
			wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
			stop() // when all is stored
			stop = run(t, b, srv)
			x := commit(t, b, Batch{Session: session, Ops: []Op{put("2")}})
			if _, err := b.Wait(limited(t), x.Batch); fault.CodeOf(err) != want {
				t.Errorf("not known %d times: %v", times, err)
			}
			stop()
		}
	})
}
