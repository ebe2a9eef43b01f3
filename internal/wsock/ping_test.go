package wsock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/until"
)

// rawPeer gives the server's end of a WebSocket, and the client's bare connection.
func rawPeer(t *testing.T) (server *Conn, peer net.Conn, from *bufio.Reader) {
	t.Helper()
	accepted := make(chan *Conn, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r, AcceptOptions{})
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}))
	t.Cleanup(srv.Close)
	peer, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	if _, err := io.WriteString(peer, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	from = bufio.NewReader(peer)
	if _, err := http.ReadResponse(from, nil); err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { server.CloseNow() })
	return server, peer, from
}

// libraryWaits reports whether a goroutine waits for input in the library's own loop.
func libraryWaits() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "coder/websocket.(*Conn).readLoop")
}

// Whole pings are answered, and pongs that nobody waits for passed over, by a reader that waits past the library all the
// time; what does not come whole is the library's, and answered too.
func TestPingsAreAnswered(t *testing.T) {
	long := bytes.Repeat([]byte("x"), maxControl)
	for name, c := range map[string]struct {
		pieces  [][]byte
		pongs   []string
		library bool
	}{
		"a ping":           {pieces: [][]byte{frame(0x89, true, []byte("one"))}, pongs: []string{"one"}},
		"an empty one":     {pieces: [][]byte{frame(0x89, true, nil)}, pongs: []string{""}},
		"the longest":      {pieces: [][]byte{frame(0x89, true, long)}, pongs: []string{string(long)}},
		"two at once":      {pieces: [][]byte{append(frame(0x89, true, []byte("one")), frame(0x89, true, []byte("two"))...)}, pongs: []string{"one", "two"}},
		"pongs in between": {pieces: [][]byte{frame(0x8a, true, []byte("12345678")), frame(0x89, true, []byte("one")), frame(0x8a, true, nil)}, pongs: []string{"one"}},
		"in two pieces":    {pieces: [][]byte{frame(0x89, true, []byte("one"))[:7], frame(0x89, true, []byte("one"))[7:]}, pongs: []string{"one"}, library: true},
	} {
		t.Run(name, func(t *testing.T) {
			server, peer, from := rawPeer(t)
			activity := make(chan struct{}, 100)
			server.SetOnActivity(func() { activity <- struct{}{} })
			read := make(chan []byte, 1)
			go func() {
				_, b, err := server.Read(context.Background())
				if err != nil {
					t.Error(err)
				}
				read <- bytes.Clone(b)
			}()
			for _, p := range c.pieces {
				if _, err := peer.Write(p); err != nil {
					t.Fatal(err)
				}
				<-activity
			}
			for _, want := range c.pongs {
				got := make([]byte, 2+len(want))
				if _, err := io.ReadFull(from, got); err != nil || got[0] != 0x8a || int(got[1]) != len(want) || string(got[2:]) != want {
					t.Errorf("%q is answered with %x, %v", want, got, err)
				}
			}
			until.True(t, fmt.Sprintf("that it waits in the library is %t", c.library), func() bool { return libraryWaits() == c.library })
			if _, err := peer.Write(frame(0x82, true, []byte("after"))); err != nil {
				t.Fatal(err)
			}
			if b := <-read; string(b) != "after" {
				t.Errorf("%q was read", b)
			}
		})
	}
}

// A pong that has to wait for another write, of a peer that reads nothing even, keeps nobody from reading; of those that wait
// the last one is written.
func TestPongsWaitAlone(t *testing.T) {
	server, peer, from := rawPeer(t)
	read := make(chan string, 10)
	go func() {
		for {
			_, b, err := server.Read(context.Background())
			if err != nil {
				close(read)
				return
			}
			read <- string(b)
		}
	}()
	server.frameConn.mu.Lock()
	for _, name := range []string{"one", "two", "three"} {
		if _, err := peer.Write(append(frame(0x89, true, []byte(name)), frame(0x82, true, []byte(name))...)); err != nil {
			t.Fatal(err)
		}
		if got := <-read; got != name {
			t.Errorf("%q was read", got)
		}
		if name == "one" {
			until.True(t, "its pong is being written", func() bool {
				p := &server.frameConn.pings
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.ponging && !p.due
			})
		}
	}
	server.frameConn.mu.Unlock()
	for last := ""; last != "three"; {
		var header [2]byte
		if _, err := io.ReadFull(from, header[:]); err != nil || header[0] != 0x8a {
			t.Fatalf("%x, %v", header, err)
		}
		payload := make([]byte, header[1])
		if _, err := io.ReadFull(from, payload); err != nil {
			t.Fatal(err)
		}
		if last = string(payload); last == "two" {
			t.Error("a ping is answered that another followed")
		}
	}
	written := make(chan error, 1)
	go func() { written <- server.Write(context.Background(), websocket.MessageBinary, make([]byte, 64<<20)) }()
	until.True(t, "it is being written", func() bool { return !server.frameConn.mu.TryLock() || unlocked(&server.frameConn.mu) })
	for i := range 5 {
		if _, err := peer.Write(append(frame(0x89, true, nil), frame(0x82, true, []byte{'0' + byte(i)})...)); err != nil {
			t.Fatal(err)
		}
		if got := <-read; got != string(rune('0'+i)) {
			t.Errorf("%q was read", got)
		}
	}
	peer.Close()
	if err := <-written; err == nil {
		t.Error("64 MB were written to nobody")
	}
	server.CloseNow()
	for range read {
	}
}

// unlocked releases a lock, and is false.
func unlocked(mu *sync.Mutex) bool {
	mu.Unlock()
	return false
}

// Control frames that the protocol forbids end the connection, as the library has it.
func TestWrongPings(t *testing.T) {
	for name, b := range map[string][]byte{
		"too long":   frame(0x89, true, bytes.Repeat([]byte("x"), maxControl+1)),
		"fragmented": frame(0x09, true, []byte("x")),
		"unmasked":   frame(0x89, false, []byte("x")),
		"reserved":   frame(0xc9, true, []byte("x")),
	} {
		t.Run(name, func(t *testing.T) {
			server, peer, _ := rawPeer(t)
			if _, err := peer.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, _, err := server.Read(context.Background()); err == nil {
				t.Error("it is read on")
			}
		})
	}
}

// A ping ends with its pong, when the connection is closed, and with its context; and nothing is left of it.
func TestPingEnds(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){"plain": (*httptest.Server).Start, "TLS": (*httptest.Server).StartTLS} {
		server, client := connected(t, start)
		for who, ends := range map[string][2]*Conn{"server": {server, client}, "client": {client, server}} {
			t.Run(name+" "+who, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				if err := ends[0].Ping(ctx); !errors.Is(err, context.DeadlineExceeded) { // nobody reads
					t.Error(err)
				}
				if ends[0].frameConn.pings.waiting != nil {
					t.Error("it waits still")
				}
			})
		}
		for _, c := range []*Conn{server, client} {
			go func() { _, _, _ = c.Read(context.Background()) }()
		}
		for range 3 {
			if err := errors.Join(server.Ping(t.Context()), client.Ping(t.Context())); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	server, _, _ := rawPeer(t) // which answers nothing
	ended := make(chan error, 1)
	go func() { ended <- server.Ping(t.Context()) }()
	until.True(t, "it waits", func() bool {
		p := &server.frameConn.pings
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting) == 1
	})
	server.CloseNow()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := server.Ping(t.Context()); err == nil {
		t.Error("a closed connection is pinged")
	}
}

// Many ping, and both write: every ping has its pong.
func TestPingsOfBothSides(t *testing.T) {
	server, client := connected(t, (*httptest.Server).Start)
	const each = 200
	done := make(chan error, 6)
	for _, ends := range [][2]*Conn{{server, client}, {client, server}} {
		go func() {
			for range each {
				if _, _, err := ends[0].Read(context.Background()); err != nil {
					done <- err
					return
				}
			}
			done <- nil
			_, _, _ = ends[0].Read(context.Background()) // answers to pings
		}()
		go func() {
			for i := range each {
				if err := ends[1].Write(context.Background(), websocket.MessageBinary, make([]byte, i*100)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		go func() {
			for range each {
				if err := ends[0].Ping(t.Context()); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
