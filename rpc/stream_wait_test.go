package rpc

import (
	"context"
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"
)

// askedConn is a connection whose socket counts how often somebody asks it.
type askedConn struct {
	net.Conn
	times int
}

func (a *askedConn) SyscallConn() (syscall.RawConn, error) { return askedRaw{on: a}, nil }

type askedRaw struct {
	syscall.RawConn
	on *askedConn
}

func (r askedRaw) Read(func(uintptr) bool) error {
	r.on.times++
	return errors.New("no socket")
}

// A byte stream's reader asks its socket before it reads; with one processor never.
func TestAStreamsReaderAsksItsSocket(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer ours.Close()
	conn := &askedConn{Conn: ours}
	tr := NewStreamTransport(conn)
	theirs.Close()
	if _, err := tr.ReadBatch(context.Background()); err == nil {
		t.Error("read from a peer that is gone")
	}
	if want := min(runtime.GOMAXPROCS(0)/2, 1); conn.times != want {
		t.Errorf("the socket was asked %d times, want %d", conn.times, want)
	}
}
