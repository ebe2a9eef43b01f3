// Streams of chunks, as the program sees them. Their messages: pipe.go, pipemessages.go; their flow control: package flow.

package capnweb

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capnweb/internal/flow"
)

// Readable is a stream to read once, by one goroutine at a time. A received one is cancelled when the call it came with
// is answered, or the promise it came with released, unless Keep was called. One that is passed on is the receiver's to read.
type Readable struct {
	pipe  *pipe
	moved atomic.Bool // passed on
	kept  atomic.Bool
}

// NewReadable returns a stream, to be passed to a peer, and its writing end.
func NewReadable() (*Readable, *Writable) {
	p := newPipe(DefaultLimits().StreamBytes, nil)
	return &Readable{pipe: p}, newWriter(newLocal(p), 0)
}

var errHandedOver = &Error{Name: "TypeError", Message: "the stream was handed over"}

// Read returns the next chunk, any value; io.EOF after the last one, the writer's error after an abort, or ctx's. Stubs in
// a chunk live until the next Read or Cancel. A chunk must not be changed.
func (r *Readable) Read(ctx context.Context) (any, error) {
	if r.moved.Load() {
		return nil, errHandedOver
	}
	return r.pipe.read(ctx)
}

// Cancel cancels the rest. The writer is sent the reason as Call.Fail would send it.
func (r *Readable) Cancel(reason error) {
	if !r.moved.Load() {
		r.pipe.cancel(reason)
	}
}

// Keep makes a stream outlive the call or promise it came with; the caller then reads it to its end or cancels it.
func (r *Readable) Keep() { r.kept.Store(true) }

// transfer returns the stream that a payload owns for r.
func (r *Readable) transfer() (*Readable, error) {
	if !r.moved.CompareAndSwap(false, true) {
		return nil, errHandedOver
	}
	return &Readable{pipe: r.pipe}, nil
}

// readableRef is a stream owned by a payload.
type readableRef struct{ r *Readable }

func (f readableRef) drop() {
	if !f.r.kept.Load() {
		f.r.Cancel(nil)
	}
}

func (readableRef) refersTo() node { return nil }

// Writable is a stream to write to: of this side, or the peer's. A received one is released, which aborts it, when the call
// it came with is answered, or the promise it came with released, unless Keep was called. One that is passed on is the
// receiver's. All methods may be called from any goroutine.
type Writable struct {
	node       node
	borrowed   bool
	kept       atomic.Bool
	moved      atomic.Bool
	released   atomic.Bool
	writeToken chan struct{} // holds one token, which a writer takes

	mu     sync.Mutex
	window *flow.Window
	err    error
	closed bool
	room   chan struct{} // closed when the window may have room
}

func newWriter(n node, most int) *Writable {
	if most <= 0 {
		most = DefaultLimits().StreamBytes / 2
	}
	w := &Writable{node: n, writeToken: make(chan struct{}, 1), window: flow.New(time.Now, most)}
	w.writeToken <- struct{}{}
	return w
}

// NewWritable returns a stream to pass to a peer, which writes to sink: one chunk at a time, in order, on a goroutine where
// it may block; its return frees the chunk's bytes in the window, and an error of it ends the stream. Stubs in a
// chunk are released when it returns. close is called once, and must not block: with nil at the end, with the reason of an
// abort, with sink's error, or with a BrokenError when the peer is disconnected. ctx ends with the connection.
func NewWritable(sink func(ctx context.Context, chunk any) error, close func(reason error)) *Writable {
	return newWriter(newLocal(&sinkObject{sink: sink, close: close}), 0)
}

var (
	errStreamClosed   = &Error{Name: "TypeError", Message: "the stream is closed"}
	errStreamReleased = &BrokenError{Reason: "the stream was released"}
)

// Write sends a chunk, waiting while the window is full. It returns the error of an earlier chunk, if there is one. The
// chunk is copied as Stub.Call copies arguments.
func (w *Writable) Write(ctx context.Context, chunk any) error {
	return w.write(ctx, chunk, func(error) {})
}

// write is Write, and calls answered with the chunk's answer, if it is sent.
func (w *Writable) write(ctx context.Context, chunk any, answered func(error)) error {
	select {
	case <-w.writeToken:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { w.writeToken <- struct{}{} }()
	if err := w.await(ctx, func() bool { return !w.window.Full() }); err != nil {
		return err
	}
	args, _, err := copyInArgs([]any{chunk}, nil)
	if err != nil {
		return err
	}
	if in, ok := shortcut(w.node).(*importNode); ok {
		if err := in.c.waitAtLimit(ctx); err != nil {
			args.release()
			return err
		}
	}
	size := sizeOf(args.value)
	w.mu.Lock()
	sent := w.window.OnSend(size)
	w.mu.Unlock()
	w.send("write", args, func(err error) {
		w.mu.Lock()
		if err != nil {
			w.window.OnError(sent)
			w.fail(err)
		} else {
			w.window.OnAck(sent)
		}
		w.signal()
		w.mu.Unlock()
		answered(err)
	})
	return nil
}

// Close ends the stream and waits until the peer has taken all of it.
func (w *Writable) Close(ctx context.Context) error {
	select {
	case <-w.writeToken:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := w.await(ctx, func() bool { return true })
	if err == nil {
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
		done := make(chan error, 1)
		w.send("close", &payload{value: []any{}}, func(err error) { done <- err })
		select {
		case err = <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	w.writeToken <- struct{}{}
	w.mu.Lock()
	if w.err != nil && err != nil {
		err = w.err
	}
	w.mu.Unlock()
	w.release()
	return err
}

// Abort ends the stream with an error. Chunks that the peer has not taken are dropped.
func (w *Writable) Abort(reason error) {
	if w.moved.Load() || w.released.Load() {
		return
	}
	w.mu.Lock()
	over := w.closed || w.err != nil
	w.closed = true
	w.fail(errStreamClosed)
	w.signal()
	w.mu.Unlock()
	if !over {
		if reason == nil {
			reason = &Error{Name: "Error", Message: "the stream was aborted"}
		}
		wireErr := errInternal
		if c, ok := shortcut(w.node).(*importNode); ok {
			wireErr = c.c.redact(reason)
		}
		var args *payload
		if _, ok := shortcut(w.node).(*localNode); ok {
			args = &payload{value: []any{reason}}
		} else {
			var err error
			if args, _, err = copyInArgs([]any{wireErr}, nil); err != nil {
				args = &payload{value: []any{errInternal}}
			}
		}
		w.send("abort", args, func(error) {})
	}
	w.release()
}

// Keep makes a stream outlive the call or promise it came with; the caller then closes or aborts it.
func (w *Writable) Keep() { w.kept.Store(true) }

// await waits until ready returns true, under w.mu, or the stream has failed.
func (w *Writable) await(ctx context.Context, ready func() bool) error {
	if w.moved.Load() {
		return errHandedOver
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.err != nil:
			return w.err
		case w.closed:
			return errStreamClosed
		case w.released.Load():
			return errStreamReleased
		case ready():
			return nil
		}
		if w.room == nil {
			w.room = make(chan struct{})
		}
		room := w.room
		w.mu.Unlock()
		select {
		case <-room:
			w.mu.Lock()
		case <-ctx.Done():
			w.mu.Lock()
			return ctx.Err()
		}
	}
}

func (w *Writable) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *Writable) signal() {
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}

// send calls a method of the stream, and f with its answer.
func (w *Writable) send(method string, args *payload, f func(error)) {
	n := streamCall(w.node, method, args)
	n.pull(func(_ *payload, err error) {
		f(err)
		n.unref()
	}, nil)
}

// transfer returns the stream that a payload owns for w.
func (w *Writable) transfer() (*Writable, error) {
	if w.borrowed {
		if w.released.Load() {
			return nil, errStreamReleased
		}
		w.node.ref()
		return &Writable{node: w.node, borrowed: true, writeToken: w.writeToken, window: flow.New(time.Now, DefaultLimits().StreamBytes/2)}, nil
	}
	if !w.moved.CompareAndSwap(false, true) {
		return nil, errHandedOver
	}
	v := newWriter(w.node, 0)
	v.borrowed = true
	return v, nil
}

// release releases the node.
func (w *Writable) release() {
	if !w.moved.Load() && w.released.CompareAndSwap(false, true) {
		w.node.unref()
	}
}

// writableRef is a stream owned by a payload.
type writableRef struct{ w *Writable }

func (f writableRef) drop() {
	if !f.w.kept.Load() {
		f.w.release()
	}
}

func (writableRef) refersTo() node { return nil }

// sinkObject passes written chunks to a function of the program.
type sinkObject struct {
	sink  func(ctx context.Context, chunk any) error
	close func(reason error)

	mu      sync.Mutex
	queue   []*Call // calls in order; nil at the end if the writer has released it
	running bool
	ended   bool // close was called
}

// Serve implements Object.
func (s *sinkObject) Serve(c *Call) {
	switch c.Method() {
	case "write", "close", "abort":
		if len(c.Path()) == 1 {
			s.add(c, c.Conn())
			return
		}
	}
	c.Fail(notAFunction(c.Path()))
}

// Release implements Releaser: the writer has released it.
func (s *sinkObject) Release() {
	s.mu.Lock()
	if s.running {
		s.queue = append(s.queue, nil)
		s.mu.Unlock()
		return
	}
	s.running = true
	s.queue = append(s.queue, nil)
	s.mu.Unlock()
	s.run()
}

func (s *sinkObject) add(c *Call, conn *Conn) {
	s.mu.Lock()
	s.queue = append(s.queue, c)
	start := !s.running
	s.running = true
	s.mu.Unlock()
	if !start {
		return
	}
	if conn == nil || !conn.loop.Spawn(s.run) {
		go s.run()
	}
}

func (s *sinkObject) run() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.queue, s.running = nil, false
			s.mu.Unlock()
			return
		}
		c := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		if c == nil {
			s.end(&BrokenError{Reason: "the stream's writer has gone without closing it"})
			continue
		}
		s.do(c)
	}
}

func (s *sinkObject) do(c *Call) {
	defer c.recover()
	switch {
	case s.ended:
		c.Fail(errStreamClosed)
	case c.Method() == "close":
		s.end(nil)
		c.Return(Undefined{})
	case c.Method() == "abort":
		s.end(reasonOf(c.Args()))
		c.Return(Undefined{})
	default:
		v := any(Undefined{})
		if len(c.Args()) > 0 {
			v = c.Args()[0]
		}
		if err := s.sink(c.Context(), v); err != nil {
			s.end(err)
			c.Fail(err)
			return
		}
		c.Return(Undefined{})
	}
}

func (s *sinkObject) end(reason error) {
	if s.ended {
		return
	}
	s.ended = true
	if s.close != nil {
		guarded(func() { s.close(reason) })
	}
}
