// Several servers of one database: each decides on what the others have committed.

package scripts

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// replicas are stores on one database, of which one at a time is asked.
type replicas struct {
	*twin
	all []*store.Store
}

// beginReplicas opens as many stores as the database allows, up to n.
func beginReplicas(t *testing.T, fresh harness.Fresh, n int, seed uint64) *replicas {
	t.Helper()
	db := fresh(t)
	f := harness.Begin(t, func(testing.TB) harness.Database { return db })
	s := &replicas{twin: &twin{Fixture: f, model: memtx.New(), seed: seed}, all: []*store.Store{f.Store}}
	for db.Shared && len(s.all) < n {
		s.all = append(s.all, harness.Open(t, db).Store)
	}
	return s
}

// use has server i asked from now on.
func (s *replicas) use(i int) { s.Store = s.all[i%len(s.all)] }

// both does something on the server that is asked and in memory, at the same time
// of their clocks.
func (s *replicas) both(what string, do func(session.Tx) error) {
	s.Helper()
	var clock *harness.ClockTx
	s.Must(what, s.Update(s.Ctx, func(tx session.Tx) error {
		clock = &harness.ClockTx{Tx: tx}
		return do(clock)
	}))
	s.model.Now = clock.Now
	s.Must(what+" in memory", s.model.Update(s.Ctx, do))
}

// testReplicaScripts: random scripts come to the same, answer by answer, on several
// servers in turns, which do not know of one another.
func testReplicaScripts(t *testing.T, fresh harness.Fresh) {
	s := beginReplicas(t, fresh, 3, 0)
	for _, seed := range seeds(s.twin.Fixture, 1, 2, 3) {
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
	var group []decide.Submission
	for range 1 + s.rand.IntN(2) {
		var ops []ledger.Intent
		for range 1 + s.rand.IntN(3) {
			ops = append(ops, harness.PutOp(fmt.Sprintf("message/m%d", s.rand.IntN(12)), `{"n":%d}`, s.rand.IntN(3)))
		}
		sub := o.Batch(s.oneIn(4), ops...)
		s.sent, group = append(s.sent, sub), append(group, sub)
	}
	o.Acked = max(o.Acked, o.Seq-uint64(s.rand.IntN(3)))
	s.commit(group...)
}

// replicaCase is what another server does to a session.
type replicaCase struct {
	name      string
	before    func(s *replicas, o *harness.Author) // done by the first server
	meanwhile func(s *replicas, o *harness.Author) // done by the second
	next      func(o *harness.Author) decide.Submission
}

func appends(key string) func(*replicas, *harness.Author) {
	return func(s *replicas, o *harness.Author) { s.commit(o.Batch(false, harness.PutOp(key, `{"n":0}`))) }
}

// secondOutbox has a second outbox of the owner's do ops.
func secondOutbox(ops ...func() ledger.Intent) func(*replicas, *harness.Author) {
	return func(s *replicas, o *harness.Author) {
		other := s.open(o.WithRef(o.Ref))
		for _, op := range ops {
			s.commit(other.Batch(false, op()))
		}
	}
}

func directly(d func(o *harness.Author) *decide.Direct) func(*replicas, *harness.Author) {
	return func(s *replicas, o *harness.Author) {
		s.commit(decide.Submission{Batch: ledger.Batch{Session: o.Session}, Ref: o.Ref, Direct: d(o)})
	}
}

func byVisitor(o *harness.Author) decide.Submission {
	return o.Visitor.Batch(false, harness.PutOp("message/next", `{}`))
}

func visitorBegins(s *replicas, o *harness.Author) {
	s.commit(o.Visitor.Batch(false, harness.BeginOp("visit")()))
}

var replicaCases = []replicaCase{
	{name: "nothing", meanwhile: func(*replicas, *harness.Author) {}},
	{name: "an append", meanwhile: appends("message/b")},
	{name: "an append by somebody else", meanwhile: secondOutbox(func() ledger.Intent { return harness.PutOp("message/b", `{}`) })},
	{name: "an acknowledgement", meanwhile: func(s *replicas, o *harness.Author) {
		o.Acked = o.Seq - 1
		s.commit(decide.Submission{Ack: true, Ref: o.Ref,
			Batch: ledger.Batch{Session: o.Session, Outbox: o.Outbox, Incarnation: 1, AckedThrough: o.Acked}})
	}},
	{name: "a takeover of the outbox", meanwhile: func(s *replicas, o *harness.Author) {
		_, err := s.OpenStream(s.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, o.Secret, 2)
		s.Must("take over", err)
		s.model.OpenStream(o.Session, o.Outbox, 2)
	}},
	{name: "the key put", meanwhile: secondOutbox(func() ledger.Intent { return harness.PutOp("message/next", `{"n":1}`) })},
	{name: "the key removed", before: appends("message/next"),
		meanwhile: secondOutbox(func() ledger.Intent { return harness.NewIntent(session.MethodRemove, "key", "message/next") })},
	{name: "the key put otherwise", before: appends("message/next"),
		meanwhile: secondOutbox(func() ledger.Intent { return harness.PutOp("message/next", `{"n":2}`) })},
	{name: "the turn begun", meanwhile: secondOutbox(harness.BeginOp("next")),
		next: func(o *harness.Author) decide.Submission { return o.Batch(false, harness.BeginOp("next")()) }},
	{name: "nothing, but the key was put long before", meanwhile: func(*replicas, *harness.Author) {}, before: func(s *replicas, o *harness.Author) {
		appends("message/next")(s, o)
		for range 3 { // more than the store remembers of a session
			var ops []ledger.Intent
			for i := range 1000 {
				ops = append(ops, harness.PutOp(fmt.Sprintf("message/other%d-%d", o.Seq, i), `{}`))
			}
			s.commit(o.Batch(false, ops...))
			o.Acked = o.Seq
		}
	}},
	{name: "a turn ended", before: func(s *replicas, o *harness.Author) { s.commit(o.Batch(false, harness.BeginOp("turn")())) },
		meanwhile: secondOutbox(func() ledger.Intent {
			return harness.NewIntent(session.MethodFinalize, "message", "turn", "status", "aborted")
		})},
	{name: "a turn interrupted", before: func(s *replicas, o *harness.Author) { s.commit(o.Batch(false, harness.BeginOp("turn")())) },
		meanwhile: func(s *replicas, o *harness.Author) {
			s.both("lapse", func(tx session.Tx) error {
				_, err := maintain.Lapse(s.Ctx, tx, []string{o.Session}, true)
				return err
			})
		}},
	{name: "nothing, and a turn is begun", meanwhile: func(*replicas, *harness.Author) {}, before: visitorBegins,
		next: func(o *harness.Author) decide.Submission { return o.Batch(false, harness.BeginOp("next")()) }},
	{name: "nothing, and a turn is begun by somebody else", meanwhile: func(*replicas, *harness.Author) {}, before: visitorBegins,
		next: func(o *harness.Author) decide.Submission { return o.Visitor.Batch(false, harness.BeginOp("next")()) }},
	{name: "a ref revoked whose turn is open", before: visitorBegins,
		meanwhile: directly(func(o *harness.Author) *decide.Direct { return &decide.Direct{Ref: o.Visitor.Ref} }),
		next:      func(o *harness.Author) decide.Submission { return o.Batch(false, harness.BeginOp("next")()) }},
	{name: "a ref revoked", next: byVisitor,
		meanwhile: directly(func(o *harness.Author) *decide.Direct { return &decide.Direct{Ref: o.Visitor.Ref} })},
	{name: "a new epoch", next: byVisitor, meanwhile: directly(func(*harness.Author) *decide.Direct { return &decide.Direct{Epoch: true} })},
	{name: "the session deleted",
		meanwhile: secondOutbox(func() ledger.Intent { return harness.NewIntent(session.MethodDelete) })},
	{name: "its space's ref revoked, after its end", before: func(s *replicas, o *harness.Author) {
		s.commit(o.Batch(false, harness.NewIntent(session.MethodDelete)))
		s.commit(o.Batch(false, harness.PutOp("message/b", `{}`)))
	}, meanwhile: func(s *replicas, o *harness.Author) {
		s.both("revoke the space's ref", func(tx session.Tx) error {
			rows, err := tx.Load(s.Ctx, &session.ReadSet{ExclusiveSpaces: []string{capability.Target(o.Space)}, Grants: []string{o.Space}, Trees: []string{o.Space}})
			if err == nil {
				_, _, err = maintain.RevokeTree(s.Ctx, tx, rows.Grants[o.Space], o.Space, rows.Trees[o.Space], "")
			}
			return err
		})
	}},
	{name: "its space's root rotated", meanwhile: func(s *replicas, o *harness.Author) {
		fresh := &capability.Grant{ID: harness.NewRef(capability.Target(o.Space)), Target: capability.Target(o.Space), Hash: harness.Hash()}
		s.both("rotate the space's root", func(tx session.Tx) error {
			rows, err := tx.Load(s.Ctx, &session.ReadSet{ExclusiveSpaces: []string{fresh.Target}, Grants: []string{o.Space}})
			if err != nil {
				return err
			}
			c, _, err := maintain.RotateRoot([]*capability.Grant{rows.Grants[o.Space]}, nil, fresh, rows.Now)
			if err != nil {
				return err
			}
			return tx.Save(s.Ctx, c)
		})
	}},
	{name: "the log trimmed", meanwhile: func(s *replicas, o *harness.Author) {
		_, err := s.Trim(s.Ctx, o.Session, harness.KeepNothing, 2, 1<<20)
		s.Must("trim", err)
	}},
	{name: "the key put otherwise, before a stream is opened here", before: appends("message/next"),
		meanwhile: func(s *replicas, o *harness.Author) {
			secondOutbox(func() ledger.Intent { return harness.PutOp("message/next", `{"n":2}`) })(s, o)
			s.use(0)
			s.open(o.WithRef(o.Ref))
		}},
	{name: "nothing but a new incarnation", meanwhile: func(*replicas, *harness.Author) {}, next: func(o *harness.Author) decide.Submission {
		sub := o.Batch(false, harness.PutOp("message/next", `{"n":2}`))
		sub.Batch.Incarnation = 2
		return sub
	}},
	{name: "a batch sent again", meanwhile: appends("message/b"),
		next: func(o *harness.Author) decide.Submission { return o.Last }},
}

// testReplicasMeanwhile: whatever another server does to a session, the next batch gets
// the answer that it would get there.
func testReplicasMeanwhile(t *testing.T, fresh harness.Fresh) {
	for _, c := range replicaCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := beginReplicas(t, fresh, 2, 0)
			root := s.Space()
			s.model.AddGrant(*root)
			o := s.open(harness.NewAuthor(root.ID))
			guest := harness.ClientRef(o.Session)
			s.commit(o.Batch(false, o.Create(), harness.ShareOp(guest, "read", "append")))
			o.Visitor = s.open(o.WithRef(guest))
			s.commit(o.Visitor.Batch(false, harness.PutOp("message/visit", `{}`)))
			o.Last = o.Batch(false, harness.PutOp("message/a", `{}`))
			s.commit(o.Last)
			if c.before != nil {
				c.before(s, o)
			}
			s.commit(o.Batch(false, harness.PutOp("message/c", `{}`)))
			s.use(1)
			c.meanwhile(s, o)
			s.use(0)
			sub := decide.Submission{}
			if c.next != nil {
				sub = c.next(o)
			} else {
				sub = o.Batch(false, harness.PutOp("message/next", `{"n":2}`))
			}
			s.commit(sub)
			// It goes on from there.
			for range 3 {
				s.commit(o.Batch(false, harness.PutOp("message/next", `{"n":3}`)), o.Batch(false, harness.PutOp("message/d", `{"n":%d}`, o.Seq)))
			}
			s.compare(o.Session, []*harness.Author{o, o.Visitor}, []string{o.Ref, guest})
		})
	}
}
