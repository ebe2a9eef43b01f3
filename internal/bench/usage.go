package main

// What a server uses: CPU, and bytes written to disk; and what a client sends and receives.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/internal/measure"
)

// cpu is how long the server has computed.
func (r *rig) cpu() (time.Duration, error) {
	if r.pid == 0 {
		return 0, errors.New("what a server costs is measured of a process of its own: not with --in-process")
	}
	return measure.CPU(r.pid)
}

// written is how many bytes the server has written: nearly all to its database's files.
func (r *rig) written() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", r.pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), "\nwchar: ")
	line, _, _ := strings.Cut(after, "\n")
	return strconv.ParseInt(line, 10, 64)
}

// traffic counts what goes over a client's connections.
type traffic struct{ sent, received atomic.Int64 }

// dial is a client.Config's DialContext.
func (t *traffic) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, t}, nil
}

type countedConn struct {
	net.Conn
	traffic *traffic
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(int64(n))
	return n, err
}
