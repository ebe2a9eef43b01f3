//go:build unix

// Streams that are opened again, as every client does that comes back.

package node

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
)

// lastSeq is what the answer to an opening says.
func lastSeq(t *testing.T, p *peer, m *made) uint64 {
	t.Helper()
	promise := p.opening(m.sess, m.box)
	defer promise.Release()
	s, _, err := promise.Wait(within(t))
	if err != nil {
		t.Errorf("open the stream again: %v", err)
		return 0
	}
	return wire.Session_openStream_Results(s).LastSeq()
}

// A client comes back while the session's lock is kept by somebody else.
func TestReopeningTakesNoLock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		err := st.Update(t.Context(), func(tx session.Tx) error {
			_, err := tx.Load(t.Context(), &session.ReadSet{Sessions: []string{m.id}})
			if n := lastSeq(t, p, m); n != 1 {
				t.Errorf("opened at %d", n)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		opened := p.opening(m.sess, m.box)
		defer opened.Release()
		if _, _, err := opened.Wait(within(t)); err != nil { // openings overtake each other
			t.Fatal(err)
		}
		stream := opened.Cap(0)
		m.box.incarnation = 2
		lastSeq(t, p, m)
		wantRefusal(t, "a stream that was taken over", p.apply(stream, m.batch(put(1))), fault.Fenced, 0)
	})
}

// heldCommits is a store whose commits wait.
type heldCommits struct {
	Store
	hold  atomic.Bool
	begun chan struct{}
	free  chan struct{}
	found atomic.Bool // a stream was looked for meanwhile
}

func (h *heldCommits) Update(ctx context.Context, fn func(session.Tx) error) error {
	if h.hold.Load() {
		close(h.begun)
		<-h.free
	}
	return h.Store.Update(ctx, fn)
}

func (h *heldCommits) FindStreams(ctx context.Context, keys []session.StreamKey, refs []string) (*session.Access, map[session.StreamKey]*ledger.Stream, error) {
	h.found.Store(true)
	return h.Store.FindStreams(ctx, keys, refs)
}

// Under a ref that was redeemed just now a stream is probably new, and is not looked for first; under
// one that is redeemed again it probably is there.
func TestFirstOpeningIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	st := &heldCommits{Store: sqliteStore(t)}
	r := start(t, st, nil)
	p := r.dial()
	m := r.create(p)
	for i, found := range []bool{false, true} {
		st.found.Store(false)
		restored := p.restoring(m.owner, "the same")
		if n := lastSeq(t, p, &made{sess: restored.Cap(0), box: m.box}); n != 1 || st.found.Load() != found {
			t.Errorf("opening %d: at %d, looked for: %t", i, n, st.found.Load())
		}
		restored.Release()
	}
}

// A client that drops an op opens its stream anew to learn whether it is too late for that.
func TestReopeningTellsWhatWasOnItsWay(t *testing.T) {
	t.Parallel()
	st := &heldCommits{Store: sqliteStore(t), begun: make(chan struct{}), free: make(chan struct{})}
	r := start(t, st, nil)
	p := r.dial()
	m := r.create(p)
	st.hold.Store(true)
	applied := applying(t, m.stream, m.batch(put(1)))
	<-st.begun
	st.found.Store(false)
	opened := make(chan uint64, 1)
	go func() { opened <- lastSeq(t, p, m) }()
	until.True(t, "the opening waits", func() bool {
		return st.found.Load() || r.server.committer.Stats().Waiting > 0
	})
	st.hold.Store(false)
	close(st.free)
	if n := <-opened; n != 2 {
		t.Errorf("opened at %d, and the op at 2 is committed", n)
	}
	readReply(t, applied)
}
