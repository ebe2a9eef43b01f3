// A client that does not wait for the end of the handshake.

package rpc

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// What arrives together with the request, or while it is answered, is the first message and is not lost.
func TestMessageBehindHandshake(t *testing.T) {
	t.Parallel()
	ran := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tr, err := Accept(w, r, AcceptOptions{})
		if err != nil {
			ran <- err
			return
		}
		ran <- NewConn(tr, Config{Bootstrap: newTestObject("boot")}).Run(context.Background())
	}))
	t.Cleanup(srv.Close)
	c, err := new(net.Dialer).DialContext(testContext(t), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(testDeadline)); err != nil {
		t.Fatal(err)
	}
	boot := frameOf(t, "bootstrap q=0")
	request := "GET / HTTP/1.1\r\nHost: mooring\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: " + SubprotocolPlain + "\r\n\r\n"
	frame := append([]byte{0x82, 0x80 | byte(len(boot)), 0, 0, 0, 0}, boot...) // binary, final, masked with zeros
	if _, err := c.Write(append([]byte(request), frame...)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the handshake: %v, %v", resp, err)
	}
	var header [2]byte
	if _, err := io.ReadFull(in, header[:]); err != nil || header[0] != 0x82 {
		t.Errorf("instead of the answer to bootstrap: frame %x, %v", header[0], err)
	}
	c.Close()
	<-ran
}
