// A stream whose connection has no room: batches wait, and keep their order.

package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
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
func pairedPeer(t *testing.T, boot rpc.Object, cfg rpc.Config) (p *peer, server *rpc.Conn) {
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
func pairedStream(t *testing.T, cfg rpc.Config) (s *stream, p *peer, begin func()) {
	p, _ = pairedPeer(t, &counting{}, cfg)
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
				if dir == "out" && strings.Contains(describe(m), methods.StreamApply.Name) {
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

// recording serves streams and what leads to them, and writes down what it is asked for.
// A restore of the ref with the id held waits for wait.
type recording struct {
	held string
	wait chan struct{}

	mu       sync.Mutex
	lines    []string
	features []string // that hello names
}

func (o *recording) Serve(call *rpc.Call) {
	for _, m := range []methods.Method{methods.GatewayHello, methods.GatewayRestore, methods.SpaceCreate, methods.SessionOpenStream, methods.StreamApply} {
		if got := call.Method(); m.Interface == got.Interface && m.ID == got.ID {
			o.serve(call, m.Name)
			return
		}
	}
	call.Fail(rpc.Unimplementedf("not in this test"))
}

func (o *recording) serve(call *rpc.Call, line string) {
	give := func(context.Context) {
		call.Return(structSize(2, 4), func(s capnp.Struct, caps *rpc.CapTable) error {
			if line == methods.GatewayHello.Name {
				wire.Gateway_hello_Results(s).SetVersion(1)
				o.mu.Lock()
				defer o.mu.Unlock()
				return setTexts(wire.Gateway_hello_Results(s).NewFeatures, o.features)
			}
			live := rpc.NewLocal(o)
			defer live.Release()
			return caps.Set(s, 0, live)
		})
	}
	params, _ := call.Params()
	id := ""
	if line == methods.GatewayRestore.Name {
		p := wire.Gateway_restore_Params(params)
		ref, _ := p.Ref()
		id, _ = ref.Id()
		redemption, _ := p.Redemption()
		line += " of " + redemption
	}
	o.mu.Lock()
	o.lines = append(o.lines, line)
	o.mu.Unlock()
	if id != "" && id == o.held {
		call.Go(func(ctx context.Context) { <-o.wait; give(ctx) })
	} else {
		give(nil)
	}
}

// TestOpeningRequest: each ref is redeemed as what it is. Those that batches
// refer to are there before the stream is, and no server is shown another one's. When the
// stream is over, nothing is held for it.
func TestOpeningRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, owner, source := testAddress().New(testSpace), testAddress().New(testSession), testAddress().New(testSession)
		elsewhere := capability.Ref{Hosts: []string{"127.0.0.2:2"}}.New(testSession)
		record := &recording{held: source.ID, wait: make(chan struct{})}
		c := linkClient(t, Config{dial: hosts{"127.0.0.1:1": record}.dial})
		opened := make(chan outbox.Stream, 1)
		go func() {
			s, err := link{c}.OpenStream(t.Context(), outbox.StreamRequest{
				Session: testSession, Ref: owner, SpaceRef: &space, OwnerRef: owner.ID, LiveRefs: []capability.Ref{elsewhere, source},
				Redemptions: map[string]string{space.ID: "the space", owner.ID: "the owner", source.ID: "the source", elsewhere.ID: "another's"},
				Outbox:      "obx_1", Secret: capability.NewSecret(), Incarnation: 1,
			})
			if err != nil {
				t.Error(err)
			}
			opened <- s
		}()
		check := func(want ...string) {
			t.Helper()
			synctest.Wait()
			record.mu.Lock()
			defer record.mu.Unlock()
			slices.Sort(record.lines) // what does not wait for another may come before it
			if !slices.Equal(record.lines, want) {
				t.Errorf("the server was asked for %q", record.lines)
			}
		}
		check("Gateway.hello", "Gateway.restore of the source", "Gateway.restore of the space", "Space.create")
		close(record.wait)
		check("Gateway.hello", "Gateway.restore of the source", "Gateway.restore of the space", "Session.openStream", "Space.create")
		s := <-opened
		srv, err := c.serverFor(space)
		if err != nil {
			t.Fatal(err)
		}
		p, err := srv.peer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		<-s.Done()
		p.release()
		synctest.Wait()
		if st := p.conn.Stats(); st.Imports+st.Questions != 0 {
			t.Errorf("%d capabilities of the server are held, and %d questions", st.Imports, st.Questions)
		}
		_ = c.Close()
	})
}
