package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// countingDB counts the refs that are read.
type countingDB struct {
	sqlstore.Database
	rows atomic.Int64
}

func (d *countingDB) Read(ctx context.Context, f func(sqlstore.Querier) error) error {
	return d.Database.Read(ctx, func(q sqlstore.Querier) error { return f(countingQuerier{q, d}) })
}

type countingQuerier struct {
	sqlstore.Querier
	db *countingDB
}

func (q countingQuerier) Query(ctx context.Context, sql string, args []any, each func(sqlstore.Scanner) error) error {
	if sql != q.db.Refs().Since && sql != q.db.Refs().All {
		return q.Querier.Query(ctx, sql, args, each)
	}
	n := int64(-1) // one row tells how a later reading begins, with a ref or without
	defer func() { q.db.rows.Add(max(n, 0)) }()
	return q.Querier.Query(ctx, sql, args, func(scan sqlstore.Scanner) error { n++; return each(scan) })
}

// TestOnlyNewRefsAreRead: with many refs stored, what one process stores costs the
// sender in another no more than those.
func TestOnlyNewRefsAreRead(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		const many = 300
		one, two := p.open(t, quick()), p.open(t, quick())
		ctx := limited(t)
		for range many {
			testRef(t, two, newSession(), RefMeta{})
		}
		db := &countingDB{Database: one.db}
		useDB(one, db)
		srv := newFakeServer()
		run(t, one, srv)
		// Other tests' transactions on this Postgres hold back what is known to be through.
		eventually(t, "all is read", func() bool {
			before := db.rows.Load()
			_, err := one.Refs(ctx)
			return err == nil && before >= many-1 && db.rows.Load() == before
		})
		before := db.rows.Load()
		for range 5 {
			session := withSession(t, two)
			wait(t, two, commit(t, two, Batch{Session: session, Ops: []Op{put("1")}}))
			own := withSession(t, one)
			wait(t, one, commit(t, one, Batch{Session: own, Ops: []Op{put("1")}}))
		}
		own := withSession(t, one)
		srv.setDown(fault.Unavailable.With("on request"))
		x := commit(t, one, Batch{Session: own, Ops: []Op{put("2")}})
		eventually(t, "it was tried", func() bool {
			st, err := one.Status(ctx)
			return err == nil && len(st.Streams) == 1 && st.Streams[0].Attempts > 4
		})
		srv.setDown(nil)
		wait(t, one, x)
		if read := db.rows.Load() - before; read >= 2*many { // a reading that began before may have ended since
			t.Errorf("%d refs were read for 11 new ones", read)
		}
	})
}

// TestRefDroppedByAnotherProcess: nothing more is sent under it, whoever sends.
func TestRefDroppedByAnotherProcess(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		sender, other := p.open(t, quick()), p.open(t, quick())
		ctx := limited(t)
		session := newSession()
		ref := testRef(t, other, session, RefMeta{})
		srv := newFakeServer()
		run(t, sender, srv)
		wait(t, other, commit(t, other, Batch{Session: session, Ops: []Op{put("1")}}))
		if err := other.DropRef(ctx, ref.ID, false); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the sender knows", func() bool { return len(sender.refs.Get(ref.ID)) == 0 })
		if _, err := sender.Commit(ctx, Batch{Session: session, Via: ref.ID, Ops: []Op{put("2")}}); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("committed under it: %v", err)
		}
		if n := len(srv.log(session)); n != 1 {
			t.Errorf("%d batches arrived", n)
		}
		// Stored again it is another one, with another id to redeem it by.
		if err := sender.PutRef(ctx, ref, RefMeta{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other knows", func() bool {
			got, err := other.Ref(ctx, ref.ID)
			return err == nil && got.Redemption != ""
		})
		wait(t, sender, commit(t, sender, Batch{Session: session, Via: ref.ID, Ops: []Op{put("3")}}))
	})
}

// TestDamagedRefIsLeftOut: a row that cannot be read is logged once, and everything
// else goes on.
func TestDamagedRefIsLeftOut(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		var logged atomic.Int64
		cfg := quick()
		cfg.Logger = slog.New(logFunc{slog.DiscardHandler, func(message string) {
			if strings.Contains(message, "damaged") {
				logged.Add(1)
			}
		}})
		b := p.open(t, cfg)
		ctx := limited(t)
		session := withSession(t, b)
		bad := testRef(t, b, newSession(), RefMeta{})
		_, err := b.db.Write(ctx, func(q sqlstore.Querier) error {
			_, err := q.Exec(ctx, `UPDATE mooring_outbox_ref SET ref = 'mooring://Bad host/x' WHERE box = $1 AND id = $2`, b.t.Box, bad.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		b.refs.Forget()
		run(t, b, newFakeServer())
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
		if refs, err := b.Refs(ctx); err != nil || len(refs) != 1 {
			t.Errorf("%d refs, %v", len(refs), err)
		}
		if _, err := b.Ref(ctx, bad.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("the damaged one: %v", err)
		}
		if n := logged.Load(); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if err := b.PutRef(ctx, bad, RefMeta{}); err != nil { // put again it is whole
			t.Fatal(err)
		}
		if _, err := b.Ref(ctx, bad.ID); err != nil {
			t.Error(err)
		}
	})
}

func TestPutRefTakesOnlyWhatCanBeReadAgain(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	for _, hosts := range [][]string{nil, {}, {"Bad host:1"}, {"example.com:99999"}, {"UPPER.example:1"}} {
		ref := capability.Ref{Hosts: hosts}.New(newSession())
		if err := b.PutRef(limited(t), ref, RefMeta{}); fault.CodeOf(err) != fault.BadRefText {
			t.Errorf("%q: %v", hosts, err)
		}
	}
	if refs, err := b.Refs(limited(t)); err != nil || len(refs) > 0 {
		t.Errorf("%d refs, %v", len(refs), err)
	}
}

// TestWhichRefIsUsed: of several refs for one session.
func TestWhichRefIsUsed(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	ctx := limited(t)
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	read, all := capability.Read, capability.Read|capability.Append|capability.Share
	for name, tc := range map[string]struct {
		refs []RefMeta
		want capability.Rights
		best int
	}{
		"the newest, of what nobody confirmed": {[]RefMeta{{}, {}}, capability.Append, 1},
		"one that is not confirmed shadows none that is": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1)}}, {}}, capability.Append, 0},
		"a weaker one that came later": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1), Rights: all}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: read}}}, capability.Append, 0},
		"the one confirmed last, if both have the right": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(3), Rights: all}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: all}}}, capability.Append, 0},
		"the one confirmed last, if none has it": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(3), Rights: read}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: read}}}, capability.Share, 0},
		"one that may have it": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1)}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: read}}}, capability.Share, 0},
		"one for all before one for a part": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1), Rights: all}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: all, Restricted: true}}}, capability.Append, 0},
		"to read, the one confirmed last": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1), Rights: all}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: read, Restricted: true}}}, capability.Read, 1},
		"to break a claim, one that may": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1), Rights: capability.Break}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: all}}}, capability.Break, 0},
		"to release one, else one that may append": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1), Rights: all}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: read}}}, capability.Break, 0},
		"to append and to break, one that appends": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1), Rights: all}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: capability.Break}}}, capability.Append | capability.Break, 0},
		"to append and to break, one that does both": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1), Rights: all | capability.Break}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: all}}}, capability.Append | capability.Break, 0},
		"to put a schema, one that may": {
			[]RefMeta{{RefStatus: RefStatus{Confirmed: at(1), Rights: capability.Schema}}, {RefStatus: RefStatus{Confirmed: at(2), Rights: all}}}, capability.Schema, 0},
		"one that lives": {
			[]RefMeta{{}, {RefStatus: RefStatus{Confirmed: at(2), Rights: all, Dead: fault.Revoked}}}, capability.Append, 0},
		"the owner's, of what was made here": {
			[]RefMeta{{Role: SessionOwner}, {RefStatus: RefStatus{Confirmed: at(2), Rights: all}}}, capability.Append, 0},
		"another, if the owner's is dead": {
			[]RefMeta{{Role: SessionOwner, RefStatus: RefStatus{Dead: fault.AlreadyExists}}, {}}, capability.Append, 1},
	} {
		session := newSession()
		var refs []capability.Ref
		for _, meta := range tc.refs {
			refs = append(refs, testRef(t, b, session, meta))
		}
		got, err := b.RefFor(ctx, session, tc.want)
		if err != nil || got.ID != refs[tc.best].ID {
			t.Errorf("%s: %v, %v", name, got.RefMeta, err)
		}
	}
	if _, err := b.RefFor(ctx, newSession(), 0); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("no ref: %v", err)
	}
}

// TestRefAnswered: which secret and which address are kept.
func TestRefAnswered(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, other := p.open(t, quick()), p.open(t, quick())
		ctx := limited(t)
		elsewhere := capability.Ref{Hosts: []string{"127.0.0.1:7700"}}
		kept := func(id string) SavedRef {
			t.Helper()
			r, err := other.Ref(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		right := testRef(t, b, newSession(), RefMeta{Label: "mine"})
		wrong := right.With(right.ID, capability.NewSecret())
		far := elsewhere.With(right.ID, capability.NewSecret())
		redemption := kept(right.ID).Redemption
		status := RefStatus{Confirmed: time.UnixMilli(1000), Rights: capability.Read, Restricted: true}

		if err := b.PutRef(ctx, wrong, RefMeta{}); err != nil || !kept(right.ID).Secret.Equal(wrong.Secret) {
			t.Errorf("a secret that nobody confirmed is not replaced: %v", err)
		}
		if err := b.confirmRef(ctx, right, status, "ses_outside"); err != nil {
			t.Fatal(err)
		}
		got := kept(right.ID)
		if !got.Secret.Equal(right.Secret) || got.RefStatus != status || got.External != "ses_outside" || got.Redemption != redemption {
			t.Errorf("confirmed: %+v", got.RefMeta)
		}
		if err := b.PutRef(ctx, wrong, RefMeta{}); fault.CodeOf(err) != fault.AlreadyExists {
			t.Errorf("another secret put over it: %v", err)
		}
		if err := b.confirmRef(ctx, far, status, ""); fault.CodeOf(err) != fault.AlreadyExists {
			t.Errorf("another server's word for another secret: %v", err)
		}
		if err := b.confirmRef(ctx, wrong, RefStatus{Dead: fault.UnknownRef}, ""); err != nil || kept(right.ID).Dead != fault.None {
			t.Errorf("a word about another secret: %v, %v", kept(right.ID).Dead, err)
		}
		moved := elsewhere.With(right.ID, right.Secret)
		if err := b.confirmRef(ctx, moved, RefStatus{Confirmed: time.UnixMilli(2000)}, ""); err != nil {
			t.Fatal(err)
		}
		if got := kept(right.ID); got.Address() != moved.Address() || got.Rights != capability.Read || got.External != "ses_outside" {
			t.Errorf("after a move: %v %+v", got.Ref, got.RefMeta)
		}
		if err := b.confirmRef(ctx, moved, RefStatus{Dead: fault.Revoked}, ""); err != nil || kept(right.ID).Dead != fault.Revoked || kept(right.ID).Confirmed.IsZero() {
			t.Errorf("dead: %+v, %v", kept(right.ID).RefMeta, err)
		}
		unknown := testAddress.New(newSession())
		if err := b.confirmRef(ctx, unknown, status, ""); err != nil {
			t.Error(err)
		}
		if _, err := b.Ref(ctx, unknown.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("one that is not stored: %v", err)
		}
	})
}

// Readings overlap with each other and with what is written; none loses anything.
func TestRefsAreReadAndWrittenAtOnce(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		boxes := []*Box{p.open(t, quick()), p.open(t, quick())}
		ctx := limited(t)
		var mu sync.Mutex
		stored := map[string]bool{} // by id; false: dropped
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for j := range 25 {
					b := boxes[(i+j)%2]
					ref := testAddress.New(newSession())
					if err := b.PutRef(ctx, ref, RefMeta{Label: fmt.Sprint(i, j)}); err != nil {
						t.Error(err)
						return
					}
					drop := j%3 == 0
					if drop {
						if err := boxes[j%2].DropRef(ctx, ref.ID, false); err != nil {
							t.Error(err)
						}
					}
					if _, err := boxes[j%2].RefFor(ctx, ref.Target(), 0); (err == nil) == drop {
						t.Errorf("found right away: %v", err)
					}
					mu.Lock()
					stored[ref.ID] = !drop
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for _, b := range boxes {
			list, err := b.Refs(ctx)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for _, there := range stored {
				if there {
					want++
				}
			}
			if len(list) != want || !slices.IsSortedFunc(list, func(a, b SavedRef) int { return refs.CompareByAge(&a, &b) }) {
				t.Errorf("%d refs, want %d", len(list), want)
			}
			for _, r := range list {
				if !stored[r.ID] {
					t.Errorf("%s was dropped", r.ID)
				}
			}
		}
	})
}
