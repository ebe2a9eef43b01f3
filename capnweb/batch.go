// HTTP batches: on the server a connection that lives as long as a request, on the client calls collected and sent in one.

package capnweb

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/capnweb/internal/transport"
	"github.com/mooring-rpc/mooring/internal/origin"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// ServeBatch answers one HTTP batch: POST, one message per line. The connection it serves lives as long as the request:
// it ends when everything asked for is answered, or the client disconnects. Calls to the client are rejected, since it
// cannot answer. Origins as in AcceptOptions; a page's preflight request is answered too. A body beyond
// Limits.QueuedBytes is refused, and so are answers of four times as many bytes.
func ServeBatch(w http.ResponseWriter, r *http.Request, cfg Config, opts AcceptOptions) {
	serveBatch(w, r, func() Config { return cfg }, opts)
}

// serveBatch calls config once the request is admitted.
func serveBatch(w http.ResponseWriter, r *http.Request, config func() Config, opts AcceptOptions) {
	if !origin.Admit(w, r, opts.OriginPatterns) {
		http.Error(w, "this origin is not let in", http.StatusForbidden)
		return
	}
	if origin.IsPreflight(r) {
		origin.Preflight(w, r, http.MethodPost)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "OPTIONS, POST")
		http.Error(w, "Cap'n Web is spoken here, over WebSocket or by POST", http.StatusMethodNotAllowed)
		return
	}
	cfg := config()
	most := cfg.Limits.withDefaults().QueuedBytes
	if r.ContentLength > int64(most) {
		batchTooLarge(w)
		return
	}
	t := transport.NewBatch(http.MaxBytesReader(w, r.Body, int64(most)), 4*most, cmp.Or(opts.RemoteAddr, r.RemoteAddr))
	c := NewConn(t, cfg)
	// A small batch is read wholly or refused; the rest of a larger one is read while it is handled.
	if err := t.Fill(bufferedBatchBytes); err != nil {
		c.endUnserved()
		c.writeUnreadError(w, err)
		return
	}
	c.batch.responseOnly, t.OnInputDone = true, c.batchInputDone
	_ = c.Run(r.Context()) // the error is logged, and sent to the client
	answer, err := t.Finish()
	switch {
	case r.Context().Err() != nil:
	case t.ReadErr() != nil:
		c.writeUnreadError(w, t.ReadErr())
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		_, _ = w.Write(answer)
	}
}

// bufferedBatchBytes is the size up to which a batch is read wholly before it is handled.
const bufferedBatchBytes = 1 << 20

func batchTooLarge(w http.ResponseWriter) {
	http.Error(w, "the batch is too large", http.StatusRequestEntityTooLarge)
}

// writeUnreadError answers a batch that could not be read.
func (c *Conn) writeUnreadError(w http.ResponseWriter, err error) {
	if refused, ok := peerconn.AsRefusal(err); ok {
		status := http.StatusServiceUnavailable
		if refused == c.cfg.Intake.TooLarge() {
			status = http.StatusRequestEntityTooLarge
		}
		w.Header().Set("Retry-After", "1")
		http.Error(w, c.redact(refused).Message, status)
		return
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		batchTooLarge(w)
		return
	}
	http.Error(w, "the batch could not be read", http.StatusBadRequest)
}

// endUnserved ends a connection that is not run.
func (c *Conn) endUnserved() {
	c.loop.End(peerconn.Ending{Code: peerconn.CloseNormal, NoLog: true})
	_ = c.Run(context.Background()) // which only releases everything
}

// batchState is a connection's state as a batch. Conn.mu guards it.
type batchState struct {
	responseOnly    bool // a server's: the client receives answers, but answers nothing
	client          bool // a client's
	collecting      bool // a client's, not sent yet
	pendingAnswers  int  // answers still to be sent, over any connection
	pumps           int  // streams being sent
	inputDone       bool // the whole input was handled
	deferredRunning int  // goroutines in unlockAndRun's deferred work
}

// oneWay reports whether chunks of a stream are never acknowledged: they are sent with everything else.
func (b *batchState) oneWay() bool { return b.responseOnly || b.client }

var errResponseOnly = &Error{Name: "Error", Message: "in an HTTP batch the client cannot be called"}

var errBatchEnded = &Error{Name: "Error", Message: "the batch ended before this was resolved or closed"}

// spawnPump is spawn for a goroutine that sends a stream: a batch ends, or is sent, when all of them have finished.
func (c *Conn) spawnPump(f func()) bool {
	c.mu.Lock()
	c.batch.pumps++
	c.unlockAndRun()
	done := func() {
		c.mu.Lock()
		c.batch.pumps--
		if c.batch.client {
			c.out.WakeWaiters()
		}
		c.unlockAndRun()
	}
	if c.loop.Spawn(func() {
		defer done()
		f()
	}) {
		return true
	}
	done()
	return false
}

// batchInputDone is called when no further message will come: whatever the peer has not sent yet it never will.
func (c *Conn) batchInputDone() {
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.ended != nil {
		return
	}
	c.batch.inputDone = true
	for _, e := range c.exports {
		if n, ok := e.node.(*localNode); ok {
			if p, ok := n.obj.(*pipe); ok {
				c.out.Tasks = append(c.out.Tasks, peerconn.Func(func() { p.end(errBatchEnded, false) })) // after the chunks written to it
			}
		}
	}
	for _, in := range c.imports {
		if in.promise && in.id < 0 {
			in.dropped = true
			delete(c.imports, in.id)
			c.peerChosenImports--
			c.afterUnlock = append(c.afterUnlock, func() {
				in.resolve(nil, nil, errBatchEnded)
			})
		}
	}
}

// endBatch ends the connection once everything in the batch is done and, on the server, answered. The lock is held.
func (c *Conn) endBatch() {
	b := &c.batch
	if c.ended != nil || b.deferredRunning+b.pumps+len(c.afterUnlock) > 0 || c.loop.IsDelivering() {
		return
	}
	switch {
	case b.client:
		c.loop.EndLocked(peerconn.Ending{Err: errBatchDone, Code: peerconn.CloseNormal, NoLog: true})
	case b.pendingAnswers+c.calls-c.abandonedCalls == 0:
		c.loop.EndLocked(peerconn.Ending{Code: peerconn.CloseNormal, Flush: true, NoLog: true})
	}
}

// Batch collects calls and sends them in one POST. Main and Send may be called from any goroutine.
//
//	b := capnweb.NewBatch(url, capnweb.DialOptions{}, capnweb.Config{})
//	user := b.Main().Call(ctx, "user", 7)
//	name := user.Get("name")
//	if err := b.Send(ctx); err != nil { … }
//	v, err := name.Await(ctx)
type Batch struct {
	opts DialOptions
	conn *Conn
	t    *transport.Answer
	once sync.Once
}

// NewBatch makes a batch to url. Calls on Main and pipelined on their promises are collected until Send; beyond
// Limits.QueuedBytes of them they fail.
func NewBatch(url string, opts DialOptions, cfg Config) *Batch {
	t := transport.NewAnswer(url)
	b := &Batch{opts: opts, conn: NewConn(t, cfg), t: t}
	b.conn.batch.client, b.conn.batch.collecting = true, true
	t.OnInputDone = b.conn.batchInputDone
	return b
}

// Main returns a stub of the server's main object. Each call returns a new reference.
func (b *Batch) Main() *Stub { return b.conn.Main() }

// Send posts the collected calls, asking for the results of all promises not yet released, and returns when they have
// arrived: Await then returns them without waiting. Stubs in them are broken, for the connection has ended. Streams that
// were passed are sent to their end first; promises that were passed have to be resolved by then. A batch is sent once. The
// error says that the batch as a whole failed; the promises have it too.
func (b *Batch) Send(ctx context.Context) error {
	err := errors.New("capnweb: the batch has been sent already")
	b.once.Do(func() { err = b.send(ctx) })
	return err
}

func (b *Batch) send(ctx context.Context) error {
	body, err := b.conn.collectBatch(ctx)
	if err == nil {
		body, err = transport.Post(ctx, b.t.URL, b.opts.client(), b.opts.Header, body, 4*b.conn.limits.QueuedBytes)
	}
	if err != nil {
		b.t.Set(nil, &BrokenError{Reason: "the batch failed: " + err.Error(), Err: err})
		_ = b.conn.Run(context.WithoutCancel(ctx))
		return err
	}
	b.t.Set(body, nil)
	if err := b.conn.Run(ctx); err != errBatchDone {
		return err
	}
	return nil
}

var errBatchDone error = &BrokenError{Reason: "the batch has been answered, and its connection has ended"}

// collectBatch returns the messages collected, with a pull for every promise of ours, when the passed streams have ended.
func (c *Conn) collectBatch(ctx context.Context) ([]byte, error) {
	c.mu.Lock()
	defer c.unlockAndRun()
	for c.batch.pumps > 0 {
		if err := c.loop.WaitForRoom(ctx); err != nil {
			return nil, err
		}
	}
	c.batch.collecting = false
	var ids []int64
	for id, in := range c.imports {
		if id > 0 && in.promise && !in.pulled {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		c.imports[id].sendPull()
	}
	return bytes.Join(c.out.TakeMessages(), []byte{'\n'}), nil
}

// newGet returns a promise of a property of n, whose reference it takes over. In a batch it is asked for at once: there
// is no later.
func newGet(n node, path []string) *Promise {
	p := &Promise{node: n, path: path}
	if in, ok := shortcut(n).(*importNode); ok && in.c.isCollecting() {
		p.target()
	}
	return p
}

func (c *Conn) isCollecting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batch.collecting
}
