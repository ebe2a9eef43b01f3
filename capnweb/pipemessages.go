// Streams and blobs in messages: sending and receiving them.

package capnweb

import (
	"context"
	"io"
	"sync"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

// streamCall calls a method of a stream: with a stream message if it is a peer's.
func streamCall(n node, method string, args *payload) node {
	in, ok := shortcut(n).(*importNode)
	if !ok {
		return n.call(via{}, []string{method}, args)
	}
	c := in.c
	c.mu.Lock()
	if in.dropped {
		c.mu.Unlock()
		return in.future.call(via{}, []string{method}, args)
	}
	r, err := c.sendPush(`["stream",["pipeline",`, in.id, []string{method}, args, true)
	oneWay := c.batch.oneWay()
	switch {
	case err != nil:
	case oneWay: // there are no acks
		r.dropped = true
		delete(c.imports, r.id)
	default:
		r.count, r.pulled = 0, true // it is answered without a pull, and released then
		c.pendingPulls++
	}
	c.unlockAndRun()
	args.release()
	if err != nil {
		return newError(err)
	}
	if oneWay {
		return newValue(&payload{value: Undefined{}})
	}
	return r
}

// receivePipe makes a pipe for the peer to write to.
func (c *Conn) receivePipe() error {
	if c.tooManyPushes() {
		return expr.Violationf("too much is held: results have to be released")
	}
	p := newPipe(c.limits.StreamBytes, func() { c.countHit(LimitStreamBytes) })
	if c.batch.oneWay() {
		p.maxBytes, p.ackOnArrival = max(p.maxBytes, 4*c.limits.QueuedBytes), true // no body is larger
	}
	p.conn = c
	e := &export{node: newLocal(p), count: 1, pipe: &Readable{pipe: p}}
	c.mu.Lock()
	if c.ended == nil {
		c.pipes[p] = struct{}{}
	}
	c.addPush(e)
	c.unlockAndRun()
	return nil
}

// readable evaluates a readable expression: the reading end of a pipe.
func (e *evaluator) readable(id int64, p *payload) (*Readable, error) {
	c := e.c
	c.mu.Lock()
	defer c.mu.Unlock()
	ex := c.exports[id]
	if ex == nil || ex.pipe == nil {
		return nil, expr.Violationf("export %d is no pipe, or was read already", id)
	}
	r := ex.pipe
	ex.pipe = nil
	p.refs = append(p.refs, readableRef{r})
	return r, nil
}

// writable evaluates a writable expression: a stream of the peer's.
func (e *evaluator) writable(id int64, p *payload) (any, error) {
	in, err := e.c.importStub(id, false)
	if err != nil {
		return nil, err
	}
	w := newWriter(in, e.c.limits.StreamBytes/2)
	w.borrowed = true
	p.refs = append(p.refs, writableRef{w})
	return w, nil
}

// blob evaluates a blob expression: a promise of everything that comes through a pipe.
func (e *evaluator) blob(a []any, p *payload) (any, error) {
	kind, ok := a[1].(string)
	r, _ := a[2].([]any)
	id, ok2 := expr.IDAt(r, 1)
	if !ok || !ok2 || len(r) != 2 || r[0] != "readable" || e.vars != nil {
		return nil, expr.Violationf("a bad blob expression")
	}
	e.notePeerVersion(8)
	from, err := e.readable(id, &payload{})
	if err != nil {
		return nil, err
	}
	f := newFuture()
	f.owner = blobReader{from.pipe}
	c := e.c
	data := []byte{}
	from.pipe.collect(func(v any) error {
		var b []byte
		switch v := v.(type) {
		case []byte:
			b = v
		case Bytes:
			b = v.Data
		default:
			return TypeErrorf("a blob is made of bytes")
		}
		if len(data)+len(b) > c.limits.BlobBytes {
			c.countHit(LimitBlobBytes)
			return &Error{Name: "RangeError", Message: "the blob is too large"}
		}
		if err := (via{c: c}).chargeHeldBytes(f, len(b), len(b)); err != nil {
			return err
		}
		data = append(data, b...)
		return nil
	}, func(err error) {
		if err != nil {
			f.resolve(nil, nil, err)
		} else {
			f.resolve(&payload{value: &Blob{Type: kind, Data: data}}, nil, nil)
		}
	})
	return addPromise(p, f), nil
}

// blobReader cancels a pipe when its blob is not referenced any more.
type blobReader struct{ p *pipe }

func (b blobReader) onAbandoned() { b.p.cancel(nil) }

// openPipe makes a pipe at the peer. The lock is held. The reference is for the writer.
func (e *encoder) openPipe() *importNode {
	c := e.c
	c.emit([]byte(`["pipe"]`), true)
	in := c.newImport(c.nextID, false)
	c.nextID++
	e.pipes = append(e.pipes, in.id)
	e.b = append(expr.AppendID(append(e.b, `["readable",`...), in.id), ']')
	return in
}

// dropPipe takes back a pipe whose message could not be sent. The lock is held.
func (c *Conn) dropPipe(id int64) {
	if in := c.imports[id]; in != nil {
		c.drops = append(c.drops, in)
	}
}

func (e *encoder) readable(r *Readable) error {
	if !r.moved.CompareAndSwap(false, true) {
		return errHandedOver
	}
	from := &Readable{pipe: r.pipe}
	c := e.c
	in := e.openPipe()
	e.pumps = append(e.pumps, func() {
		w := newWriter(in, c.limits.StreamBytes/2)
		if !c.spawnPump(func() { c.pump(from, w) }) {
			from.Cancel(c.brokenErr())
			w.release()
		}
	})
	return nil
}

// pump copies chunks until either end ends. A chunk is answered when the reader has taken it, or when the next one is read,
// which would be too early: so as long as the reader has chunks to take, the source waits for an answer, and is cancelled at
// once if the reader cancels.
func (c *Conn) pump(from *Readable, to *Writable) {
	ctx, cancel := c.context()
	defer cancel()
	p := from.pipe
	p.setRelayed()
	var before *Call
	for {
		k, _, err := p.next(ctx)
		if before != nil {
			before.Return(Undefined{})
		}
		if err == io.EOF {
			if err := to.Close(ctx); err != nil {
				from.Cancel(err)
			} else {
				p.relayDone()
			}
			return
		}
		if err != nil {
			to.Abort(err)
			from.Cancel(err)
			return
		}
		err = to.write(ctx, k.v, func(err error) {
			if err == nil {
				k.call.Return(Undefined{})
			} else {
				k.call.Fail(err)
				from.Cancel(err)
			}
		})
		k.args.release()
		if before = k.call; err != nil {
			k.call.Fail(err)
			from.Cancel(err)
			to.Abort(err)
			return
		}
	}
}

// context returns a context that ends with the connection.
func (c *Conn) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := make(chan struct{})
	var once sync.Once
	if !c.loop.Spawn(func() {
		select {
		case <-c.Done():
		case <-stop:
		}
		cancel()
	}) {
		cancel()
	}
	return ctx, func() { once.Do(func() { close(stop) }); cancel() }
}

// blobChunk is how many bytes of a blob go in one message.
const blobChunk = 64 << 10

func (e *encoder) blob(b *Blob) error {
	c := e.c
	e.b = append(jsontext.AppendString(append(e.b, `["blob",`...), b.Type), ',')
	in := e.openPipe()
	e.b = append(e.b, ']')
	e.pumps = append(e.pumps, func() {
		w := newWriter(in, c.limits.StreamBytes/2)
		if !c.spawnPump(func() {
			ctx, cancel := c.context()
			defer cancel()
			for rest := b.Data; len(rest) > 0; {
				n := min(len(rest), blobChunk)
				if err := w.Write(ctx, rest[:n]); err != nil {
					w.Abort(err)
					return
				}
				rest = rest[n:]
			}
			_ = w.Close(ctx) // the reader has the error
		}) {
			w.release()
		}
	})
	return nil
}

func (e *encoder) writable(w *Writable) error {
	if w.released.Load() {
		return errStreamReleased
	}
	n := shortcut(w.node)
	if in, ok := n.(*importNode); ok && in.c == e.c && !in.dropped {
		return TypeErrorf("a peer's own stream cannot be passed back to it")
	}
	id, err := e.c.newExport(n)
	if err != nil {
		return err
	}
	e.exports = append(e.exports, id)
	e.b = append(expr.AppendID(append(e.b, `["writable",`...), id), ']')
	return nil
}
