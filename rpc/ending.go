// Ending: a connection ends once, for one reason, and breaks everything that depends on it.

package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/table"
	"github.com/mooring-rpc/mooring/rpc/internal/transport"
)

// abortEnding ends a connection whose peer broke the protocol.
func abortEnding(err error) peerconn.Ending {
	ex := Failedf("%v", err)
	return peerconn.Ending{Err: ex, Code: peerconn.CloseProtocolError, Reason: "protocol error", Flush: true, Abort: ex}
}

// refusedEnding ends the connection of a peer from which no more is accepted.
func refusedEnding(err error) peerconn.Ending {
	ex, _ := exceptionFor(err)
	return peerconn.Ending{Err: ex, Code: peerconn.CloseTryAgainLater, Reason: ex.Type.String(), Flush: true, Abort: ex}
}

// transportEnding ends a connection whose transport failed.
func transportEnding(err error) peerconn.Ending {
	if refused, ok := peerconn.AsRefusal(err); ok {
		return refusedEnding(refused)
	}
	if _, ok := errors.AsType[framing.Error](err); ok {
		return abortEnding(err)
	}
	if ex, ok := errors.AsType[*Exception](err); ok {
		return peerconn.Ending{Err: ex, Code: peerconn.CloseNormal}
	}
	if err == io.EOF {
		err = transport.ClosedError("")
	}
	if bye, ok := errors.AsType[transport.ClosedError](err); ok {
		return peerconn.Ending{Err: Disconnectedf("%v", bye), Code: peerconn.CloseNormal, NoLog: true}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		err = op.Err // without addresses: callers through this vat receive the text too
	}
	return peerconn.Ending{Err: Disconnectedf("the connection was lost: %v", err), Code: peerconn.CloseNormal}
}

// Refuse tells the peer of a transport that there will be no connection, and why, and closes the transport. It returns
// the error of writing; a peer that does not read can delay it for as long as the transport allows.
func Refuse(t Transport, why error) error {
	ex, _ := exceptionFor(why)
	out := newOutMsg()
	root, err := out.Init()
	if err == nil {
		err = writeAbort(root, ex, maxReasonBytes)
	}
	if err == nil {
		var b []byte
		if b, err = out.Append(nil); err == nil {
			err = t.WriteBatch(context.Background(), b)
		}
		out.free()
	}
	return errors.Join(err, t.Close(peerconn.CloseTryAgainLater, ex.Reason))
}

// writeAbort makes m an abort that says why the connection ends.
func writeAbort(m rpccp.Message, ex *Exception, most int) error {
	e, err := m.NewAbort()
	if err != nil {
		return err
	}
	return writeException(e, ex, most)
}

// reasonOf returns an error's text without the prefix that says that it is ours.
func reasonOf(err error) string {
	if ex, ok := errors.AsType[*Exception](err); ok {
		return ex.Reason
	}
	return err.Error()
}

// breakAll empties the tables.
func (co *core) breakAll(ex *Exception) {
	for p := range co.questions.All() {
		if p.q.returned {
			continue
		}
		p.q.returned = true
		for _, r := range p.q.pipelined {
			co.breakRemote(r, ex)
		}
		p.q.pipelined = nil
		co.queueCompletion(p.complete(capnp.Ptr{}, CapTable{}, ex))
	}
	co.questions = table.Table[*Promise]{}
	for _, r := range co.imports {
		co.breakRemote(r, ex)
	}
	co.imports = nil
	for r := range co.disembargoesOut.All() {
		co.breakRemote(r, ex)
	}
	co.disembargoesOut = table.Table[*remoteCap]{}
	for exp := range co.exports.All() {
		co.drops = append(co.drops, exp.ref.node)
	}
	co.exports, co.exportIDs = table.Table[*export]{}, nil
	for _, ans := range co.answers {
		co.cancels = append(co.cancels, &ans.call)
		co.dropCaps(ans.caps)
		for _, lp := range ans.pipelined {
			co.afterUnlock = append(co.afterUnlock, func() { lp.cap.resolve(brokenRef(ex)) })
		}
		ans.queue, ans.pipelined, ans.takers = nil, nil, nil
		if !ans.returned {
			co.orphans = append(co.orphans, ans)
		}
	}
	co.answers = nil
	co.deferred, co.deferredOffset, co.preDrainBytes = nil, 0, 0
	co.unanswered, co.answerBytes, co.queuedCalls, co.pipelinedPromises, co.disembargoesIn = 0, 0, 0, 0, 0
	if co.boot != nil {
		co.drops = append(co.drops, co.boot)
		co.boot = nil
	}
}

// breakRemote makes every further call on r fail, and the calls that wait on it.
func (co *core) breakRemote(r *remoteCap, ex *Exception) {
	queue := r.queue
	r.queue = nil
	if r.target != nil {
		co.drops = append(co.drops, r.target.node)
	}
	r.target, r.state, r.dropped = brokenRef(ex), capResolved, true
	for _, t := range queue {
		if t.call != nil {
			co.afterUnlock = append(co.afterUnlock, func() { t.call.Fail(ex) })
		} else if t.disembargo != nil {
			co.drops = append(co.drops, t.disembargo.to)
		}
	}
}

// failOrphans releases what calls that handlers never answered still reference, when nothing runs any more.
func (c *Conn) failOrphans() {
	c.mu.Lock()
	orphans := slices.Clone(c.orphans)
	c.orphans = nil
	c.unlockAndRun()
	for _, ans := range orphans {
		ans.call.Fail(errEnded)
	}
}
