// Package harness is what tests of stores write and read with: a database of their own, rows and ids, authors that
// send batches, and reads that fail the test. Nothing in it is a test of its own. The suite's packages use it, and the
// backends' own tests; it touches the store through its methods alone.
//
//	fixture   a store with a test, whose helpers fail the test
//	author    one outbox's stream in a session, with the ref that it goes by
//	agent     an author with its fixture, for tests of one database
//	fresh     makes an empty database, gone when its test ends
package harness

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/ledger"
)

// Database is one empty database that stores can be opened on.
type Database struct {
	// Open opens a store on the database; who opens it closes it.
	Open func(context.Context) (*store.Store, error)
	// Shared says that any number of stores may be open at once, and hear of
	// each other. Where it is false the second one is refused.
	Shared bool

	opened *store.Store // what tests share that need no store of their own
}

// Fresh makes an empty database for a test, gone when the test ends.
type Fresh func(testing.TB) Database

// Together makes one database for many tests where any number of stores may be open on one: the tests' ids
// never meet, and making databases takes time, as connecting to them does. Elsewhere each test has its own.
func Together(t testing.TB, fresh Fresh) Fresh {
	db := fresh(t)
	if !db.Shared {
		return fresh
	}
	db.opened = Open(t, db).Store
	return func(testing.TB) Database { return db }
}

// Cases are tests of the suite by their names.
type Cases map[string]func(*testing.T, Fresh)

// Timeout bounds every test of the suite.
const Timeout = 60 * time.Second

// Fixture is a store with helpers that fail the test.
type Fixture struct {
	testing.TB
	Ctx context.Context
	*store.Store
	Later int64 // how much later it is for commits than by the database's clock, in ms
}

// OpenStream is the store's for a ref that may do something.
func (f *Fixture) OpenStream(ctx context.Context, key session.StreamKey, secretHash [32]byte, incarnation uint64) (*ledger.Stream, error) {
	return f.Store.OpenStream(ctx, session.StreamRequest{Key: key, SecretHash: secretHash, Incarnation: incarnation})
}

// Everything is a grant that shows all of a session.
var Everything = &capability.Grant{}

// The reads are the store's, with all rows; each is described there.

func (f *Fixture) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.LogPage, error) {
	page, err := f.Store.ReadLog(ctx, id, after, maxBytes, maxEvents, refs, hashesAt...)
	return whole(page, err)
}

func (f *Fixture) ReadState(ctx context.Context, id string, refs []string, pieceBytes int, piece func(*session.StateChunk) error) error {
	return f.Store.ReadState(ctx, id, refs, pieceBytes, nil, func(p *session.Unscoped[*session.StateChunk]) error { return piece(p.Shown(Everything)) })
}

func (f *Fixture) ReadRange(ctx context.Context, id, after, below string, maxBytes, maxEntries int, refs []string) (*session.StateRange, error) {
	page, err := f.Store.ReadRange(ctx, id, after, below, maxBytes, maxEntries, refs)
	return whole(page, err)
}

func (f *Fixture) ReadOutline(ctx context.Context, id, after, below string, most int, refs []string) (*session.StateRange, error) {
	page, err := f.Store.ReadOutline(ctx, id, after, below, most, refs)
	return whole(page, err)
}

func (f *Fixture) ReadValues(ctx context.Context, id string, keys []string, maxBytes int, refs []string) (*session.StateRange, int, error) {
	found, next, err := f.Store.ReadValues(ctx, id, keys, maxBytes, refs)
	page, err := whole(found, err)
	return page, next, err
}

func (f *Fixture) Describe(ctx context.Context, id string, refs []string) (*session.Access, *session.Entry, error) {
	found, err := f.Store.Describe(ctx, id, refs)
	if err != nil {
		return nil, nil, err
	}
	d := found.Shown(Everything)
	return &d.Access, d.Info, nil
}

func whole[P any](page interface{ Shown(*capability.Grant) P }, err error) (all P, _ error) {
	if err == nil {
		all = page.Shown(Everything)
	}
	return all, err
}

// Begin gives a test a store on a database in which nobody else has what it makes.
func Begin(t testing.TB, fresh Fresh) *Fixture {
	t.Helper()
	db := fresh(t)
	if db.opened == nil {
		return Open(t, db)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	t.Cleanup(cancel)
	return &Fixture{TB: t, Ctx: ctx, Store: db.opened}
}

// Open opens a store of its own, which is closed when the test ends.
func Open(t testing.TB, db Database) *Fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	t.Cleanup(cancel)
	s, err := db.Open(ctx)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &Fixture{TB: t, Ctx: ctx, Store: s}
}

// Save writes changes in a transaction that has locked the sessions.
func (f *Fixture) Save(c *session.Changes, sessions ...string) {
	f.Helper()
	err := f.Update(f.Ctx, func(tx session.Tx) error {
		if _, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: sessions}); err != nil {
			return err
		}
		return tx.Save(f.Ctx, c)
	})
	if err != nil {
		f.Fatalf("save: %v", err)
	}
}

// Load reads in a transaction of its own.
func (f *Fixture) Load(w *session.ReadSet) *session.Rows {
	f.Helper()
	var rows *session.Rows
	err := f.Update(f.Ctx, func(tx session.Tx) (err error) {
		rows, err = tx.Load(f.Ctx, w)
		return err
	})
	if err != nil {
		f.Fatalf("load: %v", err)
	}
	return rows
}

// Must stops the test on an error.
func (f *Fixture) Must(what string, err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", what, err)
	}
}

// WantCode checks an error's code.
func (f *Fixture) WantCode(what string, err error, want fault.Code) {
	f.Helper()
	if fault.CodeOf(err) != want {
		f.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

// Same compares two values and tells where they differ.
func Same[T any](f *Fixture, what string, got, want T) {
	f.Helper()
	if !reflect.DeepEqual(got, want) {
		f.Errorf("%s: got %s, want %s", what, show(got), show(want))
	}
}

func show(v any) string {
	if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && !r.IsNil() {
		return fmt.Sprintf("&%+v", r.Elem().Interface())
	}
	return fmt.Sprintf("%+v", v)
}
