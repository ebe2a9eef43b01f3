// sinkObject: objects that pass written chunks to a function of the program.

package capnweb

import (
	"context"
	"sync"
)

// sinkObject passes written chunks to a function of the program.
type sinkObject struct {
	sink  func(ctx context.Context, chunk any) error
	close func(reason error)

	mu      sync.Mutex
	queue   []*Call // calls in order; nil at the end if the writer has released it
	running bool
	ended   bool // close was called
}

// Serve implements Object.
func (s *sinkObject) Serve(c *Call) {
	switch c.Method() {
	case "write", "close", "abort":
		if len(c.Path()) == 1 {
			s.add(c, c.Conn())
			return
		}
	}
	c.Fail(notAFunction(c.Path()))
}

// Release implements Releaser: the writer has released it.
func (s *sinkObject) Release() {
	s.mu.Lock()
	if s.running {
		s.queue = append(s.queue, nil)
		s.mu.Unlock()
		return
	}
	s.running = true
	s.queue = append(s.queue, nil)
	s.mu.Unlock()
	s.run()
}

func (s *sinkObject) add(c *Call, conn *Conn) {
	s.mu.Lock()
	s.queue = append(s.queue, c)
	start := !s.running
	s.running = true
	s.mu.Unlock()
	if !start {
		return
	}
	if conn == nil || !conn.loop.Spawn(s.run) {
		go s.run()
	}
}

func (s *sinkObject) run() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.queue, s.running = nil, false
			s.mu.Unlock()
			return
		}
		c := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		if c == nil {
			s.end(&BrokenError{Reason: "the stream's writer has gone without closing it"})
			continue
		}
		s.do(c)
	}
}

func (s *sinkObject) do(c *Call) {
	defer c.recover()
	switch {
	case s.ended:
		c.Fail(errStreamClosed)
	case c.Method() == "close":
		s.end(nil)
		c.Return(Undefined{})
	case c.Method() == "abort":
		s.end(reasonOf(c.Args()))
		c.Return(Undefined{})
	default:
		v := any(Undefined{})
		if len(c.Args()) > 0 {
			v = c.Args()[0]
		}
		if err := s.sink(c.Context(), v); err != nil {
			s.end(err)
			c.Fail(err)
			return
		}
		c.Return(Undefined{})
	}
}

func (s *sinkObject) end(reason error) {
	if s.ended {
		return
	}
	s.ended = true
	if s.close != nil {
		guarded(func() { s.close(reason) })
	}
}
