// How a connection ends: once, for one reason, breaking everything that hung on it.

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
	closeNormal = 1000
	closeAway   = 1001
	closePolicy = 1008
	closeFatal  = 3000
)

// maxReason is how long the reason in a close frame may be.
const maxReason = 123

// ending says why a connection ends, and how.
type ending struct {
	err    error  // what Run returns
	code   int    // told to the peer by the transport,
	reason string // with this
	flush  bool   // send what waits before
	abort  *Error // tell the peer, after what waits
	quiet  bool   // nobody need read of it in a log
}

// abortEnding ends a connection whose peer broke the protocol.
func abortEnding(err error) ending {
	told := &Error{Name: "TypeError", Message: err.Error()}
	return ending{err: &BrokenError{Reason: "the peer broke the protocol: " + err.Error(), Err: err}, code: closeFatal,
		reason: told.Message, flush: true, abort: told}
}

// closedError says that the peer closed the connection, with a status and a reason. Transports give it.
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

// lostEnding ends a connection whose transport failed or was closed.
func lostEnding(err error) ending {
	if v, ok := errors.AsType[*protocolError](err); ok {
		return abortEnding(v)
	}
	if err == io.EOF {
		return ending{code: closeNormal, quiet: true}
	}
	if bye, ok := errors.AsType[*closedError](err); ok {
		if bye.code == closeNormal || bye.code == closeAway || bye.code == 1005 {
			return ending{code: closeNormal, quiet: true}
		}
		return ending{err: &BrokenError{Reason: bye.Error(), Err: err}, code: closeNormal, quiet: true}
	}
	if b, ok := errors.AsType[*BrokenError](err); ok {
		return ending{err: b, code: closeNormal}
	}
	return ending{err: &BrokenError{Reason: "the connection was lost: " + err.Error(), Err: err}, code: closeNormal}
}

func (c *Conn) end(e ending) {
	c.mu.Lock()
	defer c.unlock()
	c.endLocked(e)
}

// endLocked ends the connection, unless it has ended. What runs code of the program, or needs other locks, and closing
// the transport, follows when the lock is free.
func (c *Conn) endLocked(e ending) {
	if c.ended != nil {
		return
	}
	e.reason = cutText(e.reason, maxReason)
	if e.abort != nil {
		told := *e.abort
		told.Props = nil
		c.enc.start(c, `["abort",`)
		_ = c.enc.error(&told, 0) // it has no properties
		c.enc.b = append(c.enc.b, ']')
		c.enc.sendAnyway()
	}
	why, ok := e.err.(*BrokenError)
	if !ok {
		why = &BrokenError{Reason: "the connection was closed", Err: e.err}
	}
	c.ended, c.ending = why, e
	c.over.Store(true)
	c.breakAll(why)
	c.roomMade()
	close(c.done)
	if c.running {
		c.workers++ // for closing the transport
	}
	running := c.running
	c.after = append(c.after, func() { c.closeTransport(e, running) })
}

// breakAll empties the tables.
func (c *Conn) breakAll(why error) {
	for call := range c.watched {
		c.after = append(c.after, call.broken)
	}
	for f := range c.waitsIn {
		c.after = append(c.after, func() { f.failCalls(c, why) })
	}
	c.waitsIn = make(map[*future]struct{})
	for p := range c.pipes { // even one that is held by what waits for its end
		c.after = append(c.after, func() { p.end(&BrokenError{Reason: "the stream's writer has gone", Err: why}, false) })
	}
	for _, id := range slices.Sorted(maps.Keys(c.imports)) {
		in := c.imports[id]
		in.gone = true
		broken := in.broken
		in.broken = nil
		main := in.id == 0
		c.after = append(c.after, func() {
			in.resolve(nil, nil, why)
			for _, f := range broken {
				c.runTask(task{f: func() { f(why) }})
			}
			if main {
				in.unref()
			}
		})
	}
	c.imports = make(map[int64]*importNode) // a large map stays large
	for _, id := range slices.Sorted(maps.Keys(c.exports)) {
		e := c.exports[id]
		e.settled()
		c.drops = append(c.drops, e.node)
		if e.pipe != nil {
			r := e.pipe
			c.after = append(c.after, func() { r.Cancel(why) })
		}
	}
	c.exports = make(map[int64]*export)
	c.theirs, c.pending, c.handed, c.calls, c.callBytes = 0, 0, 0, 0, 0
}

// closeTransport closes the transport: when the writer has sent what waits, or now.
func (c *Conn) closeTransport(e ending, running bool) {
	switch {
	case e.abort != nil:
		c.log.Warn("connection aborted", "peer", c.RemoteAddr(), "reason", e.abort.Message)
	case e.err != nil && e.quiet:
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
		defer c.leave()
		if e.flush {
			late := time.NewTimer(c.lim.CloseTimeout)
			defer late.Stop()
			select {
			case <-c.written:
			case <-late.C:
			}
		}
		c.transport.Close(e.code, e.reason)
	}()
}
