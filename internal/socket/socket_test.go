package socket

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// These tests share what counts all that ask, so none of them is parallel.

func TestRhythm(t *testing.T) {
	const T, H, L = spinHit, spinUnneeded, spinMissed
	repeat := func(o spinResult, n int) (all []spinResult) {
		for range n {
			all = append(all, o)
		}
		return all
	}
	for name, c := range map[string]struct {
		from  spinPolicy
		came  []spinResult // of the attempts, one after the other
		reads int
		tries int // of so many reads
	}{
		"an answer each time":            {from: spinPolicy{credit: 1}, came: repeat(T, 100), reads: 100, tries: 100},
		"nothing ever":                   {from: spinPolicy{credit: 1}, came: repeat(L, 100), reads: 1 + 10*retryAfter, tries: 1 + 10},
		"an attempt pays after all":      {came: append([]spinResult{L}, repeat(T, 100)...), reads: 2*retryAfter + 5, tries: 2 + 5},
		"two of three":                   {from: spinPolicy{credit: 2}, came: []spinResult{T, T, L, T, T, L, T, T, L, T, T, L}, reads: 12, tries: 12},
		"one of two is not enough":       {from: spinPolicy{credit: 4}, came: []spinResult{T, L, T, L, T, L, T, L, T, L}, reads: 8 + retryAfter, tries: 8 + 1},
		"a pause after much that was so": {from: spinPolicy{credit: maxCredit}, came: repeat(L, 10), reads: maxCredit/missCost + retryAfter - 1, tries: maxCredit / missCost},
		"always here already":            {from: spinPolicy{credit: maxCredit}, came: repeat(H, 100), reads: maxCredit + retryAfter, tries: maxCredit + 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, tries := c.from, 0
			for range c.reads {
				if r.shouldSpin() {
					r.record(c.came[tries])
					tries++
				}
			}
			if tries != c.tries {
				t.Errorf("%d attempts in %d reads, want %d", tries, c.reads, c.tries)
			}
		})
	}
}

// asking is a Conn of which so many may ask at once, on machines with one processor too.
func asking(c net.Conn, most int32) *Conn {
	s := New(c, c)
	s.maxSpinners = most
	if t, ok := c.(*tls.Conn); ok && s.raw == nil {
		s.raw, s.onReadable = rawOf(t.NetConn()), s.pollReady
	}
	return s
}

func TestAsked(t *testing.T) {
	for _, network := range []string{"tcp", "unix", "tls"} {
		t.Run(network, func(t *testing.T) {
			ours, theirs := sockets(t, strings.Replace(network, "tls", "tcp", 1))
			c := asking(ours, 1)
			if network == "tls" { // which need not have been spoken yet to be waited for
				c = asking(tls.Server(ours, &tls.Config{}), 1)
			}
			c.into = make([]byte, 8)
			from := time.Now()
			if got := c.poll(); got != spinMissed || c.ready {
				t.Errorf("nothing was said, and asking gave %d", got)
			}
			if took := time.Since(from); took < maxSpin {
				t.Errorf("it gave up after %v", took)
			}
			say(t, theirs)
			if got := await(c); got != spinUnneeded {
				t.Errorf("something was said before, and asking gave %d", got)
			}
			if c.NonBlocking() { // it was read on the way
				if c.n != 1 || c.err != nil || c.into[0] != 1 {
					t.Errorf("asking read %d of %v, %v", c.n, c.into, c.err)
				}
			} else if n, err := ours.Read(make([]byte, 8)); n != 1 || err != nil {
				t.Errorf("the byte is gone: %d, %v", n, err)
			}
			theirs.Close()
			if got := await(c); got != spinUnneeded {
				t.Errorf("the peer is gone, and asking gave %d", got)
			}
			ours.Close()
			if got := c.poll(); got != spinUnneeded {
				t.Errorf("the connection is closed, and asking gave %d", got)
			}
		})
	}
}

// await asks until something is there when it begins, or came meanwhile: the kernel takes its time.
func await(c *Conn) spinResult {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if c.poll() != spinMissed {
			return spinUnneeded
		}
	}
	return spinMissed
}

func TestAnswersInTime(t *testing.T) {
	ours, theirs := sockets(t, "tcp")
	go func() { // an echo
		b := make([]byte, 1)
		for {
			if _, err := theirs.Read(b); err != nil {
				return
			}
			if _, err := theirs.Write(b); err != nil {
				return
			}
		}
	}()
	c := asking(ours, 1)
	c.into = make([]byte, 1)
	for deadline := time.Now().Add(time.Minute); ; {
		say(t, ours)
		got := c.poll()
		if got == spinHit {
			return
		}
		if !c.ready {
			if _, err := ours.Read(c.into); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("an echo never came while it was waited for")
		}
	}
}

func TestSilentSocketIsNotPolled(t *testing.T) {
	ours, _ := sockets(t, "tcp")
	c := asking(ours, 1)
	asked, ask := 0, c.onReadable
	c.onReadable = func(fd uintptr) bool { asked++; return ask(fd) }
	try := func() {
		if c.tryBeginSpin() {
			c.spin()
		}
	}
	try()
	if asked == 0 {
		t.Error("a new connection is not asked at all")
	}
	asked = 0
	for range retryAfter - 1 {
		try()
	}
	if asked > 0 {
		t.Errorf("a silent connection was asked %d times more", asked)
	}
	if try(); asked == 0 {
		t.Error("a silent connection is never asked again")
	}
}

// A read asks before it parks, also where it only looks because what comes is for TLS to read.
func TestAReadAsksBeforeItParks(t *testing.T) {
	for _, over := range []string{"socket", "TLS"} {
		ours, theirs := sockets(t, "tcp")
		c := asking(ours, 1)
		if over == "TLS" { // whose words do not matter here
			c = asking(tls.Server(ours, &tls.Config{}), 1)
			c.inner = ours
		}
		asked, ask := 0, c.onReadable
		c.onReadable = func(fd uintptr) bool {
			if !c.park {
				asked++
			}
			return ask(fd)
		}
		say(t, theirs)
		if n, err := c.Read(make([]byte, 8)); n != 1 || err != nil {
			t.Fatalf("%s: read %d, %v", over, n, err)
		}
		if asked == 0 {
			t.Errorf("%s: nothing was asked", over)
		}
	}
}

func TestFewAskAtOnce(t *testing.T) {
	ours, _ := sockets(t, "tcp")
	c := asking(ours, 1)
	spinners.Add(1)
	if c.tryBeginSpin() {
		t.Error("it asks beside another")
	}
	spinners.Add(-1)
	if !c.tryBeginSpin() {
		t.Fatal("it does not ask when the other has done")
	}
	c.spin()
	if c.maxSpinners = 0; c.tryBeginSpin() {
		t.Error("it asks where none may")
	}
	if n := spinners.Load(); n != 0 {
		t.Errorf("%d are asking still", n)
	}
}

// What is no plain socket is read and written as it is; one that has its own ways with a socket is not passed by.
func TestOthersAreReadAsTheyAre(t *testing.T) {
	ours, theirs := sockets(t, "tcp")
	type dressed struct{ *net.TCPConn }
	for name, conn := range map[string]net.Conn{"a socket in something": dressed{ours.(*net.TCPConn)}, "nothing known": nil} {
		below := &counted{Conn: ours}
		c := New(below, conn)
		if c.NonBlocking() {
			t.Errorf("%s: its socket is read past it", name)
		}
		say(t, theirs)
		if n, err := c.Read(make([]byte, 4)); n != 1 || err != nil || below.reads != 1 {
			t.Errorf("%s: read %d, %v, by %d reads below", name, n, err, below.reads)
		}
		if n, err := c.Write([]byte("four")); n != 4 || err != nil || below.writes != 1 {
			t.Errorf("%s: wrote %d, %v, by %d writes below", name, n, err, below.writes)
		}
	}
	a, b := net.Pipe()
	b.Close()
	if c := New(a, a); c.raw != nil {
		t.Error("a pipe in memory is asked")
	} else if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a pipe that is closed: %v", err)
	}
}

type counted struct {
	net.Conn
	reads, writes int
}

func (c *counted) Read(p []byte) (int, error)  { c.reads++; return c.Conn.Read(p) }
func (c *counted) Write(p []byte) (int, error) { c.writes++; return c.Conn.Write(p) }

// Everything arrives, in order, whatever the sizes and the buffers of the kernel.
func TestPlainSockets(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			ours, theirs := sockets(t, network)
			for _, c := range []net.Conn{ours, theirs} { // so that writes have to wait
				if err := c.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(8 << 10); err != nil {
					t.Fatal(err)
				}
			}
			from, to := New(theirs, theirs), New(ours, ours)
			sum := 0
			for _, n := range sizes {
				sum += n
			}
			sent := make([]byte, sum)
			for i := range sent {
				sent[i] = byte(i * 7 >> 3)
			}
			done := make(chan error, 1)
			go func() {
				rest := sent
				for _, n := range sizes {
					if k, err := from.Write(rest[:n]); k != n || err != nil {
						done <- fmt.Errorf("wrote %d of %d: %w", k, n, err)
						return
					}
					rest = rest[n:]
				}
				done <- from.Close()
			}()
			pool := &sync.Pool{New: func() any { b := make([]byte, 1000); return &b }}
			var got []byte
			var err error
			for turn := 0; err == nil; turn++ {
				var n int
				if turn%2 == 0 {
					var b *[]byte
					if b, n, err = to.ReadPooled(pool); n > 0 {
						got = append(got, (*b)[:n]...)
						pool.Put(b)
					} else if b != nil {
						t.Fatal("a buffer is lent for nothing")
					}
					continue
				}
				b := make([]byte, []int{1, 100, maxDirect, 2 * maxDirect}[turn/2%4])
				n, err = to.Read(b)
				got = append(got, b[:n]...)
			}
			if err != io.EOF {
				t.Errorf("it ends with %v", err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if !bytes.Equal(got, sent) {
				t.Errorf("%d bytes came of %d, or not as they were sent", len(got), len(sent))
			}
		})
	}
}

var sizes = []int{0, 1, 300, maxDirect, maxDirect + 1, 5, 200 << 10, 17, maxDirect - 1, 0, 3, 64 << 10, 1}

// Who waits holds no buffer, and is let go when the connection is closed.
func TestWaitersHoldNothing(t *testing.T) {
	ours, theirs := sockets(t, "tcp")
	c := New(ours, ours)
	pool := &sync.Pool{New: func() any { b := make([]byte, 10); return &b }}
	waits, read := make(chan bool, 1), make(chan error, 1)
	ask := c.onReadable
	c.onReadable = func(fd uintptr) bool {
		leave := ask(fd)
		if !leave { // it is about to park
			select {
			case waits <- c.pooled == nil:
			default: // once more
			}
		}
		return leave
	}
	lent := func() {
		b, n, err := c.ReadPooled(pool)
		if b != nil {
			err = errors.Join(err, fmt.Errorf("%d bytes", n))
		}
		read <- err
	}
	go lent()
	if !<-waits {
		t.Error("who waits holds a buffer")
	}
	say(t, theirs)
	if err := <-read; err == nil || err.Error() != "1 bytes" {
		t.Fatal(err)
	}
	go lent()
	<-waits
	ours.Close()
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection was closed under a reader: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("written to a connection that is closed: %v", err)
	}
}

func TestDialer(t *testing.T) {
	ours, theirs := dialedPair(t)
	if !ours.(*directConn).direct.NonBlocking() {
		t.Error("the socket is read by package net")
	}
	say(t, ours)
	say(t, theirs)
	for _, c := range []net.Conn{ours, theirs} {
		if n, err := c.Read(make([]byte, 4)); n != 1 || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
	}
	if err := ours.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("beyond its deadline: %v", err)
	}
	if _, err := Dialer(new(net.Dialer).DialContext)(t.Context(), "tcp", "127.0.0.1:1"); err == nil {
		t.Error("dialled where nobody listens")
	}
}

// What was dialled may be read and written by several goroutines at once, as any net.Conn: nothing comes twice or not at all.
func TestDialedByManyAtOnce(t *testing.T) {
	ours, theirs := dialedPair(t)
	const many, each = 4, 2000
	var writing, reading sync.WaitGroup
	for _, c := range []net.Conn{ours, theirs} {
		for i := range byte(many) {
			writing.Go(func() {
				for range each {
					if _, err := c.Write([]byte{i}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		var mu sync.Mutex
		var got [many]int
		for range many {
			reading.Go(func() {
				for p := make([]byte, 7); ; {
					n, err := c.Read(p)
					mu.Lock()
					for _, b := range p[:n] {
						got[b%many]++
					}
					mu.Unlock()
					if err != nil {
						return
					}
				}
			})
		}
		t.Cleanup(func() {
			for i, n := range got {
				if n != each {
					t.Errorf("%d of %d bytes %d came", n, each, i)
				}
			}
		})
	}
	writing.Wait()
	for _, c := range []net.Conn{ours, theirs} { // what is on its way comes before the end does
		end := c
		if d, ok := c.(*directConn); ok {
			end = d.Conn
		}
		if err := end.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
	}
	reading.Wait()
}

// dialedPair are both ends of a connection, of which the first was dialled.
func dialedPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = Dialer(new(net.Dialer).DialContext)(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return ours, theirs
}

// A write that may not wait takes what there is room for.
func TestTryWrite(t *testing.T) {
	ours, theirs := sockets(t, "tcp")
	c := New(ours, ours)
	b := bytes.Repeat([]byte("x"), 10_000)
	sent := 0
	for {
		n, err := c.TryWrite(b)
		if err != nil {
			t.Fatal(err)
		}
		if sent += n; n < len(b) {
			break
		}
	}
	if n, err := io.ReadFull(theirs, make([]byte, sent)); err != nil {
		t.Errorf("%d came of %d: %v", n, sent, err)
	}
	if n, err := c.Write(b); n != len(b) || err != nil {
		t.Errorf("wrote %d afterwards, %v", n, err)
	}
}

// Errors of the system are told as package net tells them.
func TestErrors(t *testing.T) {
	ours, theirs := sockets(t, "tcp")
	c := New(ours, ours)
	if err := theirs.(*net.TCPConn).SetLinger(0); err != nil { // a reset instead of an end
		t.Fatal(err)
	}
	theirs.Close()
	_, err := c.Read(make([]byte, 1))
	var op *net.OpError
	if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" || op.Addr.String() != theirs.LocalAddr().String() {
		t.Errorf("read: %v", err)
	}
	if _, err = c.Write(make([]byte, 1)); !errors.Is(err, syscall.EPIPE) || !errors.As(err, &op) || op.Op != "write" {
		t.Errorf("write: %v", err)
	}
	if err := ours.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("beyond its deadline: %v", err)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	ours, theirs := sockets(t, "tcp")
	from, to := asking(theirs, 0), asking(ours, 1)
	b := make([]byte, 64)
	pool := &sync.Pool{New: func() any { b := make([]byte, 64); return &b }}
	n := testing.AllocsPerRun(100, func() {
		if _, err := from.Write(b); err != nil {
			t.Error(err)
		}
		if _, err := to.Read(b); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for a write and a read", n)
	}
	n = testing.AllocsPerRun(100, func() {
		if _, err := from.Write(b); err != nil {
			t.Error(err)
		}
		lent, n, err := to.ReadPooled(pool)
		if n != len(b) || err != nil {
			t.Error(n, err)
		}
		pool.Put(lent)
	})
	if n >= 1 { // the race detector's pools lose a buffer now and then
		t.Errorf("%v allocations for a write and a lent read", n)
	}
}

func say(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

// sockets gives the two ends of a connection.
func sockets(t *testing.T, network string) (ours, theirs net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if theirs, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	if ours, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	return ours, theirs
}
