package wsock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted counts what goes through a connection.
type counted struct {
	net.Conn
	mu     sync.Mutex
	writes int
	reads  []int // sizes asked for
}

func (c *counted) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	c.reads = append(c.reads, len(p))
	c.mu.Unlock()
	return n, err
}

func (c *counted) taken() (writes, reads int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes, reads = c.writes, len(c.reads)
	c.writes, c.reads = 0, nil
	return writes, reads
}

type countingListener struct {
	net.Listener
	conns chan *counted
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	k := &counted{Conn: c}
	l.conns <- k
	return k, nil
}

// pair gives both ends of a WebSocket and what the server's end does to its connection.
func pair(t *testing.T) (server, client *Conn, on *counted) {
	t.Helper()
	accepted, conns := make(chan *Conn, 1), make(chan *counted, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r, AcceptOptions{})
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}))
	srv.Listener = countingListener{srv.Listener, conns}
	srv.Start()
	t.Cleanup(srv.Close)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	client, _, err := Dial(t.Context(), srv.URL, DialOptions{HTTPClient: &http.Client{Transport: tr}})
	if err != nil {
		t.Fatal(err)
	}
	server, on = <-accepted, <-conns
	t.Cleanup(func() { client.CloseNow(); server.CloseNow() })
	on.taken()
	return server, client, on
}

// connected gives both ends of a WebSocket to a server that start starts, with nothing in between.
func connected(t *testing.T, start func(*httptest.Server)) (server, client *Conn) {
	t.Helper()
	accepted := make(chan *Conn, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r, AcceptOptions{})
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}))
	start(srv)
	t.Cleanup(srv.Close)
	client, _, err := Dial(t.Context(), srv.URL, DialOptions{HTTPClient: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { client.CloseNow(); server.CloseNow() })
	return server, client
}

// Sockets are read past package net, on both sides; TLS is not.
func TestSocketsAreReadThemselves(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){"plain": (*httptest.Server).Start, "TLS": (*httptest.Server).StartTLS} {
		t.Run(name, func(t *testing.T) {
			server, client := connected(t, start)
			if plain := name == "plain"; client.frameConn.inner.NonBlocking() != plain || server.frameConn.inner.NonBlocking() != plain {
				t.Errorf("the client reads its socket itself: %t, the server: %t, and should: %t",
					client.frameConn.inner.NonBlocking(), server.frameConn.inner.NonBlocking(), plain)
			}
		})
	}
}

func TestManyMessagesLeaveTogether(t *testing.T) {
	server, client, on := pair(t)
	for _, sizes := range [][]int{{10}, {10, 20, 30}, {5000}, {40000}, {70000}, {0, 1}, {60000, 60000, 10}, {200000, 1}} {
		var messages [][]byte
		total := 0
		for i, n := range sizes {
			messages = append(messages, bytes.Repeat([]byte{byte('a' + i)}, n))
			total += n
		}
		sent := make(chan error, 1)
		go func() { sent <- server.Write(t.Context(), websocket.MessageText, messages...) }()
		for i, m := range messages {
			kind, b, err := client.Read(context.Background())
			if err != nil || kind != websocket.MessageText || !bytes.Equal(b, m) {
				t.Fatalf("message %d of %v: %v, %d bytes, %v", i, sizes, kind, len(b), err)
			}
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if writes, _ := on.taken(); writes > 1+total/20000 || total < 60000 && writes != 1 {
			t.Errorf("%v: %d writes", sizes, writes)
		}
	}
}

// TestMessagesOfAllSizes: in the order in which they are written, whether they are copied together or written from where they
// are; and after each frame but the last of a large message others get a turn.
func TestMessagesOfAllSizes(t *testing.T) {
	server, client := connected(t, (*httptest.Server).Start)
	rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
	turns := 0
	server.SetOnProgress(func() {
		turns++
		if _, err := server.frameConn.Write(frame(0x89, false, []byte("ping"))); err != nil {
			t.Error(err)
		}
	})
	sizes := []int{0, 1, 300, smallFrameBytes, smallFrameBytes + 1, 20000, frameBytes - 1, frameBytes, frameBytes + 1, 3 * frameBytes}
	for range 60 {
		var messages [][]byte
		frames := 0
		for range 1 + rnd.IntN(8) {
			m := make([]byte, sizes[rnd.IntN(len(sizes))])
			for i := range m {
				m[i] = byte(rnd.Uint32())
			}
			messages, frames = append(messages, m), frames+max(0, len(m)-1)/frameBytes
		}
		before := turns
		sent := make(chan error, 1)
		go func() { sent <- server.Write(context.Background(), websocket.MessageBinary, messages...) }()
		for i, m := range messages {
			if _, b, err := client.Read(context.Background()); err != nil || !bytes.Equal(b, m) {
				t.Fatalf("message %d: %d bytes, want %d: %v", i, len(b), len(m), err)
			}
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if turns-before < frames {
			t.Errorf("%d turns between %d frames of large messages", turns-before, frames)
		}
	}
}

// Many small messages that have come are read with few system calls, though an idle connection has a small buffer.
func TestManyMessagesAreReadTogether(t *testing.T) {
	server, client, on := pair(t)
	const n = 400
	messages := make([][]byte, n)
	for i := range messages {
		messages[i] = bytes.Repeat([]byte{byte(i)}, 60)
	}
	if err := client.Write(t.Context(), websocket.MessageText, messages...); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if _, b, err := server.Read(context.Background()); err != nil || !bytes.Equal(b, messages[i]) {
			t.Fatal(i, b, err)
		}
	}
	if _, reads := on.taken(); reads > n/20 {
		t.Errorf("%d reads", reads)
	}
	if server.frameConn.readBuf != nil {
		t.Error("an idle connection keeps a large buffer")
	}
}

func TestReadLimit(t *testing.T) {
	server, client, _ := pair(t)
	server.SetReadLimit(100)
	go func() {
		_ = client.Write(t.Context(), websocket.MessageText, make([]byte, 100), make([]byte, 101))
		_, _, _ = client.Read(context.Background())
	}()
	if _, b, err := server.Read(context.Background()); err != nil || len(b) != 100 {
		t.Fatal(len(b), err)
	}
	if _, _, err := server.Read(context.Background()); !TooBig(err) {
		t.Fatal(err)
	}
}

func TestPingWhileWriting(t *testing.T) {
	server, client, _ := pair(t)
	heard := make(chan struct{}, 100)
	client.SetOnActivity(func() { // of parts of messages too
		select {
		case heard <- struct{}{}:
		default:
		}
	})
	big := bytes.Repeat([]byte("0123456789"), 2000)
	var done sync.WaitGroup
	done.Go(func() {
		for range 200 {
			if _, b, err := client.Read(context.Background()); err != nil || !bytes.Equal(b, big) {
				t.Error(len(b), err)
				return
			}
		}
		_, _, _ = client.Read(context.Background())
	})
	done.Go(func() { _, _, _ = server.Read(context.Background()) })
	var pings sync.WaitGroup
	pings.Go(func() {
		for range 50 {
			if err := server.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for range 100 {
		if err := server.Write(t.Context(), websocket.MessageText, big, big); err != nil {
			t.Fatal(err)
		}
	}
	pings.Wait()
	if len(heard) < 50 {
		t.Errorf("heard %d times", len(heard))
	}
	server.CloseNow()
	done.Wait()
}

func TestClose(t *testing.T) {
	server, client, _ := pair(t)
	long := strings.Repeat("é", 100)
	var done sync.WaitGroup
	done.Go(func() {
		_, _, err := client.Read(context.Background())
		code, reason, ok := Closed(err)
		if !ok || code != 3000 || len(reason) > 123 || !strings.HasPrefix(long, strings.TrimSuffix(reason, "...")) {
			t.Error(code, reason, err)
		}
	})
	_ = server.Close(3000, long) // what the other hears is looked at: it may answer too late
	if err := server.Close(1000, ""); err != nil {
		t.Error(err)
	}
	done.Wait()
}

// A peer that does not answer holds nobody up for long.
func TestCloseDoesNotHang(t *testing.T) {
	server, client, _ := pair(t)
	read := make(chan error)
	go func() {
		_, _, err := server.Read(context.Background())
		read <- err
	}()
	start := time.Now()
	_ = server.Close(1000, "bye") // the client reads nothing
	if <-read == nil || time.Since(start) > 5*time.Second {
		t.Errorf("after %v", time.Since(start))
	}
	client.CloseNow()
}

func TestForeignOriginsAreRefused(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := Accept(w, r, AcceptOptions{OriginPatterns: []string{"good.example"}}); err == nil {
			c.CloseNow()
		}
	}))
	defer srv.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for origin, status := range map[string]int{"https://good.example": 101, "https://bad.example": 403, "null": 403, "": 101, srv.URL: 101} {
		h := http.Header{}
		if origin != "" {
			h.Set("Origin", origin)
		}
		c, resp, err := Dial(t.Context(), srv.URL, DialOptions{HTTPClient: &http.Client{Transport: tr}, Header: h})
		if resp == nil || resp.StatusCode != status {
			t.Errorf("%q: %v, %v", origin, resp, err)
		}
		if err == nil {
			c.CloseNow()
		}
	}
}

// scripted is a line's lower end that gives pieces to read and records writes.
type scripted struct {
	pieces [][]byte
	end    error
	asked  []int
	wrote  []string
	fail   error
}

func (s *scripted) Read(p []byte) (int, error) {
	s.asked = append(s.asked, len(p))
	if len(s.pieces) == 0 {
		return 0, s.end
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}
func (s *scripted) Write(p []byte) (int, error) {
	s.wrote = append(s.wrote, string(p))
	return len(p), s.fail
}
func (s *scripted) Close() error { return nil }

func TestLineReads(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789"), 5000)
	s := &scripted{pieces: [][]byte{all[:10], all[10:20], all[20:40000], all[40000:]}, end: errors.New("the end")}
	l := newFrameConn(socket.New(s, nil), nil)
	var got []byte
	p := make([]byte, 10)
	for {
		n, err := l.Read(p)
		got = append(got, p[:n]...)
		if err != nil {
			if err != s.end {
				t.Error(err)
			}
			break
		}
	}
	if !bytes.Equal(got, all) {
		t.Errorf("%d bytes", len(got))
	}
	if l.readBuf != nil {
		t.Error("the buffer is kept")
	}
	if _, err := newFrameConn(socket.New(&scripted{end: io.EOF}, nil), nil).Read(p); err != io.EOF {
		t.Error(err)
	}
}

// What the client masks in pieces arrives whole.
func TestLargeMessagesOfClients(t *testing.T) {
	server, client, _ := pair(t)
	var messages [][]byte
	for _, n := range []int{1, 7, 65520, 65519, 65521, 3, 65536, 131071, 500_001, 0, 125, 126, 65535} {
		m := make([]byte, n)
		for i := range m {
			m[i] = byte(i * 7)
		}
		messages = append(messages, m)
	}
	sent := make(chan error, 1)
	go func() { sent <- client.Write(t.Context(), websocket.MessageBinary, messages...) }()
	for i, m := range messages {
		if kind, b, err := server.Read(context.Background()); err != nil || kind != websocket.MessageBinary || !bytes.Equal(b, m) {
			t.Fatalf("message %d: %v, %d bytes, %v", i, kind, len(b), err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// A large message leaves in several frames: whoever waits is told of each that others follow, and what the library has to say
// leaves in between.
func TestLargeMessagesLeaveInPieces(t *testing.T) {
	for _, client := range []bool{false, true} {
		s := &scripted{}
		c := &Conn{frameConn: newFrameConn(socket.New(s, nil), nil), client: client}
		ping := string(frame(0x89, client, []byte("ping")))
		c.SetOnProgress(func() {
			if _, err := c.frameConn.Write([]byte(ping)); err != nil {
				t.Error(err)
			}
		})
		small, large := []byte("small"), bytes.Repeat([]byte("0123456789abcdef"), 3*frameBytes/16+1)
		if err := c.Write(t.Context(), websocket.MessageBinary, small, large, small); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range s.wrote {
			if b == ping {
				got = append(got, "ping")
				continue
			}
			for rest := []byte(b); len(rest) > 0; {
				h, ok := parseHeader(rest)
				if !ok || h.masked != client || len(rest) < h.size+int(h.length) {
					t.Fatalf("%+v of %d bytes", h, len(rest))
				}
				got = append(got, fmt.Sprintf("%02x %d", h.first, h.length))
				rest = rest[h.size+int(h.length):]
			}
		}
		want := []string{"82 5", "ping", "02 65536", "ping", "00 65536", "ping", "00 65536", "ping", "80 16", "82 5"}
		if !slices.Equal(got, want) {
			t.Errorf("a client: %t: %q", client, got)
		}
	}
}

// A write that makes no progress ends with its context, and the connection with it.
func TestWriteEndsWithItsContext(t *testing.T) {
	server, client, _ := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() {
		for {
			if err := server.Write(ctx, websocket.MessageText, make([]byte, 1<<20)); err != nil {
				got <- err
				return
			}
		}
	}()
	_, _, _ = client.Read(t.Context())
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := server.Write(ctx, websocket.MessageText, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWriteFails(t *testing.T) {
	for _, size := range []int{1, writeBytes, 10 * writeBytes} {
		for _, client := range []bool{false, true} {
			s := &scripted{fail: io.ErrClosedPipe}
			c := &Conn{frameConn: newFrameConn(socket.New(s, nil), nil), client: client}
			if err := c.Write(t.Context(), websocket.MessageText, make([]byte, size), make([]byte, size)); err != io.ErrClosedPipe {
				t.Error(err)
			}
			if len(s.wrote) != 1 {
				t.Errorf("%d writes, the first of which failed", len(s.wrote))
			}
		}
	}
}

func TestMore(t *testing.T) {
	for name, turn := range map[string]func(server, client *Conn) (from, to *Conn){
		"at the client": func(server, client *Conn) (from, to *Conn) { return server, client },
		"at the server": func(server, client *Conn) (from, to *Conn) { return client, server },
	} {
		t.Run(name, func(t *testing.T) {
			server, client, _ := pair(t)
			from, to := turn(server, client)
			if err := from.Write(t.Context(), websocket.MessageText, []byte("a"), []byte("b"), nil, []byte("c")); err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				if _, _, err := to.Read(context.Background()); err != nil {
					t.Fatal(err)
				}
				if more := to.Buffered(); more != (i < 3) {
					t.Errorf("after message %d: %v", i, more)
				}
			}
		})
	}
}
