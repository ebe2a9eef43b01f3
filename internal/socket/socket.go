// Package socket reads and writes connections where system calls and wake-ups are most of what a call takes:
//
//   - A reader asks the socket a few times more before its goroutine is parked (spin.go).
//   - Reads and writes of some KB are made past the scheduler (direct_linux.go): sockets do not block, so there is nothing
//     to be told to it. Telling would wake the runtime's monitor whenever the process was idle just before, which is a
//     quarter of what a call takes where client and server share a processor.
//   - A reader that waits need not hold a buffer.
//
// Connections that are no plain sockets, TLS among them, are read and written as they are.
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
	// maxSpin is how long to ask at most. A peer that is parked itself takes half of that to answer the first time, and
	// only when both have answered at once do both find that it pays.
	maxSpin = 100 * time.Microsecond
	// maxDirect is what a system call may carry past the scheduler: copying it takes a few microseconds.
	maxDirect = 16 << 10
)

// spinners is how many of this process ask at present.
var spinners atomic.Int32

// Conn is a connection. One may read and one write at a time; Close may be called at any time and unblocks both.
type Conn struct {
	inner io.ReadWriteCloser
	tcp   *net.TCPConn    // what is at the bottom, if it is known to be one
	sock  net.Conn        // the socket itself, if it is read and written here
	raw   syscall.RawConn // what is asked; nil if nothing is

	// Of the reader.
	onReadable  func(fd uintptr) bool // made once, so that asking allocates nothing
	maxSpinners int32                 // of all connections that may ask at once
	spinPolicy  spinPolicy
	park        bool       // ask is to wait for what has not come
	ready       bool       // what it found,
	into        []byte     // read into this,
	pool        *sync.Pool // or into a buffer of these,
	pooled      *[]byte    // this one,
	n           int        // so many bytes
	err         error      // or not

	// Of the writer.
	send   func(fd uintptr) bool
	out    []byte
	sent   int
	fail   error
	trying bool // send is not to wait until there is room
}

// New makes a Conn of a connection, or of what hides it: below is what is read and written if conn is no plain socket, and
// closed in any case. Nothing that was read of a plain socket may wait in below. A nil conn is one that is not known.
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
	case c.maxSpinners > 0: // what comes is TLS's to read
		c.raw, c.onReadable = raw, c.pollReady
	}
	return c
}

// rawOf gives access to a plain socket; nil if conn is anything else. What merely has one may have its own way of reading.
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

// TCP is the TCP connection at the bottom, to be read and written by nobody else; nil if there is none, or none that is known.
func (c *Conn) TCP() *net.TCPConn { return c.tcp }

// maxUnsent is how much may wait in the system for its turn to be sent.
const maxUnsent = 128 << 10

// LimitUnsent has the system take in no more than it can soon send, where it can be told so. By itself it takes in megabytes,
// which a slow link has to carry before what is written next, be it a ping; and a write that goes on shows that the peer has
// taken in what was written before.
func (c *Conn) LimitUnsent() {
	if c.tcp != nil {
		setOption(c.tcp, func(fd uintptr) error { return limitUnsent(fd, maxUnsent) })
	}
}

// LimitUnsent is that of a Conn, for a connection of somebody else's and so many bytes.
func LimitUnsent(conn net.Conn, bytes int) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		setOption(tcp, func(fd uintptr) error { return limitUnsent(fd, bytes) })
	}
}

// SetUserTimeout has the system end a TCP connection whose peer acknowledges nothing for so long of what is on its way to it, or
// on Linux has no room for more. It is for Linux, macOS and Windows, which by themselves try for many minutes; others go on
// doing so. Keep-alives are no help there: they are sent only while nothing is on its way.
func (c *Conn) SetUserTimeout(longest time.Duration) {
	if c.tcp != nil {
		setOption(c.tcp, func(fd uintptr) error { return limitSilence(fd, longest) })
	}
}

// setOption sets an option of a socket. An error means a socket that is dead, or a system too old to know the option.
func setOption(tcp *net.TCPConn, set func(fd uintptr) error) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = set(fd) })
	}
}

// NonBlocking says that ReadPooled waits without a buffer, and TryWrite not at all.
func (c *Conn) NonBlocking() bool { return c.sock != nil }

// Read is that of an io.Reader.
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

// ReadPooled reads into a buffer of a pool of *[]byte, of which it takes one when something has come. It is the caller's to
// give back, and nil when n is 0. Only where NonBlocking says so.
func (c *Conn) ReadPooled(pool *sync.Pool) (b *[]byte, n int, err error) {
	c.pool = pool
	defer func() { c.pool, c.pooled = nil, nil }()
	n, err = c.read()
	if n == 0 && c.pooled != nil {
		pool.Put(c.pooled)
		c.pooled = nil
	}
	return c.pooled, n, err
}

// read asks until something has come, and waits for it if need be.
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

// tryBeginSpin says whether to spin before this read. Only so many of the process do at once: after a yes the reader must spin.
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

// spin asks for a moment, and learns from what comes of it.
func (c *Conn) spin() {
	o := c.poll()
	spinners.Add(-1)
	c.spinPolicy.record(o)
}

// poll returns when there is something to be read (an error among it), or a moment later if there is not.
func (c *Conn) poll() spinResult {
	begun := time.Now()
	for first := true; ; first = false {
		c.ready = false
		switch err := c.raw.Read(c.onReadable); {
		case err != nil: // closed, or beyond its deadline, as the read will say
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

// pollReady asks without reading.
func (c *Conn) pollReady(fd uintptr) bool {
	c.ready = readable(fd)
	return true // whatever it says: do not park
}

// receive reads what there is.
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

// Write is that of an io.Writer.
func (c *Conn) Write(p []byte) (int, error) {
	switch {
	case c.sock == nil:
		return c.inner.Write(p)
	case len(p) == 0 || len(p) > maxDirect:
		return c.sock.Write(p)
	}
	return c.write(p)
}

// TryWrite writes as much as there is room for. Only where NonBlocking says so.
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

// transmit writes as much as is taken.
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

// failed is what package net would say.
func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: c.sock.LocalAddr().Network(), Source: c.sock.LocalAddr(), Addr: c.sock.RemoteAddr(),
		Err: os.NewSyscallError(op, err)}
}

// Close closes the connection.
func (c *Conn) Close() error { return c.inner.Close() }
