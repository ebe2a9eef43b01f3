//go:build unix

// Every limit of a connection, driven to from outside over a socket: what the
// peer is told, and that the metrics know.

package node

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/internal/scrape"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

// metric reads one value of a server's metrics.
func (r *rig) metric(series string) string {
	r.t.Helper()
	value, ok := scrape.Of(r.server.Metrics())[series]
	if !ok {
		r.t.Fatalf("no metric %s", series)
	}
	return value
}

func (r *rig) hits(limit string) string {
	return r.metric(fmt.Sprintf("mooring_limit_hits_total{limit=%q}", limit))
}

// overloaded expects some of the questions from first on to be refused for load, saying so.
func (p *rawPeer) overloaded(first, n uint32, reason string) {
	p.t.Helper()
	refused := 0
	for range n {
		h, ok := p.next()
		if !ok || h.what != rpccp.Message_Which_return {
			p.t.Fatalf("%+v instead of a return", h)
		}
		if h.id >= first && h.failed {
			if refused++; h.kind != rpccp.Exception_Type_overloaded || !strings.Contains(h.reason, reason) {
				p.t.Errorf("question %d: %v %q, want overloaded and %q", h.id, h.kind, h.reason, reason)
			}
		}
	}
	if refused == 0 {
		p.t.Errorf("nothing was refused")
	}
}

func TestLimitsFromOutside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit  string
		change func(*rpc.Limits)
		drive  func(r *rig, p *rawPeer)
	}{
		{"message_bytes", func(l *rpc.Limits) { l.MessageBytes = 4096 }, func(_ *rig, p *rawPeer) {
			p.out = binary.LittleEndian.AppendUint64(nil, 1<<32*512) // one segment of 4096 bytes, and its header
			p.flush()
			p.wantAbort("4104 bytes, the limit is 4096")
		}},
		{"segments", func(l *rpc.Limits) { l.Segments = 4 }, func(_ *rig, p *rawPeer) {
			p.out = binary.LittleEndian.AppendUint64(nil, 4)
			p.flush()
			p.wantAbort("5 segments, the limit is 4")
		}},
		{"nesting", func(l *rpc.Limits) { l.Nesting = 16 }, func(_ *rig, p *rawPeer) {
			p.bootstrap(0)
			p.call(1, 0, 17, wire.Gateway_TypeID, 0, nil, nil)
			p.flush()
			if h := p.answer(1); !h.failed || !strings.Contains(h.reason, "17 steps, the limit is 16") {
				p.t.Errorf("%+v", h)
			}
		}},
		{"traversal", func(l *rpc.Limits) { l.Traversal = 4096 }, func(r *rig, p *rawPeer) {
			p.bootstrap(0)
			p.restore(1, strings.Repeat("x", 5000), r.owner)
			p.flush()
			if h := p.answer(1); !h.failed || h.kind != rpccp.Exception_Type_failed {
				p.t.Errorf("%+v", h)
			}
			p.hello(2)
			p.flush()
			if h := p.answer(2); h.failed {
				p.t.Errorf("the next call: %+v", h)
			}
		}},
		{"answers", func(l *rpc.Limits) { l.Answers = 8 }, func(_ *rig, p *rawPeer) {
			p.bootstrap(0)
			for q := range uint32(20) {
				p.hello(q + 1)
			}
			p.flush()
			p.wantAbort("16 questions are not finished")
		}},
		{"answer_bytes", func(l *rpc.Limits) { l.AnswerBytes = 4096 }, func(r *rig, p *rawPeer) {
			p.bootstrap(0)
			for q := range uint32(100) {
				p.restore(q+1, r.owner.ID, r.owner)
			}
			p.flush()
			p.overloaded(1, 101, "bytes")
		}},
		{"exports", func(l *rpc.Limits) { l.Exports = 8 }, func(r *rig, p *rawPeer) {
			p.bootstrap(0)
			for q := range uint32(20) {
				p.restore(q+1, r.owner.ID, r.owner)
			}
			p.flush()
			p.overloaded(1, 21, "the limit is 8")
		}},
		{"imports", func(l *rpc.Limits) { l.Imports = 8 }, func(_ *rig, p *rawPeer) {
			p.bootstrap(0)
			p.call(1, 0, 0, wire.Gateway_TypeID, 0, []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}, nil)
			p.flush()
			p.wantAbort("the limit is 8")
		}},
		{"queued_calls", func(l *rpc.Limits) { l.QueuedCalls = 4 }, func(r *rig, p *rawPeer) {
			p.bootstrap(0)
			p.restore(1, r.owner.ID, r.owner)
			for q := range uint32(10) {
				p.call(q+2, 1, 1, wire.Space_TypeID, 2, nil, nil)
			}
			p.flush()
			p.overloaded(2, 12, "4 calls wait for question 1")
		}},
		{"queued_bytes", func(l *rpc.Limits) { l.QueuedBytes = 4096 }, func(r *rig, p *rawPeer) {
			p.bootstrap(0)
			p.flush()
			_ = p.c.(*net.UnixConn).SetReadBuffer(4096)
			q := uint32(0)
			until.True(p.t, "the server gives up", func() bool { // calls, and reads nothing
				q++
				p.hello(q)
				_ = p.c.SetWriteDeadline(time.Now().Add(patience))
				_, err := p.c.Write(p.out)
				p.out = nil
				return err != nil
			})
		}},
		{"write_timeout", func(l *rpc.Limits) { l.WriteTimeout = 20 * time.Millisecond }, func(r *rig, p *rawPeer) {
			p.bootstrap(0)
			p.restore(1, r.owner.ID, r.owner)
			p.flush()
			p.answer(1)
			for q := range uint32(8000) {
				p.hello(q + 2)
			}
			_, _ = p.c.Write(p.out) // the server may give up before it has all
			until.True(p.t, "the server gives up", func() bool { return r.connections() == 0 })
		}},
		{"handshake_timeout", func(l *rpc.Limits) { l.HandshakeTimeout = 20 * time.Millisecond }, func(_ *rig, p *rawPeer) {
			p.wantEnd()
		}},
		{"idle_timeout", func(l *rpc.Limits) { l.IdleTimeout = 500 * time.Millisecond }, func(_ *rig, p *rawPeer) {
			p.bootstrap(0)
			p.say(func(m rpccp.Message) error {
				f, err := m.NewFinish()
				f.SetQuestionId(0)
				return err
			})
			p.flush()
			p.answer(0)
			p.wantEnd()
		}},
	} {
		t.Run(c.limit, func(t *testing.T) {
			t.Parallel()
			ln := unixSocket(t)
			r := startOn(t, sqliteStore(t), func(cfg *Config) { c.change(&cfg.RPC) }, ln)
			p := dialRaw(t, ln)
			c.drive(r, p)
			if got := r.hits(c.limit); got == "0" {
				t.Errorf("the metrics know of no hit")
			}
			// Whatever that one did, others are served.
			until.True(t, "another connection is served", func() bool { // where the limit is a time, this machine may be slow
				q := dialRaw(t, ln)
				q.bootstrap(0)
				_, _ = q.c.Write(q.out)
				h, ok := q.next()
				return ok && h.what == rpccp.Message_Which_return && !h.failed
			})
		})
	}
}

// At Limits.Questions events wait: the subscriber that answers none gets no more of them, and the session goes on.
func TestQuestionsFromOutside(t *testing.T) {
	t.Parallel()
	ln := unixSocket(t)
	r := startOn(t, sqliteStore(t), func(cfg *Config) { cfg.RPC.Questions = 4 }, ln)
	writer := r.dial()
	m := r.create(writer)
	p := dialRaw(t, ln)
	p.bootstrap(0)
	p.restore(1, m.owner.ID, m.owner)
	p.call(2, 1, 1, wire.Session_TypeID, 3, []uint32{0}, func(s capnp.Struct) error {
		params := wire.Session_subscribe_Params(s)
		o, err := params.NewOptions()
		o.SetWindowBytes(1 << 20)
		if err == nil {
			err = s.SetPtr(1, capnp.NewInterface(s.Segment(), 0).ToPtr())
		}
		return err
	})
	p.flush()
	if h := p.answer(2); h.failed {
		t.Fatalf("subscribe: %+v", h)
	}
	for i := range 50 {
		if ack := writer.must(m.stream, m.batch(put(i+1))); ack.applied != 1 {
			t.Fatalf("append: %+v", ack)
		}
	}
	_ = p.c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	calls := 0
	for {
		msg, err := p.in.Decode()
		if err != nil {
			break
		}
		if root, err := rpccp.ReadRootMessage(msg); err == nil && root.Which() == rpccp.Message_Which_call {
			calls++
		}
	}
	if calls == 0 || calls > 4 {
		t.Errorf("%d calls came unanswered, the limit is 4", calls)
	}
	if got := r.hits("questions"); got == "0" {
		t.Error("the metrics know of no hit")
	}
}

// A WebSocket whose peer answers no ping is closed.
func TestPingFromOutside(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(cfg *Config) {
		cfg.RPC.PingInterval, cfg.RPC.PingTimeout = 20*time.Millisecond, 20*time.Millisecond
	})
	web := strings.TrimPrefix(httpOf(t, r), "http://")
	c, err := net.Dial("tcp", web)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET /capnp HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", web)
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("the connection does not end: %v", err)
	}
	if got := r.hits("ping_timeout"); got != "1" {
		t.Errorf("%s hits", got)
	}
}
