package rpc

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// A byte stream over a socket reads that itself; one over anything else is read as it is.
func TestAStreamReadsItsSocket(t *testing.T) {
	t.Parallel()
	for over, want := range map[string]bool{"tcp": true, "stream": false} {
		a, b := transports[over](t)
		for _, tr := range []Transport{a, b} {
			if got := tr.(*streamTransport).sock.NonBlocking(); got != want {
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
		a, b := transports[over](t)
		var all []byte
		for _, n := range []int{1, 20_000, 10, 16 << 10, 300_000, 5} {
			all = append(all, frameOf(t, "call q=1 to=cap:0 echo text="+strings.Repeat("x", n))...)
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
		if s := b.(*streamTransport); over == "tcp" && (s.buf != nil || s.pooled != nil) {
			t.Errorf("it holds %d bytes", cap(s.buf))
		}
	}
}
