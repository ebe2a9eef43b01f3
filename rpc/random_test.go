// A random peer: it keeps the protocol, but for now and then, and checks that the vat does too.

package rpc

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/seed"
)

var (
	randomPeers = flag.Int("peers", 150, "how many random peers to try")
	randomSteps = flag.Int("steps", 120, "how much a random peer does")
)

func TestRandomPeers(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	for i := range *randomPeers {
		s := seed + uint64(i)
		if !runRandomPeer(t, s) {
			t.Fatalf("SEED=%d -run RandomPeers -peers 1 is the same again", s)
		}
	}
}

// randomPeer is a model of a peer's tables, kept from the messages that go both ways. Its fields are guarded by the
// connection's lock, since a notification may make the vat say something on a goroutine of its own.
type randomPeer struct {
	t    *testing.T
	rnd  *rand.Rand
	c    *Conn
	log  []string
	bad  bool
	lies bool // it may break the protocol
	tame bool // it passes no results that are not there yet, and so makes no promise wait for itself

	asked     map[uint32]*peerQuestion // its questions
	toAnswer  []uint32                 // the vat's questions it has not returned
	unended   map[uint32]bool          // the vat's questions without a finish
	held      map[uint32]uint32        // the vat's exports it holds, counted
	hosted    map[uint32]*peerExport   // its exports the vat holds
	embargoes []string                 // disembargoes it has to send back
	ended     bool
	due       []func() // deliveries within the vat
}

type peerQuestion struct {
	returned, finished bool
	noFinish           bool
	caps               []uint32 // exports in the return
}

type peerExport struct {
	count    uint32
	promise  bool
	resolved bool
}

func runRandomPeer(t *testing.T, seed uint64) bool {
	p := &randomPeer{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), asked: map[uint32]*peerQuestion{}, unended: map[uint32]bool{},
		held: map[uint32]uint32{}, hosted: map[uint32]*peerExport{},
	}
	p.lies, p.tame = p.rnd.IntN(3) == 0, p.rnd.IntN(2) == 0
	boot := newTestObject("boot")
	p.c = NewConn(quiet{}, Config{
		Bootstrap: boot, Logger: slog.New(panicCatcher{p: p}), Trace: p.trace,
		Limits: Limits{QueuedCalls: 64, Answers: 256, Questions: 256},
	})
	p.c.loop.Manual = true
	ctx := context.Background()
	own := newTestObject("own")
	ownRef := NewLocal(own)
	own.start = func(drain func()) { p.due = append(p.due, drain) } // no goroutines: a seed is a story
	boot.start = own.start
	ownRef.node.(*localCap).deliveries.Start = own.start
	refs := []*Ref{ownRef}
	safe := func() *Ref { // not the result of a call that waits for what it is to resolve
		if p.rnd.IntN(2) == 0 {
			return ownRef.AddRef()
		}
		return p.c.Bootstrap(ctx)
	}
	var promises []*Promise
	var resolvers []func(*Ref, error)
	for range *randomSteps {
		if p.over() {
			break
		}
		switch p.rnd.IntN(12) {
		case 0:
			p.note("r%d = bootstrap", len(refs))
			refs = append(refs, p.c.Bootstrap(ctx))
		case 1, 2:
			m := []Method{mEcho, mMake, mKeep, mHold}[p.rnd.IntN(4)]
			to, arg := p.rnd.IntN(len(refs)), p.rnd.IntN(len(refs)+1)
			p.note("call p%d = r%d.%s r%d", len(promises), to, m.Name, arg)
			promises = append(promises, refs[to].Call(ctx, m, testSize, fill(1, "", append(refs, nil)[arg])))
		case 3:
			if len(promises) > 0 {
				i := p.rnd.IntN(len(promises))
				p.note("r%d = p%d.1", len(refs), i)
				refs = append(refs, promises[i].Cap(1))
			}
		case 4:
			if i := p.rnd.IntN(len(refs)); i > 0 {
				p.note("release r%d", i)
				refs[i].Release()
				refs = slices.Delete(refs, i, i+1)
			}
		case 5:
			if len(promises) > 0 {
				i := p.rnd.IntN(len(promises))
				p.note("release p%d", i)
				promises[i].Release()
				promises = slices.Delete(promises, i, i+1)
			}
		case 6:
			switch p.rnd.IntN(3) {
			case 0:
				r, resolve := NewPromise()
				p.note("r%d = promise %d", len(refs), len(resolvers))
				refs, resolvers = append(refs, r), append(resolvers, resolve)
			case 1:
				if len(resolvers) > 0 {
					to, i := safe(), p.rnd.IntN(len(resolvers))
					p.note("resolve promise %d to %T", i, to.node)
					resolvers[i](to, nil)
					to.Release()
				}
			case 2: // a held call is answered
				to := safe()
				p.note("answer a held call with %T", to.node)
				p.answerHeld(boot, own, to)
				to.Release()
			}
		default:
			p.locked(p.say)
		}
		if p.rnd.IntN(3) > 0 {
			p.drain()
		}
	}
	p.drain()
	if !p.over() && !p.lies && p.tame {
		for _, f := range resolvers {
			f(nil, errCanceled)
		}
		p.settle(boot, own)
	}
	for _, r := range refs {
		r.Release()
	}
	for _, q := range promises {
		q.Release()
	}
	for _, f := range resolvers {
		f(nil, errCanceled)
	}
	p.c.Close("over")
	everything := func() []*testObject {
		return slices.Concat([]*testObject{boot, own}, boot.allMade(), own.allMade())
	}
	gone := func() bool {
		p.c.failOrphans()
		for _, o := range everything() {
			o.letGo()
		}
		p.drain()
		return !slices.ContainsFunc(everything(), func(o *testObject) bool { return !o.isGone() })
	}
	for end := time.Now().Add(testDeadline); !gone(); runtime.Gosched() {
		if time.Now().After(end) {
			for _, o := range everything() {
				p.note("%s: gone %v, made %d, resolvers %d", o.name, o.isGone(), len(o.made), len(o.resolve))
			}
			p.locked(func() { p.fail("an object was not released") })
			break
		}
	}
	if s := p.c.Stats(); s.Questions+s.Answers+s.Exports+s.Imports+s.Embargoes+s.QueuedCalls != 0 {
		p.locked(func() { p.fail("tables are not empty: %+v", s) })
	}
	for _, o := range everything() {
		if o.released > 1 {
			p.locked(func() { p.fail("object %s was released %d times", o.name, o.released) })
		}
	}
	return !p.bad
}

func pick[T any](p *randomPeer, from []T) T { return from[p.rnd.IntN(len(from))] }

// drain delivers what is due, on the connection and within the vat.
func (p *randomPeer) drain() {
	for {
		p.c.mu.Lock()
		p.c.out.TakeMessages()
		p.c.mu.Unlock()
		p.c.loop.Deliver()
		if len(p.due) == 0 {
			return
		}
		due := p.due
		p.due = nil
		for _, f := range due {
			f()
		}
	}
}

// allMade are an object's children, and theirs.
func (o *testObject) allMade() []*testObject {
	o.mu.Lock()
	made := slices.Clone(o.made)
	o.mu.Unlock()
	for _, m := range made {
		made = append(made, m.allMade()...)
	}
	return made
}

func (o *testObject) isGone() bool {
	select {
	case <-o.gone:
		return true
	default:
		return false
	}
}

// letGo breaks cycles: objects that keep references to themselves, promises never resolved, calls never answered.
func (o *testObject) letGo() {
	o.mu.Lock()
	kept, held, resolve := o.kept, o.held, o.resolve
	o.kept, o.held, o.resolve = nil, nil, nil
	o.mu.Unlock()
	kept.Release()
	for _, call := range held {
		call.Fail(errCanceled)
	}
	for _, f := range resolve {
		f(nil, errCanceled)
	}
}

func (p *randomPeer) answerHeld(boot, own *testObject, r *Ref) {
	for _, o := range slices.Concat([]*testObject{boot, own}, boot.allMade(), own.allMade()) {
		o.mu.Lock()
		var call *Call
		if n := len(o.held); n > 0 {
			i := p.rnd.IntN(n)
			call = o.held[i]
			o.held = slices.Delete(o.held, i, i+1)
		}
		o.mu.Unlock()
		if call != nil {
			if p.rnd.IntN(5) == 0 {
				call.Fail(Overloadedf("not now"))
			} else {
				call.Return(testSize, fill(3, "", r))
			}
			return
		}
	}
}

// settle has the peer answer all that is open, until nothing is.
func (p *randomPeer) settle(boot, own *testObject) {
	for end := time.Now().Add(testDeadline); p.hasOpen() && time.Now().Before(end); runtime.Gosched() {
		p.locked(func() {
			for len(p.toAnswer) > 0 {
				p.send(fmt.Sprintf("return a=%d results", p.shift(&p.toAnswer)))
			}
			for len(p.embargoes) > 0 {
				p.sendEmbargo()
			}
			for _, id := range keys(p.hosted) {
				if e := p.hosted[id]; e.promise && !e.resolved {
					e.resolved = true
					p.send(fmt.Sprintf("resolve p=%d exception failed over", id))
				}
			}
		})
		for _, o := range slices.Concat([]*testObject{boot, own}, boot.allMade(), own.allMade()) {
			o.letGo()
		}
		p.drain()
	}
	p.locked(func() {
		for id, q := range p.asked {
			if !q.returned && !p.ended {
				p.fail("question %d was never returned", id)
			}
		}
	})
}

// hasOpen reports whether a question of either side is to be answered.
func (p *randomPeer) hasOpen() (open bool) {
	p.locked(func() {
		for _, q := range p.asked {
			open = open || !q.returned
		}
		open = !p.ended && (open || len(p.toAnswer) > 0)
	})
	return open
}

// locked runs f with the connection's lock held.
func (p *randomPeer) locked(f func()) {
	p.c.mu.Lock()
	defer p.c.unlockAndRun()
	f()
}

// note writes down what the program does.
func (p *randomPeer) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	p.locked(func() { p.log = append(p.log, line) })
}

// over reports whether the vat has ended the connection.
func (p *randomPeer) over() (over bool) {
	p.locked(func() { over = p.ended })
	return over
}

func keys[V any](m map[uint32]V) []uint32 {
	ks := make([]uint32, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

func (p *randomPeer) shift(ids *[]uint32) uint32 {
	i := p.rnd.IntN(len(*ids))
	id := (*ids)[i]
	*ids = slices.Delete(*ids, i, i+1)
	return id
}

func (p *randomPeer) fail(format string, args ...any) {
	if !p.bad {
		p.t.Errorf(format+"\n%s", append(args, strings.Join(p.log, "\n"))...)
	}
	p.bad = true
}

// panicCatcher is a log handler that fails the test when the core panicked.
type panicCatcher struct {
	slog.Handler
	p *randomPeer
}

func (panicCatcher) Enabled(context.Context, slog.Level) bool { return true }

func (h panicCatcher) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "message handler panicked") {
		r.Attrs(func(a slog.Attr) bool { h.p.log = append(h.p.log, a.String()); return true })
		h.p.fail("the core panicked")
	}
	return nil
}
