package e2e

// Random histories: three writers do everything that there is with a family of sessions, over every wire and over links that
// are cut, while others follow it by refs of every kind. Whatever happened, the log folded by package session is what each of
// them was shown (history_check_test.go). What is done is in history_ops_test.go, how over each wire in history_wires_test.go.

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/session"
)

// TestHistories has Go's client on both sides of HTTP; history_node_test.go has JavaScript's.
func TestHistories(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		runHistory(t, newRand(t), db, func(srv *server, _ *httpParty) party { return newGoParty(t, srv) })
	})
}

// history is a history under way.
type history struct {
	t       *testing.T
	rand    *rand.Rand
	srv     *server
	g       *generator
	parties map[string]party
	names   []string // of the parties, in order
	links   []*faultproxy.Proxy
	sent    []*sentBatch
	follows []*following
}

// following is a follower, and what it asked for.
type following struct {
	watching
	by   string
	in   sight
	from start
}

// rounds are how often each writer sends something in a history, and more often until it has done everything.
const rounds = 90

// runHistory runs a history. other makes the party that is the helper.
func runHistory(t *testing.T, r *rand.Rand, db database, other func(*server, *httpParty) party) {
	t.Helper()
	srv := startServer(t, serverConfig{URL: db.url(t), Args: []string{"--turn-lease", "1h"}}) // no turn is interrupted while a slow machine checks
	byHTTP := newHTTPParty(t, srv)
	h := &history{t: t, rand: r, srv: srv, names: []string{owner, worker, helper}, parties: map[string]party{
		owner: newGoParty(t, srv), worker: byHTTP, helper: other(srv, byHTTP)}}
	h.g = &generator{rand: r, space: srv.owner(), size: 6, refs: map[string]*given{}, applied: map[string]int{}, refused: map[string]int{}}
	for _, name := range h.names {
		h.links = append(h.links, h.parties[name].cuts())
	}
	h.round([]*sentBatch{h.g.first(owner)})
	for i := 0; i < rounds || !h.g.seen() && i < 5*rounds; i++ {
		h.g.brief = i < rounds/2
		h.round(h.g.mended())
		h.cut()
		var batches []*sentBatch
		for _, by := range h.names {
			batches = append(batches, h.g.batch(by))
		}
		h.round(batches)
		if len(h.follows) < rounds/2 {
			h.follow()
		}
	}
	cuts := 0
	for _, l := range h.links {
		cuts += l.Stats().Cuts
		l.Cut() // and with it the fault that is left
	}
	h.check()
	t.Logf("%d batches, %d sessions, %d followers, %d cuts, %d batches repeated over another wire", len(h.sent), len(h.g.family), len(h.follows), cuts, byHTTP.elsewhere)
	if byHTTP.again != nil && byHTTP.elsewhere == 0 {
		t.Error("no batch was repeated over another wire")
	}
}

// round sends batches together, and waits for all.
func (h *history) round(batches []*sentBatch) {
	h.t.Helper()
	var all sync.WaitGroup
	for _, b := range batches {
		all.Go(func() {
			var err error
			if b.got, err = h.parties[b.by].send(b); err != nil || len(b.got) != len(b.ops) {
				h.t.Errorf("%s: %d outcomes of %s: %v", b.by, len(b.got), canonical(b.ops), err)
			}
		})
	}
	all.Wait()
	if h.t.Failed() {
		h.t.FailNow()
	}
	for _, b := range batches {
		h.g.learn(b)
	}
	h.sent = append(h.sent, batches...)
}

// cut has some links break soon, or at once.
func (h *history) cut() {
	for _, l := range h.links {
		switch h.rand.IntN(6) {
		case 0:
			l.Cut()
		case 1:
			l.CutAfter(toServer, 1+h.rand.Int64N(4000))
		case 2:
			l.CutAfter(toClient, 1+h.rand.Int64N(4000))
		}
	}
}

// sights are what can be seen of a session.
func (h *history) sights(k *kin) []sight {
	all := []sight{
		{name: "its owner's", door: door{ref: k.owner}},
		{name: "its owner's, some keys", door: door{ref: k.owner}, keys: []string{"todo/", "message/m2"}},
		{name: "its owner's, compacted", door: door{ref: k.owner}, compacted: true},
		{name: "the space's", door: door{h.g.space, k.id()}},
	}
	for _, to := range k.given {
		if !slices.Contains(to.rights, "read") {
			continue
		}
		all = append(all, sight{name: "one that was given", door: door{ref: to.ref}, grant: to.grant, compacted: h.rand.IntN(3) == 0})
	}
	for up := k.parent; up != nil; up = up.parent {
		for _, to := range up.given {
			if to.reaches {
				all = append(all, sight{name: "its parent's", door: door{to.ref, k.id()}})
			}
		}
	}
	for i := range all {
		all[i].byTime = k.byTime
	}
	return all
}

// follow has somebody follow a session from somewhere on.
func (h *history) follow() {
	h.t.Helper()
	k := h.g.family[h.rand.IntN(len(h.g.family))]
	all := h.sights(k)
	f := &following{by: h.names[h.rand.IntN(len(h.names))], in: all[h.rand.IntN(len(all))]}
	switch h.rand.IntN(3) {
	case 0:
		f.from.state = true
	case 1:
		f.from.cursor = h.rand.Uint64N(k.cursor)
	}
	var err error
	if f.watching, err = h.parties[f.by].follow(f.in, f.from); err != nil {
		if h.g.alive(f.in.ref.ID) {
			h.t.Errorf("%s cannot follow %s by %s: %v", f.by, k.id(), f.in.name, err)
		}
		return
	}
	h.follows = append(h.follows, f)
}

// alive says whether no ref that was shared by this id has been revoked.
func (g *generator) alive(id string) bool {
	for _, k := range g.family {
		for _, to := range k.given {
			if to.ref.ID == id {
				return !to.dead()
			}
		}
	}
	return true
}

// folded is the state after some events of a log.
func folded(id string, log []shownEvent) (*session.Fold, error) {
	f := session.NewFold(id)
	for i := range log {
		if err := f.Apply(log[i].stored(id)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// stored is the event as package session knows it.
func (e *shownEvent) stored(id string) *session.Event {
	hash, _ := session.ParseHash(e.Hash)
	return &session.Event{Session: id, Cursor: e.Cursor, Method: e.Method, Key: e.Key, Schema: e.Schema, Payload: e.Payload, Hash: hash,
		Ref: e.Ref, Actor: e.Actor, Op: e.Op, Batch: e.Batch, Outbox: e.Outbox, At: e.At, Hidden: e.Hidden}
}
