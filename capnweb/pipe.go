// Streams on the wire: pipes, and objects that are written to.

package capnweb

import (
	"context"
	"io"
	"sync"
)

// pipe is a stream that is written by calls (write, close, abort) and read by the program. A chunk's call is answered
// when the chunk is read: that frees its bytes in the writer's window.
type pipe struct {
	maxBytes     int
	countHit     func() // counts the limit
	conn         *Conn  // the connection it came over, whose end ends it; nil for the program's own
	ackOnArrival bool   // chunks are answered on arrival: in a batch no more will come
	relayed      bool   // it is read for another reader: it has been read when relayDone is called

	mu           sync.Mutex
	chunks       []chunk
	bytes        int
	closeCalls   []*Call // close calls to answer when everything is read, or was relayed
	err          error   // returned after the last chunk
	canceled     bool    // nobody reads any more
	cancelReason error   // the error for writers then
	wake         chan struct{}
	lastArgs     *payload          // references of the chunk that was read last
	sink         func(v any) error // if set, receives chunks at once
	done         func(err error)   // with sink: called at the end
}

type chunk struct {
	call *Call    // owns the references of v,
	args *payload // or args does
	v    any
	size int
}

func newPipe(most int, hits func()) *pipe { return &pipe{maxBytes: most, countHit: hits} }

// Serve implements Object.
func (p *pipe) Serve(c *Call) {
	switch method := c.Method(); {
	case len(c.Path()) == 1 && method == "write" && len(c.argValues) > 0:
		p.write(c, c.argValues[0])
	case len(c.Path()) == 1 && method == "write":
		p.write(c, Undefined{})
	case len(c.Path()) == 1 && method == "close":
		p.finish(c)
	case len(c.Path()) == 1 && method == "abort":
		p.abort(reasonOf(c.argValues))
		c.Return(Undefined{})
	default:
		c.Fail(notAFunction(c.Path()))
	}
}

// Release implements Releaser: the writer has released it.
func (p *pipe) Release() {
	p.end(&BrokenError{Reason: "the stream's writer has gone without closing it"}, false)
}

// unregister removes a pipe that has ended from its connection.
func (p *pipe) unregister() {
	if p.conn != nil {
		p.conn.mu.Lock()
		delete(p.conn.pipes, p)
		p.conn.mu.Unlock()
	}
}

// reasonOf returns the reason of an abort.
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
	size := sizeOf(v)
	p.mu.Lock()
	switch {
	case p.canceled:
		why := p.cancelReason
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
	case p.bytes+size > p.maxBytes && len(p.chunks) > 0:
		p.mu.Unlock()
		if p.countHit != nil {
			p.countHit()
		}
		err := &Error{Name: "RangeError", Message: "overloaded: too much of the stream waits to be read"}
		p.end(err, true)
		c.Fail(err)
		return
	}
	k := chunk{call: c, v: v, size: size}
	if p.ackOnArrival {
		k.args = c.detachArgs()
	}
	p.chunks = append(p.chunks, k)
	p.bytes += size
	p.signal()
	p.mu.Unlock()
	if p.ackOnArrival {
		c.Return(Undefined{})
	}
}

// failSink ends a stream whose sink returned an error.
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

// finish handles the writer's close.
func (p *pipe) finish(c *Call) {
	p.mu.Lock()
	if p.canceled || p.err != nil {
		why := p.cancelReason
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
	wait := (len(p.chunks) > 0 || p.relayed) && !p.ackOnArrival
	if wait {
		p.closeCalls = append(p.closeCalls, c)
	}
	p.signal()
	p.mu.Unlock()
	p.unregister()
	if !wait {
		c.Return(Undefined{})
	}
	if done != nil {
		done(nil)
	}
}

func (p *pipe) abort(reason error) { p.end(reason, true) }

// end ends a stream without a close. lose says that unread chunks are dropped.
func (p *pipe) end(err error, lose bool) {
	p.mu.Lock()
	if p.err != nil || p.canceled {
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
	p.unregister()
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

// read returns the next chunk, and answers its call.
func (p *pipe) read(ctx context.Context) (any, error) {
	k, ends, err := p.next(ctx)
	if err != nil {
		return nil, err
	}
	args := k.args
	if args == nil {
		args = k.call.detachArgs()
	}
	p.mu.Lock()
	over := p.canceled
	if !over {
		p.lastArgs = args
	}
	p.mu.Unlock()
	if over { // cancelled meanwhile
		args.release()
	}
	k.call.Return(Undefined{})
	for _, c := range ends {
		c.Return(Undefined{})
	}
	return k.v, nil
}

// next returns the next chunk, and the close calls to be answered with it.
func (p *pipe) next(ctx context.Context) (chunk, []*Call, error) {
	p.mu.Lock()
	last := p.lastArgs
	p.lastArgs = nil
	for len(p.chunks) == 0 && p.err == nil && !p.canceled {
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
	if p.canceled || len(p.chunks) == 0 {
		err := p.err
		if p.canceled {
			err = p.cancelReason
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
		if !p.relayed {
			ends, p.closeCalls = p.closeCalls, nil
		}
	}
	p.mu.Unlock()
	last.release()
	return k, ends, nil
}

// setRelayed marks the pipe as relayed to another reader.
func (p *pipe) setRelayed() {
	p.mu.Lock()
	p.relayed = true
	p.mu.Unlock()
}

// relayDone records that the other reader has taken everything.
func (p *pipe) relayDone() {
	p.mu.Lock()
	ends := p.closeCalls
	p.closeCalls = nil
	p.mu.Unlock()
	for _, c := range ends {
		c.Return(Undefined{})
	}
	p.cancel(nil)
}

// cancel handles the reader's cancellation.
func (p *pipe) cancel(reason error) {
	if reason == nil {
		reason = &Error{Name: "Error", Message: "the stream was canceled"}
	}
	p.mu.Lock()
	if p.canceled {
		p.mu.Unlock()
		return
	}
	p.canceled, p.cancelReason = true, reason
	lost, ends, last := p.chunks, p.closeCalls, p.lastArgs
	p.chunks, p.closeCalls, p.lastArgs, p.bytes, p.sink, p.done = nil, nil, nil, 0, nil, nil
	p.signal()
	p.mu.Unlock()
	p.unregister()
	last.release()
	for _, k := range lost {
		k.call.Fail(reason)
		k.args.release()
	}
	for _, c := range ends {
		c.Fail(reason)
	}
}

// collect calls sink with every chunk on arrival, and done at the end.
func (p *pipe) collect(sink func(v any) error, done func(err error)) {
	for {
		p.mu.Lock()
		if len(p.chunks) > 0 {
			p.mu.Unlock()
			v, err := p.read(context.Background()) // it has arrived
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
	err, over := p.err, p.canceled
	if err == nil && !over {
		p.sink, p.done = sink, done
	}
	last := p.lastArgs // no further read would release it
	p.lastArgs = nil
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
