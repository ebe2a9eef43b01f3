// The server's side of HTTP batches: a connection that lives as long as a request.

package capnweb

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

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
	t := newBatchTransport(http.MaxBytesReader(w, r.Body, int64(most)), 4*most, opts.RemoteAddr)
	if t.remote == "" {
		t.remote = r.RemoteAddr
	}
	c := NewConn(t, cfg)
	// A small batch is read wholly or refused; the rest of a larger one is read while it is handled.
	if err := t.body.fill(bufferedBatchBytes); err != nil {
		c.endUnserved()
		c.writeUnreadError(w, err)
		return
	}
	c.batch.responseOnly, t.onInputDone = true, c.batchInputDone
	_ = c.Run(r.Context()) // the error is logged, and sent to the client
	answer, err := t.finish()
	switch {
	case r.Context().Err() != nil:
	case t.body.failed():
		c.writeUnreadError(w, t.body.err)
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

// batchTransport reads from one body and writes into another.
type batchTransport struct {
	body          lineReader
	maxOut        int
	remote        string
	onInputDone   func() // called when the whole body has been handled
	inputDoneSent bool

	mu         sync.Mutex
	out        []byte
	wrote      bool
	overflowed bool
	closed     chan struct{}
	once       sync.Once
}

var errAnswersTooLarge = errors.New("the answers of the batch are too large")

func newBatchTransport(body io.Reader, most int, remote string) *batchTransport {
	return &batchTransport{body: lineReader{from: body}, maxOut: most, remote: remote, closed: make(chan struct{})}
}

func (t *batchTransport) SetAdmitRead(reading func(int, []byte) error) { t.body.admitRead = reading }

// Read returns the next line. After the last one it blocks: the client waits.
func (t *batchTransport) Read(context.Context) ([]byte, error) {
	if m, ok := t.body.next(); ok {
		return m, nil
	}
	if t.body.err != nil && t.body.err != io.EOF {
		return nil, t.body.err
	}
	if !t.inputDoneSent {
		t.inputDoneSent = true
		t.onInputDone()
	}
	<-t.closed
	return nil, io.EOF
}

func (t *batchTransport) Write(_ context.Context, messages [][]byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range messages {
		if t.overflowed = t.overflowed || len(t.out)+len(m) >= t.maxOut; t.overflowed {
			t.out = nil
			return errAnswersTooLarge
		}
		if t.wrote {
			t.out = append(t.out, '\n')
		}
		t.wrote = true
		t.out = append(t.out, m...)
	}
	return nil
}

// finish returns the bytes written, once Run has returned. The transport does not keep them any longer, nor the body.
func (t *batchTransport) finish() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.out
	t.out, t.body = nil, lineReader{err: t.body.err}
	if t.overflowed {
		return nil, errAnswersTooLarge
	}
	return out, nil
}

func (t *batchTransport) Ping(context.Context) error { return nil }

func (t *batchTransport) Close(int, string) error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

func (t *batchTransport) RemoteAddr() string { return t.remote }

// lineReader splits a body into its messages while it is read. Empty lines are skipped.
type lineReader struct {
	from      io.Reader
	admitRead func(int, []byte) error // called before buf grows to so many bytes
	buf       []byte
	unread    []byte // of buf: read, and not yet split
	err       error  // the read error: io.EOF at the end
}

// failed reports whether the body cannot be read; a refusal to read on is reported among the answers instead.
func (l *lineReader) failed() bool {
	_, refused := peerconn.AsRefusal(l.err)
	return l.err != nil && l.err != io.EOF && !refused
}

// fill reads until n bytes are unread, or the body ends. The error is err, except io.EOF.
func (l *lineReader) fill(n int) error {
	for len(l.unread) < n && l.more() {
	}
	if l.err == io.EOF {
		return nil
	}
	return l.err
}

// more reads some more; false after an error or the end.
func (l *lineReader) more() bool {
	if l.err != nil || l.from == nil {
		return false
	}
	if used := len(l.buf) - len(l.unread); len(l.buf) == cap(l.buf) {
		if size := max(2*len(l.unread), initialLineBuffer); size > cap(l.buf) || used == 0 {
			if l.err = l.admitRead(size, l.unread); l.err != nil {
				return false
			}
			l.buf = append(make([]byte, 0, size), l.unread...)
		} else {
			l.buf = l.buf[:copy(l.buf[:cap(l.buf)], l.unread)]
		}
	}
	have := len(l.unread)
	k, err := l.from.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+k]
	l.unread, l.err = l.buf[len(l.buf)-have-k:], err
	return k > 0 || err == nil
}

// initialLineBuffer is how many bytes are read at first.
const initialLineBuffer = 4 << 10

// next returns the next message; it is valid until the next call.
func (l *lineReader) next() (line []byte, ok bool) {
	for searched := 0; ; {
		at := bytes.IndexByte(l.unread[searched:], '\n')
		if at < 0 {
			if searched = len(l.unread); l.more() {
				continue
			}
			if l.err != nil && l.err != io.EOF {
				return nil, false
			}
			line, l.unread = l.unread, nil
		} else {
			line, l.unread = l.unread[:searched+at], l.unread[searched+at+1:]
			searched = 0
		}
		if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) > 0 {
			return line, true
		}
		if at < 0 {
			return nil, false
		}
	}
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
