package acpedit

// The connection: lines out, which wait in memory for an editor that does not read, and calls, whose answers come in.

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/internal/acp"
)

// maxQueued bounds the lines that are not written, in bytes.
const maxQueued = 64 << 20

// errSlow ends a connection whose editor does not read.
var errSlow = fmt.Errorf("the editor does not read: %d MiB wait for it", maxQueued>>20)

// conn is the connection, as it is written.
type conn struct {
	out  io.Writer
	fail context.CancelCauseFunc // ends all

	mu     sync.Mutex
	lines  [][]byte
	queued int // bytes of lines, and of what sessions keep
	over   bool
	calls  uint64
	open   map[uint64]func(acp.Message)

	wake   chan struct{} // has room for one
	writes chan struct{} // closed when the writer has returned
}

func newConn(out io.Writer, fail context.CancelCauseFunc) *conn {
	c := &conn{out: out, fail: fail, open: map[uint64]func(acp.Message){}, wake: make(chan struct{}, 1), writes: make(chan struct{})}
	go c.write()
	return c
}

// send queues a line.
func (c *conn) send(line []byte) { c.sendAll([][]byte{line}, 0) }

// sendAll queues lines, of which kept bytes were counted before.
func (c *conn) sendAll(lines [][]byte, kept int) {
	c.mu.Lock()
	if c.queued -= kept; !c.over {
		for _, line := range lines {
			c.lines = append(c.lines, line)
			c.queued += len(line)
		}
	}
	c.check()
	c.mu.Unlock()
	c.signal()
}

// keep counts a line that is sent later.
func (c *conn) keep(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued += n
	c.check()
}

// check ends the connection if too much waits.
func (c *conn) check() {
	if c.queued > maxQueued && !c.over {
		c.over, c.lines = true, nil
		c.fail(errSlow)
	}
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes the lines, until the connection is over and none is left, or one cannot be written.
func (c *conn) write() {
	defer close(c.writes)
	for {
		c.mu.Lock()
		lines, over := c.lines, c.over
		c.lines = nil
		c.mu.Unlock()
		if len(lines) == 0 {
			if over {
				return
			}
			<-c.wake
			continue
		}
		for _, line := range lines {
			_, err := c.out.Write(append(line, '\n'))
			c.mu.Lock()
			c.queued -= len(line)
			if err != nil {
				c.over, c.lines = true, nil
			}
			c.mu.Unlock()
			if err != nil {
				c.fail(fmt.Errorf("%w: %w", errGone, err))
				return
			}
		}
	}
}

// close writes what is left, if the editor reads.
func (c *conn) close() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.signal()
	select {
	case <-c.writes:
	case <-time.After(time.Second): // the goroutine ends with the process
	}
}

// call asks the editor something.
func (c *conn) call(method string, params any, answer func(acp.Message)) (withdraw func()) {
	c.mu.Lock()
	c.calls++
	n := c.calls
	c.open[n] = answer
	c.mu.Unlock()
	c.send(acp.Call(n, method, params))
	return func() {
		if c.answered(n) != nil {
			c.send(acp.Notify(acp.MethodCancelCall, acp.CancelCallParams{ID: strconv.AppendUint(nil, n, 10)}))
		}
	}
}

// answered returns what takes the answer to a call, once.
func (c *conn) answered(call uint64) func(acp.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := c.open[call]
	delete(c.open, call)
	return answer
}
