// Dialer: connections that another package dials, as pgx does.

package socket

import (
	"context"
	"net"
	"sync"
)

// Dial is a function that makes connections, as net.Dialer.DialContext.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer dials with dial, and returns plain sockets that are read and written as a Conn reads and writes them.
func Dialer(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &directConn{Conn: c, direct: New(c, c)}, nil
	}
}

// directConn is a net.Conn that reads and writes through a Conn. Like any net.Conn it may be read and written by several
// goroutines at once, one at a time each: pgx, when it closes a connection, reads it to its end while another read still
// waits.
type directConn struct {
	net.Conn
	direct           *Conn
	reading, writing sync.Mutex
}

func (d *directConn) Read(p []byte) (int, error) {
	d.reading.Lock()
	defer d.reading.Unlock()
	return d.direct.Read(p)
}

func (d *directConn) Write(p []byte) (int, error) {
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.direct.Write(p)
}
