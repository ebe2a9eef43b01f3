package outbox

// A stream is opened for a row that was committed just now without reading it only where nothing
// could keep the row from being sent.

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// TestBlockedRowsOpenNoStream: what waits for an op of another session waits for it with its stream
// closed.
func TestBlockedRowsOpenNoStream(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, s := p.open(t, quick()), newFakeServer()
		one, two := withSession(t, b), withSession(t, b)
		defer run(t, b, s)()
		for _, session := range []string{one, two} { // from now on both refs are confirmed
			wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("0")}}))
		}
		s.setDown(nil)
		s.cutAll()
		eventually(t, "both streams are closed", func() bool {
			closed := false
			return onLoop(b, func(m *machine.Machine) { closed = m.OpenStreams == 0 && len(m.Streams) == 0 }) && closed
		})
		opened := func() (n int) {
			for _, o := range s.openings() {
				if o.Session == two {
					n++
				}
			}
			return n
		}
		before := opened()
		s.hold.Lock() // no answer comes
		first := commit(t, b, Batch{Session: one, Ops: []Op{put("1")}})
		second := commit(t, b, Batch{Session: two, Ops: []Op{{Method: "put", DependsOn: first.Ops}}})
		eventually(t, "the second batch is blocked", func() bool {
			blocked := false
			return onLoop(b, func(m *machine.Machine) { blocked = m.Streams[two] != nil && len(m.Streams[two].BlockedOn) > 0 }) && blocked
		})
		if n := opened() - before; n > 0 {
			t.Errorf("its stream was opened %d times", n)
		}
		s.hold.Unlock()
		for _, x := range []Ticket{first, second} {
			if o := wait(t, b, x)[0]; o.Status != ledger.Applied {
				t.Errorf("%+v", o)
			}
		}
	})
}

// TestUnconfirmedRowsAreReadFirst: the create of the session may not have applied, which its row
// says. Then its stream goes through the space's ref, at the first try.
func TestUnconfirmedRowsAreReadFirst(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, s := p.open(t, quick()), newFakeServer()
		space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
		session := newSession()
		owner := testRef(t, b, session, RefMeta{Role: SessionOwner})
		s.session(session).managed = true
		stop := run(t, b, s)
		refused := commit(t, b, Batch{Session: session, Via: space.ID, Ops: []Op{{Method: "create",
			Args: []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)}, {Name: "refuse", JSON: []byte("1")}}}}})
		if o := wait(t, b, refused)[0]; o.Status == ledger.Applied {
			t.Fatalf("the create: %+v", o)
		}
		eventually(t, "its outcome is stored", func() bool {
			st, err := b.Status(limited(t))
			return err == nil && st.Unfinished() == 0
		})
		stop()
		defer run(t, b, s)() // the next term knows of the session only what is stored
		eventually(t, "it sends", func() bool { return onLoop(b, func(*machine.Machine) {}) })
		before := len(s.openings())
		if o := wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))[0]; o.Status != ledger.Denied {
			t.Errorf("a put after it: %+v", o)
		}
		for _, o := range s.openings()[before:] {
			if o.Session == session && o.SpaceRef == nil {
				t.Error("it was opened through the session's own ref, which the server does not know")
			}
		}
	})
}
