package e2e

// Strangers on the wire: cut messages, garbage, too much of everything.

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// rawWebSocket does a WebSocket handshake by hand and gives the connection.
func rawWebSocket(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "GET /capnp HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: capnp\r\n\r\n", addr)
	// No buffered reader may swallow what comes after the headers.
	head := make([]byte, 0, 1024)
	for b := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); head = append(head, b...) {
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatalf("handshake: %v after %q", err, head)
		}
	}
	if !strings.HasPrefix(string(head), "HTTP/1.1 101 ") {
		t.Fatalf("handshake: %s", head)
	}
	return conn
}

// frame is a masked WebSocket frame's head with a zero mask, so that the payload
// goes as it is.
func frame(opcode byte, length uint64) []byte {
	f := []byte{0x80 | opcode}
	switch {
	case length < 126:
		f = append(f, 0x80|byte(length))
	case length < 1<<16:
		f = binary.BigEndian.AppendUint16(append(f, 0x80|126), uint16(length))
	default:
		f = binary.BigEndian.AppendUint64(append(f, 0x80|127), length)
	}
	return append(f, 0, 0, 0, 0)
}

func TestGarbageOnTheWire(t *testing.T) {
	t.Parallel()
	srv := startServer(t, serverConfig{})
	ref := makeSession(t, srv)
	w := newWriter(t, ref, srv.owner())
	noise := make([]byte, 4096)
	_, _ = rand.Read(noise)
	// A Cap'n Proto frame whose segment table promises a gibibyte, one with a million
	// segments, and one of a segment whose root pointer leads outside.
	huge := binary.LittleEndian.AppendUint32(make([]byte, 4), 1<<27)
	many := append(binary.LittleEndian.AppendUint32(nil, 1<<20-1), noise...)
	outside := append(binary.LittleEndian.AppendUint32(make([]byte, 4), 1), 0xfc, 0xff, 0xff, 0x7f, 1, 0, 1, 0)
	var ended sync.WaitGroup
	for name, bytes := range map[string][]byte{
		"truncated message":  append(frame(2, 1000), noise[:10]...),
		"noise":              append(frame(2, uint64(len(noise))), noise...),
		"empty message":      frame(2, 0),
		"text message":       append(frame(1, 5), "hello"...),
		"oversize message":   append(frame(2, 1<<30), noise...),
		"negative length":    append(frame(2, 1<<63), noise...),
		"reserved opcode":    append(frame(7, 4), "abcd"...),
		"huge segment":       append(frame(2, uint64(len(huge))), huge...),
		"many segments":      append(frame(2, uint64(len(many))), many...),
		"root out of bounds": append(frame(2, uint64(len(outside))), outside...),
		"half a frame head":  {0x82},
	} {
		conn := rawWebSocket(t, srv.address())
		if _, err := conn.Write(bytes); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "truncated message" || name == "half a frame head" {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		w.must(put("message/m", map[string]any{"after": name}))
		ended.Go(func() { // the server ends the connection, and nothing else
			if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("%s: the connection stays open", name)
			}
		})
	}
	ended.Wait()
	raw, err := net.DialTimeout("tcp", srv.address(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(patience))
	if _, err := raw.Write(noise); err != nil {
		t.Error(err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(raw), nil); err == nil && r.StatusCode != http.StatusBadRequest {
		t.Errorf("noise instead of HTTP: %s", r.Status)
	}
	for _, path := range []string{"/capnp", "/nothing", "/capnp/../healthz"} {
		if code, _ := srv.get(path); code == 0 || code >= 500 {
			t.Errorf("GET %s without a handshake: %d", path, code)
		}
	}
	srv.healthy()
	if log := readLog(t, view(t, openClient(t), ref)); len(log) != 12 {
		t.Errorf("%d events, want 12", len(log))
	}
}
