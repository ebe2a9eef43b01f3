// Starting, stopping, failing and giving up.

package transactions

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// testInitRace: many first starts, one space.
func testInitRace(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	const many = 8
	spaces := make([]string, many)
	made := make([]bool, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			space, created, err := f.Init(f.Ctx, harness.Grant(harness.NewRef(harness.NewSpace()), ""))
			if err != nil {
				t.Errorf("init: %v", err)
				return
			}
			spaces[i], made[i] = space, created
		})
	}
	all.Wait()
	creators := 0
	for i := range many {
		creators += b2i(made[i])
		if spaces[i] != spaces[0] {
			t.Errorf("two first spaces: %s and %s", spaces[i], spaces[0])
		}
	}
	if creators != 1 {
		t.Errorf("%d starts made the space", creators)
	}
}

// testStartRace: many servers start at once on an empty database. Where it can
// be shared all do; where not, one does and the others are told why not.
func testStartRace(t *testing.T, fresh harness.Fresh) {
	db := fresh(t)
	ctx, cancel := context.WithTimeout(context.Background(), harness.Timeout)
	defer cancel()
	const many = 4
	stores := make([]*store.Store, many)
	errs := make([]error, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() { stores[i], errs[i] = db.Open(ctx) })
	}
	all.Wait()
	opened, created := 0, 0
	for i, s := range stores {
		if errs[i] != nil {
			if db.Shared || fault.CodeOf(errs[i]) != fault.InUse {
				t.Errorf("server %d: %v", i, errs[i])
			}
			continue
		}
		opened++
		_, made, err := s.Init(ctx, harness.Grant(harness.NewRef(harness.NewSpace()), ""))
		if err != nil {
			t.Errorf("server %d: init: %v", i, err)
		}
		created += b2i(made)
	}
	if want := map[bool]int{true: many, false: 1}[db.Shared]; opened != want {
		t.Errorf("%d servers started, want %d", opened, want)
	}
	if created != 1 {
		t.Errorf("%d spaces were made", created)
	}
	for i, s := range stores {
		if errs[i] == nil {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}
}

// testReopen: what was committed is there after a restart.
func testReopen(t *testing.T, fresh harness.Fresh) {
	db := fresh(t)
	ctx, cancel := context.WithTimeout(context.Background(), harness.Timeout)
	defer cancel()
	id := harness.NewSession()
	row := harness.LiveRow(id, harness.NewSpace(), 1)
	s, err := db.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f := &harness.Fixture{TB: t, Ctx: ctx, Store: s}
	e := harness.Event(id, 1, "message/m", `{}`)
	f.Save(&session.Changes{Sessions: []*session.Row{row}, Events: []*session.Event{e}}, id)
	f.Must("close", s.Close())
	f = harness.Open(t, db)
	page, err := f.ReadLog(f.Ctx, id, 0, 100, 10, nil)
	f.Must("read log", err)
	harness.Same(f, "row", page.Row, row)
	harness.Same(f, "events", page.Events, []*session.Event{e})
}

// testClosed: a closed store refuses, and closing twice is harmless.
func testClosed(t *testing.T, fresh harness.Fresh) {
	db := fresh(t)
	s, err := db.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := s.ReadAccess(t.Context(), harness.NewSession(), nil); fault.CodeOf(err) != fault.Draining {
		t.Errorf("a read of a closed store: %v", err)
	}
	err = s.Update(t.Context(), func(session.Tx) error { return errors.New("ran on a closed store") })
	if fault.CodeOf(err) != fault.Draining {
		t.Errorf("an update of a closed store: %v", err)
	}
}

// change is one of everything that a group may write.
func change(id string) *session.Changes {
	e := harness.Event(id, 1, "message/m", `{}`)
	key := session.StreamKey{Session: id, Outbox: harness.NewOutbox()}
	row := harness.LiveRow(id, harness.NewSpace(), 1)
	row.External = "ext-" + id
	return &session.Changes{
		Sessions: []*session.Row{row}, Streams: []*ledger.Stream{{Session: id, Outbox: key.Outbox}},
		Records: []session.StreamRecord{{Stream: key, Record: harness.Record(1, harness.NewOp())}}, Events: []*session.Event{e},
		Entries: []*session.Entry{harness.EntryOf(e)}, Turns: []*session.Turn{{Session: id, Message: "m", Status: session.Streaming}},
		Grants: []*capability.Grant{harness.Grant(harness.NewRef(id), "")}, Audit: []*capability.AuditRow{{Target: id}},
	}
}

// untouched checks that nothing of change is there, whether the session's row
// was made or not.
func untouched(f *harness.Fixture, id string, c *session.Changes) {
	f.Helper()
	rows := f.Load(&session.ReadSet{Sessions: []string{id}, Streams: []session.StreamKey{c.Records[0].Stream},
		Records: []session.RecordRange{{Stream: c.Records[0].Stream, From: 1, To: 9}}, Grants: []string{c.Grants[0].ID},
		Prefixes: map[string][]string{id: {""}}, Turns: []string{id}, Logs: map[string]uint64{id: 9},
		External: []session.ExternalID{{Space: c.Sessions[0].Space, SpaceRef: harness.NewRef(c.Sessions[0].Space), ID: c.Sessions[0].External}}})
	audit := f.AuditOf(id)
	if rows.Sessions[id].Life != session.Absent ||
		len(rows.Streams)+len(rows.Records)+len(rows.Grants)+len(rows.Entries)+len(rows.Turns)+len(rows.Logs)+len(rows.External)+len(audit) != 0 {
		f.Errorf("a rolled back transaction left something: %+v", rows)
	}
}

// testRollback: an error of the function leaves no trace and comes back as it is.
func testRollback(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	c := change(id)
	mine := errors.New("mine")
	err := f.Update(f.Ctx, func(tx session.Tx) error {
		if _, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{id}}); err != nil {
			return err
		}
		if err := tx.Save(f.Ctx, c); err != nil {
			return err
		}
		if _, err := tx.Load(f.Ctx, &session.ReadSet{Turns: []string{id}}); err != nil { // sends what was saved
			return err
		}
		return mine
	})
	if err != mine {
		t.Errorf("the function's error came back as %v", err)
	}
	untouched(f, id, c)
	f.Must("an update that does nothing", f.Update(f.Ctx, func(session.Tx) error { return nil }))

	// A statement that fails fails the whole.
	f.Save(&session.Changes{Events: c.Events}, id)
	err = f.Update(f.Ctx, func(tx session.Tx) error {
		if _, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{id}}); err != nil {
			return err
		}
		return tx.Save(f.Ctx, &session.Changes{Sessions: c.Sessions, Events: c.Events, Grants: c.Grants})
	})
	if err == nil {
		t.Fatal("an event was written twice")
	}
	rows := f.Load(&session.ReadSet{Sessions: []string{id}, Grants: []string{c.Grants[0].ID}})
	if rows.Sessions[id].Life != session.Absent || len(rows.Grants) != 0 {
		t.Errorf("a failed transaction left something: %+v", rows)
	}
}

// testPanic: a panic in the function rolls back and leaves the store usable.
func testPanic(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	c := change(id)
	for range 20 { // more than there are connections
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = f.Update(f.Ctx, func(tx session.Tx) error {
				if _, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{id}}); err != nil {
					return err
				}
				if err := tx.Save(f.Ctx, c); err != nil {
					return err
				}
				panic("a defect")
			})
		}()
	}
	untouched(f, id, c)
}

// testCancelWaiting: who waits for a lock and gives up leaves the queue, at
// once and without a trace.
func testCancelWaiting(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	c := change(id)
	for range 12 { // more than there are connections
		holding, release := make(chan struct{}), make(chan struct{})
		held := make(chan error, 1)
		go func() {
			held <- f.Update(f.Ctx, func(tx session.Tx) error {
				_, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{id}})
				close(holding)
				<-release
				return err
			})
		}()
		<-holding
		waiting, cancel := context.WithCancel(f.Ctx)
		gaveUp := make(chan error, 1)
		go func() {
			gaveUp <- f.Update(waiting, func(tx session.Tx) error {
				if _, err := tx.Load(waiting, &session.ReadSet{Sessions: []string{id}}); err != nil {
					return err
				}
				return tx.Save(waiting, c)
			})
		}()
		cancel()
		err := <-gaveUp // while the lock is still held
		f.WantCode("who gave up", err, fault.Canceled)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the context's error is not in %v", err)
		}
		close(release)
		f.Must("who held the lock", <-held)
	}
	untouched(f, id, c)
}

// testCancelMidway: a context that ends between the steps of a transaction
// rolls it back, wherever it ends.
func testCancelMidway(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	c := change(id)
	for _, step := range []string{"before", "loaded", "saved", "flushed"} {
		for range 6 {
			ctx, cancel := context.WithCancel(f.Ctx)
			at := func(here string) {
				if here == step {
					cancel()
				}
			}
			at("before")
			err := f.Update(ctx, func(tx session.Tx) error {
				if _, err := tx.Load(ctx, &session.ReadSet{Sessions: []string{id}}); err != nil {
					return err
				}
				at("loaded")
				if err := tx.Save(ctx, c); err != nil {
					return err
				}
				at("saved")
				if step == "flushed" {
					if _, err := tx.Load(ctx, &session.ReadSet{Turns: []string{id}}); err != nil {
						return err
					}
					cancel()
				}
				return nil
			})
			cancel()
			if !errors.Is(err, context.Canceled) {
				t.Errorf("canceled %s: %v", step, err)
			}
		}
	}
	untouched(f, id, c)
	ctx, cancel := context.WithCancel(f.Ctx)
	cancel()
	_, err := f.ReadAccess(ctx, id, nil)
	f.WantCode("a read whose caller gave up", err, fault.Canceled)
	ctx, cancel = context.WithTimeout(f.Ctx, time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	_, err = f.ReadAccess(ctx, id, nil)
	f.WantCode("a read that took longer than it may", err, fault.Unavailable)
	err = f.Update(ctx, func(tx session.Tx) error {
		_, err := tx.Load(ctx, &session.ReadSet{Sessions: []string{id}})
		return err
	})
	f.WantCode("a transaction that did", err, fault.Unavailable)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the context's error is not in %v", err)
	}
	_, err = f.ReadAccess(f.Ctx, id, nil)
	f.Must("a read afterwards", err)
}

func testInit(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := harness.Grant(harness.NewRef(harness.NewSpace()), "")
	root.Created = 0
	for _, want := range []bool{true, false} {
		space, created, err := f.Init(f.Ctx, root)
		f.Must("init", err)
		if space != root.Target || created != want {
			t.Errorf("space %s, created %v, want %s, %v", space, created, root.Target, want)
		}
	}
	space, created, err := f.Init(f.Ctx, harness.Grant(harness.NewRef(harness.NewSpace()), ""))
	f.Must("init with another root", err)
	if space != root.Target || created {
		t.Errorf("a later start: space %s, created %v", space, created)
	}
	sight, err := f.ReadAccess(f.Ctx, space, []string{root.ID})
	f.Must("look", err)
	stored := sight.Grants[root.ID]
	if stored == nil || stored.Created == 0 {
		t.Fatalf("the root's grant: %+v", stored)
	}
	root.Created, root.Rights = stored.Created, root.Rights|capability.Manage // which it has without being stored with it
	harness.Same(f, "root", stored, root)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
