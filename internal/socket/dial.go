package socket

import (
	"context"
	"net"
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
		return dialed{c, New(c, c)}, nil
	}
}

// dialed is a network connection with another way to read and write.
type dialed struct {
	net.Conn
	by *Conn
}

func (d dialed) Read(p []byte) (int, error)  { return d.by.Read(p) }
func (d dialed) Write(p []byte) (int, error) { return d.by.Write(p) }
