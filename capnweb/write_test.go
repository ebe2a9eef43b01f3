package capnweb

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// crowd is a transport at which many messages have come already. It notes how much is written at once.
type crowd struct {
	messages chan string // closed when the test has done
	left     int
	mu       sync.Mutex
	most     int
	answers  int
	all      chan struct{} // closed when all is answered
}

func (c *crowd) Read(context.Context) ([]byte, error) {
	m, ok := <-c.messages
	if !ok {
		return nil, io.EOF
	}
	c.left--
	return []byte(m), nil
}

func (c *crowd) More() bool { return c.left > 0 }

func (c *crowd) Write(_ context.Context, messages [][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := 0
	for _, m := range messages {
		size += len(m)
		if strings.HasPrefix(string(m), `["resolve",`) {
			if c.answers--; c.answers == 0 {
				close(c.all)
			}
		}
	}
	c.most = max(c.most, size)
	return nil
}

func (c *crowd) Ping(context.Context) error { return nil }
func (c *crowd) Close(int, string) error    { return nil }
func (c *crowd) RemoteAddr() string         { return "crowd" }

// Of many calls that come together, the first are answered while the others are delivered. In a bubble no time goes by
// meanwhile, so that nobody takes over from the reader, and the writer rests before they come.
func TestAnswersLeaveInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 400
		c := &crowd{messages: make(chan string, 2*calls), left: 2 * calls, answers: calls, all: make(chan struct{})}
		conn := NewConn(c, Config{Main: NewMethods(map[string]any{"echo": func(text string) string { return text }})})
		ended := make(chan error)
		go func() { ended <- conn.Run(context.Background()) }()
		synctest.Wait()
		for i := range calls {
			c.messages <- fmt.Sprintf(`["push",["pipeline",0,["echo"],["%s"]]]`, strings.Repeat("x", 300))
			c.messages <- fmt.Sprintf(`["pull",%d]`, i+1)
		}
		<-c.all
		close(c.messages)
		<-ended // how is no matter here
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.most > 4<<10+400 {
			t.Errorf("%d bytes left at once", c.most)
		}
	})
}
