//go:build unix && !race

package node

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"runtime"
	gometrics "runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/until"
)

// A connection at rest has one goroutine with a stack of 4 KB, however large it was while a ref was restored, and also when it
// answers pings: what waits for input uses less than a quarter of 8 KB, 800 bytes for calls without a check included, so that
// the collector halves it (runtime.shrinkstack).
func TestStacksOfConnectionsAtRest(t *testing.T) {
	const connections, others = 200, 10 // goroutines of others that come and go
	r := start(t, sqliteStore(t), func(c *Config) { c.RPC.PingInterval = time.Second })
	address := strings.TrimPrefix(httpOf(t, r), "http://")
	restoring, err := json.Marshal([]any{"push", []any{"pipeline", 0, []string{"restore"}, []string{r.owner.Text()}}})
	if err != nil {
		t.Fatal(err)
	}
	p := &rawPeer{t: t}
	p.bootstrap(0)
	p.restore(1, r.owner.ID, r.owner)
	for path, sent := range map[string]struct {
		frames  []byte
		answers int
	}{
		"/capnp": {frameOf(0x82, p.out), 2},
		"/rpc":   {append(frameOf(0x81, restoring), frameOf(0x81, []byte(`["pull",1]`))...), 1},
	} {
		each := int64(0)
		for range 2 { // the first time, other goroutines' stacks are given back, too
			before, goroutines := restingStacks(), runtime.NumGoroutine()
			var all []*pinger
			for range connections {
				all = append(all, newPinger(t, address, path, sent.frames, sent.answers))
			}
			until.True(t, "each has one goroutine", func() bool {
				for _, c := range all { // before the server would ping
					c.ping(t)
				}
				return runtime.NumGoroutine() <= goroutines+connections+others
			})
			each = (restingStacks() - before) / connections
			for _, c := range all {
				c.conn.Close()
			}
			until.True(t, "they have ended", func() bool { return runtime.NumGoroutine() <= goroutines+others })
		}
		if each > 5<<10 {
			t.Errorf("%s: the stacks of a connection have %d bytes", path, each)
		}
	}
}

// frameOf is a WebSocket frame of a client, masked with zeros.
func frameOf(first byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{first, 0x80 | 126}, uint16(len(payload)))
	return append(append(b, 0, 0, 0, 0), payload...)
}

// pinger is a client's end of a WebSocket, without a goroutine.
type pinger struct {
	conn net.Conn
	from *bufio.Reader
}

// newPinger opens one, sends frames and awaits the answers, each in one frame.
func newPinger(t *testing.T, address, path string, frames []byte, answers int) *pinger {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	head := "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	if _, err := conn.Write(append([]byte(head), frames...)); err != nil {
		t.Fatal(err)
	}
	p := &pinger{conn, bufio.NewReader(conn)}
	if resp, err := http.ReadResponse(p.from, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	for range answers {
		p.next(t)
	}
	return p
}

// ping sends a ping and awaits the pong.
func (p *pinger) ping(t *testing.T) {
	if _, err := p.conn.Write([]byte{0x89, 0x81, 0, 0, 0, 0, 'x'}); err != nil {
		t.Fatal(err)
	}
	for p.next(t) != 0x8a {
	}
}

// next passes over a frame of the server, and returns its first byte.
func (p *pinger) next(t *testing.T) byte {
	var header [2]byte
	_, err := io.ReadFull(p.from, header[:])
	length := int64(header[1])
	if err == nil && length == 126 {
		var long uint16
		err = binary.Read(p.from, binary.BigEndian, &long)
		length = int64(long)
	}
	if err == nil {
		_, err = io.CopyN(io.Discard, p.from, length)
	}
	if err != nil || header[0] == 0x88 {
		t.Fatalf("the server ends the connection: %v", err)
	}
	return header[0]
}

// restingStacks returns how many bytes all goroutines' stacks have when the collector has made them as small as it does.
func restingStacks() int64 {
	for range 6 {
		runtime.GC()
	}
	sample := []gometrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	gometrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
