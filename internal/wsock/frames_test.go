// Bytes into frames and messages, in whatever pieces they come.

package wsock

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/socket"
)

// frame writes a frame of any kind.
func frame(first byte, masked bool, payload []byte) []byte {
	var b []byte
	second, size := byte(0), len(payload)
	if masked {
		second = 0x80
	}
	switch {
	case size < 126:
		b = append(b, first, second|byte(size))
	case size < 1<<16:
		b = append(b, first, second|126, byte(size>>8), byte(size))
	default:
		b = append(b, first, second|127, 0, 0, 0, 0, byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
	}
	if !masked {
		return append(b, payload...)
	}
	b = append(b, 1, 2, 3, 4)
	at := len(b)
	b = append(b, payload...)
	xor(b[at:], 0x04030201)
	return b
}

func TestFrames(t *testing.T) {
	for _, masked := range []bool{false, true} {
		var all []byte
		ends := map[int]bool{}
		for _, size := range []int{0, 1, 125, 126, 300, 65535, 65536, 2} {
			for _, first := range []byte{0x81, 0x89, 0x01, 0x8a, 0x80, 0x88} {
				all = append(all, frame(first, masked, bytes.Repeat([]byte{0x81}, size))...)
				ends[len(all)] = true
			}
		}
		for _, step := range []int{1, 2, 3, 7, 100, 512, 100_000} {
			var f frameTracker
			for at := 0; at < len(all); {
				n := f.consume(all[at:min(at+step, len(all))])
				at += n
				if n == 0 || f.atBoundary() != ends[at] {
					t.Fatalf("masked %v, %d bytes at once: it takes %d and stands at %d", masked, step, n, at)
				}
			}
		}
	}
}

// Frames of every kind, whole or in parts, arrive as the messages that they are, however the bytes come.
func TestMessagesInAnyPieces(t *testing.T) {
	var all []byte
	var want []string
	say := func(s string, masked bool) {
		want = append(want, s)
		all = append(all, frame(0x81, masked, []byte(s))...)
		all = append(all, frame(0x89, masked, []byte("ping"))...)
		want = append(want, s+s+s)
		all = append(all, frame(0x01, masked, []byte(s))...)
		all = append(all, frame(0x8a, masked, nil)...)
		all = append(all, frame(0x00, masked, []byte(s))...)
		all = append(all, frame(0x80, masked, []byte(s))...)
	}
	for _, n := range []int{0, 1, 100, 126, 511, 512, 513, 5000, 16 << 10, 20000, 70000} {
		say(strings.Repeat("x", n), true)
	}
	all = append(all, frame(0x88, true, []byte{0x0b, 0xb8, 'b', 'y', 'e'})...)
	all = append(all, frame(0x81, true, []byte("after the end"))...)
	for _, step := range []int{13, 511, 512, 513, 4096, 16 << 10, 1 << 20} {
		s := &scripted{end: io.EOF}
		for rest := all; len(rest) > 0; {
			n := min(step, len(rest))
			s.pieces, rest = append(s.pieces, bytes.Clone(rest[:n])), rest[n:]
		}
		c := acceptOver(t, s)
		for i, m := range want {
			kind, b, err := c.Read(context.Background())
			if err != nil || kind != websocket.MessageText || string(b) != m {
				t.Fatalf("%d bytes at once, message %d: %v, %d bytes for %d, %v", step, i, kind, len(b), len(m), err)
			}
		}
		_, b, err := c.Read(context.Background())
		if code, reason, ok := Closed(err); !ok || code != 3000 || reason != "bye" {
			t.Fatalf("%d bytes at once, at the end: %q, %v", step, b, err)
		}
		if _, b, err := c.Read(context.Background()); err == nil {
			t.Fatalf("%d bytes at once, after the end: %q", step, b)
		}
		c.CloseNow()
	}
}

// What comes in one piece, waited for or not, is not given to the library: there is none here.
func TestMessagesPassTheLibraryBy(t *testing.T) {
	var pieces [][]byte
	var want []string
	for _, n := range []int{0, 1, 300, 511, 512, 600, 5000, readBufBytes - 8} {
		m := strings.Repeat("x", n)
		want = append(want, m, m, "y")
		pieces = append(pieces, frame(0x81, true, []byte(m)), append(frame(0x81, true, []byte(m)), frame(0x81, true, []byte("y"))...))
	}
	c := &Conn{frameConn: newFrameConn(socket.New(&scripted{pieces: pieces, end: io.EOF}, nil), nil), limit: -1}
	for i, m := range want {
		if _, b, err := c.Read(context.Background()); err != nil || string(b) != m {
			t.Fatalf("message %d: %d bytes for %d, %v", i, len(b), len(m), err)
		}
	}
	if c.frameConn.readBuf != nil {
		t.Error("an idle connection keeps a large buffer")
	}
}

// acceptOver answers a handshake over a script.
func acceptOver(t *testing.T, s *scripted) *Conn {
	t.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="} {
		r.Header.Set(name, value)
	}
	c, err := Accept(&hijackable{httptest.NewRecorder(), s}, r, AcceptOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type hijackable struct {
	*httptest.ResponseRecorder
	s *scripted
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return scriptedConn{s: h.s}, bufio.NewReadWriter(bufio.NewReader(h.s), bufio.NewWriter(h.s)), nil
}

type scriptedConn struct {
	net.Conn
	s *scripted
}

func (c scriptedConn) Read(p []byte) (int, error)  { return c.s.Read(p) }
func (c scriptedConn) Write(p []byte) (int, error) { return c.s.Write(p) }
func (c scriptedConn) Close() error                { return nil }

// FuzzFrames feeds bytes in two pieces: it must stand where it stands when they come in one.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x81\x01a\x89\x00\x01\xfe\x00\x01mask"), 3)
	f.Add([]byte("\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff"), 5)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if at < 0 || at > len(b) {
			return
		}
		run := func(f *frameTracker, b []byte) {
			for len(b) > 0 {
				b = b[f.consume(b):]
			}
		}
		var one, two frameTracker
		run(&one, b)
		run(&two, b[:at])
		run(&two, b[at:])
		if one.skip != two.skip || one.n != two.n {
			t.Fatal("it depends on the pieces")
		}
	})
}

// FuzzRead feeds bytes to a connection: what is read past the library must be what the library would have read.
func FuzzRead(f *testing.F) {
	f.Add(append(frame(0x81, true, []byte("hello")), frame(0x82, true, make([]byte, 600))...), 7)
	f.Add(append(frame(0x89, true, []byte("p")), frame(0x01, true, []byte("a"))...), 1)
	f.Add(frame(0x81, false, []byte("unmasked")), 100)
	f.Add(append(frame(0x88, true, nil), frame(0x81, true, []byte("late"))...), 3)
	f.Add(frame(0xc1, true, []byte("reserved")), 3)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		if step < 1 {
			return
		}
		read := func(past bool) (got []string) {
			s := &scripted{end: io.EOF}
			for rest := b; len(rest) > 0; {
				n := min(step, len(rest))
				s.pieces, rest = append(s.pieces, bytes.Clone(rest[:n])), rest[n:]
			}
			c := acceptOver(t, s)
			defer c.CloseNow()
			c.SetReadLimit(2000)
			for {
				c.readFailed = c.readFailed || !past
				kind, m, err := c.Read(context.Background())
				if err != nil {
					return got
				}
				got = append(got, kind.String()+string(m))
			}
		}
		if a, b := read(true), read(false); !slices.Equal(a, b) {
			t.Fatalf("%q, by the library alone %q", a, b)
		}
	})
}
