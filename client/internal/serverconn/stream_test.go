// A stream whose connection has no room: batches wait, and keep their order.

package serverconn

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// counting opens streams and fails every batch with its number in order of arrival.
type counting struct{ n int }

func (c *counting) Serve(call *rpc.Call) {
	switch call.Method() {
	case rpc.Method{Interface: methods.SessionOpenStream.Interface, ID: methods.SessionOpenStream.ID}:
		call.Return(structSize(1, 1), func(s capnp.Struct, caps *rpc.CapTable) error {
			return caps.Set(s, 0, rpc.NewLocal(c))
		})
	case rpc.Method{Interface: methods.StreamApply.Interface, ID: methods.StreamApply.ID}:
		c.n++
		call.Fail(rpc.Failedf("batch %d", c.n))
	default:
		call.Return(structSize(0, 1), nil)
	}
}

// pairedPeer is a connection to a server in this process, which both end with the test.
func pairedPeer(t *testing.T, boot rpc.Object, cfg rpc.Config) (p *Peer, server *rpc.Conn) {
	near, far := rpc.Pipe()
	conn, server := rpc.NewConn(near, cfg), rpc.NewConn(far, rpc.Config{Bootstrap: boot})
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
func pairedStream(t *testing.T, cfg rpc.Config) (s *Stream, p *Peer, begin func()) {
	p, _ = pairedPeer(t, &counting{}, cfg)
	s = newStream(context.Background(), p, CallOpenStream(t.Context(), p.gateway, "obx", nil, 1), nil)
	over := make(chan struct{})
	begin = sync.OnceFunc(func() { go func() { s.Run(); close(over) }() })
	t.Cleanup(func() {
		s.Close()
		begin()
		<-over
	})
	return s, p, begin
}

// applyAll sends n batches and tells the answers as they come.
func applyAll(s *Stream, n int) (answers chan string) {
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
	case <-time.After(time.Minute):
		t.Fatal("no answer")
		return ""
	}
}

func TestBatchesWaitForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p, begin := pairedStream(t, rpc.Config{})
		begin()
		synctest.Wait()
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
	})
}

// TestBatchesThatNeverHadRoom closes a stream while batches wait: each is
// answered once, in order, with the stream's end.
func TestBatchesThatNeverHadRoom(t *testing.T) {
	t.Parallel()
	s, p, begin := pairedStream(t, rpc.Config{})
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
	s, p, begin := pairedStream(t, rpc.Config{})
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

// TestABatchThatIsJustLeaving holds nothing up for good: neither one that comes
// meanwhile, which leaves behind it, nor the end of the stream.
func TestABatchThatIsJustLeaving(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			leaving, gone := make(chan struct{}), make(chan struct{})
			leave := sync.OnceFunc(func() { close(leaving); <-gone })
			s, _, begin := pairedStream(t, rpc.Config{Trace: func(dir string, m rpccp.Message) {
				if dir == "out" && isCallOf(m, methods.StreamApply) {
					leave()
				}
			}})
			begin()
			synctest.Wait()
			answers := make(chan string, 2)
			apply := func(name string) {
				s.Apply(&ledger.Batch{BatchID: name}, func(r outbox.Reply) { answers <- fmt.Sprintf("%s: %v", name, r.Err) })
			}
			go apply("first")
			<-leaving
			apply("second")
			if ends {
				s.Close()
			}
			synctest.Wait() // run has seen that somebody sends
			close(gone)
			if a := next(t, answers); !strings.HasPrefix(a, "first") {
				t.Errorf("the first answer is %q", a)
			}
			second := next(t, answers)
			if served := second == "second: internal: the server failed: batch 2"; !strings.HasPrefix(second, "second") || served == ends {
				t.Errorf("the second answer is %q", second)
			}
			if ends {
				<-s.Done()
				synctest.Wait()
				apply("late")
				if a := next(t, answers); !strings.HasPrefix(a, "late") {
					t.Errorf("the answer to one that came too late is %q", a)
				}
			}
		})
	}
}

// TestAStreamEndsWithItsConnection, though nothing was sent over it that could fail.
func TestAStreamEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	s, p, begin := pairedStream(t, rpc.Config{})
	begin()
	p.conn.Close("lost")
	select {
	case <-s.Done():
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

// isCallOf reports whether a message is a call of a method.
func isCallOf(m rpccp.Message, method methods.Method) bool {
	if m.Which() != rpccp.Message_Which_call {
		return false
	}
	call, err := m.Call()
	return err == nil && call.InterfaceId() == method.Interface && call.MethodId() == method.ID
}
