// E-order through other vats: programs in a line or a ring of vats hand references on, resolve promises and call, while
// messages and deliveries take as long as a seed says. All that is called on one reference must arrive in order, at whatever
// vat what it leads to turns out to be.

package rpc

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/seed"
)

var hopWorlds = flag.Int("worlds", 250, "how many networks of vats to try")

func TestOrderThroughOtherVats(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	for i := range *hopWorlds {
		s := seed + uint64(i)
		if err := runHops(s, nil); err != nil {
			var story []string
			again := runHops(s, &story)
			t.Fatalf("%v\n%s\nSEED=%d -run OrderThroughOtherVats -worlds 1 is the same again: %v", err, strings.Join(story, "\n"), s, again)
		}
	}
}

// Methods of the objects in a world. The number of a hit is whose and the how many-eth it is; of all others the rank below which
// what they come to has to be.
var (
	hHit  = Method{testInterface, 20, "hit"}
	hGive = Method{testInterface, 21, "give"} // its program has the capability, too
	hGet  = Method{testInterface, 22, "get"}  // gives a capability that its program has, or will have
	hEcho = Method{testInterface, 23, "echo"} // gives the capability back
)

// world is some vats and the links between them, stepped by one goroutine: a seed is a story.
type world struct {
	rnd   *rand.Rand
	vats  []*hopVat
	links []*hopLink
	due   []func() // deliveries within the vats
	rank  uint64   // the last that was given
	story *[]string
	next  []uint64 // the number of the hit that is to arrive next, by the reference
	made  []uint64 // how many were made
	bad   error
}

// hopVat is a vat and its program.
type hopVat struct {
	w        *world
	n        int
	conns    []*Conn
	refs     []*hopRef
	resolves []hopResolve
	held     []hopHeld
}

// hopRef is a reference of a program. What it leads to has a rank no higher than its own, and a promise is resolved only to
// what has a lower one, so that none comes to lead to itself.
type hopRef struct {
	id   int
	rank uint64
	ref  *Ref
}

type hopResolve struct {
	rank uint64
	f    func(*Ref, error)
}

type hopHeld struct {
	rank uint64
	call *Call
}

// hopLink is one direction of a connection.
type hopLink struct {
	from, to *Conn
	weight   int // how often something arrives
	frames   [][]byte
}

func (w *world) note(format string, args ...any) {
	if w.story != nil {
		*w.story = append(*w.story, fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.bad == nil {
		w.bad = fmt.Errorf(format, args...)
	}
}

// hopObject is an object of a program.
type hopObject struct{ v *hopVat }

func (o *hopObject) Serve(c *Call) {
	p, caps := c.Params()
	number := p.Uint64(0)
	ptr, _ := p.Ptr(1)
	switch c.Method().ID {
	case hHit.ID:
		o.v.w.arrived(o.v, number)
		c.Return(testSize, nil)
	case hGive.ID:
		r := caps.Get(ptr)
		o.v.w.note("vat %d is given r%d", o.v.n, len(o.v.w.next))
		o.v.keep(number, r)
		c.Return(testSize, nil)
	case hEcho.ID:
		r := caps.Get(ptr)
		c.Return(testSize, fill(0, "", r))
		r.Release()
	case hGet.ID:
		o.v.get(c, number)
	default:
		c.Fail(Unimplementedf("no"))
	}
}

// get answers with what the program has, or with a promise, or later.
func (v *hopVat) get(c *Call, rank uint64) {
	switch v.w.rnd.IntN(4) {
	case 0:
		r, resolve := NewPromise()
		v.w.note("vat %d gives promise of rank %d", v.n, rank)
		v.resolves = append(v.resolves, hopResolve{rank, resolve})
		c.Return(testSize, fill(0, "", r))
		r.Release()
	case 1:
		v.w.note("vat %d holds a get of rank %d", v.n, rank)
		v.held = append(v.held, hopHeld{rank, c})
	default:
		r := v.below(rank)
		c.Return(testSize, fill(0, "", r))
		r.Release()
	}
}

// below gives something that a promise of a rank may be resolved to: often what the program has, else an object of its own.
func (v *hopVat) below(rank uint64) *Ref {
	if v.w.rnd.IntN(8) > 0 {
		for range 4 {
			if len(v.refs) == 0 {
				break
			}
			if r := v.refs[v.w.rnd.IntN(len(v.refs))]; r.rank < rank {
				v.w.note("  vat %d answers rank %d with r%d (%T)", v.n, rank, r.id, r.ref.node)
				return r.ref.AddRef()
			}
		}
	}
	v.w.note("  vat %d answers rank %d with an object", v.n, rank)
	return v.object()
}

func (v *hopVat) object() *Ref {
	r := NewLocal(&hopObject{v})
	r.node.(*localCap).deliveries.Start = func(drain func()) { v.w.due = append(v.w.due, drain) }
	return r
}

func (v *hopVat) keep(rank uint64, r *Ref) {
	v.refs = append(v.refs, &hopRef{len(v.w.next), rank, r})
	v.w.next, v.w.made = append(v.w.next, 0), append(v.w.made, 0)
}

// arrived checks that a hit is the one that was to come next.
func (w *world) arrived(v *hopVat, number uint64) {
	id, k := number>>32, number&0xffffffff
	w.note("hit %d of r%d arrives at vat %d", k, id, v.n)
	if w.next[id] != k {
		w.fail("hit %d on reference r%d arrived at vat %d in the place of %d", k, id, v.n, w.next[id])
	}
	w.next[id] = k + 1
}

func newWorld(seed uint64, story *[]string) *world {
	w := &world{rnd: rand.New(rand.NewPCG(seed, 7)), story: story}
	n := 2 + w.rnd.IntN(3)
	for i := range n {
		w.vats = append(w.vats, &hopVat{w: w, n: i})
	}
	for i := 1; i < n; i++ {
		w.link(w.vats[i-1], w.vats[i])
	}
	if n > 2 && w.rnd.IntN(3) == 0 {
		w.link(w.vats[n-1], w.vats[0])
	}
	return w
}

func (w *world) link(a, b *hopVat) {
	conn := func(v, to *hopVat) *Conn {
		cfg := Config{Bootstrap: &hopObject{v}}
		if w.story != nil {
			cfg.Trace = func(dir string, m rpccp.Message) {
				*w.story = append(*w.story, fmt.Sprintf("    %d %s %d: %s", v.n, map[string]string{"in": "from", "out": "to"}[dir], to.n, formatMessage(m)))
			}
		}
		c := NewConn(quiet{}, cfg)
		c.loop.Manual = true
		v.conns = append(v.conns, c)
		return c
	}
	left, right := conn(a, b), conn(b, a)
	w.links = append(w.links, &hopLink{from: left, to: right, weight: 1 + w.rnd.IntN(6)}, &hopLink{from: right, to: left, weight: 1 + w.rnd.IntN(6)})
}

// collect takes what a connection has to send.
func (l *hopLink) collect() error {
	l.from.mu.Lock()
	defer l.from.unlockAndRun()
	l.frames = append(l.frames, l.from.out.TakeMessages()...)
	return l.from.loop.Ending().Err
}

// step has one thing happen that is due somewhere; false if there is nothing.
func (w *world) step() bool {
	type choice struct {
		weight int
		do     func()
	}
	var all []choice
	sum := 0
	may := func(weight int, do func()) { all, sum = append(all, choice{weight, do}), sum+weight }
	for _, l := range w.links {
		if err := l.collect(); err != nil {
			w.fail("a connection ended: %v", err)
			return false
		}
		if len(l.frames) > 0 {
			may(l.weight, l.arrive)
		}
		if len(l.to.out.Tasks) > 0 {
			may(3, l.to.deliverOne)
		}
	}
	for i := range w.due {
		may(3, func() {
			f := w.due[i]
			w.due = append(w.due[:i:i], w.due[i+1:]...)
			f()
		})
	}
	if sum == 0 {
		return false
	}
	at := w.rnd.IntN(sum)
	for _, c := range all {
		if at -= c.weight; at < 0 {
			c.do()
			break
		}
	}
	return true
}

func (l *hopLink) arrive() {
	frame := l.frames[0]
	l.frames = l.frames[1:]
	l.to.mu.Lock()
	if err := l.to.handle(frame); err != nil {
		l.to.loop.EndLocked(abortEnding(err))
	}
	l.to.unlockAndRun()
}

// deliverOne is drain, of one task.
func (c *Conn) deliverOne() {
	c.mu.Lock()
	t := c.out.Tasks[0]
	c.out.Tasks = c.out.Tasks[1:]
	c.unlockAndRun()
	c.loop.RunTask(t)
}

// act has a program do something.
func (v *hopVat) act() {
	w := v.w
	pickRef := func() *hopRef { return v.refs[w.rnd.IntN(len(v.refs))] }
	call := func(to *hopRef, m Method, number uint64, arg *Ref) *Promise {
		return to.ref.Call(noWaitCtx, m, testSize, fill(number, "", arg))
	}
	if len(v.refs) == 0 || w.rnd.IntN(30) == 0 {
		c := v.conns[w.rnd.IntN(len(v.conns))]
		w.note("vat %d: r%d is a bootstrap", v.n, len(w.next))
		v.keep(0, c.Bootstrap(noWaitCtx))
		return
	}
	switch w.rnd.IntN(12) {
	case 0:
		w.note("vat %d: r%d is an object", v.n, len(w.next))
		v.keep(0, v.object())
	case 1:
		w.rank++
		r, resolve := NewPromise()
		w.note("vat %d: r%d is a promise of rank %d", v.n, len(w.next), w.rank)
		v.keep(w.rank, r)
		v.resolves = append(v.resolves, hopResolve{w.rank, resolve})
	case 2:
		v.resolve()
	case 3:
		to, arg := pickRef(), pickRef()
		w.note("vat %d: r%d.give(r%d)", v.n, to.id, arg.id)
		release(call(to, hGive, arg.rank, arg.ref))
	case 4:
		to, arg := pickRef(), pickRef()
		w.note("vat %d: r%d = r%d.echo(r%d)", v.n, len(w.next), to.id, arg.id)
		p := call(to, hEcho, 0, arg.ref)
		v.keep(max(to.rank, arg.rank), p.Cap(1))
		release(p)
	case 5, 6:
		to := pickRef()
		w.rank++
		w.note("vat %d: r%d = r%d.get of rank %d", v.n, len(w.next), to.id, w.rank)
		p := call(to, hGet, w.rank, nil)
		v.keep(w.rank, p.Cap(1))
		release(p)
	case 7:
		if i := w.rnd.IntN(len(v.refs)); w.rnd.IntN(3) == 0 {
			w.note("vat %d: release r%d", v.n, v.refs[i].id)
			v.refs[i].ref.Release()
			v.refs = append(v.refs[:i:i], v.refs[i+1:]...)
		}
	default:
		to := pickRef()
		for range 1 + w.rnd.IntN(3) {
			v.hit(to)
		}
	}
}

func (v *hopVat) hit(to *hopRef) {
	w := v.w
	k := w.made[to.id]
	w.made[to.id]++
	w.note("vat %d: hit %d on r%d (%T)", v.n, k, to.id, to.ref.node)
	p := to.ref.Call(noWaitCtx, hHit, testSize, fill(uint64(to.id)<<32|k, "", nil))
	p.Notify(func() {
		if _, _, err := p.Wait(context.Background()); err != nil {
			w.fail("hit %d on r%d: %v", k, to.id, err)
		}
		p.Release()
	})
}

// release lets go of a call's results when they are there: before, that would cancel it.
func release(p *Promise) { p.Notify(p.Release) }

// resolve resolves a promise of the program, or answers a call that it holds; false if there is none.
func (v *hopVat) resolve() bool {
	n := v.w.rnd.IntN(max(1, len(v.resolves)+len(v.held)))
	switch {
	case n < len(v.resolves):
		p := v.resolves[n]
		v.resolves = append(v.resolves[:n:n], v.resolves[n+1:]...)
		r := v.below(p.rank)
		p.f(r, nil)
		r.Release()
	case n < len(v.resolves)+len(v.held):
		n -= len(v.resolves)
		h := v.held[n]
		v.held = append(v.held[:n:n], v.held[n+1:]...)
		r := v.below(h.rank)
		h.call.Return(testSize, func(s capnp.Struct, caps *CapTable) error { return caps.Set(s, 1, r) })
		r.Release()
	default:
		return false
	}
	return true
}

// runHops runs the world of a seed to its end.
func runHops(seed uint64, story *[]string) error {
	w := newWorld(seed, story)
	most := 50 + w.rnd.IntN(500)
	for i := 0; i < most && w.bad == nil; i++ {
		if w.rnd.IntN(3) == 0 {
			w.vats[w.rnd.IntN(len(w.vats))].act()
		} else {
			w.step()
		}
	}
	for busy := true; busy && w.bad == nil; {
		busy = false
		for w.bad == nil && w.step() {
		}
		for _, v := range w.vats {
			busy = v.resolve() || busy
		}
	}
	for id, made := range w.made {
		if w.bad == nil && w.next[id] != made {
			w.fail("%d hits on r%d arrived, %d were made", w.next[id], id, made)
		}
	}
	for _, v := range w.vats {
		for _, r := range v.refs {
			r.ref.Release()
		}
	}
	for w.bad == nil && w.step() {
	}
	for _, v := range w.vats {
		for _, c := range v.conns {
			if s := c.Stats(); w.bad == nil && s.Questions+s.Answers+s.Embargoes+s.QueuedCalls != 0 {
				w.fail("tables of vat %d are not empty: %+v", v.n, s)
			}
			c.Close("over")
			c.failOrphans()
		}
	}
	return w.bad
}
