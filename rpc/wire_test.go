// What a hostile or broken peer may put on the wire, over real WebSockets and byte streams; and framing itself.

package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/transport"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// rawPeer dials a vat with a WebSocket client that sends what it likes.
func rawPeer(t *testing.T, lim Limits) (*websocket.Conn, chan error) {
	t.Helper()
	errs := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tr, err := Accept(w, r, AcceptOptions{})
		if err != nil {
			errs <- err
			return
		}
		errs <- NewConn(tr, Config{Bootstrap: newTestObject("boot"), Limits: lim}).Run(context.Background())
	}))
	t.Cleanup(srv.Close)
	c, _, err := websocket.Dial(testContext(t), srv.URL, &websocket.DialOptions{Subprotocols: []string{SubprotocolMerged}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return c, errs
}

// expectAbort reads until the vat says why it ends.
func expectAbort(t *testing.T, c *websocket.Conn, want string) {
	t.Helper()
	lim := DefaultLimits()
	for {
		_, b, err := c.Read(testContext(t))
		if err != nil {
			t.Errorf("no abort: %v", err)
			return
		}
		for len(b) > 0 {
			var frame []byte
			if frame, b, err = framing.Split(b, lim.frame()); err != nil {
				t.Fatal(err)
			}
			var in wire.In
			if err := in.Parse(frame, &wire.Limits{Limits: lim.frame()}); err != nil {
				t.Fatal(err)
			}
			m, err := in.Root()
			if err != nil {
				t.Fatal(err)
			}
			if m.Which() == rpccp.Message_Which_abort {
				if got := formatMessage(m); !strings.Contains(got, want) {
					t.Errorf("abort says %s, want %s", got, want)
				}
				return
			}
		}
	}
}

func TestHostileWebSocket(t *testing.T) {
	t.Parallel()
	boot := frameOf(t, "bootstrap q=0")
	for name, tc := range map[string]struct {
		kind  websocket.MessageType
		data  []byte
		abort string
	}{
		"text":             {websocket.MessageText, []byte("hello"), "a text message"},
		"garbage":          {websocket.MessageBinary, []byte("this is not a Cap'n Proto message, really"), "segments"},
		"short":            {websocket.MessageBinary, []byte{1, 2, 3}, "truncated"},
		"cut":              {websocket.MessageBinary, boot[:len(boot)-8], "truncated"},
		"second cut":       {websocket.MessageBinary, append(bytes.Clone(boot), boot[:12]...), "truncated"},
		"segments":         {websocket.MessageBinary, bytes.Repeat([]byte{0xff}, 64), "segments"},
		"promises much":    {websocket.MessageBinary, append([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f}, boot...), "bytes"},
		"no root":          {websocket.MessageBinary, make([]byte, 8), "root"},
		"a null message":   {websocket.MessageBinary, append([]byte{0, 0, 0, 0, 1, 0, 0, 0}, make([]byte, 8)...), "root"},
		"self target":      {websocket.MessageBinary, frameOf(t, "call q=0 to=answer:0 echo"), "question 0"},
		"after good calls": {websocket.MessageBinary, append(bytes.Clone(boot), frameOf(t, "finish q=9")...), "question 9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, errs := rawPeer(t, Limits{})
			if err := c.Write(testContext(t), tc.kind, tc.data); err != nil {
				t.Fatal(err)
			}
			expectAbort(t, c, tc.abort)
			go c.CloseRead(context.Background()) // answers the close handshake
			if err := <-errs; !IsFailed(err) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// A client that goes away in the middle of a WebSocket message, and one that sends more than is allowed.
func TestBrokenWebSocket(t *testing.T) {
	t.Parallel()
	c, errs := rawPeer(t, Limits{})
	w, err := c.Writer(testContext(t), websocket.MessageBinary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(frameOf(t, "bootstrap q=0")[:10]); err != nil {
		t.Fatal(err)
	}
	c.CloseNow()
	if err := <-errs; !IsDisconnected(err) {
		t.Errorf("cut: %v", err)
	}
	c, errs = rawPeer(t, Limits{MessageBytes: 100 << 10})
	go c.Write(context.Background(), websocket.MessageBinary, make([]byte, 200<<10))
	go c.CloseRead(context.Background())
	if err := <-errs; !IsDisconnected(err) {
		t.Errorf("oversize: %v", err)
	}
}

// Whoever sends several messages in one is understood, also in fragments, and an empty message is nothing.
func TestMergedAndFragmented(t *testing.T) {
	t.Parallel()
	c, errs := rawPeer(t, Limits{})
	ctx := testContext(t)
	if err := c.Write(ctx, websocket.MessageBinary, nil); err != nil {
		t.Fatal(err)
	}
	w, err := c.Writer(ctx, websocket.MessageBinary)
	if err != nil {
		t.Fatal(err)
	}
	all := frameOf(t, "bootstrap q=0")
	for i := 1; i <= 20; i++ {
		all = append(all, frameOf(t, "call q="+itoa(i)+" to=answer:0 echo n="+itoa(i))...)
	}
	for len(all) > 0 {
		n := min(len(all), 13)
		if _, err := w.Write(all[:n]); err != nil {
			t.Fatal(err)
		}
		all = all[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	lim := DefaultLimits()
	for answers := 0; answers < 21; {
		_, b, err := c.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(b) > 0; answers++ {
			if _, b, err = framing.Split(b, lim.frame()); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Close(websocket.StatusNormalClosure, "bye")
	if err := <-errs; !IsDisconnected(err) {
		t.Errorf("Run: %v", err)
	}
}

// The merged subprotocol puts what waits into one WebSocket message, the plain one does not.
func TestSubprotocols(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		offer  []string
		merged bool
	}{
		{nil, true}, {[]string{SubprotocolPlain, SubprotocolMerged}, true}, {[]string{SubprotocolPlain}, false}, {[]string{}, false},
	} {
		a, b := dialTest(t, tc.offer)
		if a.(*transport.WebSocket).Merged != tc.merged || b.(*transport.WebSocket).Merged != tc.merged {
			t.Errorf("%v: merged %v and %v", tc.offer, a.(*transport.WebSocket).Merged, b.(*transport.WebSocket).Merged)
		}
		one := frameOf(t, "bootstrap q=0")
		three := bytes.Repeat(one, 3)
		if err := a.WriteBatch(testContext(t), three); err != nil {
			t.Fatal(err)
		}
		got, err := b.ReadBatch(testContext(t))
		if want := map[bool]int{true: 3, false: 1}[tc.merged]; err != nil || len(got) != want*len(one) {
			t.Errorf("%v: got %d messages, %v", tc.offer, len(got)/len(one), err)
		}
		for _, tr := range []Transport{a, b} {
			go tr.Close(peerconn.CloseNormal, "done")
		}
	}
}

func TestDialOptions(t *testing.T) {
	t.Parallel()
	got := make(chan Transport, 1)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Test") != "yes" {
			t.Error("the header is missing")
		}
		tr, err := Accept(w, r, AcceptOptions{RemoteAddr: "somebody"})
		if err != nil {
			t.Error(err)
		}
		got <- tr
	}))
	t.Cleanup(srv.Close)
	if _, err := Dial(testContext(t), srv.URL, DialOptions{}); err == nil {
		t.Error("a certificate of nobody's was accepted")
	}
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	dialled := false
	tr, err := Dial(testContext(t), strings.Replace(srv.URL, "https", "wss", 1), DialOptions{
		TLS:    &tls.Config{RootCAs: roots},
		Header: http.Header{"X-Test": {"yes"}},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled = true
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !dialled {
		t.Error("the dial function was not used")
	}
	peer := <-got
	if peer.RemoteAddr() != "somebody" {
		t.Errorf("the peer is called %s", peer.RemoteAddr())
	}
	v := startVats(t, tr, peer, Limits{})
	boot := v.a.Bootstrap(testContext(t))
	defer boot.Release()
	if _, p, err := ask(t, boot, mEcho, 1, "", nil); err != nil {
		t.Error(err)
	} else {
		p.Release()
	}
	// A server that speaks no WebSocket, and one that is not there.
	plain := httptest.NewServer(http.NotFoundHandler())
	if _, err := Dial(testContext(t), plain.URL, DialOptions{}); err == nil {
		t.Error("no error of a server that speaks no WebSocket")
	}
	plain.Close()
	if _, err := Dial(testContext(t), plain.URL, DialOptions{}); err == nil {
		t.Error("no error of a server that is not there")
	}
}

func TestHostileStream(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		data []byte
		want func(error) bool
	}{
		"garbage":   {[]byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), IsFailed},
		"truncated": {frameOf(t, "bootstrap q=0")[:20], IsFailed},
		"huge":      {[]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, IsFailed},
		"nothing":   {nil, IsDisconnected},
		"slow":      {frameOf(t, "bootstrap q=0"), IsDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, y := net.Pipe()
			go func() { // reads what the vat says
				buf := make([]byte, 1024)
				for {
					if _, err := x.Read(buf); err != nil {
						return
					}
				}
			}()
			errs := make(chan error, 1)
			go func() {
				errs <- NewConn(NewStreamTransport(y), Config{Bootstrap: newTestObject("boot")}).Run(context.Background())
			}()
			for _, b := range tc.data { // byte by byte
				if _, err := x.Write([]byte{b}); err != nil {
					break
				}
			}
			x.Close()
			if err := <-errs; !tc.want(err) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestFrameSize(t *testing.T) {
	t.Parallel()
	lim := Limits{Segments: 3, MessageBytes: 100}.withDefaults()
	for _, tc := range []struct {
		in         []byte
		size, need int
		bad        bool
	}{
		{nil, 0, 8, false},
		{[]byte{0, 0, 0, 0, 2, 0, 0}, 0, 8, false},
		{[]byte{0, 0, 0, 0, 2, 0, 0, 0}, 24, 24, false},
		{[]byte{1, 0, 0, 0, 2, 0, 0, 0}, 0, 16, false},
		{[]byte{1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9}, 40, 40, false},
		{[]byte{2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, 40, 40, false},
		{[]byte{3, 0, 0, 0, 2, 0, 0, 0}, 0, 0, true},
		{[]byte{0, 0, 0, 0, 12, 0, 0, 0}, 0, 0, true},
		{[]byte{255, 255, 255, 255, 255, 255, 255, 255}, 0, 0, true},
	} {
		size, need, err := framing.Size(tc.in, lim.frame())
		if size != tc.size || need != tc.need || (err != nil) != tc.bad {
			t.Errorf("%v: got %d, %d, %v", tc.in, size, need, err)
		}
		if _, ok := errors.AsType[framing.Error](err); err != nil && !ok {
			t.Errorf("%v: error is a %T", tc.in, err)
		}
	}
}

func TestDialFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	plain := httptest.NewUnstartedServer(http.NotFoundHandler())
	var connections atomic.Int32
	plain.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	plain.Start()
	t.Cleanup(plain.Close)
	srv := httptest.NewTLSServer(http.RedirectHandler(plain.URL+"/capnp", http.StatusFound))
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	eager := srv.Client()
	eager.CheckRedirect = func(*http.Request, []*http.Request) error { return nil }
	for name, opts := range map[string]DialOptions{
		"own client": {TLS: &tls.Config{RootCAs: roots}},
		"caller's":   {HTTPClient: eager},
	} {
		_, err := Dial(testContext(t), srv.URL, opts)
		if err == nil || !strings.Contains(err.Error(), plain.URL+"/capnp") || !strings.Contains(err.Error(), "ref") {
			t.Errorf("%s: %v, want where the server points and what to do", name, err)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections in clear text", n)
	}
}

// A ping of the peer is a sign of life: who is pinged need not ping.
func TestPingIsHeard(t *testing.T) {
	t.Parallel()
	ta, tb := dialTest(t, nil)
	v := startVats(t, ta, tb, Limits{PingInterval: time.Hour})
	boot := v.a.Bootstrap(testContext(t))
	defer boot.Release()
	if _, p, err := ask(t, boot, mEcho, 0, "", nil); err != nil {
		t.Fatal(err)
	} else {
		p.Release()
	}
	until.True(t, "all is said", func() bool { return v.b.Stats().Answers == 0 })
	for _, side := range []struct {
		from Transport
		to   *Conn
	}{{ta, v.b}, {tb, v.a}} {
		state := func() peerconn.State {
			side.to.mu.Lock()
			defer side.to.mu.Unlock()
			return side.to.loop.State()
		}
		before := state().LastActivity
		if err := side.from.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if state().LastActivity <= before {
			t.Error("a ping was not heard")
		}
		if state().LastMessage > before {
			t.Error("a ping counts as a message")
		}
	}
}
