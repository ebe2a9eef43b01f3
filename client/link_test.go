// A stream whose connection has no room: batches wait, and keep their order.

package client

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// counting opens streams and fails every batch with its number in order of arrival.
type counting struct{ n int }

func (c *counting) Serve(call *rpc.Call) {
	switch call.Method() {
	case rpc.Method{Interface: methodOpenStream.Interface, ID: methodOpenStream.ID}:
		call.Return(words(1, 1), func(s capnp.Struct, caps *rpc.CapTable) error {
			return caps.Set(s, 0, rpc.NewLocal(c))
		})
	case rpc.Method{Interface: methodApply.Interface, ID: methodApply.ID}:
		c.n++
		call.Fail(rpc.Failedf("batch %d", c.n))
	default:
		call.Return(words(0, 1), nil)
	}
}

// pairedPeer is a connection to a server in this process, which both end with the test.
func pairedPeer(t *testing.T, boot rpc.Object) (p *peer, server *rpc.Conn) {
	near, far := rpc.Pipe()
	conn, server := rpc.NewConn(near, rpc.Config{}), rpc.NewConn(far, rpc.Config{Bootstrap: boot})
	ended := make(chan error, 2)
	for _, c := range []*rpc.Conn{conn, server} {
		go func() { ended <- c.Run(context.Background()) }()
	}
	p = newPeer(conn, conn.Bootstrap(t.Context()), "", nil)
	t.Cleanup(func() {
		p.release()
		conn.Close("done")
		<-ended
		server.Close("done")
		<-ended
	})
	return p, server
}

// pairedStream is a stream over such a connection; begin has it send what waits.
func pairedStream(t *testing.T) (s *stream, p *peer, begin func()) {
	p, _ = pairedPeer(t, &counting{})
	s = newStream(context.Background(), p, callOpenStream(t.Context(), p.gateway, "obx", nil, 1), nil)
	over := make(chan struct{})
	begin = sync.OnceFunc(func() { go func() { s.run(); close(over) }() })
	t.Cleanup(func() {
		s.Close()
		begin()
		<-over
	})
	return s, p, begin
}

// applyAll sends n batches and tells the answers as they come.
func applyAll(s *stream, n int) (answers chan string) {
	answers = make(chan string, n)
	for i := range n {
		s.Apply(&ledger.Batch{BatchID: fmt.Sprint(i)}, func(r outbox.Reply) { answers <- fmt.Sprintf("%d: %v", i, r.Err) })
		s.Acknowledge(uint64(i))
	}
	return answers
}

func next(t *testing.T, answers chan string) string {
	t.Helper()
	select {
	case a := <-answers:
		return a
	case <-time.After(30 * time.Second):
		t.Fatal("no answer")
		return ""
	}
}

func TestBatchesWaitForRoom(t *testing.T) {
	t.Parallel()
	s, p, begin := pairedStream(t)
	begin()
	p.sending.Lock() // somebody else sends, and waits for room
	answers := applyAll(s, 20)
	select {
	case a := <-answers:
		t.Fatalf("answered before there was room: %s", a)
	default:
	}
	p.sending.Unlock()
	for i := range 20 {
		if a := next(t, answers); !strings.HasPrefix(a, fmt.Sprintf("%d: ", i)) || !strings.HasSuffix(a, fmt.Sprintf("batch %d", i+1)) {
			t.Fatalf("answer %d is %q", i, a)
		}
	}
}

// TestBatchesThatNeverHadRoom closes a stream while batches wait: each is
// answered once, in order, with the stream's end.
func TestBatchesThatNeverHadRoom(t *testing.T) {
	t.Parallel()
	s, p, begin := pairedStream(t)
	begin()
	p.sending.Lock()
	answers := applyAll(s, 20)
	s.Close()
	p.sending.Unlock()
	for i := range 20 {
		if a := next(t, answers); !strings.HasPrefix(a, fmt.Sprintf("%d: ", i)) || strings.HasSuffix(a, "<nil>") {
			t.Fatalf("answer %d is %q", i, a)
		}
	}
	<-s.Done()
	s.Acknowledge(1)
	s.Apply(&ledger.Batch{}, func(r outbox.Reply) { answers <- fmt.Sprint("late: ", r.Err) })
	if a := next(t, answers); !strings.HasPrefix(a, "late: ") || strings.HasSuffix(a, "<nil>") {
		t.Error(a)
	}
}

// TestABatchComesBehindThoseThatWait, though there is room again before they leave.
func TestABatchComesBehindThoseThatWait(t *testing.T) {
	t.Parallel()
	s, p, begin := pairedStream(t)
	p.sending.Lock()
	answers := make(chan string, 2)
	apply := func(name string) {
		s.Apply(&ledger.Batch{BatchID: name}, func(r outbox.Reply) { answers <- fmt.Sprintf("%s: %v", name, r.Err) })
	}
	apply("first")
	p.sending.Unlock()
	apply("second")
	begin()
	for i, name := range []string{"first", "second"} {
		if a := next(t, answers); !strings.HasPrefix(a, name) || !strings.HasSuffix(a, fmt.Sprintf("batch %d", i+1)) {
			t.Errorf("answer %d is %q", i, a)
		}
	}
}
