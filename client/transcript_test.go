// What leaves the client before anything comes back: a server that never
// answers writes down what it gets.

package client

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/serverconn"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// silentServer reads and never answers.
type silentServer struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func (s *silentServer) dial(ctx context.Context, url string) (rpc.Transport, error) {
	near, far := rpc.Pipe()
	go s.read(far)
	return near, nil
}

func (s *silentServer) read(far rpc.Transport) {
	for {
		data, err := far.ReadBatch(context.Background())
		if err != nil {
			return
		}
		dec := capnp.NewDecoder(bytes.NewReader(data))
		for {
			msg, err := dec.Decode()
			if err != nil {
				break
			}
			m, err := rpccp.ReadRootMessage(msg)
			if err != nil {
				panic(err)
			}
			s.mu.Lock()
			s.lines = append(s.lines, describe(m))
			close(s.more)
			s.more = make(chan struct{})
			s.mu.Unlock()
		}
	}
}

// describe writes a message down for people.
func describe(m rpccp.Message) string {
	switch m.Which() {
	case rpccp.Message_Which_bootstrap:
		b, _ := m.Bootstrap()
		return fmt.Sprintf("bootstrap q%d", b.QuestionId())
	case rpccp.Message_Which_call:
		c, _ := m.Call()
		t, _ := c.Target()
		target := "an import"
		if t.Which() == rpccp.MessageTarget_Which_promisedAnswer {
			pa, _ := t.PromisedAnswer()
			target = fmt.Sprintf("q%d", pa.QuestionId())
			ops, _ := pa.Transform()
			for i := range ops.Len() {
				if ops.At(i).Which() == rpccp.PromisedAnswer_Op_Which_getPointerField {
					target += fmt.Sprintf(".%d", ops.At(i).GetPointerField())
				}
			}
		}
		name := fmt.Sprintf("%x.%d", c.InterfaceId(), c.MethodId())
		for _, known := range []methods.Method{methods.GatewayHello, methods.GatewayRestore, methods.GatewayChallenge, methods.SpaceCreate, methods.SessionOpenStream, methods.StreamApply, methods.SessionSubscribe, methods.SessionSnapshot} {
			if known.Interface == c.InterfaceId() && known.ID == c.MethodId() {
				name = known.Name
			}
		}
		return fmt.Sprintf("call q%d %s on %s", c.QuestionId(), name, target)
	}
	return m.Which().String()
}

// waitFor waits until there are n lines and gives them.
func (s *silentServer) waitFor(t *testing.T, n int) string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		s.mu.Lock()
		lines, more := strings.Join(s.lines, "\n"), s.more
		have := len(s.lines)
		s.mu.Unlock()
		if have >= n {
			return lines
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("only this was sent:\n%s", lines)
		}
	}
}

// linkClient is a client with connections and without an outbox.
func linkClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c := &Client{cfg: cfg.withDefaults(), wake: func() {}, servers: map[string]*serverconn.Server{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func testAddress() capability.Ref { return capability.Ref{Hosts: []string{"127.0.0.1:1"}} }

const (
	testSession = "ses_01JABCDEFGHJKMNPQRSTVWXYZ0"
	testSpace   = "spc_01JABCDEFGHJKMNPQRSTVWXYZ1"
)

func TestEverythingLeavesBeforeTheFirstReply(t *testing.T) {
	t.Parallel()
	silent := &silentServer{more: make(chan struct{})}
	c := linkClient(t, Config{dial: silent.dial})
	ref := testAddress().New(testSession)
	st, err := link{c}.OpenStream(t.Context(), outbox.StreamRequest{Session: testSession, Ref: ref, Outbox: "obx_1", Secret: capability.NewSecret(), Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	replies := make(chan outbox.Reply, 2)
	for seq := range 2 {
		b := testBatch(uint64(seq + 1))
		st.Apply(b, func(r outbox.Reply) { replies <- r })
	}
	silent.waitFor(t, 6)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		s := &Session{client: c, id: testSession, saved: outbox.SavedRef{Ref: ref}}
		ended <- s.Subscribe(ctx, SubscribeOptions{}, func(Event) error { return nil })
	}()
	got := silent.waitFor(t, 7)
	want := `bootstrap q0
call q1 Gateway.hello on q0
call q2 Gateway.restore on q0
call q3 Session.openStream on q2.0
call q4 Stream.apply on q3.0
call q5 Stream.apply on q3.0
call q6 Session.subscribe on q2.0`
	if got != want {
		t.Errorf("before any reply the client sent\n%s\nwant\n%s", got, want)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("the subscription ended without an error")
	}
	st.Close()
	for range 2 {
		if r := <-replies; r.Err == nil {
			t.Error("a batch that was never answered has no error")
		}
	}
}

func TestCreatingASessionIsOneRoundTripToo(t *testing.T) {
	t.Parallel()
	silent := &silentServer{more: make(chan struct{})}
	c := linkClient(t, Config{dial: silent.dial})
	space, owner := testAddress().New(testSpace), testAddress().New(testSession)
	st, err := link{c}.OpenStream(t.Context(), outbox.StreamRequest{
		Session: testSession, Ref: owner, SpaceRef: &space, OwnerRef: owner.ID, Outbox: "obx_1", Secret: capability.NewSecret(), Incarnation: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan outbox.Reply, 1)
	st.Apply(testBatch(1), func(r outbox.Reply) { done <- r })
	got := silent.waitFor(t, 6)
	want := `bootstrap q0
call q1 Gateway.hello on q0
call q2 Gateway.restore on q0
call q3 Space.create on q2.0
call q4 Session.openStream on q3.0
call q5 Stream.apply on q4.0`
	if got != want {
		t.Errorf("before any reply the client sent\n%s\nwant\n%s", got, want)
	}
	st.Close()
	<-done
}

// testBatch is a batch of one put at a seq.
func testBatch(seq uint64) *ledger.Batch {
	id := outbox.NewBatchID()
	return &ledger.Batch{Session: testSession, Outbox: "obx_1", Incarnation: 1, BatchID: id, Ops: []ledger.Intent{{
		OpID: outbox.OpID(id, 0), BatchID: id, Seq: seq, Session: testSession, Method: "put",
		Args: []ledger.Arg{{Name: "key", JSON: []byte(`"session"`)}, {Name: "payload", JSON: []byte(`{}`)}},
	}}}
}
