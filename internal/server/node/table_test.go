//go:build unix

// Every row of the ledger's table, from outside: what arrives on a stream, and
// what is answered over the wire.

package node

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// row is one row of the table, on a session of its own.
type row func(t *testing.T, r *rig, p *peer, m *made)

func TestEveryRowOfTheTable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		for name, row := range map[string]row{
			"fenced":                      rowFenced,
			"server behind":               rowServerBehind,
			"duplicate":                   rowDuplicate,
			"diverged":                    rowDiverged,
			"gap":                         rowGap,
			"skipped":                     rowSkipped,
			"denied":                      rowDenied,
			"denied expired":              rowDeniedExpired,
			"conflict":                    rowConflict,
			"rejected":                    rowRejected,
			"rejected in an atomic batch": rowRejectedInAnAtomicBatch,
			"voided":                      rowVoided,
			"applied":                     rowApplied,
			"a stolen outbox id":          stolenOutboxID,
			"another's session":           spaceCreateGivesNoOthersSession,
		} {
			t.Run(name, func(t *testing.T) {
				p := r.dialIn(t)
				row(t, r, p, r.create(p))
			})
		}
	})
}

func wantRefusal(t *testing.T, label string, r *reply, code fault.Code, at uint64) {
	t.Helper()
	if r.refusal == nil || r.refusal.Code != code || at != 0 && r.refusal.At != at {
		t.Fatalf("%s: %+v, want %s at %d", label, r, code, at)
	}
	if r.refusal.Message == "" {
		t.Errorf("%s: refused without a word", label)
	}
}

// wantRecorded checks one outcome that is not applied.
func wantRecorded(t *testing.T, label string, o ledger.Outcome, status ledger.Status, reason fault.Code) {
	t.Helper()
	if o.Status != status || o.Reason != reason || o.Message == "" || len(o.Result) > 0 {
		t.Fatalf("%s: %+v, want status %d, reason %s", label, o, status, reason)
	}
}

// wantAgain sends a batch once more and wants the same outcomes, as duplicates.
func wantAgain(t *testing.T, p *peer, stream *rpc.Ref, b *ledger.Batch, first *reply) {
	t.Helper()
	again := p.must(stream, b)
	if !reflect.DeepEqual(again.outcomes, first.outcomes) {
		t.Errorf("repeated as\n%+v, was\n%+v", again.outcomes, first.outcomes)
	}
	if int(again.duplicates) != len(b.Ops) || again.applied != 0 || again.rejected != 0 || !again.repeated[0] {
		t.Errorf("counted as %+v", again)
	}
}

func rowFenced(t *testing.T, _ *rig, p *peer, m *made) {
	old := m.stream
	m.box.incarnation = 2
	newer := p.open(m.sess, m.box)
	b := m.batch(put(1))
	p.must(newer, b)
	wantRefusal(t, "the old incarnation", p.apply(old, m.batch(put(2))), fault.Fenced, 0)
	wantRefusal(t, "the old incarnation repeats", p.apply(old, b), fault.Fenced, 0)
	m.box.incarnation = 1
	_, _, err := p.opening(m.sess, m.box).Wait(within(t))
	if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != fault.Fenced {
		t.Errorf("opening as the old incarnation: %v", err)
	}
}

func reasonOf(err error) string {
	if ex, ok := err.(*rpc.Exception); ok {
		return ex.Reason
	}
	return ""
}

func rowServerBehind(t *testing.T, _ *rig, p *peer, m *made) {
	b := m.batch(put(1))
	b.AckedThrough = 9
	wantRefusal(t, "acked_through 9 of 1", p.apply(m.stream, b), fault.ServerBehind, 1)
	refusal := acknowledge(t, m.stream, 9)
	if refusal.Code != fault.ServerBehind || refusal.At != 1 {
		t.Errorf("acknowledge 9 of 1: %v", refusal)
	}
	b.AckedThrough = 1
	p.must(m.stream, b)
}

func acknowledge(t *testing.T, stream *rpc.Ref, through uint64) *fault.Error {
	t.Helper()
	s, _, err := call(t, stream, methods.StreamAcknowledge.Method, methods.StreamAcknowledge.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Stream_acknowledge_Params(s).SetThrough(through)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.Stream_acknowledge_Results(s).Refusal()
	if err != nil {
		t.Fatal(err)
	}
	return readRefusal(r)
}

func rowDuplicate(t *testing.T, r *rig, p *peer, m *made) {
	b := m.batch(put(1), op("nosuch"), op("put", "key", "bad key", "payload", map[string]int{}))
	first := p.must(m.stream, b)
	if first.applied != 1 || first.rejected != 2 {
		t.Fatalf("at first: %+v", first)
	}
	wantAgain(t, p, m.stream, b, first)
	other := r.dial() // another connection, another object, the same stream
	wantAgain(t, other, other.open(other.restore(m.owner), m.box), b, first)

	if refusal := acknowledge(t, m.stream, m.box.seq); refusal.Code != fault.None {
		t.Fatalf("acknowledge: %v", refusal)
	}
	again := p.must(m.stream, b)
	for _, o := range again.outcomes {
		if o.Status != 0 || o.Reason != fault.Pruned {
			t.Errorf("after it was acknowledged: %+v", o)
		}
	}
	if again.duplicates != 3 || again.cursor != first.cursor {
		t.Errorf("after it was acknowledged: %+v", again)
	}
}

func rowDiverged(t *testing.T, _ *rig, p *peer, m *made) {
	b := m.batch(put(1), put(2))
	p.must(m.stream, b)
	otherID, otherArgs, shorter := *b, *b, *b
	otherID.Ops = append([]ledger.Intent(nil), b.Ops...)
	otherID.Ops[1].OpID = ulid.Make().String()
	otherArgs.Ops = append([]ledger.Intent(nil), b.Ops...)
	otherArgs.Ops[0].Args = put(3).Args
	shorter.Ops = b.Ops[:1]
	for label, b := range map[string]*ledger.Batch{"another op id": &otherID, "other arguments": &otherArgs, "a shorter batch": &shorter} {
		wantRefusal(t, label, p.apply(m.stream, b), fault.OutboxDiverged, 0)
	}
	wantRefusal(t, "the next seq, behind one that diverged", p.apply(m.stream, m.batch(put(4))), fault.OutboxDiverged, 0)
}

func rowGap(t *testing.T, _ *rig, p *peer, m *made) {
	lost, late := m.batch(put(1)), m.batch(put(2))
	wantRefusal(t, "seq 3 of 2", p.apply(m.stream, late), fault.Gap, 2)
	p.must(m.stream, lost)
	p.must(m.stream, late)
}

func rowSkipped(t *testing.T, _ *rig, p *peer, m *made) {
	bad := op("nosuch")
	depends := put(1)
	depends.DependsOn = []string{bad.OpID}
	refers := op("put", "key", "message/msg_2", "payload", ledger.Ref{Op: depends.OpID, Path: "cursor"})
	ack := p.must(m.stream, m.batch(bad, depends, refers, put(3)))
	wantRecorded(t, "the cause", ack.outcomes[0], ledger.Rejected, fault.UnknownMethod)
	wantRecorded(t, "depends_on", ack.outcomes[1], ledger.Skipped, fault.UnknownMethod)
	wantRecorded(t, "a reference", ack.outcomes[2], ledger.Skipped, fault.UnknownMethod)
	if ack.outcomes[1].Cause != bad.OpID || ack.outcomes[2].Cause != depends.OpID || ack.outcomes[3].Status != ledger.Applied {
		t.Errorf("%+v", ack.outcomes)
	}
	later := put(4)
	later.DependsOn = []string{bad.OpID} // in another batch
	ack = p.must(m.stream, m.batch(later))
	wantRecorded(t, "depends_on in a later batch", ack.outcomes[0], ledger.Skipped, fault.UnknownMethod)
}

func rowDenied(t *testing.T, r *rig, p *peer, m *made) {
	type guest struct {
		ref    capability.Ref
		stream *rpc.Ref
		box    *box
	}
	guestOf := func(args ...any) *guest {
		g := &guest{ref: p.share(m, args...), box: newBox()}
		g.stream = p.open(p.restore(g.ref), g.box)
		return g
	}
	denied := func(label string, g *guest, o ledger.Intent, reason fault.Code) {
		t.Helper()
		b := g.box.batch(m.id, o)
		first := p.must(g.stream, b)
		wantRecorded(t, label, first.outcomes[0], ledger.Denied, reason)
		wantAgain(t, p, g.stream, b, first)
	}
	reader := guestOf("rights", []string{"read"})
	writer := guestOf("rights", []string{"read", "append"})
	narrow := guestOf("rights", []string{"append"}, "methods", []string{"put"})
	denied("append without the right", reader, put(1), fault.MissingRight)
	denied("a method that is not named", narrow, op("remove", "key", "message/msg_1"), fault.MissingRight)
	denied("share without the right", writer, op("share", "ref", m.owner.New(m.id).ID, "hash", hashText(capability.NewSecret()), "rights", []string{"read"}), fault.MissingRight)
	denied("delete, no owner", writer, op("delete"), fault.NotAnOwner)
	p.must(writer.stream, writer.box.batch(m.id, put(1)))
	p.must(narrow.stream, narrow.box.batch(m.id, put(2)))

	p.must(m.stream, m.batch(op("revoke", "ref", writer.ref.ID)))
	denied("a revoked ref", writer, put(3), fault.Revoked)
	// A dead ref with the right secret restores to what repeats and denies.
	dead := p.open(p.restore(writer.ref), writer.box)
	writer.stream = dead
	denied("a dead ref restored", writer, put(4), fault.Revoked)

	p.must(m.stream, m.batch(op("bumpEpoch")))
	denied("an older epoch", narrow, put(5), fault.StaleEpoch)
	late := guestOf("rights", []string{"append"})
	p.must(late.stream, late.box.batch(m.id, put(6)))

}

func rowDeniedExpired(t *testing.T, r *rig, p *peer, m *made) {
	ref := p.share(m, "rights", []string{"append"}, "expires_at", r.server.cfg.Now().UnixMilli()+400)
	b := newBox()
	stream := p.open(p.restore(ref), b)
	for n := 0; ; n++ {
		ack := p.must(stream, b.batch(m.id, put(n)))
		if ack.outcomes[0].Status == ledger.Applied {
			continue
		}
		wantRecorded(t, "an expired ref", ack.outcomes[0], ledger.Denied, fault.Expired)
		return
	}
}

func rowConflict(t *testing.T, _ *rig, p *peer, m *made) {
	good, bad := put(1), put(2)
	good.Expected, bad.Expected = ledger.Expect{Set: true, Cursor: 1}, ledger.Expect{Set: true, Cursor: 1}
	if ack := p.must(m.stream, m.batch(good)); ack.applied != 1 {
		t.Fatalf("the right cursor: %+v", ack)
	}
	b := m.batch(bad, put(3))
	ack := p.must(m.stream, b)
	wantRecorded(t, "the wrong cursor", ack.outcomes[0], ledger.Conflict, fault.Conflict)
	if ack.outcomes[0].Cursor != 2 || ack.outcomes[1].Status != ledger.Applied {
		t.Errorf("%+v", ack.outcomes)
	}
	wantAgain(t, p, m.stream, b, ack)
}

func rowRejected(t *testing.T, _ *rig, p *peer, m *made) {
	for label, c := range map[string]struct {
		op     ledger.Intent
		reason fault.Code
	}{
		"unknown method":  {op("nosuch"), fault.UnknownMethod},
		"bad key":         {op("put", "key", "turn/x", "payload", map[string]int{}), fault.BadKey},
		"no object":       {op("put", "key", "session", "payload", 7), fault.BadPayload},
		"not JSON":        {op("put", "key", "session", "payload", json.RawMessage(`{"a":`)), fault.Malformed},
		"missing":         {op("put", "key", "session"), fault.BadArgument},
		"no such turn":    {op("finalize", "message", "msg_1", "status", "completed"), fault.NotFound},
		"unknown op":      {op("put", "key", "session", "payload", ledger.Ref{Op: ulid.Make().String(), Path: "x"}), fault.BadReference},
		"created already": {op("create", "ref", m.owner.New(m.id).ID, "hash", hashText(m.owner.Secret)), fault.AlreadyExists},
	} {
		b := m.batch(c.op, put(1))
		ack := p.must(m.stream, b)
		wantRecorded(t, label, ack.outcomes[0], ledger.Rejected, c.reason)
		if ack.outcomes[1].Status != ledger.Applied {
			t.Errorf("%s: a sibling: %+v", label, ack.outcomes[1])
		}
		wantAgain(t, p, m.stream, b, ack)
	}
}

func rowRejectedInAnAtomicBatch(t *testing.T, _ *rig, p *peer, m *made) {
	bad := op("nosuch")
	b := m.batch(put(1), bad, put(2))
	b.Atomic = true
	for i := range b.Ops {
		b.Ops[i].Atomic = true
	}
	ack := p.must(m.stream, b)
	for i, o := range ack.outcomes {
		wantRecorded(t, "in an atomic batch", o, ledger.BatchAborted, fault.UnknownMethod)
		if o.Cause != bad.OpID {
			t.Errorf("op %d: cause %s", i, o.Cause)
		}
	}
	if ack.cursor != 1 || ack.rejected != 3 {
		t.Errorf("%+v", ack)
	}
	wantAgain(t, p, m.stream, b, ack)
}

func rowVoided(t *testing.T, _ *rig, p *peer, m *made) {
	b := m.batch(op(ledger.MethodVoid), put(1))
	ack := p.must(m.stream, b)
	wantRecorded(t, "a void", ack.outcomes[0], ledger.Voided, fault.Voided)
	if ack.outcomes[1].Status != ledger.Applied {
		t.Errorf("%+v", ack.outcomes[1])
	}
	wantAgain(t, p, m.stream, b, ack)
}

func rowApplied(t *testing.T, _ *rig, p *peer, m *made) {
	first := put(1)
	b := m.batch(first, put(1), op("put", "key", "message/msg_9", "payload", map[string]int{"n": 9}))
	ack := p.must(m.stream, b)
	var result struct {
		Cursor    uint64
		Unchanged bool
	}
	if err := json.Unmarshal(ack.outcomes[1].Result, &result); err != nil || !result.Unchanged || result.Cursor != 2 {
		t.Errorf("an equal put: %s", ack.outcomes[1].Result)
	}
	if ack.applied != 3 || ack.cursor != 3 || ack.outcomes[2].Cursor != 3 {
		t.Errorf("%+v", ack)
	}
	wantAgain(t, p, m.stream, b, ack)
}

// holdWriter keeps the only writer of an SQLite store until release.
func holdWriter(t *testing.T, st Store) (release func()) {
	t.Helper()
	return holdTx(t, st, func(session.Tx) error { return nil })
}

// holdTx keeps what take takes in a transaction until release.
func holdTx(t *testing.T, st Store, take func(session.Tx) error) (release func()) {
	t.Helper()
	held, let, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- st.Update(context.Background(), func(tx session.Tx) error {
			err := take(tx)
			close(held)
			<-let
			return err
		})
	}()
	<-held
	var once sync.Once
	release = func() {
		once.Do(func() {
			close(let)
			if err := <-done; err != nil {
				t.Errorf("hold the database: %v", err)
			}
		})
	}
	t.Cleanup(release)
	return release
}

// On SQLite the only writer is held; on Postgres one session's row, and with it the only
// transaction there may be.
func TestRowOverloaded(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		overloaded(t, sqliteStore(t), func(st Store, _ string) func() { return holdWriter(t, st) })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		overloaded(t, postgresStore(t, pgtest.URL(t)), func(st Store, id string) func() { return holdSession(t, st, id) })
	})
}

func overloaded(t *testing.T, st Store, hold func(st Store, session string) (release func())) {
	r := start(t, st, func(c *Config) { c.QueueOps, c.BatchesInFlight, c.Transactions = 67, 10, 1 }) // 51 of one session
	p := r.dial()
	m, b := r.create(p), newBox()
	second := p.open(p.restore(m.owner), b)
	p.must(second, b.batch(m.id, put(0)))

	release := hold(st, m.id)
	var waiting []*rpc.Promise
	for n := range 10 {
		waiting = append(waiting, applying(t, m.stream, m.batch(put(n))))
	}
	eleventh := m.batch(put(10))
	wantRefusal(t, "an eleventh in flight", p.apply(m.stream, eleventh), fault.Overloaded, 0)
	large := func() *ledger.Batch {
		ops := make([]ledger.Intent, 20)
		for i := range ops {
			ops[i] = put(i)
		}
		return b.batch(m.id, ops...)
	}
	waiting = append(waiting, applying(t, second, large()), applying(t, second, large()))
	third := large()
	wantRefusal(t, "beyond the queue", p.apply(second, third), fault.Overloaded, 0)
	release()
	for i, w := range waiting {
		if r := readReply(t, w); r.refusal != nil || r.applied == 0 {
			t.Errorf("batch %d, which was queued: %+v", i, r)
		}
	}
	if again := p.must(m.stream, eleventh); again.applied != 1 || again.duplicates != 0 {
		t.Errorf("what was refused and comes again: %+v", again)
	}
	p.must(second, third)
}

// Whoever fills the queue for one session keeps others from none of theirs, and himself
// from being revoked by nobody.
func TestFloodLeavesRoomForOthersAndForItsRevocation(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.QueueOps, c.Transactions = 40, 1 })
	p, bad := r.dial(), r.dial()
	m, other := r.create(p), r.create(p)
	ref, b := p.share(m, "rights", []string{"append"}), newBox()
	stream := bad.open(bad.restore(ref), b)
	bad.must(stream, b.batch(m.id, put(0)))

	untilRest(t, r.server)
	release := holdWriter(t, r.server.cfg.Store)
	first := applying(t, stream, b.batch(m.id, put(1)))
	untilBegun(t, r.server, 1)
	var queued []*rpc.Promise
	for n := range 3 {
		ops := make([]ledger.Intent, 9)
		for i := range ops {
			ops[i] = put(10*n + i)
		}
		queued = append(queued, applying(t, stream, b.batch(m.id, ops...)))
	}
	untilQueued(t, r.server, 4)
	over := b.batch(m.id, put(100), put(101), put(102), put(103))
	wantRefusal(t, "more of the same", bad.apply(stream, over), fault.Overloaded, 0)
	for n := range 10 {
		queued = append(queued, applying(t, other.stream, other.batch(put(n))))
	}
	untilQueued(t, r.server, 14)
	late := other.batch(put(100))
	wantRefusal(t, "beyond the queue", p.apply(other.stream, late), fault.Overloaded, 0)
	revoked := m.sess.Call(within(t), methods.SessionRevoke.Method, methods.SessionRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		return wire.Session_revoke_Params(s).SetRef(ref.ID)
	})
	untilQueued(t, r.server, 15)
	release()
	for i, f := range append(queued, first) {
		if ack := readReply(t, f); ack.refusal != nil || ack.rejected != 0 {
			t.Errorf("batch %d, which was queued: %+v", i, ack)
		}
	}
	s, _, err := revoked.Wait(within(t))
	if err != nil || wire.Session_revoke_Results(s).HasRefusal() {
		t.Fatalf("the revocation: %v, refused %v", err, err == nil)
	}
	p.must(other.stream, late)
	wantRecorded(t, "after the cut", bad.must(stream, over).outcomes[0], ledger.Denied, fault.Revoked)
}

func TestRowNotYetKnown(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	ref := m.owner.New(m.id)
	wantCode(t, "before its share has arrived", p.restoreErr(ref, ""), fault.NotYetKnown)
	p.must(m.stream, m.batch(op("share", "ref", ref.ID, "hash", hashText(ref.Secret), "rights", []string{"read"})))
	if err := p.restoreErr(ref, ""); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func stolenOutboxID(t *testing.T, r *rig, p *peer, m *made) {
	p.must(m.stream, m.batch(put(1)))
	thief := r.dial()
	ref := p.share(m, "rights", []string{"read", "append"})
	stolen := &box{id: m.box.id, secret: newBox().secret, incarnation: 7, seq: m.box.seq}
	stream := thief.open(thief.restore(ref), stolen)
	// It is a stream of its own: it learns nothing of the other, and begins at seq 1.
	wantRefusal(t, "the next seq of the outbox's own", thief.apply(stream, stolen.batch(m.id, put(2))), fault.Gap, 1)
	stolen.seq = 0
	if ack := thief.must(stream, stolen.batch(m.id, put(2))); ack.applied != 1 {
		t.Errorf("the first under another secret: %+v", ack)
	}
	// The owner's stream goes on, neither fenced nor ahead.
	if ack := p.must(m.stream, m.batch(put(3))); ack.applied != 1 {
		t.Errorf("the owner's next batch: %+v", ack)
	}
}

func spaceCreateGivesNoOthersSession(t *testing.T, r *rig, p *peer, m *made) {
	// Whoever holds the space ref knows ids, which are no secret; the object
	// of create must not be the owner of what another has made.
	other := r.dial()
	b := newBox()
	sess := other.restore(r.owner).Call(within(t), methods.SpaceCreate.Method, methods.SpaceCreate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		params := wire.Space_create_Params(s)
		if err := params.SetSession(m.id); err != nil {
			return err
		}
		return params.SetOwner(m.owner.ID)
	}).Cap(0)
	stream := other.open(sess, b)
	ack := other.must(stream, b.batch(m.id, put(1)))
	wantRecorded(t, "append", ack.outcomes[0], ledger.Denied, fault.UnknownRef)
	_, _, err := call(t, sess, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
	wantCode(t, "events", err, fault.UnknownRef)
	_, _, err = call(t, sess, methods.SessionDescribe.Method, methods.SessionDescribe.Params, nil)
	wantCode(t, "describe", err, fault.UnknownRef)
	_, _, err = call(t, sess, methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
	wantCode(t, "save", err, fault.UnknownRef)
	s, _, err := call(t, sess, methods.SessionRevoke.Method, methods.SessionRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Session_revoke_Params(s).SetEpoch(true)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	refusal, _ := wire.Session_revoke_Results(s).Refusal()
	if fault.Code(refusal.Code()) != fault.UnknownRef {
		t.Errorf("revoke: %v", refusal)
	}
	// The one who made it goes on, and its own object of create reads.
	if _, _, err := call(t, m.sess, methods.SessionEvents.Method, methods.SessionEvents.Params, nil); err != nil {
		t.Errorf("the maker's events: %v", err)
	}
}
