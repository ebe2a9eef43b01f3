// Redaction of errors that are sent to a peer.

package capnweb

import (
	"errors"
)

// redact returns the error to send to a peer for err.
func (c *Conn) redact(err error) *Error {
	if e, ok := err.(*Error); ok && e != nil {
		return e
	}
	if e, ok := errors.AsType[*BrokenError](err); ok {
		c.log.Debug("a call met something broken", "peer", c.RemoteAddr(), "reason", e.Reason)
		return errUnreachable
	}
	if c.cfg.Redact != nil {
		if e := c.callRedact(err); e != nil {
			return e
		}
		return errInternal
	}
	c.log.Warn("an error was told as internal", "peer", c.RemoteAddr(), "error", err)
	return errInternal
}

func (c *Conn) callRedact(err error) (e *Error) {
	defer func() {
		if p := recover(); p != nil {
			e = panicError(c.log, "Redact panicked", p)
		}
	}()
	return c.cfg.Redact(err)
}

var errUnreachable = &Error{Name: "Error", Message: "what was called cannot be reached any more"}
