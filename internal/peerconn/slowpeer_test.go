package peerconn_test

// Slow peers and dead ones, over both codecs. All runs in a bubble, on its clock.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc"
)

// link is what a peer reads from: so many bytes a second, piece by piece as over a WebSocket, and from a moment on nothing.
// Pings wait for what is being written.
//
// A link that buffers accepts all at once, and delivers it at its rate.
type link struct {
	rate    int
	buffers bool
	// unreported hides the pieces, as a wrapper does that has the methods of Transport only.
	unreported bool
	arrived    time.Time     // when all that was accepted will be delivered
	stopsAt    time.Time     // if it does
	turn       chan struct{} // held by a writer, or a ping
	wrote      func()
	closed     chan struct{}
}

func newLink(rate int) *link {
	return &link{rate: rate, turn: make(chan struct{}, 1), wrote: func() {}, closed: make(chan struct{})}
}

func (l *link) SetOnProgress(f func()) { l.wrote = f }

// carry has deliver called when the peer has read a write of so many bytes, and waits for that unless it buffers.
func (l *link) carry(bytes int, deliver func() error) error {
	if l.buffers {
		if l.arrived.Before(time.Now()) {
			l.arrived = time.Now()
		}
		l.arrived = l.arrived.Add(time.Duration(bytes) * time.Second / time.Duration(l.rate))
		if l.stopsAt.IsZero() || l.arrived.Before(l.stopsAt) {
			time.AfterFunc(time.Until(l.arrived), func() { _ = deliver() })
		}
		return nil
	}
	const piece = 64 << 10
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	for ; bytes > 0; bytes -= piece {
		time.Sleep(time.Duration(min(bytes, piece)) * time.Second / time.Duration(l.rate))
		if !l.stopsAt.IsZero() && time.Now().After(l.stopsAt) {
			<-l.closed
			return io.ErrClosedPipe
		}
		if bytes > piece {
			l.wrote()
		}
	}
	return deliver()
}

func (l *link) Ping(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		<-l.turn
	case <-ctx.Done():
		return ctx.Err()
	}
	if !l.buffers {
		return nil
	}
	if !l.stopsAt.IsZero() && l.arrived.After(l.stopsAt) {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(time.Until(l.arrived)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type rpcLink struct {
	*link
	rpc.Transport
}

func (l rpcLink) Ping(ctx context.Context) error { return l.link.Ping(ctx) }

func (l rpcLink) WriteBatch(ctx context.Context, messages []byte) error {
	messages = bytes.Clone(messages)
	return l.carry(len(messages), func() error { return l.Transport.WriteBatch(ctx, messages) })
}

func (l rpcLink) Close(code int, reason string) error {
	close(l.closed)
	return l.Transport.Close(code, reason)
}

func rpcTransport(over *link, near rpc.Transport) rpc.Transport {
	if over.unreported {
		return struct{ rpc.Transport }{rpcLink{over, near}}
	}
	return rpcLink{over, near}
}

type webLink struct {
	*link
	capnweb.Transport
}

func (l webLink) Ping(ctx context.Context) error { return l.link.Ping(ctx) }

func (l webLink) Write(ctx context.Context, messages [][]byte) error {
	var copies [][]byte
	size := 0
	for _, m := range messages {
		copies = append(copies, bytes.Clone(m))
		size += len(m)
	}
	return l.carry(size, func() error { return l.Transport.Write(ctx, copies) })
}

func (l webLink) Close(code int, reason string) error {
	close(l.closed)
	return l.Transport.Close(code, reason)
}

func webTransport(over *link, near capnweb.Transport) capnweb.Transport {
	if over.unreported {
		return struct{ capnweb.Transport }{webLink{over, near}}
	}
	return webLink{over, near}
}

type textObject string

func (o textObject) Serve(c *rpc.Call) {
	c.Return(capnp.ObjectSize{PointerCount: 1}, func(s capnp.Struct, _ *rpc.CapTable) error { return s.SetText(0, string(o)) })
}

// runner is a connection of either codec.
type runner interface {
	Run(ctx context.Context) error
	Close(reason string)
}

// codecs have a server answer a call with a text, over a link; call waits for that.
var codecs = map[string]func(over *link, text string, hits *peerconn.LimitHits) (server, client runner, call func() (length int, err error)){
	"rpc": func(over *link, text string, hits *peerconn.LimitHits) (server, client runner, call func() (int, error)) {
		near, far := rpc.Pipe()
		c := rpc.NewConn(far, rpc.Config{})
		call = func() (int, error) {
			ctx := context.Background()
			boot := c.Bootstrap(ctx)
			defer boot.Release()
			p := boot.Call(ctx, rpc.Method{Interface: 1}, capnp.ObjectSize{}, nil)
			defer p.Release()
			s, _, err := p.Wait(ctx)
			if err != nil {
				return 0, err
			}
			got, err := s.Ptr(0)
			return len(got.TextBytes()), err
		}
		// It is left to the keepalive to find out who does not read.
		return rpc.NewConn(rpcTransport(over, near), rpc.Config{Bootstrap: textObject(text), LimitHits: hits, Limits: rpc.Limits{WriteTimeout: time.Hour}}), c, call
	},
	"capnweb": func(over *link, text string, hits *peerconn.LimitHits) (server, client runner, call func() (int, error)) {
		near, far := capnweb.Pipe()
		c := capnweb.NewConn(far, capnweb.Config{})
		call = func() (int, error) {
			main := c.Main()
			defer main.Release()
			p := main.Call(context.Background(), "")
			defer p.Release()
			v, err := p.Await(context.Background())
			s, _ := v.(string)
			return len(s), err
		}
		main := capnweb.Func(func() string { return text })
		return capnweb.NewConn(webTransport(over, near), capnweb.Config{Main: main, LimitHits: hits, Limits: capnweb.Limits{WriteTimeout: time.Hour}}), c, call
	},
}

// A peer that reads a large message slowly but steadily lives, with the default limits, though that takes many times as long
// as the answer to a ping may; one that stops in the middle is ended in time, and counted.
func TestSlowPeers(t *testing.T) {
	t.Parallel()
	for name, connect := range codecs {
		for _, rate := range []int{320 << 10, 20 << 10} {
			for _, stops := range []time.Duration{0, 15 * time.Second} {
				t.Run(fmt.Sprintf("%s at %d bytes a second, stops after %v", name, rate, stops), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						text := strings.Repeat("x", 8<<20-1000)
						var hits peerconn.LimitHits
						over := newLink(rate)
						server, client, call := connect(over, text, &hits)
						ran := make(chan error, 2)
						go func() { ran <- server.Run(context.Background()) }()
						go func() { ran <- client.Run(context.Background()) }()
						if stops > 0 {
							over.stopsAt = time.Now().Add(stops)
						}
						start := time.Now()
						length, err := call()
						took := time.Since(start)
						client.Close("over")
						one, other := <-ran, <-ran
						switch n := hits.Of(peerconn.LimitPingTimeout); {
						case stops == 0 && (err != nil || length != len(text) || n != 0 || took < 20*time.Second):
							t.Errorf("%d bytes of %d after %v, %v, %d hits: %v, %v", length, len(text), took, err, n, one, other)
						case stops > 0 && (err == nil || n != 1 || took < stops || took > stops+10*time.Second):
							t.Errorf("ended %v after it stopped to read, %d hits: %v, %v, %v", took-stops, n, err, one, other)
						}
					})
				})
			}
		}
	}
}

// A transport that reports no pieces of a write, as one that a program has wrapped, is no reason to take its peer for dead.
func TestSlowPeersWithoutProgress(t *testing.T) {
	t.Parallel()
	for name, connect := range codecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				text := strings.Repeat("x", 8<<20-1000)
				var hits peerconn.LimitHits
				over := newLink(320 << 10)
				over.unreported = true
				server, client, call := connect(over, text, &hits)
				ran := make(chan error, 2)
				go func() { ran <- server.Run(context.Background()) }()
				go func() { ran <- client.Run(context.Background()) }()
				length, err := call()
				client.Close("over")
				if one, other := <-ran, <-ran; err != nil || length != len(text) || hits.Of(peerconn.LimitPingTimeout) != 0 {
					t.Errorf("%d bytes of %d, %v: %v, %v", length, len(text), err, one, other)
				}
			})
		})
	}
}

// A peer behind a buffer that has accepted a large message lives while the message is on its way, though pings are answered
// behind it; one that has died meanwhile is ended once the buffer would be empty.
func TestSlowPeersBehindABuffer(t *testing.T) {
	t.Parallel()
	for name, connect := range codecs {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dies %v", name, dies), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					text := strings.Repeat("x", 8<<20-1000)
					var hits peerconn.LimitHits
					over := newLink(80 << 10)
					over.buffers = true
					if dies {
						over.stopsAt = time.Now().Add(time.Second)
					}
					server, client, call := connect(over, text, &hits)
					ran := make(chan error, 2)
					go func() { ran <- server.Run(context.Background()) }()
					go func() { ran <- client.Run(context.Background()) }()
					start := time.Now()
					length, err := call()
					took := time.Since(start)
					client.Close("over")
					one, other := <-ran, <-ran
					switch n := hits.Of(peerconn.LimitPingTimeout); {
					case !dies && (err != nil || length != len(text) || n != 0 || took < 100*time.Second):
						t.Errorf("%d bytes of %d after %v, %v, %d hits: %v, %v", length, len(text), took, err, n, one, other)
					case dies && (err == nil || n != 1 || took < 130*time.Second || took > 140*time.Second):
						t.Errorf("ended after %v, %d hits: %v, %v, %v", took, n, err, one, other)
					}
				})
			})
		}
	}
}
