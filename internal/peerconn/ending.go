// Ending: a connection ends once, for one reason.

package peerconn

import "time"

// Status codes of WebSockets that a transport is closed with.
const (
	CloseNormal          = 1000
	CloseGoingAway       = 1001
	CloseProtocolError   = 1002
	ClosePolicyViolation = 1008
	CloseTryAgainLater   = 1013
)

// Ending says why a connection ends, and how.
type Ending struct {
	Err    error  // what Run returns
	Code   int    // sent to the peer by the transport,
	Reason string // with this
	Flush  bool   // send pending output before
	Abort  error  // send the peer an abort, after pending output
	NoLog  bool   // not worth a log line
}

// End is EndLocked without the lock held.
func (l *Loop) End(e Ending) {
	l.mu.Lock()
	defer l.codec.UnlockAndRun()
	l.EndLocked(e)
}

// EndLocked ends the connection, unless it has ended. All promises break now; steps that need other locks, and closing the
// transport, follow when the lock is free.
func (l *Loop) EndLocked(e Ending) {
	if l.ended {
		return
	}
	if e.Abort != nil {
		l.codec.SendAbort(e.Abort)
		if l.ended { // the abort did not fit
			return
		}
	}
	l.ended, l.ending = true, e
	l.codec.Break(e.Err)
	l.codec.Wrote()
	close(l.done)
	if l.running {
		l.workers++ // for closing the transport
	}
	l.closing = true
	l.closeWaits = l.running
}

// lockAfter takes the lock after the transport was used, and ends the connection if it failed.
func (l *Loop) lockAfter(err error) {
	if err == nil {
		l.mu.Lock()
		return
	}
	e := l.codec.TransportEnding(err)
	l.mu.Lock()
	l.EndLocked(e)
}

// closeTransport closes the transport: when the writer has sent pending output, or now.
func (l *Loop) closeTransport() {
	e := l.ending
	switch {
	case e.Abort != nil:
		l.log.Warn("connection aborted", "peer", l.cfg.Transport.RemoteAddr(), "reason", l.codec.LogText(e.Abort))
	case e.Err != nil && e.NoLog:
		l.log.Debug("connection ended", "peer", l.cfg.Transport.RemoteAddr(), "reason", l.codec.LogText(e.Err))
	case e.Err != nil:
		l.log.Info("connection ended", "peer", l.cfg.Transport.RemoteAddr(), "reason", l.codec.LogText(e.Err))
	}
	if !l.closeWaits {
		l.cfg.Transport.Close(e.Code, e.Reason)
		return
	}
	l.wakeWriter()
	go func() {
		defer l.WorkerDone()
		if e.Flush {
			late := time.NewTimer(l.cfg.Timeouts.Close)
			defer late.Stop()
			select {
			case <-l.writerDone:
			case <-late.C:
			}
		}
		l.cfg.Transport.Close(e.Code, e.Reason)
	}()
}
