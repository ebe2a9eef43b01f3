package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// streams are pairs of streams that are connected.
var streams = map[string]func(t *testing.T) (a, b *Stream){
	"stream": func(*testing.T) (a, b *Stream) {
		x, y := net.Pipe()
		return newStream(x), newStream(y)
	},
	"tcp": func(t *testing.T) (a, b *Stream) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		got := make(chan net.Conn, 1)
		go func() {
			c, _ := l.Accept()
			got <- c
		}()
		x, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return newStream(x), newStream(<-got)
	},
}

func newStream(rwc io.ReadWriteCloser) *Stream {
	s := NewStream(rwc)
	s.SetLimits(framing.Limits{MessageBytes: 8 << 20, Segments: 64}, 5*time.Second, 4*time.Second)
	return s
}

// frameOf returns a frame of one segment with at least so many bytes.
func frameOf(bytes int) []byte {
	words := (bytes + 7) / 8
	b := binary.LittleEndian.AppendUint32(make([]byte, 4, 8+8*words), uint32(words))
	for len(b) < cap(b) {
		b = append(b, byte(len(b)))
	}
	return b
}

// A byte stream over a socket reads that itself; one over anything else is read as it is.
func TestAStreamReadsItsSocket(t *testing.T) {
	t.Parallel()
	for over, want := range map[string]bool{"tcp": true, "stream": false} {
		a, b := streams[over](t)
		for _, tr := range []*Stream{a, b} {
			if got := tr.sock.NonBlocking(); got != want {
				t.Errorf("%s: read as a socket: %t", over, got)
			}
			tr.Close(peerconn.CloseNormal, "")
		}
	}
}

// Messages of all sizes arrive whole, and who waits for more over a socket holds no buffer.
func TestAnIdleStreamHoldsNoBuffer(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"tcp", "stream"} {
		a, b := streams[over](t)
		var all []byte
		for _, n := range []int{1, 20_000, 10, 16 << 10, 300_000, 5} {
			all = append(all, frameOf(n)...)
		}
		sent := make(chan error, 1)
		go func() {
			err := a.WriteBatch(context.Background(), all)
			a.Close(peerconn.CloseNormal, "")
			sent <- err
		}()
		var got []byte
		for {
			batch, err := b.ReadBatch(context.Background())
			if err != nil {
				if err != io.EOF {
					t.Error(err)
				}
				break
			}
			got = append(got, batch...)
		}
		b.Close(peerconn.CloseNormal, "")
		if err := <-sent; err != nil || !bytes.Equal(got, all) {
			t.Errorf("%s: %d bytes came of %d, %v", over, len(got), len(all), err)
		}
		if over == "tcp" && (b.buf != nil || b.pooled != nil) {
			t.Errorf("it holds %d bytes", cap(b.buf))
		}
	}
}
