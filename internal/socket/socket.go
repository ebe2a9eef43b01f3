// Package socket reads and writes connections where system calls and wake-ups are most of the cost of a call:
//
//   - A reader polls the socket a few times more before its goroutine is parked (spin.go).
//   - Reads and writes of some KB bypass the scheduler (direct_linux.go): sockets do not block, so it need not be notified.
//     Notifying it would wake the runtime's monitor whenever the process was idle just before, which is a quarter of the
//     time of a call where client and server share a processor.
//   - A reader that waits need not keep a buffer.
//
// Connections that are no plain sockets, TLS among them, are read and written through their own methods.
//
// A Conn has no lock: the reader's and the writer's fields are each used by one goroutine at a time. Half of the processors
// bound how many readers of the process poll at once, maxSpin bounds for how long, and maxDirect bounds the bytes of a
// system call that bypasses the scheduler.
package socket

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxSpin is how long a reader polls at most. A peer that is itself parked takes half of that to answer the first time,
	// and only when both have answered at once do both find that polling pays.
	maxSpin = 100 * time.Microsecond
	// maxDirect is how many bytes a system call may carry past the scheduler: copying them takes a few microseconds.
	maxDirect = 16 << 10
)

// spinners is how many readers of this process poll at present.
var spinners atomic.Int32

// Conn is a connection. One goroutine may read and one write at a time; Close may be called at any time and unblocks both.
type Conn struct {
	inner io.ReadWriteCloser
	tcp   *net.TCPConn    // the underlying TCP connection, if known
	sock  net.Conn        // the socket itself, if it is read and written here
	raw   syscall.RawConn // the socket to poll; nil for none

	// Of the reader.
	onReadable  func(fd uintptr) bool // made once, so that polling allocates nothing
	maxSpinners int32                 // how many readers of all connections may poll at once
	spinPolicy  spinPolicy
	park        bool       // onReadable is to wait for input
	ready       bool       // result of onReadable: readable,
	into        []byte     // read into this buffer,
	pool        *sync.Pool // or into one from this pool,
	pooled      *[]byte    // which is this one,
	n           int        // n bytes
	err         error      // or an error

	// Of the writer.
	send   func(fd uintptr) bool
	out    []byte
	sent   int
	fail   error
	trying bool // send must not wait for room
}

// New makes a Conn of a connection, or of a wrapper around it: below is what is read and written if conn is no plain socket,
// and closed in any case. below must not have buffered input of a plain socket. A nil conn is an unknown one.
func New(below io.ReadWriteCloser, conn net.Conn) *Conn {
	c := &Conn{inner: below, maxSpinners: int32(runtime.GOMAXPROCS(0) / 2), spinPolicy: spinPolicy{credit: 1}}
	asked := conn
	if t, ok := conn.(*tls.Conn); ok {
		asked = t.NetConn()
	}
	c.tcp, _ = asked.(*net.TCPConn)
	raw := rawOf(asked)
	switch {
	case raw == nil || !canPoll:
	case asked == conn:
		c.sock, c.raw, c.onReadable, c.send = conn, raw, c.receive, c.transmit
	case c.maxSpinners > 0: // the bytes are TLS's to read
		c.raw, c.onReadable = raw, c.pollReady
	}
	return c
}

// rawOf returns access to a plain socket; nil if conn is anything else. A type that merely wraps one may read differently.
func rawOf(conn net.Conn) syscall.RawConn {
	var raw syscall.RawConn
	var err error
	switch s := conn.(type) {
	case *net.TCPConn:
		raw, err = s.SyscallConn()
	case *net.UnixConn:
		raw, err = s.SyscallConn()
	}
	if err != nil {
		return nil
	}
	return raw
}

// TCP returns the underlying TCP connection, which nothing else may read or write; nil if there is none, or none known.
func (c *Conn) TCP() *net.TCPConn { return c.tcp }

// maxUnsent is how many bytes may wait in the system to be sent.
const maxUnsent = 128 << 10

// LimitUnsent makes the system accept no more than it can soon send, where it has an option for that. By default it accepts
// megabytes, which a slow link has to carry before anything written later, such as a ping; and with the limit a write that
// makes progress shows that the peer has read what was written before.
func (c *Conn) LimitUnsent() {
	if c.tcp != nil {
		setOption(c.tcp, func(fd uintptr) error { return limitUnsent(fd, maxUnsent) })
	}
}

// LimitUnsent is Conn.LimitUnsent for any connection and number of bytes.
func LimitUnsent(conn net.Conn, bytes int) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		setOption(tcp, func(fd uintptr) error { return limitUnsent(fd, bytes) })
	}
}

// SetUserTimeout makes the system end a TCP connection whose peer has not acknowledged bytes in flight for this long, or
// on Linux has had no room for more. It works on Linux, macOS and Windows, which by default try for many minutes; other
// systems go on doing so. Keep-alives do not help there: they are sent only while nothing is in flight.
func (c *Conn) SetUserTimeout(longest time.Duration) {
	if c.tcp != nil {
		setOption(c.tcp, func(fd uintptr) error { return limitSilence(fd, longest) })
	}
}

// setOption sets an option of a socket. An error means a socket that is dead, or a system too old for the option.
func setOption(tcp *net.TCPConn, set func(fd uintptr) error) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = set(fd) })
	}
}

// NonBlocking reports whether ReadPooled waits without a buffer, and TryWrite does not wait.
func (c *Conn) NonBlocking() bool { return c.sock != nil }

// Read implements io.Reader.
func (c *Conn) Read(p []byte) (int, error) {
	switch {
	case c.sock == nil:
		if c.raw != nil && c.tryBeginSpin() {
			c.spin()
		}
		return c.inner.Read(p)
	case len(p) == 0 || len(p) > maxDirect:
		return c.sock.Read(p)
	}
	c.into = p
	defer func() { c.into = nil }()
	return c.read()
}

// ReadPooled reads into a buffer of a pool of *[]byte, which it takes when input has arrived. The caller returns it to the
// pool; it is nil when n is 0. Only where NonBlocking is true.
func (c *Conn) ReadPooled(pool *sync.Pool) (b *[]byte, n int, err error) {
	c.pool = pool
	n, err = c.read()
	b = c.pooled
	c.pool, c.pooled = nil, nil
	if n == 0 && b != nil {
		pool.Put(b)
		b = nil
	}
	return b, n, err
}

// read polls for input, and waits for it if need be.
func (c *Conn) read() (int, error) {
	c.ready = false
	if c.tryBeginSpin() {
		c.spin()
	}
	if !c.ready {
		c.park = true
		err := c.raw.Read(c.onReadable)
		c.park = false
		if err != nil {
			return 0, err
		}
	}
	switch {
	case c.err != nil:
		return 0, c.failed("read", c.err)
	case c.n == 0:
		return 0, io.EOF
	}
	return c.n, nil
}

// tryBeginSpin reports whether to poll before this read. The number of pollers in the process is bounded: after true the
// reader must call spin.
func (c *Conn) tryBeginSpin() bool {
	if !c.spinPolicy.shouldSpin() {
		return false
	}
	if spinners.Add(1) <= c.maxSpinners {
		return true
	}
	spinners.Add(-1)
	return false
}

// spin polls for a moment, and records the result.
func (c *Conn) spin() {
	o := c.poll()
	spinners.Add(-1)
	c.spinPolicy.record(o)
}

// poll returns when there is something to read (or an error), or a moment later if there is not.
func (c *Conn) poll() spinResult {
	begun := time.Now()
	for first := true; ; first = false {
		c.ready = false
		switch err := c.raw.Read(c.onReadable); {
		case err != nil: // closed, or past its deadline, as the read will report
			return spinUnneeded
		case c.ready && first:
			return spinUnneeded
		case c.ready:
			return spinHit
		case time.Since(begun) >= maxSpin:
			return spinMissed
		}
		runtime.Gosched()
	}
}

// pollReady polls once without reading.
func (c *Conn) pollReady(fd uintptr) bool {
	c.ready = readable(fd)
	return true // in any case: do not park
}

// receive reads the available bytes.
func (c *Conn) receive(fd uintptr) bool {
	p := c.into
	if c.pool != nil {
		c.pooled = c.pool.Get().(*[]byte)
		p = *c.pooled
	}
	c.n, c.err = receive(fd, p)
	if c.err != syscall.EAGAIN {
		c.ready = true
		return true
	}
	if c.pool != nil {
		c.pool.Put(c.pooled)
		c.pooled = nil
	}
	return !c.park
}

// Write implements io.Writer.
func (c *Conn) Write(p []byte) (int, error) {
	switch {
	case c.sock == nil:
		return c.inner.Write(p)
	case len(p) == 0 || len(p) > maxDirect:
		return c.sock.Write(p)
	}
	return c.write(p)
}

// WriteBoth writes head and then body, together. Only where NonBlocking is true.
func (c *Conn) WriteBoth(head, body []byte) error {
	both := net.Buffers{head, body}
	_, err := both.WriteTo(c.sock)
	return err
}

// TryWrite writes as much as there is room for. Only where NonBlocking is true.
func (c *Conn) TryWrite(p []byte) (int, error) {
	c.trying = true
	defer func() { c.trying = false }()
	return c.write(p)
}

func (c *Conn) write(p []byte) (int, error) {
	c.out, c.sent, c.fail = p, 0, nil
	err := c.raw.Write(c.send)
	c.out = nil
	if err == nil && c.fail != nil {
		err = c.failed("write", c.fail)
	}
	return c.sent, err
}

// transmit writes as much as the system accepts.
func (c *Conn) transmit(fd uintptr) bool {
	for c.sent < len(c.out) {
		n, err := transmit(fd, c.out[c.sent:])
		if err == syscall.EAGAIN {
			return c.trying
		}
		if err != nil {
			c.fail = err
			return true
		}
		c.sent += n
	}
	return true
}

// failed wraps an error as package net does.
func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: c.sock.LocalAddr().Network(), Source: c.sock.LocalAddr(), Addr: c.sock.RemoteAddr(),
		Err: os.NewSyscallError(op, err)}
}

// Close closes the connection.
func (c *Conn) Close() error { return c.inner.Close() }
