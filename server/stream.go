// Stream: the right to speak for one outbox in one session. Batches are decoded
// here and queued; the committer's goroutine answers them.

package server

import (
	"sync/atomic"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

// stream is a live Stream.
type stream struct {
	server      *Server
	auth        *authority
	outbox      string // proven by its secret when the stream was opened
	incarnation uint64
	inFlight    atomic.Int64 // unanswered calls
}

var (
	streamApply       = rpc.Method{Interface: wire.Stream_TypeID, ID: 0}
	streamAcknowledge = rpc.Method{Interface: wire.Stream_TypeID, ID: 1}
)

// maxWith is how many live sessions one batch may carry along.
const maxWith = 64

// Serve implements rpc.Object.
func (o *stream) Serve(c *rpc.Call) {
	switch c.Method() {
	case streamApply:
		o.apply(c)
	case streamAcknowledge:
		o.acknowledge(c)
	default:
		unknownMethod(c, "Stream")
	}
}

func (o *stream) apply(c *rpc.Call) {
	s, caps := c.Params()
	from, err := wire.Stream_apply_Params(s).Batch()
	if err != nil {
		refuseApply(c, fault.Malformed.Because(err, "the batch cannot be decoded"))
		return
	}
	batch, size, refused := decodeBatch(from, o.auth.session, o.outbox, o.incarnation)
	if refused != nil {
		refuseApply(c, refused)
		return
	}
	with, refused := heldSessions(s, caps)
	if refused != nil {
		refuseApply(c, refused)
		return
	}
	refused = o.submit(c, &work{
		sub: session.Submission{Batch: batch, With: with}, ops: max(len(batch.Ops), 1), bytes: size,
		done: func(a session.Answer) {
			if a.Err != nil {
				refuseApply(c, a.Err)
				return
			}
			c.Return(words(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
				reply, err := wire.Stream_apply_Results(s).NewReply()
				if err != nil {
					return err
				}
				ack, err := reply.NewAck()
				if err != nil {
					return err
				}
				return encodeAck(ack, &a)
			})
		},
	})
	if refused != nil {
		refuseApply(c, refused)
		return
	}
	crashpoint.Hit(crashpoint.ServerApplyQueued)
}

func (o *stream) acknowledge(c *rpc.Call) {
	s, _ := c.Params()
	through := wire.Stream_acknowledge_Params(s).Through()
	answer := func(refused *fault.Error) {
		c.Return(words(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			if refused == nil {
				return nil
			}
			r, err := wire.Stream_acknowledge_Results(s).NewRefusal()
			if err != nil {
				return err
			}
			return encodeRefusal(r, refused)
		})
	}
	refused := o.submit(c, &work{
		sub: session.Submission{Ack: true, Batch: ledger.Batch{Session: o.auth.session, Outbox: o.outbox,
			Incarnation: o.incarnation, AckedThrough: through}},
		ops: 1, bytes: 64,
		done: func(a session.Answer) { answer(a.Err) },
	})
	if refused != nil {
		answer(refused)
	}
}

// submit queues work under the stream's authority.
func (o *stream) submit(c *rpc.Call, w *work) *fault.Error {
	if n := o.inFlight.Add(1); n > int64(o.server.cfg.BatchesInFlight) {
		o.inFlight.Add(-1)
		return fault.Overloaded.With("%d calls of this stream wait for their answers, the most that may: wait for some", n-1)
	}
	done := w.done
	w.done = func(a session.Answer) {
		o.inFlight.Add(-1)
		done(a)
	}
	w.sub.Ref, w.sub.Space, w.caller = o.auth.ref, o.auth.space, c.Context()
	if refused := o.server.commit.add(w); refused != nil {
		o.inFlight.Add(-1)
		return refused
	}
	return nil
}

// heldSessions are the refs of the live sessions that came along with a batch.
// What is no session of this server proves nothing and is passed over, as are
// objects of Space.create: they stand on no ref whose secret was shown.
func heldSessions(s capnp.Struct, caps *rpc.CapTable) ([]string, *fault.Error) {
	ptrs, err := capabilities(s, 1)
	if err != nil {
		return nil, fault.Malformed.Because(err, "the sessions that came with the batch cannot be decoded")
	}
	if len(ptrs) > maxWith {
		return nil, fault.TooLarge.With("%d sessions came with the batch, the limit is %d", len(ptrs), maxWith)
	}
	var refs []string
	for _, p := range ptrs {
		held := caps.Get(p)
		if o, ok := held.Object().(*sess); ok && o.auth.space == "" {
			refs = append(refs, o.auth.ref)
		}
		held.Release()
	}
	return refs, nil
}

// refuseApply answers a call of apply as a whole: nothing was recorded.
func refuseApply(c *rpc.Call, f *fault.Error) {
	c.Return(words(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		reply, err := wire.Stream_apply_Results(s).NewReply()
		if err != nil {
			return err
		}
		r, err := reply.NewRefusal()
		if err != nil {
			return err
		}
		return encodeRefusal(r, f)
	})
}
