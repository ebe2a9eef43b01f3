//go:build unix

// Followers of several servers on one database, over both wires and within the process, who read at every pace or
// not at all, drop their links and come back at another server, while their refs are revoked. Once a revoke has
// returned its cut, nothing above it reaches who followed under the ref, whatever was on the way; and each of them
// has the log as its sight shows it, without a gap, once and in order.

package node

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestFollowersOfThreeServers(t *testing.T) {
	t.Parallel()
	followersOfThreeServers(t, 120, 150)
}

// followersOfThreeServers has so many follow while so many things happen.
func followersOfThreeServers(t *testing.T, followers, steps int) {
	url := pgtest.URL(t)
	c := &crowd{t: t, rnd: rand.New(rand.NewPCG(seed.Of(t), 0)), followers: make([]*onlooker, followers)}
	for i := range 3 {
		r := start(t, postgresStore(t, url), func(cfg *Config) {
			cfg.PollInterval, cfg.IgnoreNotify = 200*time.Millisecond, i == 2
		})
		if i > 0 {
			r.owner = c.servers[0].owner
		}
		c.servers = append(c.servers, &crowdServer{rig: r, own: r.dial(), sessions: map[placeOf]*rpc.Ref{}, webSessions: map[placeOf]*capnweb.Promise{}})
	}
	for _, s := range c.servers {
		for n := range 2 + followers/40 {
			g := &gate{}
			near, far := rpc.Pipe()
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = s.server.ServeConn(far)
			}()
			g.Transport = near
			s.peers = append(s.peers, newPeer(t, g))
			t.Cleanup(func() {
				g.set(false)
				s.peers[n].leave()
				<-served
			})
			s.gates = append(s.gates, g)
		}
		for range 1 + followers/400 {
			s.webs = append(s.webs, s.dialWeb())
		}
	}
	for range 3 {
		c.open()
	}
	for i := range c.followers {
		c.begin(i)
	}
	for range steps {
		c.step()
	}
	c.end()
}

// refsOfCrowd is how many refs of a session live.
const refsOfCrowd = 20

// crowd is the servers, their sessions, and all who follow.
type crowd struct {
	t         *testing.T
	rnd       *rand.Rand
	servers   []*crowdServer
	sessions  []*crowdSession
	followers []*onlooker // those who follow
	gone      []*onlooker // those who have left, or were told their end
	appends   []*rpc.Promise
	revokes   int
}

// crowdServer is a server with its connections.
type crowdServer struct {
	*rig
	own         *peer // the owner's
	peers       []*peer
	gates       []*gate // of peers
	webs        []*webClient
	sessions    map[placeOf]*rpc.Ref
	webSessions map[placeOf]*capnweb.Promise
}

// placeOf is a ref on a connection.
type placeOf struct {
	conn int
	ref  string
}

// crowdSession is a session, with a writer at each server.
type crowdSession struct {
	*made
	writers []*made
	refs    []*crowdRef // those that live
	puts    int
}

// crowdRef is a ref, with what it shows.
type crowdRef struct {
	in    *crowdSession
	ref   capability.Ref
	above *crowdRef
	grant capability.Grant
	cut   uint64 // at which it was revoked; 0 while it lives
	why   fault.Code
}

// gate is a transport whose reads stop while it is shut, as a peer's do whose process was stopped.
type gate struct {
	rpc.Transport
	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil while it is open
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.shut == nil:
		g.shut = make(chan struct{})
	case !shut && g.shut != nil:
		close(g.shut)
		g.shut = nil
	}
}

// ReadBatch implements rpc.Transport.
func (g *gate) ReadBatch(ctx context.Context) ([]byte, error) {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g.Transport.ReadBatch(ctx)
}

func pick[T any](c *crowd, of []T) T { return of[c.rnd.IntN(len(of))] }

// open makes a session, and refs to it.
func (c *crowd) open() {
	s := &crowdSession{made: c.servers[0].create(c.servers[0].own)}
	for _, at := range c.servers {
		sess := at.own.restore(s.owner)
		w := &made{id: s.id, owner: s.owner, sess: sess, box: newBox()}
		w.stream = at.own.open(sess, w.box)
		s.writers = append(s.writers, w)
	}
	c.sessions = append(c.sessions, s)
	for len(s.refs) < refsOfCrowd {
		c.mint(s)
	}
}

// mint makes a ref of some sight, or two, one from the other.
func (c *crowd) mint(s *crowdSession) {
	at := c.row(s).Cursor
	var args []any
	r := &crowdRef{in: s}
	switch c.rnd.IntN(6) {
	case 0:
		r.grant.VisibleFrom = 1 + uint64(c.rnd.IntN(int(at)+4))
		args = []any{"from", r.grant.VisibleFrom}
	case 1:
		r.grant.Message = "msg_1"
		args = []any{"message", "msg_1"}
	case 2:
		r.grant.ReadKeys = pick(c, [][]string{{"todo/"}, {"todo/1", "message/"}})
		args = []any{"read_keys", r.grant.ReadKeys}
	}
	own := c.servers[0].own
	if c.rnd.IntN(2) == 0 {
		r.ref = own.share(s.made, append(args, "rights", []string{"read"})...)
		s.refs = append(s.refs, r)
		return
	}
	r.ref = own.share(s.made, append(args, "rights", []string{"read", "append", "share"})...)
	guest := own.restore(r.ref)
	m := &made{id: s.id, owner: s.owner, sess: guest, box: newBox()}
	m.stream = own.open(guest, m.box)
	below := &crowdRef{in: s, above: r, grant: r.grant, ref: own.share(m, "rights", []string{"read"})}
	s.refs = append(s.refs, r, below)
}

func (c *crowd) row(s *crowdSession) *session.Row {
	return rowOf(c.t, c.servers[0].server.cfg.Store, s.id)
}

// step has one thing happen.
func (c *crowd) step() {
	s := pick(c, c.sessions)
	switch n := c.rnd.IntN(20); {
	case n < 12:
		c.append(s)
	case n < 14:
		c.revoke(s, c.rnd.IntN(12) == 0)
		c.replaceDead()
	case n < 17:
		for range 1 + len(c.followers)/50 {
			c.comeBack(c.rnd.IntN(len(c.followers)))
		}
	case n < 19:
		for range 1 + len(c.followers)/20 {
			pick(c, c.followers).hold(c.rnd.IntN(2) == 0)
		}
	default:
		pick(c, pick(c, c.servers).gates).set(c.rnd.IntN(2) == 0)
	}
}

// append commits a few puts at some server, sooner or later.
func (c *crowd) append(s *crowdSession) {
	keys := []string{"message/msg_1", "message/msg_2", "part/msg_1/prt_1", "todo/1", "todo/2"}
	w := pick(c, s.writers)
	var ops []ledger.Intent
	for range 1 + c.rnd.IntN(3) {
		s.puts++
		ops = append(ops, op("put", "key", pick(c, keys), "payload", map[string]any{"n": s.puts, "fill": strings.Repeat("x", c.rnd.IntN(20)*c.rnd.IntN(100))}))
	}
	c.appends = append(c.appends, applying(c.t, w.stream, w.batch(ops...)))
	for len(c.appends) > 16 {
		c.settleAppend()
	}
}

func (c *crowd) settleAppend() {
	if r := readReply(c.t, c.appends[0]); r.refusal != nil || r.rejected != 0 {
		c.t.Fatalf("an append: %+v", r)
	}
	c.appends = c.appends[1:]
}

// revoke ends a ref and what was made from it, or the epoch, at some server, and appends above the cut.
func (c *crowd) revoke(s *crowdSession, epoch bool) {
	r := pick(c, s.refs)
	name := r.ref.ID
	if epoch {
		name = ""
	}
	cut, _ := revoking(c.t, pick(c, s.writers).sess, name)
	c.revokes++
	for _, other := range s.refs {
		switch {
		case epoch:
			other.cut, other.why = cut, fault.StaleEpoch
		case other == r || other.above == r:
			other.cut, other.why = cut, fault.Revoked
		}
	}
	s.refs = slices.DeleteFunc(s.refs, func(r *crowdRef) bool { return r.cut != 0 })
	c.append(s)
	for len(s.refs) < refsOfCrowd {
		c.mint(s)
	}
}

// replaceDead has others follow in the place of some who were cut off; these have still to be told.
func (c *crowd) replaceDead() {
	for i, o := range c.followers {
		if o.of.cut != 0 && c.rnd.IntN(2) == 0 {
			c.gone = append(c.gone, o)
			c.begin(i)
		}
	}
}

// begin has follower i follow a session under a ref that lives.
func (c *crowd) begin(i int) {
	r := pick(c, pick(c, c.sessions).refs)
	o := &onlooker{c: c, of: r, changed: make(chan struct{})}
	if c.rnd.IntN(5) == 0 {
		o.keys = pick(c, [][]string{{"todo/"}, {"message/msg_1", "todo/2"}})
	}
	if at := c.row(r.in).Cursor; c.rnd.IntN(2) == 0 {
		o.from = at
	} else {
		o.from = uint64(c.rnd.IntN(int(at) + 1))
	}
	c.followers[i] = o
	o.subscribe(nil)
}

// comeBack has follower i lose its link, and go on after its last event at some server; as another one, if its ref is dead.
func (c *crowd) comeBack(i int) {
	o := c.followers[i]
	o.mu.Lock()
	again := &onlooker{c: c, of: o.of, keys: o.keys, from: o.from, changed: make(chan struct{})}
	hash := o.hash
	if n := len(o.got); n > 0 {
		again.from = o.got[n-1].cursor
	}
	if o.of.cut == 0 { // else it has still to be told
		o.left = true
	}
	o.mu.Unlock()
	c.gone = append(c.gone, o)
	if o.of.cut != 0 {
		c.begin(i)
		return
	}
	o.leave()
	c.followers[i] = again
	again.subscribe(hash)
}

// end has everybody read on, and holds what each has seen against the log.
func (c *crowd) end() {
	for len(c.appends) > 0 {
		c.settleAppend()
	}
	for _, s := range c.sessions { // who is cut off now is not replaced
		c.revoke(s, false)
	}
	for len(c.appends) > 0 {
		c.settleAppend()
	}
	for _, s := range c.servers {
		for _, g := range s.gates {
			g.set(false)
		}
	}
	all := append(slices.Clone(c.gone), c.followers...)
	for _, o := range all {
		o.hold(false)
	}
	logs := map[*crowdSession][]*session.Event{}
	for _, s := range c.sessions {
		logs[s] = c.log(s)
	}
	events, dead, short, most := 0, 0, 0, 0
	for i, o := range all {
		o.until(logs[o.of.in])
		o.check(i, logs[o.of.in])
		events += len(o.got)
		if most = max(most, o.most); o.of.cut != 0 {
			if dead++; o.at()+1 < o.of.cut { // the last is the revoke itself
				short++
			}
		}
	}
	c.t.Logf("%d followers, %d subscriptions, %d events, %d revokes; %d subscriptions were cut off, %d of them before they had all below the cut; %d bytes unacked at most", len(c.followers), len(all), events, c.revokes, dead, short, most)
	if dead == 0 {
		c.t.Error("nobody was cut off")
	}
}

// log is a session's log, as its owner reads it.
func (c *crowd) log(s *crowdSession) (log []*session.Event) {
	live, err := c.servers[0].server.Caller(c.t.Context(), "127.0.0.1:1").Restore(s.owner, "")
	if err != nil {
		c.t.Fatal(err)
	}
	for end := c.row(s).Cursor; uint64(len(log)) < end; {
		page, err := live.Events(c.t.Context(), fanout.Position{Cursor: uint64(len(log))}, nil, 1000)
		if err != nil {
			c.t.Fatal(err)
		}
		log = append(log, page.Events...)
	}
	return log
}
