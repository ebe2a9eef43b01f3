package main

// The floor: the WebSocket library alone, one frame a call, with buffers that
// are used again.

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// serveWebSocket serves HTTP with a handler of WebSocket requests.
func serveWebSocket(handler http.HandlerFunc) func(net.Listener) error {
	return func(ln net.Listener) error { return http.Serve(ln, handler) }
}

// oneShot makes no connections but the WebSocket's.
var oneShot = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func dialWebSocket(ctx context.Context, address string) (*websocket.Conn, error) {
	c, _, err := websocket.Dial(ctx, "ws://"+address, &websocket.DialOptions{
		HTTPClient: oneShot, CompressionMode: websocket.CompressionDisabled,
	})
	return c, err
}

func acceptWebSocket(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	return websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
}

func rawServe(w http.ResponseWriter, r *http.Request) {
	c, err := acceptWebSocket(w, r)
	if err != nil {
		return
	}
	defer c.CloseNow()
	buf := make([]byte, frameBytes)
	for {
		n, err := readFrame(c, buf)
		if err != nil {
			return
		}
		if c.Write(context.Background(), websocket.MessageBinary, buf[:n]) != nil {
			return
		}
	}
}

// frameBytes is the largest message that is read.
const frameBytes = 1024

// readFrame reads a message that fits in buf.
func readFrame(c *websocket.Conn, buf []byte) (int, error) {
	_, r, err := c.Reader(context.Background())
	if err != nil {
		return 0, err
	}
	for n := 0; ; {
		k, err := r.Read(buf[n:])
		n += k
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if n == len(buf) {
			return n, io.ErrShortBuffer
		}
	}
}

type rawLink struct {
	c   *websocket.Conn
	buf []byte
}

func dialRaw(ctx context.Context, address string) (link, error) {
	c, err := dialWebSocket(ctx, address)
	if err != nil {
		return nil, err
	}
	return &rawLink{c, make([]byte, frameBytes)}, nil
}

func (l *rawLink) echo() error {
	if err := l.c.Write(context.Background(), websocket.MessageBinary, message); err != nil {
		return err
	}
	return l.answer()
}

func (l *rawLink) answer() error {
	n, err := readFrame(l.c, l.buf)
	if err != nil {
		return err
	}
	return checked(l.buf[:n])
}

// flood has one goroutine write and one read.
func (l *rawLink) flood(flight int, c *clock) error {
	sent := make(chan time.Time, flight) // one entry an unanswered frame
	wrote := make(chan error, 1)
	end := c.end
	go func() {
		defer close(sent)
		for now := time.Now(); now.Before(end); now = time.Now() {
			sent <- now
			if err := l.c.Write(context.Background(), websocket.MessageBinary, message); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	for c.last = range sent {
		if err := l.answer(); err != nil {
			l.c.CloseNow()
			for range sent { // until the writer is gone
			}
			return errors.Join(err, <-wrote)
		}
		c.tick()
	}
	return <-wrote
}

func (l *rawLink) close() error { return l.c.CloseNow() }
