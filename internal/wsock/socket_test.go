package wsock

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// answer takes the next connection, answers its handshake and says more in the same breath.
func answer(l net.Listener, more []byte) (net.Conn, error) {
	c, err := l.Accept()
	if err != nil {
		return nil, err
	}
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	head := fmt.Sprintf("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	_, err = c.Write(append([]byte(head), more...))
	return c, err
}

// A client reads its socket past package net/http, and what that has read of it too.
func TestBytesAfterTheResponse(t *testing.T) {
	for _, sizes := range [][]int{{}, {1}, {3000, 2}, {5000, 40000, 1}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var early []byte
		for i, n := range sizes {
			early = append(early, frame(0x82, false, []byte(strings.Repeat(string(rune('a'+i)), n)))...)
		}
		peer, failed := make(chan net.Conn, 1), make(chan error, 1)
		go func() {
			c, err := answer(l, early)
			failed <- err
			peer <- c
		}()
		c, _, err := Dial(t.Context(), "ws://"+l.Addr().String(), DialOptions{HTTPClient: http.DefaultClient})
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseNow()
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		theirs := <-peer
		defer theirs.Close()
		if !c.frameConn.inner.NonBlocking() {
			t.Fatal("the socket is not read past package net/http")
		}
		if _, err := theirs.Write(frame(0x82, false, []byte("the last"))); err != nil {
			t.Fatal(err)
		}
		for i, n := range append(sizes, len("the last")) {
			kind, b, err := c.Read(context.Background())
			if err != nil || kind != websocket.MessageBinary || len(b) != n {
				t.Fatalf("message %d of %v: %d bytes, %v", i, sizes, len(b), err)
			}
			if want := rune('a' + i); i < len(sizes) && strings.Trim(string(b), string(want)) != "" || i == len(sizes) && string(b) != "the last" {
				t.Errorf("message %d of %v is another", i, sizes)
			}
		}
		if l := c.frameConn; l.waitBuf != nil || l.readBuf != nil {
			t.Error("who has read everything holds a buffer")
		}
	}
}

// What cannot be written at once is written before all that follows, be it nothing or a ping, and nobody
// waited for it.
func TestTryWrite(t *testing.T) {
	server, client := connected(t, (*httptest.Server).Start)
	for name, ends := range map[string][2]*Conn{"server": {server, client}, "client": {client, server}} {
		for then, follow := range map[string]func(from, to *Conn) error{
			"nothing": func(from, _ *Conn) error { return from.Write(context.Background(), websocket.MessageBinary) },
			"a ping": func(from, to *Conn) error {
				read := make(chan struct{})
				go func() { // the pong, and then a message
					defer close(read)
					_, _, _ = from.Read(context.Background())
				}()
				err := from.Ping(t.Context())
				err = errors.Join(err, to.Write(context.Background(), websocket.MessageBinary, nil))
				<-read
				return err
			},
		} {
			t.Run(name+" and "+then, func(t *testing.T) { writeInParts(t, ends[0], ends[1], follow) })
		}
	}
	server.frameConn.mu.Lock() // as a pong being written does
	if tried, _, err := server.TryWrite(websocket.MessageText, nil); tried || err != nil {
		t.Errorf("tried beside another, %v", err)
	}
	server.frameConn.mu.Unlock()
	client.CloseNow()
	for err := error(nil); err == nil; { // the first may go into the void
		_, _, err = client.TryWrite(websocket.MessageText, nil)
	}
}

func writeInParts(t *testing.T, from, to *Conn, follow func(from, to *Conn) error) {
	message := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 10_000) }
	n := 0
	for ; ; n++ {
		tried, done, err := from.TryWrite(websocket.MessageBinary, message(n))
		if !tried || err != nil {
			t.Fatalf("message %d: tried: %t, %v", n, tried, err)
		}
		if !done {
			break
		}
	}
	if tried, _, err := from.TryWrite(websocket.MessageBinary, message(0)); tried || err != nil {
		t.Errorf("tried within a message, %v", err)
	}
	followed := make(chan error, 1)
	go func() { followed <- follow(from, to) }()
	for i := range n + 1 {
		kind, b, err := to.Read(context.Background())
		if err != nil || kind != websocket.MessageBinary || !bytes.Equal(b, message(i)) {
			t.Fatalf("message %d of %d: %d bytes, %v", i, n+1, len(b), err)
		}
	}
	read := make(chan struct{})
	go func() { // the ping, if there is one, and what comes after it
		defer close(read)
		if kind, b, err := to.Read(context.Background()); kind != websocket.MessageText || string(b) != "after" {
			t.Errorf("%q, %v", b, err)
		}
	}()
	if err := <-followed; err != nil {
		t.Error(err)
	}
	if tried, done, err := from.TryWrite(websocket.MessageText, []byte("after")); !tried || !done || err != nil {
		t.Errorf("all is read, and trying gives %t, %t, %v", tried, done, err)
	}
	<-read
}

// tripper is a transport of HTTP of which nothing is known.
type tripper struct{ http.RoundTripper }

// What another's transport may do between the response's body and the connection is not passed by.
func TestOnlyPackageNetsTransportIsPassedBy(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := Accept(w, r, AcceptOptions{}); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	for known, transport := range map[bool]http.RoundTripper{true: srv.Client().Transport, false: tripper{srv.Client().Transport}} {
		c, _, err := Dial(t.Context(), srv.URL, DialOptions{HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseNow()
		if c.frameConn.inner.NonBlocking() != known {
			t.Errorf("%T: the socket is read past it: %t", transport, !known)
		}
	}
}
