package wsock

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
)

// asked is a connection whose socket counts how often somebody asks it.
type asked struct {
	net.Conn
	times int
}

func (a *asked) SyscallConn() (syscall.RawConn, error) { return askedRaw{on: a}, nil }

type askedRaw struct {
	syscall.RawConn
	on *asked
}

func (r askedRaw) Read(func(uintptr) bool) error {
	r.on.times++
	return errors.New("no socket")
}

// A reader asks its socket before it reads what has not come yet, and not for what is at hand; with one processor never.
func TestAReaderAsksItsSocket(t *testing.T) {
	together := append(frame(0x81, true, []byte("one")), frame(0x81, true, []byte("two"))...)
	conn := &asked{}
	c := &Conn{line: newLine(&scripted{pieces: [][]byte{together}, end: io.EOF}, conn, nil), limit: -1}
	for _, want := range []string{"one", "two"} {
		if _, b, err := c.Read(context.Background()); err != nil || string(b) != want {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if want := min(runtime.GOMAXPROCS(0)/2, 1); conn.times != want {
		t.Errorf("the socket was asked %d times for two messages that came together, want %d", conn.times, want)
	}
}
