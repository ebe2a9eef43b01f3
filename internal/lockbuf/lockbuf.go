// Package lockbuf has a buffer that tests look at while others write to it: a log, or what a program prints.
package lockbuf

import (
	"bytes"
	"sync"
)

// Buffer is a buffer for any number of goroutines. The zero one is empty.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write adds p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
