// Connections that are dialed by somebody else's code, as pgx's are.

package socket

import (
	"context"
	"net"
	"sync"
)

// Dial is how connections are made.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer dials as dial does, and has plain sockets read and written as a Conn reads and writes them.
func Dialer(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &directConn{Conn: c, direct: New(c, c)}, nil
	}
}

// directConn is a network connection with another way to read and write. Like any net.Conn it may be read and written by several
// goroutines at once, each of which has its turn: pgx, when it gives a connection up, reads it to its end beside a read that
// still waits.
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
