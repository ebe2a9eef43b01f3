//go:build unix

// Thousands of followers of three replicas on one database, who read at every pace, leave, and
// come back at another replica, while their refs are cut and revoked. Whatever happens, each of
// them is sent what its sight shows of the log, without a gap, once and in order; under a ref that
// was revoked nothing above the cut; and never more at once than its window.

package fanout

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
)

func TestManyFollowersOfThreeReplicas(t *testing.T) {
	first := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(first, seed.Cases(3000))
		defer c.close()
		for range 400 {
			c.step()
		}
		c.settle()
		c.report(t)
	})
}

// cluster is three hubs on one database, and all who follow them. Its mutex guards what it counts.
type cluster struct {
	dice      *dice
	logs      []*commonLog
	replicas  []*replica
	followers []*visitor

	mu     sync.Mutex
	calm   bool // nobody is slow any more
	faults []string

	events, shared, living, ends, deadEnds, wentOn, returns, refused, unacked int
}

// replica is one hub, with its connections. telling keeps its commits in their order.
type replica struct {
	hub     *Hub
	conns   []*Flow
	stopped []*Flow       // of those who take nothing
	telling chan struct{} // a token: a mutex would hold up the bubble's time
	stop    context.CancelFunc
	loops   sync.WaitGroup
}

func newCluster(seed uint64, followers int) *cluster {
	c := &cluster{dice: newDice(seed, 0)}
	for i := range 4 {
		l := &commonLog{c: c, id: capability.SessionPrefix + fmt.Sprintf("01J0000000000000000000000%d", i), grants: map[string]*capability.Grant{}, bumps: map[uint64]uint64{}}
		l.row = session.Row{ID: l.id, Life: session.Live, Epoch: 1, AuthGen: 1}
		c.logs = append(c.logs, l)
		for range 10 {
			l.write(c.dice, nil)
		}
		for range 40 {
			l.mint(c.dice)
		}
	}
	for i := range 3 {
		ctx, stop := context.WithCancel(context.Background())
		r := &replica{stop: stop, telling: make(chan struct{}, 1), hub: NewHub(HubConfig{Log: slog.New(slog.DiscardHandler), Store: clusterStore{c: c, dice: newDice(seed, 100+uint64(i))}, ReadTimeout: time.Second, ObserveDelivery: func(float64) {},
			Now: time.Now, PollInterval: time.Second, IgnoreNotify: true, Warn: func(label string, err error) { c.fault("%s: %v", label, err) }})}
		for _, loop := range r.hub.Loops() {
			r.loops.Go(func() { loop(ctx) })
		}
		for i := range 16 {
			inFlight := 1 << 30
			if i < 4 { // where followers wait for their turn
				inFlight = oneOf(c.dice, 20_000, 100_000)
			}
			r.conns = append(r.conns, NewFlow(FlowConfig{InFlight: inFlight, Subscriptions: followers, LimitHits: &admission.LimitHits{}}))
			r.stopped = append(r.stopped, NewFlow(FlowConfig{InFlight: 1 << 30, Subscriptions: followers, LimitHits: &admission.LimitHits{}}))
		}
		c.replicas = append(c.replicas, r)
	}
	for i := range followers {
		f := &visitor{c: c, name: fmt.Sprintf("f%d", i), dice: newDice(seed, 1000+uint64(i))}
		c.followers = append(c.followers, f)
		f.begin()
	}
	return c
}

func (c *cluster) close() {
	for _, r := range c.replicas {
		r.stop()
		r.hub.EndAll(fault.Draining.With("the server is stopping"))
		r.hub.Close()
		r.loops.Wait()
	}
}

func (c *cluster) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *cluster) count(n *int, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n += by
}

func (c *cluster) isCalm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calm
}

// step has one thing happen, and some time pass.
func (c *cluster) step() {
	l := oneOf(c.dice, c.logs...)
	switch n := c.dice.n(20); {
	case n < 12:
		c.commit(l, nil)
	case n < 16:
		c.end(l)
	case n < 17: // a purge, say
		c.commit(l, func(uint64) {})
	default:
		for range 1 + len(c.followers)/100 {
			f := oneOf(c.dice, c.followers...)
			f.leave(f.current())
		}
	}
	if c.dice.chance(60) {
		time.Sleep(time.Duration(c.dice.n(30)) * time.Millisecond)
	}
	if c.dice.chance(20) {
		synctest.Wait()
	}
}

// end revokes a ref, and what was made from it, or ends an epoch. It makes refs in their place.
func (c *cluster) end(l *commonLog) {
	l.mu.Lock()
	ref := oneOf(c.dice, l.refs...)
	l.mu.Unlock()
	how := func(cut uint64) { l.revoke(ref, cut) }
	if c.dice.chance(5) {
		how = l.bump
	}
	c.commit(l, func(cut uint64) {
		how(cut)
		for len(l.refs) < 40 {
			l.mint(c.dice)
		}
	})
}

// commit commits to a session at one of the replicas, which tells its own hub, sooner or later but in order. The others
// hear of it, or do not.
func (c *cluster) commit(l *commonLog, change func(cut uint64)) {
	at := c.dice.n(len(c.replicas))
	r := c.replicas[at]
	late, near := time.Duration(c.dice.n(2)*c.dice.n(20))*time.Millisecond, newDice(uint64(c.dice.n(1<<30)), 0)
	begun := make(chan struct{})
	beside := change != nil && c.dice.chance(30) // as a space's ref is revoked
	go func() {
		var p *session.PublishedSession
		if beside {
			p = l.write(near, change)
			close(begun)
			r.hub.Notify(l.id, p.Row.Cursor, p.Row.AuthGen)
		} else {
			r.telling <- struct{}{}
			defer func() { <-r.telling }()
			r.hub.BeginCommit([]string{l.id})
			p = l.write(near, change)
			close(begun)
			time.Sleep(late)
			r.hub.EndCommit([]string{l.id}, &session.Published{Sessions: []session.PublishedSession{*p}})
		}
		for i, other := range c.replicas {
			if i != at && near.chance(80) {
				time.AfterFunc(time.Duration(near.n(15))*time.Millisecond, func() { other.hub.Notify(l.id, p.Row.Cursor, 0) })
			}
		}
	}()
	if change != nil || c.dice.chance(50) { // else the next thing happens before it is committed
		<-begun
	}
}

// settle lets everybody read on, and sees that they get to the end, or were told of theirs.
func (c *cluster) settle() {
	time.Sleep(10 * time.Second) // all commits are told, and all answers given but those of the stopped
	synctest.Wait()
	c.unackedBytes()
	c.mu.Lock()
	c.calm = true
	c.mu.Unlock()
	for _, f := range c.followers {
		f.goOn()
	}
	for range 3 * len(c.logs) { // those who are cut off now are not replaced
		c.end(oneOf(c.dice, c.logs...))
	}
	time.Sleep(30 * time.Second)
	synctest.Wait()
	for _, f := range c.followers {
		f.promises()
	}
	for i, r := range c.replicas {
		for _, l := range c.logs {
			if t := r.hub.fanout(l.id); t != nil && t.keeps() {
				c.fault("replica %d keeps events of %s for nobody", i, l.id)
			}
		}
		for _, conn := range append(slices.Clone(r.conns), r.stopped...) {
			if inFlight, waiting := conn.Load(); inFlight != 0 || waiting != 0 {
				c.fault("a connection of replica %d has %d bytes in flight and %d followers waiting when all is acked", i, inFlight, waiting)
			}
		}
	}
}

// unackedBytes counts what is held for those who take nothing.
func (c *cluster) unackedBytes() {
	for _, f := range c.followers {
		v := f.current()
		t := v.sub.fanout
		t.mu.Lock()
		c.count(&c.unacked, v.sub.inFlight)
		t.mu.Unlock()
	}
}

func (c *cluster) report(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("%d followers, %d with living refs at the end: %d events, %d deliveries that had been another's, %d returns, %d refused, %d ends, %d of dead refs, %d of these with events above the cut, %d bytes unacked", len(c.followers), c.living, c.events, c.shared, c.returns, c.refused, c.ends, c.deadEnds, c.wentOn, c.unacked)
	for _, f := range c.faults[:min(len(c.faults), 20)] {
		t.Error(f)
	}
	switch {
	case len(c.faults) > 20:
		t.Errorf("and %d more", len(c.faults)-20)
	case len(c.faults) == 0 && (c.shared == 0 || c.returns == 0 || c.wentOn == 0 || c.unacked == 0):
		t.Error("not all of this has happened")
	}
}
