// Streams that the target returns and accepts.

package target

import (
	"context"
	"errors"
	"io"

	"github.com/mooring-rpc/mooring/capnweb"
)

// written records what was written to a writable.
type written struct {
	chunks []any
	closed bool
	failed string // the reason of an abort
}

func (t *Target) streamMethods() map[string]any {
	return map[string]any{
		// Streams returned.
		"makeStream":  t.makeStream,
		"failStream":  t.failStream,
		"endless":     t.endless,
		"produced":    t.readProduced,
		"echoStream":  func(r *capnweb.Readable) *capnweb.Readable { r.Keep(); return r },
		"stubStream":  t.stubStream,
		"writable":    t.writable,
		"slowWriter":  t.slowWriter,
		"failWriter":  t.failWriter,
		"openGate":    t.openGate,
		"takeWritten": t.takeWritten,
		// Streams accepted.
		"countBytes": countBytes,
		"collect":    collect,
		"readSome":   readSome,
		"writeTo":    writeTo,
		"abortTo":    abortTo,
		// Fetch types.
		"describeBody": DescribeBody,
		"makeRequest":  t.makeRequest,
		"makeResponse": t.makeResponse,
	}
}

// makeStream(n) returns a stream of the chunks 0 to n-1.
func (t *Target) makeStream(n int) *capnweb.Readable {
	r, w := capnweb.NewReadable()
	t.background(func(ctx context.Context) {
		for i := range clamp(n) {
			if w.Write(ctx, i) != nil {
				return
			}
		}
		_ = w.Close(ctx) // the reader has cancelled
	})
	return r
}

// failStream(n, message) returns a stream of n chunks and then an error.
func (t *Target) failStream(n int, message string) *capnweb.Readable {
	r, w := capnweb.NewReadable()
	t.background(func(ctx context.Context) {
		for i := range clamp(n) {
			if w.Write(ctx, i) != nil {
				return
			}
		}
		w.Abort(&capnweb.Error{Name: "RangeError", Message: message})
	})
	return r
}

// endless(size) returns a stream of chunks of size bytes as long as they are read; produced() returns how many were written.
func (t *Target) endless(size int) *capnweb.Readable {
	r, w := capnweb.NewReadable()
	t.mu.Lock()
	t.produced = 0
	t.mu.Unlock()
	t.background(func(ctx context.Context) {
		for w.Write(ctx, make([]byte, clamp(size))) == nil {
			t.mu.Lock()
			t.produced++
			t.mu.Unlock()
		}
	})
	return r
}

func (t *Target) readProduced() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.produced
}

// stubStream(n) returns a stream of n counters.
func (t *Target) stubStream(n int) *capnweb.Readable {
	r, w := capnweb.NewReadable()
	t.background(func(ctx context.Context) {
		for i := range clamp(n) {
			f := float64(i)
			if w.Write(ctx, t.makeCounter(&f)) != nil {
				return
			}
		}
		_ = w.Close(ctx) // the reader has cancelled
	})
	return r
}

// sink makes a writable that keeps its chunks for takeWritten().
func (t *Target) sink(write func(ctx context.Context, chunks int) error) *capnweb.Writable {
	t.mu.Lock()
	t.written = written{}
	t.gate = make(chan struct{})
	t.mu.Unlock()
	return capnweb.NewWritable(func(ctx context.Context, chunk any) error {
		t.mu.Lock()
		n := len(t.written.chunks)
		t.mu.Unlock()
		if err := write(ctx, n); err != nil {
			return err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.written.chunks = append(t.written.chunks, keep(chunk))
		return nil
	}, func(reason error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if reason == nil {
			t.written.closed = true
			return
		}
		t.written.failed = reason.Error()
		if e, ok := errors.AsType[*capnweb.Error](reason); ok {
			t.written.failed = e.Message
		}
	})
}

// writable() accepts chunks; takeWritten() returns them.
func (t *Target) writable() *capnweb.Writable {
	return t.sink(func(context.Context, int) error { return nil })
}

// slowWriter() accepts chunks once openGate() has been called.
func (t *Target) slowWriter() *capnweb.Writable {
	return t.sink(func(ctx context.Context, _ int) error {
		t.mu.Lock()
		gate := t.gate
		t.mu.Unlock()
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// failWriter(n, message) accepts n chunks and fails at the next.
func (t *Target) failWriter(n int, message string) *capnweb.Writable {
	return t.sink(func(_ context.Context, chunks int) error {
		if chunks >= n {
			return &capnweb.Error{Name: "RangeError", Message: message}
		}
		return nil
	})
}

func (t *Target) openGate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.gate:
	default:
		close(t.gate)
	}
}

// takeWritten() returns what was written to the last writable.
func (t *Target) takeWritten() map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	chunks := make([]any, len(t.written.chunks))
	for i, v := range t.written.chunks {
		chunks[i] = keep(v)
	}
	return map[string]any{"chunks": chunks, "closed": t.written.closed, "failed": t.written.failed}
}

// each reads a stream to its end.
func each(ctx context.Context, r *capnweb.Readable, f func(chunk any)) error {
	for {
		chunk, err := r.Read(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		f(chunk)
	}
}

// countBytes(stream) returns the number of bytes in its chunks, text counted as UTF-8.
func countBytes(ctx context.Context, r *capnweb.Readable) (n int, err error) {
	err = each(ctx, r, func(chunk any) {
		switch c := chunk.(type) {
		case []byte:
			n += len(c)
		case string:
			n += len(c)
		case capnweb.Bytes:
			n += len(c.Data)
		}
	})
	return n, err
}

// collect(stream) returns all chunks.
func collect(ctx context.Context, r *capnweb.Readable) ([]any, error) {
	all := []any{}
	err := each(ctx, r, func(chunk any) { all = append(all, keep(chunk)) })
	return all, err
}

// readSome(stream, n) reads n chunks and cancels the rest.
func readSome(ctx context.Context, r *capnweb.Readable, n int) ([]any, error) {
	all := []any{}
	for range clamp(n) {
		chunk, err := r.Read(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, keep(chunk))
	}
	r.Cancel(&capnweb.Error{Name: "Error", Message: "enough"})
	return all, nil
}

// writeTo(writable, n) writes 0 to n-1 and closes.
func writeTo(ctx context.Context, w *capnweb.Writable, n int) error {
	for i := range clamp(n) {
		if err := w.Write(ctx, i); err != nil {
			return err
		}
	}
	return w.Close(ctx)
}

// abortTo(writable, message) writes one chunk and aborts.
func abortTo(ctx context.Context, w *capnweb.Writable, message string) error {
	if err := w.Write(ctx, "one"); err != nil {
		return err
	}
	w.Abort(&capnweb.Error{Name: "Error", Message: message})
	return nil
}
