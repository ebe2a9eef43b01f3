// The client's side of HTTP batches: calls collected and sent in one request.

package capnweb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Batch collects calls and sends them in one POST. Main and Send may be called from any goroutine.
//
//	b := capnweb.NewBatch(url, capnweb.DialOptions{}, capnweb.Config{})
//	user := b.Main().Call(ctx, "user", 7)
//	name := user.Get("name")
//	if err := b.Send(ctx); err != nil { … }
//	v, err := name.Await(ctx)
type Batch struct {
	url  string
	opts DialOptions
	conn *Conn
	t    *batchClientTransport
	once sync.Once
}

// NewBatch makes a batch to url. Calls on Main and pipelined on their promises are collected until Send; beyond
// Limits.QueuedBytes of them they fail.
func NewBatch(url string, opts DialOptions, cfg Config) *Batch {
	t := &batchClientTransport{url: url, closed: make(chan struct{})}
	b := &Batch{url: url, opts: opts, conn: NewConn(t, cfg), t: t}
	b.conn.batch.client, b.conn.batch.collecting = true, true
	t.onInputDone = b.conn.batchInputDone
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
		body, err = b.post(ctx, body)
	}
	if err != nil {
		b.t.err = &BrokenError{Reason: "the batch failed: " + err.Error(), Err: err}
		_ = b.conn.Run(context.WithoutCancel(ctx))
		return err
	}
	b.t.body = lineReader{unread: body, err: io.EOF}
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

// post sends the body and reads the answer.
func (b *Batch) post(ctx context.Context, body []byte) ([]byte, error) {
	url := b.url
	if strings.HasPrefix(url, "ws:") || strings.HasPrefix(url, "wss:") {
		url = "http" + url[len("ws"):]
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range b.opts.Header {
		req.Header[name] = values
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	client := *b.opts.client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if moved := redirectError(resp); moved != nil {
		return nil, moved
	}
	most := 4 * b.conn.limits.QueuedBytes
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return nil, fmt.Errorf("the server answered %s: %s", resp.Status, bytes.TrimSpace(said))
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(answer) > most {
		return nil, errAnswersTooLarge
	}
	return answer, nil
}

// batchClientTransport reads the answer. Messages after the batch was sent are dropped.
type batchClientTransport struct {
	url         string
	body        lineReader
	err         error  // instead of an answer
	onInputDone func() // called when the whole answer has been handled
	closed      chan struct{}
	once        sync.Once
}

func (t *batchClientTransport) Read(context.Context) ([]byte, error) {
	if t.err != nil {
		return nil, t.err
	}
	if m, ok := t.body.next(); ok {
		return m, nil
	}
	t.onInputDone()
	<-t.closed
	return nil, io.EOF
}

func (t *batchClientTransport) Write(context.Context, [][]byte) error { return nil }
func (t *batchClientTransport) Ping(context.Context) error            { return nil }
func (t *batchClientTransport) RemoteAddr() string                    { return t.url }

func (t *batchClientTransport) Close(int, string) error {
	t.once.Do(func() { close(t.closed) })
	return nil
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
