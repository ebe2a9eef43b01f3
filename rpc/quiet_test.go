package rpc

// Peers that are dead, slow, quiet or of no use: who is kept, and who is found out.

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// deaf is a transport whose peer has died: nothing comes, writes go through until they fill the pipe, pings are lost.
type deaf struct {
	closed chan struct{}
	once   sync.Once
	full   bool
}

func (d *deaf) ReadBatch(context.Context) ([]byte, error) { <-d.closed; return nil, io.EOF }
func (d *deaf) WriteBatch(context.Context, []byte) error {
	if d.full {
		<-d.closed
		return io.ErrClosedPipe
	}
	return nil
}
func (d *deaf) Ping(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
func (d *deaf) Close(int, string) error        { d.once.Do(func() { close(d.closed) }); return nil }
func (d *deaf) RemoteAddr() string             { return "deaf" }

// With the default limits a dead peer is found within 10 seconds, and so is one that does not read.
func TestDeadPeerIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewConn(&deaf{closed: make(chan struct{})}, Config{})
		start := time.Now()
		p := c.Bootstrap(context.Background()).Call(context.Background(), mEcho, testSize, nil)
		err := c.Run(context.Background())
		if d := time.Since(start); !IsDisconnected(err) || d > 10*time.Second {
			t.Errorf("found after %v: %v", d, err)
		}
		if _, _, err := p.Wait(context.Background()); !IsDisconnected(err) {
			t.Errorf("the promise: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := NewConn(&deaf{closed: make(chan struct{}), full: true}, Config{Limits: Limits{PingInterval: time.Hour}})
		start := time.Now()
		c.Bootstrap(context.Background())
		err := c.Run(context.Background())
		if d := time.Since(start); !IsDisconnected(err) || d > 11*time.Second {
			t.Errorf("found after %v: %v", d, err)
		}
	})
}

// narrow is a transport whose peer takes so many bytes a second in, and from some moment on perhaps none any more. Pings wait
// for what is being written.
type narrow struct {
	Transport
	rate    int
	turn    chan struct{} // who writes or pings holds it
	wrote   func()
	dead    time.Time // when the peer dies, if ever
	closing chan struct{}
}

func (n *narrow) SetOnProgress(f func()) { n.wrote = f }

func (n *narrow) WriteBatch(ctx context.Context, messages []byte) error {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	for rest := len(messages); rest > 0; rest -= peerconn.ChunkBytes {
		time.Sleep(time.Duration(min(rest, peerconn.ChunkBytes)) * time.Second / time.Duration(n.rate))
		if !n.dead.IsZero() && time.Now().After(n.dead) {
			<-n.closing
			return io.ErrClosedPipe
		}
		if rest > peerconn.ChunkBytes {
			n.wrote()
		}
	}
	return n.Transport.WriteBatch(ctx, messages)
}

func (n *narrow) Ping(ctx context.Context) error {
	select {
	case n.turn <- struct{}{}:
		<-n.turn
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *narrow) Close(code int, reason string) error {
	close(n.closing)
	return n.Transport.Close(code, reason)
}

// A peer that takes in what is written to it, however slowly, is not silent, with the default limits; when it dies in the
// midst of that, it is found within 10 seconds.
func TestSlowReaderIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size, n, rate int
		dies          time.Duration
	}{
		"one large message":             {size: 8<<20 - 1000, n: 1, rate: 320 << 10},
		"the same, very slowly":         {size: 8<<20 - 1000, n: 1, rate: 20 << 10},
		"many small messages":           {size: 32 << 10, n: 256, rate: 320 << 10},
		"the same, very slowly as well": {size: 32 << 10, n: 256, rate: 20 << 10},
		"one that dies at it":           {size: 8<<20 - 1000, n: 1, rate: 320 << 10, dies: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				near, far := Pipe()
				link := &narrow{Transport: far, rate: c.rate, turn: make(chan struct{}, 1), closing: make(chan struct{})}
				v := startVats(t, near, link, Limits{})
				ctx := context.Background()
				boot := v.a.Bootstrap(ctx)
				defer boot.Release()
				var asked []*Promise
				for range c.n {
					asked = append(asked, boot.Call(ctx, mHold, testSize, nil))
				}
				if c.dies > 0 {
					link.dead = time.Now().Add(c.dies)
				}
				text := strings.Repeat("x", c.size)
				for range c.n {
					(<-v.bObj.holding).Return(testSize, fill(0, text, nil))
				}
				if c.dies > 0 {
					<-v.b.Done()
					if took := time.Since(link.dead); took > 10*time.Second || !IsDisconnected(v.b.Err()) {
						t.Errorf("found dead after %v: %v", took, v.b.Err())
					}
				}
				for _, p := range asked {
					if _, _, err := p.Wait(ctx); (err == nil) != (c.dies == 0) {
						t.Errorf("%v: %v", err, v.b.Err())
					}
					p.Release()
				}
			})
		})
	}
}

// A peer that answers pings and says nothing else is left alone.
func TestQuietPeerIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe()
		x, y := NewConn(a, Config{}), NewConn(b, Config{Bootstrap: newTestObject("y")})
		done := make(chan error, 2)
		go func() { done <- x.Run(context.Background()) }()
		go func() { done <- y.Run(context.Background()) }()
		<-time.After(time.Hour) // of the bubble's clock
		if _, _, err := ask(t, x.Bootstrap(context.Background()), mEcho, 1, "", nil); err != nil {
			t.Error(err)
		}
		x.Close("done")
		<-done
		<-done
	})
}

// A peer that says nothing is cut off, and so is one that has nothing to wait for and holds nothing; no other.
func TestUselessConnectionsEnd(t *testing.T) {
	t.Parallel()
	call := func(m Method, with *Ref) func(boot *Ref) {
		return func(boot *Ref) { boot.Call(context.Background(), m, testSize, fill(0, "x", with)) }
	}
	for name, c := range map[string]struct {
		says func(boot *Ref)
		ends time.Duration // 0 does not
	}{
		"says nothing":              {nil, 10 * time.Second},
		"was answered":              {call(mEcho, nil), time.Minute + time.Second},
		"waits for an answer":       {call(mHold, nil), 0},
		"holds an object":           {call(mMake, nil), 0},
		"gave an object":            {call(mKeep, NewLocal(newTestObject("given"))), 0},
		"is asked and says nothing": {call(mEcho, nil), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				near, far := Pipe()
				obj := newTestObject("a")
				a := NewConn(near, Config{Bootstrap: obj, Limits: Limits{HandshakeTimeout: 10 * time.Second, IdleTimeout: time.Minute}})
				b := NewConn(far, Config{Bootstrap: newTestObject("b")})
				ran, began := make(chan error, 2), time.Now()
				for _, c := range []*Conn{a, b} {
					go func() { ran <- c.Run(context.Background()) }()
				}
				time.Sleep(time.Second)
				if c.says != nil {
					c.says(b.Bootstrap(context.Background()))
				}
				if name == "is asked and says nothing" {
					theirs := a.Bootstrap(context.Background())
					theirs.Call(context.Background(), mHold, testSize, nil)
					theirs.Release()
				}
				select {
				case <-a.Done():
					t.Logf("it ended with %v", a.Err())
				case <-time.After(time.Hour):
				}
				if c.ends == 0 && a.Err() != nil || c.ends > 0 && (a.Err() == nil || time.Since(began).Round(time.Second) != c.ends) {
					t.Errorf("after %v: %v", time.Since(began), a.Err())
				}
				a.Close("over")
				<-ran
				<-ran
			})
		})
	}
}

// murmuring is a transport whose peer answers no ping, but may be heard of meanwhile.
type murmuring struct {
	Transport
	heard func()
	also  bool
}

func (m *murmuring) SetOnActivity(f func()) { m.heard = f }

func (m *murmuring) Ping(ctx context.Context) error {
	time.Sleep(time.Second)
	if m.also {
		m.heard()
	}
	<-ctx.Done()
	return ctx.Err()
}

// A peer from which a part of a long message came while its answer to a ping had to wait is not silent.
func TestHeardWithinAPing(t *testing.T) {
	t.Parallel()
	for _, also := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			near, _ := Pipe()
			c := NewConn(&murmuring{Transport: near, also: also}, Config{Bootstrap: newTestObject("a"), Limits: Limits{HandshakeTimeout: time.Hour}})
			ran := make(chan error, 1)
			go func() { ran <- c.Run(context.Background()) }()
			time.Sleep(time.Minute)
			select {
			case err := <-ran:
				if also {
					t.Errorf("the connection ended with %v", err)
				}
				return
			default:
			}
			if !also {
				t.Error("nothing was heard of the peer for a minute, and the connection lives")
			}
			c.Close("over")
			<-ran
		})
	}
}
