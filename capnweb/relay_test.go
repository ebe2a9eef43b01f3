// Streams through a vat in between: its source is told at once what becomes of them.

package capnweb

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/internal/until"
)

// relayed connects a source, by way of a program that passes its stream on, with a reader.
func relayed(t *testing.T) (source *Writable, reader *Readable) {
	ctx, got := t.Context(), make(chan *Readable, 1)
	connected := func(main any) *Conn {
		var wg sync.WaitGroup
		a, b := Pipe()
		near, far := NewConn(a, Config{}), NewConn(b, Config{Main: main})
		for _, c := range []*Conn{near, far} {
			wg.Go(func() { _ = c.Run(context.Background()) })
		}
		t.Cleanup(func() {
			near.Close("the test is over")
			wg.Wait()
		})
		return near
	}
	on := connected(NewMethods(map[string]any{"take": func(r *Readable) {
		r.Keep()
		got <- r
	}})).Main()
	t.Cleanup(on.Release)
	main := connected(NewMethods(map[string]any{
		"relay": func(ctx context.Context, r *Readable) *Promise { return on.Call(ctx, "take", r) },
	})).Main()
	t.Cleanup(main.Release)
	r, w := NewReadable()
	p := main.Call(ctx, "relay", r)
	t.Cleanup(p.Release)
	if _, err := p.Await(ctx); err != nil {
		t.Fatal(err)
	}
	return w, <-got
}

// waits says that a chunk has come that is not read.
func (r *Readable) waits() bool {
	r.pipe.mu.Lock()
	defer r.pipe.mu.Unlock()
	return len(r.pipe.chunks) > 0
}

// failed is what the writer knows of the reader.
func (w *Writable) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func TestRelayedStream(t *testing.T) {
	t.Parallel()
	enough := &Error{Name: "Error", Message: "enough"}
	check := func(t *testing.T, w *Writable) {
		t.Helper()
		until.True(t, "the source is told", func() bool { return w.failed() != nil })
		if err := w.failed(); err.Error() != enough.Error() {
			t.Error(err)
		}
	}
	write := func(t *testing.T, w *Writable) {
		t.Helper()
		if err := w.Write(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a source that writes no more is told", func(t *testing.T) {
		w, r := relayed(t)
		write(t, w)
		until.True(t, "it has come", r.waits)
		r.Cancel(enough)
		check(t, w)
	})
	t.Run("the next write is told", func(t *testing.T) {
		w, r := relayed(t)
		r.Cancel(enough)
		write(t, w)
		check(t, w)
	})
	t.Run("the end is answered by the reader", func(t *testing.T) {
		w, r := relayed(t)
		write(t, w)
		until.True(t, "it has come", r.waits)
		closed := make(chan error, 1)
		go func() { closed <- w.Close(t.Context()) }()
		until.True(t, "the end has come", func() bool {
			r.pipe.mu.Lock()
			defer r.pipe.mu.Unlock()
			return r.pipe.err == io.EOF
		})
		r.Cancel(enough)
		if err := <-closed; err == nil || err.Error() != enough.Error() {
			t.Errorf("closed with %v", err)
		}
	})
	t.Run("all of it", func(t *testing.T) {
		w, r := relayed(t)
		closed := make(chan error, 1)
		go func() {
			for i := range 1000 {
				if err := w.Write(t.Context(), i); err != nil {
					closed <- err
					return
				}
			}
			closed <- w.Close(t.Context())
		}()
		for i := range 1000 {
			if v, err := r.Read(t.Context()); err != nil || v != float64(i) {
				t.Fatal(v, err)
			}
		}
		if _, err := r.Read(t.Context()); err != io.EOF {
			t.Error(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}
