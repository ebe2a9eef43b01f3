//go:build unix

// Whoever comes first under another's outbox id does that outbox no harm, and gains nothing.

package node

import (
	"slices"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// under is a stranger's box of the same id.
func under(b *box) *box {
	other := newBox()
	other.id = b.id
	return other
}

// TestAnOutboxIDIsNobodysToTake: whoever reads an outbox's id in one session's events opens
// a stream under it in others, through every door, before the outbox comes there.
func TestAnOutboxIDIsNobodysToTake(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p, w := r.dial(), r.dialWeb()
		m := r.create(p)
		reader := p.share(m, "rights", []string{"read"})
		writer := p.share(m, "rights", []string{"read", "append"})
		revoked := p.share(m, "rights", []string{"read", "append"})
		p.must(m.stream, m.batch(op("revoke", "ref", revoked.ID)))

		for name, take := range map[string]func(b *box) error{
			"a reader, over Cap'n Proto": func(b *box) error { return plainFault(t, p.opening(p.restore(reader), b)) },
			"a reader, over Cap'n Web":   func(b *box) error { _, err := awaitWeb(t, w.open(w.restore(reader), b)); return err },
			"one who was revoked, over HTTP": func(b *box) error {
				live, err := r.server.Caller(t.Context(), "192.0.2.1:1").Restore(revoked, "")
				if err != nil {
					return err
				}
				stream, err := live.OpenStream(t.Context(), b.id, b.secret, b.incarnation)
				if err != nil {
					return err
				}
				_, err = stream.Apply(t.Context(), *b.batch(m.id, put(1)))
				return err
			},
		} {
			victim := newBox()
			stranger := under(victim)
			if err := take(stranger); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			// Another who may write here has used the ids of the batch and its ops, too.
			first := victim.batch(m.id, put(1), op("begin", "message", victim.id, "payload", map[string]string{"role": "assistant"}))
			same, other := *first, newBox()
			same.Ops = slices.Clone(first.Ops)
			same.Ops[1] = op("remove", "key", "message/none")
			same.Ops[1].OpID, same.Ops[1].BatchID, same.Ops[1].Session, same.Ops[1].Seq = first.Ops[1].OpID, first.BatchID, m.id, 2
			p.must(p.open(p.restore(writer), other), &same)
			if ack := p.must(p.open(p.restore(writer), victim), first); ack.applied != 2 || ack.duplicates != 0 {
				t.Fatalf("%s came first: %+v", name, ack.outcomes)
			}
			// It goes on under every later opening, and is told from the stranger's.
			victim.incarnation++
			opened := p.opening(p.restore(writer), victim)
			s, _, err := opened.Wait(within(t))
			if err != nil || wire.Session_openStream_Results(s).LastSeq() != victim.seq {
				t.Fatalf("%s came first: opened again at seq %d: %v", name, wire.Session_openStream_Results(s).LastSeq(), err)
			}
			// The turn is the victim's alone, whoever else speaks under its id with a better ref.
			stranger = under(victim)
			finalize := op("finalize", "message", victim.id, "status", "completed")
			ack := p.must(p.open(p.restore(writer), stranger), stranger.batch(m.id, finalize))
			wantRecorded(t, "another's turn, ended under its outbox's id", ack.outcomes[0], ledger.Rejected, fault.NotYourTurn)
			if ack := p.must(opened.Cap(0), victim.batch(m.id, op("finalize", "message", victim.id, "status", "completed"))); ack.applied != 1 {
				t.Fatalf("its own turn: %+v", ack.outcomes)
			}
		}
		for _, outbox := range outboxesShown(t, p, m) {
			if strings.Contains(outbox, "~") {
				t.Errorf("shown to readers: %s", outbox)
			}
		}
	})
}

// outboxesShown are the outbox ids of a session's events and turns, as readers have them.
func outboxesShown(t *testing.T, p *peer, m *made) (outboxes []string) {
	t.Helper()
	open := newBox()
	for _, b := range []*box{open, under(open)} {
		p.must(p.open(p.restore(m.owner), b), b.batch(m.id, op("begin", "message", ulid.Make().String(), "payload", map[string]string{"role": "assistant"})))
	}
	s, _, err := call(t, m.sess, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
	if err != nil {
		t.Fatal(err)
	}
	events, _ := wire.Session_events_Results(s).Events()
	for i := range events.Len() {
		outbox, _ := events.At(i).Outbox()
		outboxes = append(outboxes, outbox)
	}
	k := newRecorder()
	if _, _, err := p.snapshotting(m.sess, k); err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, outbox := range k.turnsOf {
		if outbox == open.id {
			shown++
		}
	}
	if shown != 2 {
		t.Errorf("two turns of %s are shown as %v", open.id, k.turnsOf)
	}
	return append(outboxes, k.turnsOf...)
}

// TestASessionIsItsMakersStreams: the creator's outbox id gives nobody its authority, whether
// the other who knows it comes after the session was made or before.
func TestASessionIsItsMakersStreams(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		making := func(m *made) *rpc.Ref {
			return p.restore(r.owner).Call(within(t), methods.SpaceCreate.Method, methods.SpaceCreate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
				params := wire.Space_create_Params(s)
				if err := params.SetSession(m.id); err != nil {
					return err
				}
				return params.SetOwner(m.owner.ID)
			}).Cap(0)
		}
		for _, first := range []bool{false, true} {
			m := &made{id: capability.SessionPrefix + ulid.Make().String(), box: newBox()}
			m.owner = r.owner.New(m.id)
			stranger, theirs := under(m.box), making(m)
			var stream *rpc.Ref
			if first {
				stream = p.open(theirs, stranger)
				if _, _, err := p.opening(theirs, stranger).Wait(within(t)); err != nil {
					t.Fatal(err)
				}
			}
			m.sess = making(m)
			m.stream = p.open(m.sess, m.box)
			if ack := p.must(m.stream, m.batch(op("create", "ref", m.owner.ID, "hash", hashText(m.owner.Secret)), put(1))); ack.applied != 2 {
				t.Fatalf("a stranger first, %v: %+v", first, ack.outcomes)
			}
			if !first {
				stream = p.open(theirs, stranger)
			}
			ack := p.must(stream, stranger.batch(m.id, put(2)))
			wantRecorded(t, "under the creator's outbox id", ack.outcomes[0], ledger.Denied, fault.UnknownRef)
			_, _, err := call(t, theirs, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
			wantCode(t, "events under the creator's outbox id", err, fault.UnknownRef)
			if ack := p.must(m.stream, m.batch(put(3))); ack.applied != 1 {
				t.Errorf("a stranger first, %v: the maker goes on: %+v", first, ack.outcomes)
			}
			if _, _, err := call(t, m.sess, methods.SessionEvents.Method, methods.SessionEvents.Params, nil); err != nil {
				t.Errorf("a stranger first, %v: the maker reads: %v", first, err)
			}
		}
	})
}
