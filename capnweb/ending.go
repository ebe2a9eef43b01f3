// Ending: a connection ends once, for one reason, and breaks everything that depends on it.

package capnweb

import (
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/capnweb/internal/transport"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// closeAborted is the status code that a transport is closed with after an abort.
const closeAborted = 3000

// abortEnding ends a connection whose peer broke the protocol.
func abortEnding(err error) peerconn.Ending {
	wireErr := &Error{Name: "TypeError", Message: err.Error()}
	return peerconn.Ending{Err: &BrokenError{Reason: "the peer broke the protocol: " + err.Error(), Err: err}, Code: closeAborted,
		Reason: wireErr.Message, Flush: true, Abort: wireErr}
}

// transportEnding ends a connection whose transport failed or was closed.
func transportEnding(err error) peerconn.Ending {
	if v, ok := errors.AsType[*expr.Violation](err); ok {
		return abortEnding(v)
	}
	if err == transport.ErrBinary {
		return abortEnding(err)
	}
	if err == io.EOF {
		return peerconn.Ending{Code: peerconn.CloseNormal, NoLog: true}
	}
	if bye, ok := errors.AsType[*transport.ClosedError](err); ok {
		if bye.Code == peerconn.CloseNormal || bye.Code == peerconn.CloseGoingAway || bye.Code == 1005 {
			return peerconn.Ending{Code: peerconn.CloseNormal, NoLog: true}
		}
		return peerconn.Ending{Err: &BrokenError{Reason: bye.Error(), Err: err}, Code: peerconn.CloseNormal, NoLog: true}
	}
	if b, ok := errors.AsType[*BrokenError](err); ok {
		return peerconn.Ending{Err: b, Code: peerconn.CloseNormal}
	}
	return peerconn.Ending{Err: &BrokenError{Reason: "the connection was lost: " + err.Error(), Err: err}, Code: peerconn.CloseNormal}
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
				c.loop.RunTask(peerconn.Func(func() { f(why) }))
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
