//go:build unix

// A peer that speaks Cap'n Proto by hand over a byte stream, and so can say what
// no vat would.

package node

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
)

// unixSocket listens on a Unix socket of its own.
func unixSocket(t testing.TB) net.Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "mooring") // t.TempDir's paths can be longer than a socket's may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "capnp"))
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

type rawPeer struct {
	t   testing.TB
	c   net.Conn
	in  *capnp.Decoder
	out []byte // what flush sends
}

func dialRaw(t testing.TB, ln net.Listener) *rawPeer {
	t.Helper()
	c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return &rawPeer{t: t, c: c, in: capnp.NewDecoder(c)}
}

// say queues a message.
func (p *rawPeer) say(fill func(rpccp.Message) error) {
	p.t.Helper()
	msg, seg := capnp.NewSingleSegmentMessage(nil)
	m, err := rpccp.NewRootMessage(seg)
	if err == nil {
		err = fill(m)
	}
	var b []byte
	if err == nil {
		b, err = msg.Marshal()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.out = append(p.out, b...)
}

// flush sends all that was said, in one piece.
func (p *rawPeer) flush() {
	p.t.Helper()
	if _, err := p.c.Write(p.out); err != nil {
		p.t.Fatalf("send: %v", err)
	}
	p.out = nil
}

func (p *rawPeer) bootstrap(question uint32) {
	p.say(func(m rpccp.Message) error {
		b, err := m.NewBootstrap()
		b.SetQuestionId(question)
		return err
	})
}

// call queues a call on what an earlier question returns, with as many
// capabilities of this side, and steps in the path, as it is told.
func (p *rawPeer) call(question, on uint32, steps int, iface uint64, method uint16, caps []uint32, params func(capnp.Struct) error) {
	p.say(func(m rpccp.Message) error {
		c, err := m.NewCall()
		if err != nil {
			return err
		}
		c.SetQuestionId(question)
		c.SetInterfaceId(iface)
		c.SetMethodId(method)
		to, err := c.NewTarget()
		if err != nil {
			return err
		}
		pa, err := to.NewPromisedAnswer()
		if err != nil {
			return err
		}
		pa.SetQuestionId(on)
		if steps > 0 {
			ops, err := pa.NewTransform(int32(steps))
			if err != nil {
				return err
			}
			for i := range steps {
				ops.At(i).SetGetPointerField(0)
			}
		}
		payload, err := c.NewParams()
		if err != nil {
			return err
		}
		if len(caps) > 0 {
			list, err := payload.NewCapTable(int32(len(caps)))
			if err != nil {
				return err
			}
			for i, id := range caps {
				list.At(i).SetSenderHosted(id)
			}
		}
		if params == nil {
			return nil
		}
		s, err := capnp.NewStruct(payload.Segment(), capnp.ObjectSize{DataSize: 32, PointerCount: 4})
		if err == nil {
			err = params(s)
		}
		if err == nil {
			err = payload.SetContent(s.ToPtr())
		}
		return err
	})
}

// hello calls a method that needs nothing.
func (p *rawPeer) hello(question uint32) {
	p.call(question, 0, 0, wire.Gateway_TypeID, methods.GatewayHello.ID, nil, func(s capnp.Struct) error {
		s.SetUint32(0, wire.ProtocolVersion)
		return nil
	})
}

// restore calls Gateway.restore.
func (p *rawPeer) restore(question uint32, id string, ref capability.Ref) {
	p.call(question, 0, 0, wire.Gateway_TypeID, methods.GatewayRestore.ID, nil, func(s capnp.Struct) error {
		r, err := wire.Gateway_restore_Params(s).NewRef()
		if err == nil {
			err = r.SetId(id)
		}
		if err == nil {
			err = r.SetSecret(ref.Secret.Reveal())
		}
		return err
	})
}

// rawMessage is a message of the server, in short.
type rawMessage struct {
	what   rpccp.Message_Which
	id     uint32 // a return's question
	failed bool   // the return is an exception
	kind   rpccp.Exception_Type
	reason string
}

// next waits for the next message; ok is false when the connection has ended.
func (p *rawPeer) next() (h rawMessage, ok bool) {
	p.t.Helper()
	msg, err := p.in.Decode()
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.t.Fatal("the server says nothing")
		}
		return h, false
	}
	m, err := rpccp.ReadRootMessage(msg)
	if err != nil {
		p.t.Fatal(err)
	}
	h.what = m.Which()
	var e rpccp.Exception
	switch h.what {
	case rpccp.Message_Which_abort:
		e, err = m.Abort()
	case rpccp.Message_Which_return:
		var r rpccp.Return
		if r, err = m.Return(); err == nil {
			h.id = r.AnswerId()
			if h.failed = r.Which() == rpccp.Return_Which_exception; h.failed {
				e, err = r.Exception()
			}
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
	if e.IsValid() {
		h.kind = e.Type()
		h.reason, _ = e.Reason()
	}
	return h, true
}

// answer waits for the return of a question.
func (p *rawPeer) answer(question uint32) rawMessage {
	p.t.Helper()
	for {
		h, ok := p.next()
		if !ok {
			p.t.Fatalf("the connection ended before question %d was answered", question)
		}
		if h.what == rpccp.Message_Which_abort {
			p.t.Fatalf("aborted: %s", h.reason)
		}
		if h.what == rpccp.Message_Which_return && h.id == question {
			return h
		}
	}
}

// wantAbort waits for an abort that says so, and for the end behind it.
func (p *rawPeer) wantAbort(reason string) {
	p.t.Helper()
	for {
		h, ok := p.next()
		if !ok {
			p.t.Fatalf("the connection ended without an abort that says %q", reason)
		}
		if h.what != rpccp.Message_Which_abort {
			continue
		}
		if !strings.Contains(h.reason, reason) {
			p.t.Errorf("aborted with %q, want %q in it", h.reason, reason)
		}
		break
	}
	p.wantEnd()
}

// wantEnd waits for the end of the connection.
func (p *rawPeer) wantEnd() {
	p.t.Helper()
	if n, err := io.Copy(io.Discard, p.c); errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("the connection does not end; %d bytes came", n)
	}
}
