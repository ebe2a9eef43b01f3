// The program behind the wild peer's vat: objects that do all that handlers do, good and bad, and a caller that makes
// and drops calls, references and promises.

package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"capnproto.org/go/capnp/v3"
)

// wildProgram is everything the program holds.
type wildProgram struct {
	d       *dice
	c       *Conn
	threads bool // connections have goroutines
	boot    *wildObject
	made    atomic.Int64 // objects
	freed   atomic.Int64 // and how often one was released
	twice   atomic.Int64

	mu       sync.Mutex // guards what follows
	counts   []*localCap
	refs     []*Ref
	promises []*Promise
	resolves []func(*Ref, error)
	held     []*Call
	kept     []*Ref
	due      []func() // deliveries within the vat, if there are no goroutines
}

// wildObject is one object of the program.
type wildObject struct {
	p    *wildProgram
	gone atomic.Bool
}

func (p *wildProgram) newObject() (*wildObject, *Ref) {
	p.made.Add(1)
	o := &wildObject{p: p}
	r := NewLocal(o)
	p.counted(r.node.(*localCap))
	return o, r
}

func (p *wildProgram) counted(n *localCap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = append(p.counts, n)
	if !p.threads {
		n.deliveries.Start = p.later
	}
}

// later is how a loop starts without a goroutine.
func (p *wildProgram) later(drain func()) { p.due = append(p.due, drain) }

func (o *wildObject) Release() {
	o.p.freed.Add(1)
	if o.gone.Swap(true) {
		o.p.twice.Add(1)
	}
}

const wildMethods = 18

// Serve does what the method's number says. At a limit its calls do not wait: a handler must not, and where connections have no
// goroutines nobody else would make room.
func (o *wildObject) Serve(call *Call) {
	p := o.p
	if o.gone.Load() {
		p.twice.Add(1)
	}
	params, caps := call.Params()
	number := params.Uint64(0)
	ptr, err := params.Ptr(1)
	if err != nil {
		call.Fail(err)
		return
	}
	arg := caps.Get(ptr)
	defer arg.Release()
	switch call.Method().ID % wildMethods {
	case 0, 1:
		call.Return(testSize, fill(number, textOf(params, 0), arg))
	case 2:
		_, child := p.newObject()
		call.Return(testSize, fill(number, "", child))
		child.Release()
	case 3: // answered later
		p.mu.Lock()
		p.held = append(p.held, call)
		p.mu.Unlock()
	case 4:
		call.Fail(&Exception{Type: ExceptionType(number % 5), Reason: "as you like it"})
	case 5:
		panic("a handler's panic")
	case 6: // calls back
		back := arg.Call(noWaitCtx, wildMethod(number/2), testSize, fill(number/2, "", arg))
		back.Notify(func() {
			defer back.Release()
			s, caps, err := back.Wait(context.Background())
			if err != nil {
				call.Fail(err)
				return
			}
			ptr, _ := s.Ptr(1)
			r := caps.Get(ptr)
			call.Return(testSize, fill(s.Uint64(0), "", r))
			r.Release()
		})
	case 7: // a stream of calls, whose answers nobody awaits
		for i := range number % 8 {
			arg.Call(noWaitCtx, wildMethod(i), testSize, fill(i, "x", nil)).Release()
		}
		call.Return(capnp.ObjectSize{}, nil)
	case 8: // keeps
		p.mu.Lock()
		p.kept = append(p.kept, arg.AddRef())
		p.mu.Unlock()
		call.Return(testSize, nil)
	case 9: // gives what was kept
		p.mu.Lock()
		var r *Ref
		if n := len(p.kept); n > 0 {
			r = p.kept[n-1]
			p.kept = p.kept[:n-1]
		}
		p.mu.Unlock()
		call.Return(testSize, fill(number, "", r))
		r.Release()
	case 10: // a promise, resolved later
		r, resolve := NewPromise()
		p.mu.Lock()
		p.resolves = append(p.resolves, resolve)
		p.mu.Unlock()
		call.Return(testSize, fill(number, "", r))
		r.Release()
	case 11:
		call.Fail(errors.New("a secret"))
	case 12:
		call.Return(testSize, fill(number, strings.Repeat("long ", int(number%500)), arg))
	case 13: // a pipelined result of another
		q := arg.Call(noWaitCtx, wildMethod(number/3), testSize, fill(number/3, "", arg))
		x := q.Cap(1)
		q.Release()
		call.Return(testSize, fill(number, "", x))
		x.Release()
	case 14:
		call.Return(testSize, func(capnp.Struct, *CapTable) error { panic("a panic while answering") })
	case 15: // waits for its context
		switch {
		case call.Peer() == nil: // whoever made it here may wait for it without an end
			call.Fail(errCanceled)
		case p.threads:
			call.Go(func(ctx context.Context) { <-ctx.Done(); call.Fail(ctx.Err()) })
		default: // the connection's end answers it, if nothing else does
			call.Context()
		}
	case 16:
		call.Return(testSize, fill(1, "", arg))
		call.Return(testSize, fill(2, "", arg))
		call.Fail(errCanceled)
	case 17: // a promise of this vat that leads to the argument
		r, resolve := NewPromise()
		resolve(arg, nil)
		call.Return(testSize, fill(number, "", r))
		r.Release()
	}
}

// wildMethod is the method of calls with this number: it is so on the wire too, whoever passes a call on.
func wildMethod(n uint64) Method { return Method{testInterface, uint16(n % wildMethods), ""} }

// step does one thing that a program does, and says what.
func (p *wildProgram) step(ctx context.Context) (what string) {
	d := p.d
	p.mu.Lock()
	defer p.mu.Unlock()
	unlocked := func(f func()) { // nothing of the vat is called under the lock: it may run an object
		p.mu.Unlock()
		f()
		p.mu.Lock()
	}
	ref := func() *Ref {
		if len(p.refs) == 0 {
			return nil
		}
		return p.refs[d.n(len(p.refs))]
	}
	safe := func() (r *Ref) { // nothing that waits for what it is given to
		if d.n(2) == 0 {
			unlocked(func() { _, r = p.newObject() })
			return r
		}
		unlocked(func() { r = p.c.Bootstrap(ctx) })
		return r
	}
	at := func(r *Ref) int { return slices.Index(p.refs, r) }
	switch d.n(13) {
	case 0, 1:
		what = fmt.Sprintf("r%d = bootstrap", len(p.refs))
		var r *Ref
		unlocked(func() { r = p.c.Bootstrap(ctx) })
		p.refs = append(p.refs, r)
	case 2, 3, 4:
		to, arg, n := ref(), ref(), uint64(d.n(1000))
		m := wildMethod(n)
		what = fmt.Sprintf("p%d = r%d.%d n=%d r%d", len(p.promises), at(to), m.ID, n, at(arg))
		var q *Promise
		unlocked(func() { q = to.Call(ctx, m, testSize, fill(n, "text", arg)) })
		p.promises = append(p.promises, q)
	case 5, 6:
		if len(p.promises) == 0 {
			return "nothing"
		}
		i := d.n(len(p.promises))
		q, path := p.promises[i], []uint16{1, 1, 1, 0, 7}[:1+d.n(2)*d.n(4)]
		what = fmt.Sprintf("r%d = p%d.%v", len(p.refs), i, path)
		var r *Ref
		unlocked(func() { r = q.Cap(path...) })
		p.refs = append(p.refs, r)
	case 7:
		if len(p.refs) > 0 {
			i := d.n(len(p.refs))
			what = fmt.Sprintf("release r%d", i)
			r := p.refs[i]
			p.refs = slices.Delete(p.refs, i, i+1)
			unlocked(r.Release)
		}
	case 8:
		if len(p.promises) > 0 {
			i := d.n(len(p.promises))
			what = fmt.Sprintf("release p%d", i)
			q := p.promises[i]
			p.promises = slices.Delete(p.promises, i, i+1)
			unlocked(q.Release)
		}
	case 9:
		r, resolve := NewPromise()
		what = fmt.Sprintf("r%d = promise %d", len(p.refs), len(p.resolves))
		p.refs, p.resolves = append(p.refs, r), append(p.resolves, resolve)
	case 10:
		if len(p.resolves) == 0 {
			return "nothing"
		}
		i := d.n(len(p.resolves))
		what = fmt.Sprintf("resolve promise %d", i)
		to := safe()
		defer to.Release()
		f := p.resolves[i]
		p.resolves = slices.Delete(p.resolves, i, i+1)
		if d.n(4) == 0 {
			unlocked(func() { f(nil, errors.New("broken")) })
		} else {
			unlocked(func() { f(to, nil) })
		}
	case 11:
		if len(p.held) == 0 {
			return "nothing"
		}
		i, r := d.n(len(p.held)), ref()
		what = fmt.Sprintf("answer held call %d with r%d", i, at(r))
		call := p.held[i]
		if call.Peer() == nil {
			r = safe()
			defer r.Release()
		}
		p.held = slices.Delete(p.held, i, i+1)
		if d.n(4) == 0 {
			unlocked(func() { call.Fail(io.ErrUnexpectedEOF) })
		} else {
			unlocked(func() { call.Return(testSize, fill(3, "", r)) })
		}
	case 12: // takes what is in an answer, or makes something new
		var r *Ref
		unlocked(func() { _, r = p.newObject() })
		what = fmt.Sprintf("r%d = new, and perhaps another from an answer", len(p.refs))
		p.refs = append(p.refs, r)
		if len(p.promises) == 0 {
			return "nothing"
		}
		q := p.promises[d.n(len(p.promises))]
		select {
		case <-q.Done():
			if s, caps, err := q.Wait(ctx); err == nil {
				if ptr, err := s.Ptr(1); err == nil {
					if r := caps.Get(ptr); r != nil {
						p.refs = append(p.refs, r)
					}
				}
			}
		default:
		}
	}
	return what
}

// letGo gives up everything; true if there was nothing.
func (p *wildProgram) letGo() bool {
	p.mu.Lock()
	refs, promises, resolves, held, kept := p.refs, p.promises, p.resolves, p.held, p.kept
	p.refs, p.promises, p.resolves, p.held, p.kept = nil, nil, nil, nil, nil
	p.mu.Unlock()
	for _, f := range resolves {
		f(nil, errCanceled)
	}
	for _, r := range slices.Concat(refs, kept) {
		r.Release()
	}
	for _, q := range promises {
		q.Release()
	}
	for _, call := range held {
		call.Fail(errCanceled)
	}
	return len(refs)+len(promises)+len(resolves)+len(held)+len(kept) == 0
}

// undone counts the promises that are not answered.
func (p *wildProgram) undone() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.promises {
		select {
		case <-q.Done():
		default:
			n++
		}
	}
	return n
}
