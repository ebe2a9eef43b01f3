// Streams on the wire: pipes, and objects that are written to.

package capnweb

import (
	"context"
	"io"
	"sync"
)

// pipe is a stream that is written by calls (write, close, abort) and read by the program. A chunk's call is answered
// when the chunk is read: that is what gives its bytes back to the writer's window.
type pipe struct {
	most int
	hits func() // counts the limit
	conn *Conn  // that it came over, which ends it with itself; nil for the program's own
	free bool   // chunks are answered as they come: in a batch all there will be is there
	far  bool   // it is read for another reader, who has taken all when finished is called, not when it is read

	mu     sync.Mutex
	chunks []chunk
	bytes  int
	ends   []*Call // close calls to answer when everything is read, or taken by the other reader
	err    error   // what comes behind the chunks
	over   bool    // nobody reads any more
	why    error   // what writers are told then
	wake   chan struct{}
	last   *payload          // what the chunk that was read last holds
	sink   func(v any) error // if set, takes chunks at once
	done   func(err error)   // with sink: told the end
}

type chunk struct {
	call *Call    // holds what is in v,
	args *payload // or this
	v    any
	size int
}

func newPipe(most int, hits func()) *pipe { return &pipe{most: most, hits: hits} }

// Serve implements Object.
func (p *pipe) Serve(c *Call) {
	switch method := c.Method(); {
	case len(c.Path()) == 1 && method == "write" && len(c.vals) > 0:
		p.write(c, c.vals[0])
	case len(c.Path()) == 1 && method == "write":
		p.write(c, Undefined{})
	case len(c.Path()) == 1 && method == "close":
		p.finish(c)
	case len(c.Path()) == 1 && method == "abort":
		p.abort(reasonOf(c.vals))
		c.Return(Undefined{})
	default:
		c.Fail(notAFunction(c.Path()))
	}
}

// Release implements Releaser: the writer is gone.
func (p *pipe) Release() {
	p.end(&BrokenError{Reason: "the stream's writer has gone without closing it"}, false)
}

// leave has the connection forget a pipe that has its end.
func (p *pipe) leave() {
	if p.conn != nil {
		p.conn.mu.Lock()
		delete(p.conn.pipes, p)
		p.conn.mu.Unlock()
	}
}

// reasonOf is what an abort says.
func reasonOf(args []any) error {
	if len(args) > 0 {
		if err, ok := args[0].(error); ok {
			return err
		}
		if s, ok := args[0].(string); ok {
			return &Error{Name: "Error", Message: s}
		}
	}
	return &Error{Name: "Error", Message: "the stream was aborted"}
}

func (p *pipe) write(c *Call, v any) {
	size := sizeOf(v, 0)
	p.mu.Lock()
	switch {
	case p.over:
		why := p.why
		p.mu.Unlock()
		c.Fail(why)
		return
	case p.err != nil:
		p.mu.Unlock()
		c.Fail(errStreamClosed)
		return
	case p.sink != nil:
		sink := p.sink
		p.mu.Unlock()
		if err := sink(v); err != nil {
			c.Fail(err)
			p.failSink(err)
			return
		}
		c.Return(Undefined{})
		return
	case p.bytes+size > p.most && len(p.chunks) > 0:
		p.mu.Unlock()
		if p.hits != nil {
			p.hits()
		}
		err := &Error{Name: "RangeError", Message: "overloaded: too much of the stream waits to be read"}
		p.end(err, true)
		c.Fail(err)
		return
	}
	k := chunk{call: c, v: v, size: size}
	if p.free {
		k.args = c.detach()
	}
	p.chunks = append(p.chunks, k)
	p.bytes += size
	p.signal()
	p.mu.Unlock()
	if p.free {
		c.Return(Undefined{})
	}
}

// failSink is the end of a stream whose chunks are taken at once and do not fit.
func (p *pipe) failSink(err error) {
	p.mu.Lock()
	done := p.done
	p.done = nil
	p.mu.Unlock()
	p.cancel(err)
	if done != nil {
		done(err)
	}
}

// finish is the writer's close.
func (p *pipe) finish(c *Call) {
	p.mu.Lock()
	if p.over || p.err != nil {
		why := p.why
		if why == nil {
			why = errStreamClosed
		}
		p.mu.Unlock()
		c.Fail(why)
		return
	}
	p.err = io.EOF
	done := p.done
	p.done = nil
	wait := (len(p.chunks) > 0 || p.far) && !p.free
	if wait {
		p.ends = append(p.ends, c)
	}
	p.signal()
	p.mu.Unlock()
	p.leave()
	if !wait {
		c.Return(Undefined{})
	}
	if done != nil {
		done(nil)
	}
}

func (p *pipe) abort(reason error) { p.end(reason, true) }

// end is an end out of turn. lose says that chunks not yet read are lost.
func (p *pipe) end(err error, lose bool) {
	p.mu.Lock()
	if p.err != nil || p.over {
		p.mu.Unlock()
		return
	}
	p.err = err
	var lost []chunk
	if lose {
		lost, p.chunks, p.bytes = p.chunks, nil, 0
	}
	done := p.done
	p.done = nil
	p.signal()
	p.mu.Unlock()
	p.leave()
	for _, k := range lost {
		k.call.Fail(err)
		k.args.release()
	}
	if done != nil {
		done(err)
	}
}

func (p *pipe) signal() {
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}

// read gives the next chunk, which is answered.
func (p *pipe) read(ctx context.Context) (any, error) {
	k, ends, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	args := k.args
	if args == nil {
		args = k.call.detach()
	}
	p.mu.Lock()
	over := p.over
	if !over {
		p.last = args
	}
	p.mu.Unlock()
	if over { // given up meanwhile
		args.release()
	}
	k.call.Return(Undefined{})
	for _, c := range ends {
		c.Return(Undefined{})
	}
	return k.v, nil
}

// take gives the next chunk, and the close calls to be answered with it.
func (p *pipe) take(ctx context.Context) (chunk, []*Call, error) {
	p.mu.Lock()
	last := p.last
	p.last = nil
	for len(p.chunks) == 0 && p.err == nil && !p.over {
		if p.wake == nil {
			p.wake = make(chan struct{})
		}
		wake := p.wake
		p.mu.Unlock()
		last.release()
		last = nil
		select {
		case <-wake:
			p.mu.Lock()
		case <-ctx.Done():
			return chunk{}, nil, ctx.Err()
		}
	}
	if p.over || len(p.chunks) == 0 {
		err := p.err
		if p.over {
			err = p.why
		}
		p.mu.Unlock()
		last.release()
		return chunk{}, nil, err
	}
	k := p.chunks[0]
	p.chunks[0] = chunk{}
	p.chunks = p.chunks[1:]
	p.bytes -= k.size
	var ends []*Call
	if len(p.chunks) == 0 {
		p.chunks = nil
		if !p.far {
			ends, p.ends = p.ends, nil
		}
	}
	p.mu.Unlock()
	last.release()
	return k, ends, nil
}

// readFar says that chunks are passed on to another reader.
func (p *pipe) readFar() {
	p.mu.Lock()
	p.far = true
	p.mu.Unlock()
}

// finished says that the other reader has taken everything.
func (p *pipe) finished() {
	p.mu.Lock()
	ends := p.ends
	p.ends = nil
	p.mu.Unlock()
	for _, c := range ends {
		c.Return(Undefined{})
	}
	p.cancel(nil)
}

// cancel is the reader's giving up.
func (p *pipe) cancel(reason error) {
	if reason == nil {
		reason = &Error{Name: "Error", Message: "the stream was canceled"}
	}
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return
	}
	p.over, p.why = true, reason
	lost, ends, last := p.chunks, p.ends, p.last
	p.chunks, p.ends, p.last, p.bytes, p.sink, p.done = nil, nil, nil, 0, nil, nil
	p.signal()
	p.mu.Unlock()
	p.leave()
	last.release()
	for _, k := range lost {
		k.call.Fail(reason)
		k.args.release()
	}
	for _, c := range ends {
		c.Fail(reason)
	}
}

// collect has sink called with every chunk as it comes, and done at the end.
func (p *pipe) collect(sink func(v any) error, done func(err error)) {
	for {
		p.mu.Lock()
		if len(p.chunks) > 0 {
			p.mu.Unlock()
			v, err := p.read(context.Background()) // it is there
			if err == nil {
				err = sink(v)
			}
			if err != nil {
				p.cancel(err)
				done(err)
				return
			}
			continue
		}
		break
	}
	err, over := p.err, p.over
	if err == nil && !over {
		p.sink, p.done = sink, done
	}
	last := p.last // nobody reads on, which would give it up
	p.last = nil
	p.mu.Unlock()
	last.release()
	switch {
	case over:
		done(errHandedOver)
	case err == io.EOF:
		done(nil)
	case err != nil:
		done(err)
	}
}
