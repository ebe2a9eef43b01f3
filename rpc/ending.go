// Ending: a connection ends once, for one reason, and breaks everything that depends on it.

package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// WebSocket status codes a transport is closed with.
const (
	closeNormal          = 1000
	closeGoingAway       = 1001
	closeProtocolError   = 1002
	closeUnsupportedData = 1003
	closePolicyViolation = 1008
	closeTryAgainLater   = 1013
)

// ending says why a connection ends, and how.
type ending struct {
	err    error      // what Run returns
	code   int        // sent to the peer by the transport,
	reason string     // with this
	flush  bool       // send pending output before
	abort  *Exception // send the peer an Abort, after pending output
	noLog  bool       // not worth a log line
}

// abortEnding ends a connection whose peer broke the protocol.
func abortEnding(err error) ending {
	ex := Failedf("%v", err)
	return ending{err: ex, code: closeProtocolError, reason: "protocol error", flush: true, abort: ex}
}

// closedError says that the peer closed the connection in an orderly way, and its reason.
type closedError string

func (e closedError) Error() string {
	if e == "" {
		return "the peer closed the connection"
	}
	return "the peer closed the connection: " + string(e)
}

// transportEnding ends a connection whose transport failed.
func transportEnding(err error) ending {
	if refused, ok := errors.AsType[refusal](err); ok {
		return refusedEnding(refused.error)
	}
	if _, ok := errors.AsType[frameError](err); ok {
		return abortEnding(err)
	}
	if ex, ok := errors.AsType[*Exception](err); ok {
		return ending{err: ex, code: closeNormal}
	}
	if err == io.EOF {
		err = closedError("")
	}
	if bye, ok := errors.AsType[closedError](err); ok {
		return ending{err: Disconnectedf("%v", bye), code: closeNormal, noLog: true}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		err = op.Err // without addresses: callers through this vat receive the text too
	}
	return ending{err: Disconnectedf("the connection was lost: %v", err), code: closeNormal}
}

// endLocked ends the connection, unless it has ended. All promises break now; steps that need other locks, and closing the
// transport, follow when the lock is free.
func (c *Conn) endLocked(e ending) {
	if c.ended != nil {
		return
	}
	if e.abort != nil {
		c.send(func(m rpccp.Message) error { return writeAbort(m, e.abort, c.maxReason()) })
		if c.ended != nil { // the abort did not fit
			return
		}
	}
	why := e.err
	if why == nil {
		why = errors.New("closed on this side")
	}
	ex := Disconnectedf("the connection has ended: %s", reasonOf(why))
	c.ended, c.ending = ex, e
	c.core.breakAll(ex)
	c.wakeLimitWaiters()
	close(c.done)
	if c.running {
		c.workers++ // for closing the transport
	}
	running := c.running
	c.afterUnlock = append(c.afterUnlock, func() { c.closeTransport(e, running) }, c.abandonLanes)
}

// Refuse tells the peer of a transport that there will be no connection, and why, and closes the transport. It returns
// the error of writing; a peer that does not read can delay it for as long as the transport allows.
func Refuse(t Transport, why error) error {
	ex, _ := exceptionFor(why)
	out, err := newOutMsg()
	if err == nil {
		err = writeAbort(out.root, ex, maxReasonBytes)
	}
	if err == nil {
		var b []byte
		if b, err = appendFrame(nil, &out.msg); err == nil {
			err = t.WriteBatch(context.Background(), b)
		}
		out.free()
	}
	return errors.Join(err, t.Close(closeTryAgainLater, ex.Reason))
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
	for _, p := range co.questions.slots {
		if p == nil || p.q.returned {
			continue
		}
		p.q.returned = true
		for _, r := range p.q.pipelined {
			co.breakRemote(r, ex)
		}
		p.q.pipelined = nil
		co.queueCompletion(p.complete(capnp.Ptr{}, CapTable{}, ex))
	}
	co.questions = table[*Promise]{}
	for _, r := range co.imports {
		co.breakRemote(r, ex)
	}
	co.imports = nil
	for _, r := range co.disembargoesOut.slots {
		if r != nil {
			co.breakRemote(r, ex)
		}
	}
	co.disembargoesOut = table[*remoteCap]{}
	for _, exp := range co.exports.slots {
		if exp != nil {
			co.drops = append(co.drops, exp.ref.node)
		}
	}
	co.exports, co.exportIDs = table[*export]{}, nil
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

// closeTransport closes the transport: when the writer has sent pending output, or now.
func (c *Conn) closeTransport(e ending, running bool) {
	switch {
	case e.abort != nil:
		c.log.Warn("connection aborted", "peer", c.RemoteAddr(), "reason", e.abort.Reason)
	case e.err != nil && e.noLog:
		c.log.Debug("connection ended", "peer", c.RemoteAddr(), "reason", reasonOf(e.err))
	case e.err != nil:
		c.log.Info("connection ended", "peer", c.RemoteAddr(), "reason", reasonOf(e.err))
	}
	if !running {
		c.transport.Close(e.code, e.reason)
		return
	}
	c.wakeWriter()
	go func() {
		defer c.workerDone()
		if e.flush {
			late := time.NewTimer(c.limits.CloseTimeout)
			defer late.Stop()
			select {
			case <-c.writerDone:
			case <-late.C:
			}
		}
		c.transport.Close(e.code, e.reason)
	}()
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
