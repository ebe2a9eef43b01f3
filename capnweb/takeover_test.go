package capnweb_test

import (
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/until"
)

// Another reader takes over while a handler does not return, and not while a message is still being taken in.
func TestAnotherReaderTakesOverInOrder(t *testing.T) {
	t.Parallel()
	p := serve(t, capnweb.NewMethods(map[string]any{
		"slow": func(c *capnweb.Call) int { // it keeps the reader until somebody else has read on
			read := c.Conn().Stats().MessagesIn
			until.True(t, "another reads", func() bool { return c.Conn().Stats().MessagesIn > read })
			return 1
		},
		"size": func(b []byte) int { return len(b) },
	}))
	main := p.client.Main()
	defer main.Release()
	for range 2 {
		slow, size := main.Call(bg, "slow"), main.Call(bg, "size", make([]byte, 3<<20))
		if v := await(t, slow); v != 1.0 {
			t.Errorf("slow: %v", v)
		}
		if v := await(t, size); v != float64(3<<20) {
			t.Errorf("size: %v", v)
		}
		slow.Release()
		size.Release()
	}
}
