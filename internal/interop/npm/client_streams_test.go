//go:build interop

// Our client: streams both ways, with flow control, ends and errors.

package npm

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
)

// sink is a writable of ours that keeps what becomes of it.
type sink struct {
	*capnweb.Writable
	mu     sync.Mutex
	chunks []any
	ended  bool
	reason error
}

func newSink(write func(n int) error) *sink {
	s := &sink{chunks: []any{}}
	s.Writable = capnweb.NewWritable(func(_ context.Context, chunk any) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if write != nil {
			if err := write(len(s.chunks)); err != nil {
				return err
			}
		}
		s.chunks = append(s.chunks, chunk)
		return nil
	}, func(reason error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended, s.reason = true, reason
	})
	return s
}

func (s *sink) state() (chunks []any, ended bool, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chunks, s.ended, s.reason
}

// writable asks for a writable of the server's.
func (t *trial) writable(method string, args ...any) *capnweb.Writable {
	t.Helper()
	w, ok := t.ask(method, args...).(*capnweb.Writable)
	if !ok {
		t.Fatal("no writable")
	}
	return w
}

// still waits until a count is above 0 and stands still.
func (t *trial) still(count func() int) int {
	t.Helper()
	last := -1
	t.until("it stands still", func() bool {
		was := last
		last = count()
		if was == last && last > 0 {
			return true
		}
		time.Sleep(100 * time.Millisecond)
		return false
	})
	return last
}

const streams = "0.5.0" // since when there are any

var streamScenarios = []scenario{
	{name: "streams/sent", since: streams, batch: true, run: func(t *trial) {
		chunks := []any{1.0, "text", nil, []any{1.0, []any{2.0}}, map[string]any{"a": time.UnixMilli(5)}, []byte{1, 2}, capnweb.Undefined{}}
		got, ok := t.ask("collect", t.stream(nil, chunks...)).([]any)
		if !ok || len(got) != len(chunks) {
			t.Fatalf("%v", got)
		}
		for i := range chunks {
			if at, ok := chunks[i].(map[string]any); ok {
				m, _ := got[i].(map[string]any)
				when, _ := m["a"].(time.Time)
				if want, _ := at["a"].(time.Time); !when.Equal(want) {
					t.Errorf("%v", got[i])
				}
				continue
			}
			t.equal(got[i], chunks[i])
		}
	}},
	{name: "streams/sent, empty", since: streams, batch: true, run: func(t *trial) { t.equal(t.ask("collect", t.stream(nil)), []any{}) }},
	{name: "streams/sent, bytes", since: streams, batch: true, run: func(t *trial) {
		chunks := make([]any, 50)
		for i := range chunks {
			chunks[i] = make([]byte, 10_000)
		}
		t.equal(t.ask("countBytes", t.stream(nil, chunks...)), 500_000.0)
	}},
	{name: "streams/sent, many chunks", since: streams, batch: true, run: func(t *trial) { t.equal(t.ask("collect", t.stream(nil, upto(1000)...)), upto(1000)) }},
	{name: "streams/sent, with an error", since: streams, batch: true, run: func(t *trial) {
		p := t.call("collect", t.stream(&capnweb.Error{Name: "RangeError", Message: "mine"}, 1))
		t.send()
		e := t.fails(p, "", "")
		if !strings.Contains(e.Message, "mine") {
			t.Error(e.Message)
		}
	}},
	{name: "streams/sent, given up by the reader", since: streams, run: func(t *trial) {
		r, w := capnweb.NewReadable()
		ended := make(chan error, 1)
		go func() {
			for {
				if err := w.Write(t.ctx, make([]byte, 1000)); err != nil {
					ended <- err
					return
				}
			}
		}()
		t.equal(len(t.ask("readSome", r, 2).([]any)), 2)
		select {
		case err := <-ended:
			if t.ctx.Err() != nil {
				t.Error(err)
			}
		case <-t.ctx.Done():
			t.Error("the writer is not told")
		}
	}},
	{name: "streams/sent, backpressure", since: streams, run: func(t *trial) {
		r, w := capnweb.NewReadable()
		var wrote atomic.Int64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range 300 {
				if w.Write(t.ctx, make([]byte, 10_000)) != nil {
					return
				}
				wrote.Add(1)
			}
			_ = w.Close(t.ctx) // the reader has gone
		}()
		p := t.call("echo", map[string]any{"r": r})
		got, ok := t.await(p).(map[string]any)
		if !ok {
			t.Fatal("no object")
		}
		if n := t.still(func() int { return int(wrote.Load()) }); n >= 300 {
			t.Errorf("%d chunks of 10 kB written that nobody reads", n)
		}
		t.equal(len(t.readAll(got["r"])), 300)
		<-ended
	}},
	{name: "streams/received", since: streams, sole: true, run: func(t *trial) { t.equal(t.readAll(t.ask("makeStream", 2000)), upto(2000)) }},
	{name: "streams/received, empty", since: streams, sole: true, run: func(t *trial) { t.equal(t.readAll(t.ask("makeStream", 0)), []any{}) }},
	{name: "streams/received, with an error", since: streams, sole: true, run: func(t *trial) {
		r, ok := t.ask("failStream", 2, "theirs").(*capnweb.Readable)
		if !ok {
			t.Fatal("no stream")
		}
		for i := 0; ; i++ {
			_, err := r.Read(t.ctx)
			if err == nil {
				continue
			}
			if errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "theirs") {
				t.Errorf("after %d: %v", i, err)
			}
			return
		}
	}},
	{name: "streams/received, backpressure", since: streams, run: func(t *trial) {
		r, ok := t.ask("endless", 10_000).(*capnweb.Readable)
		if !ok {
			t.Fatal("no stream")
		}
		produced := func() int {
			p := t.main().Call(t.ctx, "produced")
			defer p.Release()
			n, _ := t.await(p).(float64)
			return int(n)
		}
		read := func(n int) {
			for range n {
				chunk, err := r.Read(t.ctx)
				if b, ok := chunk.([]byte); err != nil || !ok || len(b) != 10_000 {
					t.Fatalf("%T %v", chunk, err)
				}
			}
		}
		read(5)
		n := t.still(produced)
		if n > 5000 {
			t.Errorf("%d chunks of 10 kB are too many", n)
		}
		read(n)
		if produced() <= n {
			t.Error("it does not go on")
		}
		r.Cancel(errors.New("enough"))
		t.still(produced)
	}},
	{name: "streams/echoed", since: streams, sole: true, run: func(t *trial) {
		t.equal(t.readAll(t.ask("echoStream", t.stream(nil, "a", 1, []byte{7}))), []any{"a", 1.0, []byte{7}})
	}},
	{name: "streams/of capabilities, received", since: streams, loose: true, run: func(t *trial) {
		t.disposes(3, func() {
			r, ok := t.ask("stubStream", 3).(*capnweb.Readable)
			if !ok {
				t.Fatal("no stream")
			}
			for i := 0; ; i++ {
				chunk, err := r.Read(t.ctx)
				if errors.Is(err, io.EOF) {
					t.equal(i, 3)
					return
				}
				s, ok := chunk.(*capnweb.Stub)
				if !ok {
					t.Fatalf("%T %v is no stub", chunk, err)
				}
				p := s.Call(t.ctx, "increment", 10)
				t.is(p, float64(10+i))
				p.Release()
			}
		})
	}},
	{name: "streams/of capabilities, sent", since: streams, loose: true, run: func(t *trial) {
		n := newThing(1)
		p := t.call("collect", t.stream(nil, n))
		got, ok := t.await(p).([]any)
		if !ok || len(got) != 1 {
			t.Fatalf("%v", got)
		}
		s, ok := got[0].(*capnweb.Stub)
		if !ok {
			t.Fatalf("%T is no stub", got[0])
		}
		t.is(own(t, s.Call(t.ctx, "increment")), 2.0)
	}},

	{name: "streams/writable received", since: streams, run: func(t *trial) {
		w := t.writable("writable")
		for i := range 500 {
			if err := w.Write(t.ctx, i); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(t.ctx); err != nil {
			t.Fatal(err)
		}
		t.equal(t.ask("takeWritten"), map[string]any{"chunks": upto(500), "closed": true, "failed": ""})
	}},
	{name: "streams/writable received, aborted", since: streams, run: func(t *trial) {
		w := t.writable("writable")
		if err := w.Write(t.ctx, 1); err != nil {
			t.Fatal(err)
		}
		w.Abort(&capnweb.Error{Name: "Error", Message: "changed my mind"})
		t.until("aborted", func() bool { return t.ask("takeWritten").(map[string]any)["failed"] == "changed my mind" })
	}},
	{name: "streams/writable received, that fails", since: streams, run: func(t *trial) {
		w := t.writable("failWriter", 2, "full")
		var err error
		for i := 0; i < 100_000 && err == nil; i++ {
			err = w.Write(t.ctx, i)
		}
		if err == nil {
			err = w.Close(t.ctx)
		}
		if err == nil || !strings.Contains(err.Error(), "full") {
			t.Error(err)
		}
		t.equal(t.ask("takeWritten").(map[string]any)["chunks"], []any{0.0, 1.0})
	}},
	{name: "streams/writable received, backpressure", since: streams, run: func(t *trial) {
		w := t.writable("slowWriter")
		var wrote atomic.Int64
		ended := make(chan error, 1)
		go func() {
			for range 100 {
				if err := w.Write(t.ctx, make([]byte, 50_000)); err != nil {
					ended <- err
					return
				}
				wrote.Add(1)
			}
			ended <- w.Close(t.ctx)
		}()
		if n := t.still(func() int { return int(wrote.Load()) }); n >= 100 {
			t.Errorf("%d of 100 chunks written before the reader reads", n)
		}
		t.ask("openGate")
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		got, _ := t.ask("takeWritten").(map[string]any)
		chunks, _ := got["chunks"].([]any)
		t.equal(len(chunks), 100)
		t.equal(got["closed"], true)
	}},
	{name: "streams/writable sent", since: streams, run: func(t *trial) {
		s := newSink(nil)
		t.ask("writeTo", s.Writable, 1000)
		chunks, ended, reason := s.state()
		t.equal(chunks, upto(1000))
		if !ended || reason != nil {
			t.Error(ended, reason)
		}
	}},
	{name: "streams/writable sent, aborted", since: streams, run: func(t *trial) {
		s := newSink(nil)
		t.ask("abortTo", s.Writable, "their reason")
		t.until("aborted", func() bool { _, ended, _ := s.state(); return ended })
		chunks, _, reason := s.state()
		t.equal(chunks, []any{"one"})
		if reason == nil || !strings.Contains(reason.Error(), "their reason") {
			t.Error(reason)
		}
	}},
	{name: "streams/writable sent, that fails", since: streams, run: func(t *trial) {
		s := newSink(func(n int) error {
			if n == 2 {
				return &capnweb.Error{Name: "RangeError", Message: "mine is full"}
			}
			return nil
		})
		if e := t.fails(t.call("writeTo", s.Writable, 1000), "", ""); !strings.Contains(e.Message, "mine is full") {
			t.Error(e.Message)
		}
	}},
	{name: "streams/writable sent, left when the connection closes", since: streams, run: func(t *trial) {
		l := t.dial(nil)
		l.lost = true
		began := make(chan struct{})
		s := newSink(func(n int) error {
			if n == 0 {
				close(began)
			}
			return nil
		})
		own(t, l.main.Call(t.ctx, "writeTo", s.Writable, 1_000_000))
		<-began
		l.conn.Close("enough")
		t.until("aborted", func() bool { _, ended, reason := s.state(); return ended && reason != nil })
	}},
}
