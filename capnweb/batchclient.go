// The client's side of HTTP batches: calls collected and sent in one request.

package capnweb

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/capnweb/internal/transport"
)

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
	messages, ends := c.out.TakeMessages()
	var body []byte
	from := 0
	for _, end := range ends {
		if from > 0 {
			body = append(body, '\n')
		}
		body = append(body, messages[from:end]...)
		from = end
	}
	return body, nil
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
