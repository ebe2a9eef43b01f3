// Ending: a connection ends once, for one reason, and breaks everything that depends on it.

package capnweb

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Status codes a transport is closed with.
const (
	closeNormal          = 1000
	closeGoingAway       = 1001
	closePolicyViolation = 1008
	closeAborted         = 3000
)

// maxCloseReason is how long the reason in a close frame may be.
const maxCloseReason = 123

// ending says why a connection ends, and how.
type ending struct {
	err    error  // what Run returns
	code   int    // sent to the peer by the transport,
	reason string // with this
	flush  bool   // send pending output before
	abort  *Error // send the peer an abort, after pending output
	noLog  bool   // not worth a log line
}

// abortEnding ends a connection whose peer broke the protocol.
func abortEnding(err error) ending {
	wireErr := &Error{Name: "TypeError", Message: err.Error()}
	return ending{err: &BrokenError{Reason: "the peer broke the protocol: " + err.Error(), Err: err}, code: closeAborted,
		reason: wireErr.Message, flush: true, abort: wireErr}
}

// closedError says that the peer closed the connection, with a status and a reason. Transports return it.
type closedError struct {
	code   int
	reason string
}

func (e *closedError) Error() string {
	if e.reason == "" {
		return "the peer closed the connection: " + strconv.Itoa(e.code)
	}
	return "the peer closed the connection: " + strconv.Itoa(e.code) + " " + e.reason
}

// transportEnding ends a connection whose transport failed or was closed.
func transportEnding(err error) ending {
	if v, ok := errors.AsType[*protocolError](err); ok {
		return abortEnding(v)
	}
	if err == io.EOF {
		return ending{code: closeNormal, noLog: true}
	}
	if bye, ok := errors.AsType[*closedError](err); ok {
		if bye.code == closeNormal || bye.code == closeGoingAway || bye.code == 1005 {
			return ending{code: closeNormal, noLog: true}
		}
		return ending{err: &BrokenError{Reason: bye.Error(), Err: err}, code: closeNormal, noLog: true}
	}
	if b, ok := errors.AsType[*BrokenError](err); ok {
		return ending{err: b, code: closeNormal}
	}
	return ending{err: &BrokenError{Reason: "the connection was lost: " + err.Error(), Err: err}, code: closeNormal}
}

func (c *Conn) end(e ending) {
	c.mu.Lock()
	defer c.unlockAndRun()
	c.endLocked(e)
}

// endLocked ends the connection, unless it has ended. Steps that run code of the program, or need other locks, and closing
// the transport, follow when the lock is free.
func (c *Conn) endLocked(e ending) {
	if c.ended != nil {
		return
	}
	e.reason = truncateText(e.reason, maxCloseReason)
	if e.abort != nil {
		wireErr := *e.abort
		wireErr.Props = nil
		c.enc.start(c, `["abort",`)
		_ = c.enc.error(&wireErr, 0) // it has no properties
		c.enc.b = append(c.enc.b, ']')
		c.enc.mustSend()
	}
	why, ok := e.err.(*BrokenError)
	if !ok {
		why = &BrokenError{Reason: "the connection was closed", Err: e.err}
	}
	c.ended, c.ending = why, e
	c.hasEnded.Store(true)
	c.breakAll(why)
	c.wakeLimitWaiters()
	close(c.done)
	if c.running {
		c.workers++ // for closing the transport
	}
	running := c.running
	c.afterUnlock = append(c.afterUnlock, func() { c.closeTransport(e, running) })
}

// breakAll empties the tables.
func (c *Conn) breakAll(why error) {
	for call := range c.watchedCalls {
		c.afterUnlock = append(c.afterUnlock, call.onConnEnd)
	}
	for f := range c.waitingFutures {
		c.afterUnlock = append(c.afterUnlock, func() { f.failCalls(c, why) })
	}
	c.waitingFutures = make(map[*future]struct{})
	for p := range c.pipes { // even one kept by a waiter for its end
		c.afterUnlock = append(c.afterUnlock, func() { p.end(&BrokenError{Reason: "the stream's writer has gone", Err: why}, false) })
	}
	for _, id := range slices.Sorted(maps.Keys(c.imports)) {
		in := c.imports[id]
		in.dropped = true
		broken := in.broken
		in.broken = nil
		main := in.id == 0
		c.afterUnlock = append(c.afterUnlock, func() {
			in.resolve(nil, nil, why)
			for _, f := range broken {
				c.runTask(task{f: func() { f(why) }})
			}
			if main {
				in.unref()
			}
		})
	}
	c.imports = make(map[int64]*importNode) // a large map never shrinks
	for _, id := range slices.Sorted(maps.Keys(c.exports)) {
		e := c.exports[id]
		e.cancelAnswer()
		c.drops = append(c.drops, e.node)
		if e.pipe != nil {
			r := e.pipe
			c.afterUnlock = append(c.afterUnlock, func() { r.Cancel(why) })
		}
	}
	c.exports = make(map[int64]*export)
	c.peerChosenImports, c.pendingPulls, c.exportCount, c.calls, c.callBytes = 0, 0, 0, 0, 0
}

// closeTransport closes the transport: when the writer has sent pending output, or now.
func (c *Conn) closeTransport(e ending, running bool) {
	switch {
	case e.abort != nil:
		c.log.Warn("connection aborted", "peer", c.RemoteAddr(), "reason", e.abort.Message)
	case e.err != nil && e.noLog:
		c.log.Debug("connection ended", "peer", c.RemoteAddr(), "reason", e.err)
	case e.err != nil:
		c.log.Info("connection ended", "peer", c.RemoteAddr(), "reason", e.err)
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
