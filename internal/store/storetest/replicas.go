// Several servers of one database: each decides on what the others have committed.

package storetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/ledger"
)

// replicas are stores on one database, of which one at a time is asked.
type replicas struct {
	*twin
	all []*store.Store
}

// beginReplicas opens as many stores as the database allows, up to n.
func beginReplicas(t *testing.T, fresh Fresh, n int, seed uint64) *replicas {
	t.Helper()
	db := fresh(t)
	f := begin(t, func(testing.TB) Database { return db })
	s := &replicas{twin: &twin{fixture: f, model: memtx.New(), seed: seed}, all: []*store.Store{f.Store}}
	for db.Shared && len(s.all) < n {
		s.all = append(s.all, open(t, db).Store)
	}
	return s
}

// use has server i asked from now on.
func (s *replicas) use(i int) { s.Store = s.all[i%len(s.all)] }

// both does something on the server that is asked and in memory, at the same time
// of their clocks.
func (s *replicas) both(what string, do func(session.Tx) error) {
	s.Helper()
	var clock *clockTx
	s.must(what, s.Update(s.ctx, func(tx session.Tx) error {
		clock = &clockTx{Tx: tx}
		return do(clock)
	}))
	s.model.Now = clock.now
	s.must(what+" in memory", s.model.Update(s.ctx, do))
}

// testReplicaScripts: random scripts come to the same, answer by answer, on several
// servers in turns, which do not know of one another.
func testReplicaScripts(t *testing.T, fresh Fresh) {
	s := beginReplicas(t, fresh, 3, 0)
	for _, seed := range s.seeds(1, 2, 3) {
		s.twin.seed, s.twin.model = seed, memtx.New()
		script, turns := newScript(s.twin), rand.New(rand.NewPCG(seed, 2))
		for i := range 120 {
			if i%40 == 39 {
				script.newSession()
			}
			if turns.IntN(8) == 0 {
				s.use(turns.IntN(len(s.all)))
			}
			if turns.IntN(4) == 0 {
				script.step()
			} else {
				script.puts()
			}
		}
		script.finish()
	}
}

// puts commits a batch or two of an author.
func (s *script) puts() {
	o := pick(s, s.authors)
	var group []session.Submission
	for range 1 + s.rand.IntN(2) {
		var ops []ledger.Intent
		for range 1 + s.rand.IntN(3) {
			ops = append(ops, putOp(fmt.Sprintf("message/m%d", s.rand.IntN(12)), `{"n":%d}`, s.rand.IntN(3)))
		}
		sub := o.batch(s.oneIn(4), ops...)
		s.sent, group = append(s.sent, sub), append(group, sub)
	}
	o.acked = max(o.acked, o.seq-uint64(s.rand.IntN(3)))
	s.commit(group...)
}

// replicaCase is what another server does to a session.
type replicaCase struct {
	name      string
	before    func(s *replicas, o *author) // done by the first server
	meanwhile func(s *replicas, o *author) // done by the second
	next      func(o *author) session.Submission
}

func appends(key string) func(*replicas, *author) {
	return func(s *replicas, o *author) { s.commit(o.batch(false, putOp(key, `{"n":0}`))) }
}

// secondOutbox has a second outbox of the owner's do ops.
func secondOutbox(ops ...func() ledger.Intent) func(*replicas, *author) {
	return func(s *replicas, o *author) {
		other := s.open(o.withRef(o.ref))
		for _, op := range ops {
			s.commit(other.batch(false, op()))
		}
	}
}

func beginOp(message string) func() ledger.Intent {
	return func() ledger.Intent {
		return newIntent(session.MethodBegin, "message", message, "payload", json.RawMessage(`{"role":"x"}`))
	}
}

func directly(d func(o *author) *session.Direct) func(*replicas, *author) {
	return func(s *replicas, o *author) {
		s.commit(session.Submission{Batch: ledger.Batch{Session: o.session}, Ref: o.ref, Direct: d(o)})
	}
}

func byVisitor(o *author) session.Submission {
	return o.visitor.batch(false, putOp("message/next", `{}`))
}

func visitorBegins(s *replicas, o *author) { s.commit(o.visitor.batch(false, beginOp("visit")())) }

var replicaCases = []replicaCase{
	{name: "nothing", meanwhile: func(*replicas, *author) {}},
	{name: "an append", meanwhile: appends("message/b")},
	{name: "an append by somebody else", meanwhile: secondOutbox(func() ledger.Intent { return putOp("message/b", `{}`) })},
	{name: "an acknowledgement", meanwhile: func(s *replicas, o *author) {
		o.acked = o.seq - 1
		s.commit(session.Submission{Ack: true, Ref: o.ref,
			Batch: ledger.Batch{Session: o.session, Outbox: o.outbox, Incarnation: 1, AckedThrough: o.acked}})
	}},
	{name: "a takeover of the outbox", meanwhile: func(s *replicas, o *author) {
		_, err := s.OpenStream(s.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, o.secret, 2)
		s.must("take over", err)
		s.model.OpenStream(o.session, o.outbox, 2)
	}},
	{name: "the key put", meanwhile: secondOutbox(func() ledger.Intent { return putOp("message/next", `{"n":1}`) })},
	{name: "the key removed", before: appends("message/next"),
		meanwhile: secondOutbox(func() ledger.Intent { return newIntent(session.MethodRemove, "key", "message/next") })},
	{name: "the key put otherwise", before: appends("message/next"),
		meanwhile: secondOutbox(func() ledger.Intent { return putOp("message/next", `{"n":2}`) })},
	{name: "the turn begun", meanwhile: secondOutbox(beginOp("next")),
		next: func(o *author) session.Submission { return o.batch(false, beginOp("next")()) }},
	{name: "nothing, but the key was put long before", meanwhile: func(*replicas, *author) {}, before: func(s *replicas, o *author) {
		appends("message/next")(s, o)
		for range 3 { // more than the store remembers of a session
			var ops []ledger.Intent
			for i := range 1000 {
				ops = append(ops, putOp(fmt.Sprintf("message/other%d-%d", o.seq, i), `{}`))
			}
			s.commit(o.batch(false, ops...))
			o.acked = o.seq
		}
	}},
	{name: "a turn ended", before: func(s *replicas, o *author) { s.commit(o.batch(false, beginOp("turn")())) },
		meanwhile: secondOutbox(func() ledger.Intent {
			return newIntent(session.MethodFinalize, "message", "turn", "status", "aborted")
		})},
	{name: "a turn interrupted", before: func(s *replicas, o *author) { s.commit(o.batch(false, beginOp("turn")())) },
		meanwhile: func(s *replicas, o *author) {
			s.both("lapse", func(tx session.Tx) error {
				_, err := session.Lapse(s.ctx, tx, []string{o.session}, true)
				return err
			})
		}},
	{name: "nothing, and a turn is begun", meanwhile: func(*replicas, *author) {}, before: visitorBegins,
		next: func(o *author) session.Submission { return o.batch(false, beginOp("next")()) }},
	{name: "nothing, and a turn is begun by somebody else", meanwhile: func(*replicas, *author) {}, before: visitorBegins,
		next: func(o *author) session.Submission { return o.visitor.batch(false, beginOp("next")()) }},
	{name: "a ref revoked whose turn is open", before: visitorBegins,
		meanwhile: directly(func(o *author) *session.Direct { return &session.Direct{Ref: o.visitor.ref} }),
		next:      func(o *author) session.Submission { return o.batch(false, beginOp("next")()) }},
	{name: "a ref revoked", next: byVisitor,
		meanwhile: directly(func(o *author) *session.Direct { return &session.Direct{Ref: o.visitor.ref} })},
	{name: "a new epoch", next: byVisitor, meanwhile: directly(func(*author) *session.Direct { return &session.Direct{Epoch: true} })},
	{name: "the session deleted",
		meanwhile: secondOutbox(func() ledger.Intent { return newIntent(session.MethodDelete) })},
	{name: "its space's ref revoked, after its end", before: func(s *replicas, o *author) {
		s.commit(o.batch(false, newIntent(session.MethodDelete)))
		s.commit(o.batch(false, putOp("message/b", `{}`)))
	}, meanwhile: func(s *replicas, o *author) {
		s.both("revoke the space's ref", func(tx session.Tx) error {
			rows, err := tx.Load(s.ctx, &session.ReadSet{ExclusiveSpaces: []string{capability.Target(o.space)}, Grants: []string{o.space}, Trees: []string{o.space}})
			if err == nil {
				_, _, err = session.RevokeTree(s.ctx, tx, rows.Grants[o.space], o.space, rows.Trees[o.space], "")
			}
			return err
		})
	}},
	{name: "its space's root rotated", meanwhile: func(s *replicas, o *author) {
		fresh := &capability.Grant{ID: newRef(capability.Target(o.space)), Target: capability.Target(o.space), Hash: hash()}
		s.both("rotate the space's root", func(tx session.Tx) error {
			rows, err := tx.Load(s.ctx, &session.ReadSet{ExclusiveSpaces: []string{fresh.Target}, Grants: []string{o.space}})
			if err != nil {
				return err
			}
			c, _, err := session.RotateRoot([]*capability.Grant{rows.Grants[o.space]}, nil, fresh, rows.Now)
			if err != nil {
				return err
			}
			return tx.Save(s.ctx, c)
		})
	}},
	{name: "the log trimmed", meanwhile: func(s *replicas, o *author) {
		_, err := s.Trim(s.ctx, o.session, keepNothing, 2, 1<<20)
		s.must("trim", err)
	}},
	{name: "the key put otherwise, before a stream is opened here", before: appends("message/next"),
		meanwhile: func(s *replicas, o *author) {
			secondOutbox(func() ledger.Intent { return putOp("message/next", `{"n":2}`) })(s, o)
			s.use(0)
			s.open(o.withRef(o.ref))
		}},
	{name: "nothing but a new incarnation", meanwhile: func(*replicas, *author) {}, next: func(o *author) session.Submission {
		sub := o.batch(false, putOp("message/next", `{"n":2}`))
		sub.Batch.Incarnation = 2
		return sub
	}},
	{name: "a batch sent again", meanwhile: appends("message/b"),
		next: func(o *author) session.Submission { return o.last }},
}

// testReplicasMeanwhile: whatever another server does to a session, the next batch gets
// the answer that it would get there.
func testReplicasMeanwhile(t *testing.T, fresh Fresh) {
	for _, c := range replicaCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := beginReplicas(t, fresh, 2, 0)
			root := s.space()
			s.model.AddGrant(*root)
			o := s.open(newAuthor(root.ID))
			guest := clientRef(o.session)
			s.commit(o.batch(false, o.create(), shareOp(guest, "read", "append")))
			o.visitor = s.open(o.withRef(guest))
			s.commit(o.visitor.batch(false, putOp("message/visit", `{}`)))
			o.last = o.batch(false, putOp("message/a", `{}`))
			s.commit(o.last)
			if c.before != nil {
				c.before(s, o)
			}
			s.commit(o.batch(false, putOp("message/c", `{}`)))
			s.use(1)
			c.meanwhile(s, o)
			s.use(0)
			sub := session.Submission{}
			if c.next != nil {
				sub = c.next(o)
			} else {
				sub = o.batch(false, putOp("message/next", `{"n":2}`))
			}
			s.commit(sub)
			// It goes on from there.
			for range 3 {
				s.commit(o.batch(false, putOp("message/next", `{"n":3}`)), o.batch(false, putOp("message/d", `{"n":%d}`, o.seq)))
			}
			s.compare(o.session, []*author{o, o.visitor}, []string{o.ref, guest})
		})
	}
}

// testFeaturesInUse: in use is what every server knows that said so lately, and nothing while an
// upgrade is not finished.
func testFeaturesInUse(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	record := func(id string, knows session.Features, within time.Duration, want session.Features) {
		t.Helper()
		inUse, err := f.RecordReplica(f.ctx, id, knows, within)
		f.must("record a replica", err)
		if inUse != want {
			t.Errorf("%s knows %b: %b are in use, want %b", id, knows, inUse, want)
		}
	}
	record("a", 0b111, time.Hour, 0b111)
	record("b", 0b011, time.Hour, 0b011)
	record("a", 0b110, time.Hour, 0b010)
	f.must("forget a replica", f.ForgetReplica(f.ctx, "b"))
	record("a", 0b111, time.Hour, 0b111)
	record("old", 0, time.Hour, 0)
	record("a", 0b111, -time.Hour, 0b111) // of those alive none is heard of, not even this one
	record("a", 0b111, time.Hour, 0b111)  // and those that were not are gone

	pending, err := f.FinishUpgrade(f.ctx)
	f.must("finish the upgrade of a new database", err)
	if pending {
		t.Error("a new database is being upgraded")
	}
}
