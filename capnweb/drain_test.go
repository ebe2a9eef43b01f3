package capnweb

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A call is done before its answer is on its way: Drain waits for that too.
func TestDrainSendsTheLastAnswer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 200 {
		release := make(chan struct{})
		near, far := Pipe()
		c := NewConn(near, Config{Main: NewMethods(map[string]any{"wait": func(context.Context) string { <-release; return "done" }})})
		ran, drained := make(chan error, 1), make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		if err := far.Write(ctx, [][]byte{[]byte(`["push",["pipeline",0,["wait"],[]]]`), []byte(`["pull",1]`)}); err != nil {
			t.Fatal(err)
		}
		for asked := 0; asked == 0 && ctx.Err() == nil; time.Sleep(10 * time.Microsecond) {
			c.mu.Lock()
			asked = c.batch.pendingAnswers
			c.mu.Unlock()
		}
		go func() { drained <- c.Drain(ctx, "going") }()
		close(release)
		for {
			m, err := far.Read(ctx)
			if err != nil {
				t.Fatalf("the connection ended before the answer: %v", err)
			}
			if strings.HasPrefix(string(m), `["resolve",1,`) {
				break
			}
		}
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		<-ran
	}
}
