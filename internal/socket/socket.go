// Package socket reads and writes connections where system calls and wake-ups are most of what a call takes:
//
//   - A reader asks the socket a few times more before its goroutine is parked (rhythm.go).
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
	// longest is how long to ask at most. A peer that is parked itself takes half of that to answer the first time, and
	// only when both have answered at once do both find that it pays.
	longest = 100 * time.Microsecond
	// mostDirect is what a system call may carry past the scheduler: copying it takes a few microseconds.
	mostDirect = 16 << 10
)

// spinning is how many of this process ask at present.
var spinning atomic.Int32

// Conn is a connection. One may read and one write at a time; Close may be called at any time and unblocks both.
type Conn struct {
	below io.ReadWriteCloser
	tcp   *net.TCPConn    // what is at the bottom, if it is known to be one
	plain net.Conn        // the socket itself, if it is read and written here
	raw   syscall.RawConn // what is asked; nil if nothing is

	// Of the reader.
	ask      func(fd uintptr) bool // made once, so that asking allocates nothing
	most     int32                 // of all connections that may ask at once
	rhythm   rhythm
	park     bool       // ask is to wait for what has not come
	came     bool       // what it found,
	into     []byte     // read into this,
	pool     *sync.Pool // or into a buffer of these,
	borrowed *[]byte    // this one,
	n        int        // so many bytes
	err      error      // or not

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
	c := &Conn{below: below, most: int32(runtime.GOMAXPROCS(0) / 2), rhythm: rhythm{credit: 1}}
	asked := conn
	if t, ok := conn.(*tls.Conn); ok {
		asked = t.NetConn()
	}
	c.tcp, _ = asked.(*net.TCPConn)
	raw := rawOf(asked)
	switch {
	case raw == nil || !canAsk:
	case asked == conn:
		c.plain, c.raw, c.ask, c.send = conn, raw, c.receive, c.transmit
	case c.most > 0: // what comes is TLS's to read
		c.raw, c.ask = raw, c.look
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

// mostUnsent is how much may wait in the system for its turn to be sent.
const mostUnsent = 128 << 10

// LimitUnsent has the system take in no more than it can soon send, where it can be told so. By itself it takes in megabytes,
// which a slow link has to carry before what is written next, be it a ping; and a write that goes on shows that the peer has
// taken in what was written before.
func (c *Conn) LimitUnsent() {
	if c.tcp != nil {
		setOption(c.tcp, func(fd uintptr) error { return limitUnsent(fd, mostUnsent) })
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

// LimitSilence has the system end a TCP connection whose peer acknowledges nothing for so long of what is on its way to it, or
// on Linux has no room for more. It is for Linux, macOS and Windows, which by themselves try for many minutes; others go on
// doing so. Keep-alives are no help there: they are sent only while nothing is on its way.
func (c *Conn) LimitSilence(longest time.Duration) {
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

// Lends says that ReadLent waits without a buffer, and TryWrite not at all.
func (c *Conn) Lends() bool { return c.plain != nil }

// Read is that of an io.Reader.
func (c *Conn) Read(p []byte) (int, error) {
	switch {
	case c.plain == nil:
		if c.raw != nil && c.tries() {
			c.spin()
		}
		return c.below.Read(p)
	case len(p) == 0 || len(p) > mostDirect:
		return c.plain.Read(p)
	}
	c.into = p
	defer func() { c.into = nil }()
	return c.read()
}

// ReadLent reads into a buffer of a pool of *[]byte, of which it takes one when something has come. It is the caller's to
// give back, and nil when n is 0. Only where Lends says so.
func (c *Conn) ReadLent(pool *sync.Pool) (b *[]byte, n int, err error) {
	c.pool = pool
	defer func() { c.pool, c.borrowed = nil, nil }()
	n, err = c.read()
	if n == 0 && c.borrowed != nil {
		pool.Put(c.borrowed)
		c.borrowed = nil
	}
	return c.borrowed, n, err
}

// read asks until something has come, and waits for it if need be.
func (c *Conn) read() (int, error) {
	c.came = false
	if c.tries() {
		c.spin()
	}
	if !c.came {
		c.park = true
		err := c.raw.Read(c.ask)
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

// tries says whether to spin before this read. Only so many of the process do at once: after a yes the reader must spin.
func (c *Conn) tries() bool {
	if !c.rhythm.tries() {
		return false
	}
	if spinning.Add(1) <= c.most {
		return true
	}
	spinning.Add(-1)
	return false
}

// spin asks for a moment, and learns from what comes of it.
func (c *Conn) spin() {
	o := c.asked()
	spinning.Add(-1)
	c.rhythm.learn(o)
}

// asked returns when there is something to be read (an error among it), or a moment later if there is not.
func (c *Conn) asked() outcome {
	begun := time.Now()
	for first := true; ; first = false {
		c.came = false
		switch err := c.raw.Read(c.ask); {
		case err != nil: // closed, or beyond its deadline, as the read will say
			return here
		case c.came && first:
			return here
		case c.came:
			return timed
		case time.Since(begun) >= longest:
			return late
		}
		runtime.Gosched()
	}
}

// look asks without reading.
func (c *Conn) look(fd uintptr) bool {
	c.came = readable(fd)
	return true // whatever it says: do not park
}

// receive reads what there is.
func (c *Conn) receive(fd uintptr) bool {
	p := c.into
	if c.pool != nil {
		c.borrowed = c.pool.Get().(*[]byte)
		p = *c.borrowed
	}
	c.n, c.err = receive(fd, p)
	if c.err != syscall.EAGAIN {
		c.came = true
		return true
	}
	if c.pool != nil {
		c.pool.Put(c.borrowed)
		c.borrowed = nil
	}
	return !c.park
}

// Write is that of an io.Writer.
func (c *Conn) Write(p []byte) (int, error) {
	switch {
	case c.plain == nil:
		return c.below.Write(p)
	case len(p) == 0 || len(p) > mostDirect:
		return c.plain.Write(p)
	}
	return c.write(p)
}

// TryWrite writes as much as there is room for. Only where Lends says so.
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
	return &net.OpError{Op: op, Net: c.plain.LocalAddr().Network(), Source: c.plain.LocalAddr(), Addr: c.plain.RemoteAddr(),
		Err: os.NewSyscallError(op, err)}
}

// Close closes the connection.
func (c *Conn) Close() error { return c.below.Close() }
