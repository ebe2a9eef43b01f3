package capnweb

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

// TestNoMemoryForMessagesAtRest: neither for those that it makes nor for those that it writes, however large they were.
func TestNoMemoryForMessagesAtRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe()
		c := NewConn(near, Config{Main: NewMethods(map[string]any{
			"text": func() string { return strings.Repeat("x", 20000) },
			"fail": func() (string, error) { return "", &Error{Name: "Error", Message: "no"} },
		})})
		go func() { _ = c.Run(context.Background()) }()
		for n, method := range []string{"text", "fail"} {
			id := string(rune('1' + n))
			if err := far.Write(t.Context(), [][]byte{[]byte(`["push",["pipeline",0,["` + method + `"],[]]]`), []byte(`["pull",` + id + `]`)}); err != nil {
				t.Fatal(err)
			}
			if _, err := far.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			c.mu.Lock()
			if c.enc.b != nil || c.enc.pooled != nil || c.out.Bytes != nil {
				t.Errorf("after %s a connection at rest keeps memory: %d bytes to encode in, %d to write from", method, cap(c.enc.b), cap(c.out.Bytes))
			}
			c.mu.Unlock()
		}
		c.Close("test over")
	})
}
