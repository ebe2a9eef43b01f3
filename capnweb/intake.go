// Intake of a stranger, a peer that has not authenticated with a ref yet (Config.Intake). Its calls on the main object
// are decoded, if they are small. The reader waits with messages behind them until it is known whether they succeed, and messages
// received by then stay raw.

package capnweb

import (
	"context"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

const (
	strangerTable = 2 * intake.PendingCalls // bounds each table for a stranger
	strangerSteps = 1 << 10                 // of its maps
)

// initIntake sets up intake for a peer that may be a stranger.
func (c *Conn) initIntake() {
	if !c.cfg.Intake.Trusted() {
		c.setBounds(true)
		c.cfg.Intake.Bind(c.onIntakeChange, c.awaitCalls)
	}
}

// setBounds sets the bounds of the tables. They are read with the lock held, as the caller does, unless it is alone.
func (c *Conn) setBounds(stranger bool) {
	full := c.cfg.Limits.withDefaults()
	c.limits.Calls, c.limits.Exports, c.limits.Imports, c.limits.QueuedBytes = full.Calls, full.Exports, full.Imports, full.QueuedBytes
	if !stranger {
		return
	}
	for _, b := range []*int{&c.limits.Calls, &c.limits.Exports, &c.limits.Imports} {
		*b = min(*b, strangerTable)
	}
	c.limits.QueuedBytes = min(c.limits.QueuedBytes, 4*intake.QueuedBytes)
}

// onIntakeChange is called when more may be accepted.
func (c *Conn) onIntakeChange() {
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.cfg.Intake.Trusted() {
		c.setBounds(false)
	}
	c.out.WakeWaiters()
}

// steps returns how many steps a map may take.
func (c *Conn) steps() int {
	if !c.cfg.Intake.Trusted() {
		return min(c.limits.MapSteps, strangerSteps)
	}
	return c.limits.MapSteps
}

// awaitCalls waits until the peer is trusted, or has no call left that could make it trusted, and the answers are sent.
func (c *Conn) awaitCalls(ctx context.Context) error {
	c.mu.Lock()
	defer c.unlockAndRun()
	return c.pauseReader(ctx, func() bool { return c.unanswered() > 0 })
}

// pauseReader makes the reader wait, as long as the peer is a stranger and on reports true. The lock is held.
func (c *Conn) pauseReader(ctx context.Context, on func() bool) error {
	if c.loop.PauseReader(ctx, func() bool { return !c.cfg.Intake.Trusted() && on() }) != nil {
		return c.cfg.Intake.Overloaded()
	}
	return nil
}

// admitMessage waits until a message may be decoded. An error is sent to the peer instead.
func (c *Conn) admitMessage(msg []byte) error {
	in := c.cfg.Intake
	if in.Trusted() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), in.MaxWait())
	defer cancel()
	first := expr.MayAuthenticate(msg)
	small := len(msg) <= in.MaxMessage() && !expr.IsStream(msg) // streams buffer much for their reader
	c.mu.Lock()
	err := c.pauseReader(ctx, func() bool {
		switch {
		case !small && c.unanswered() > 0 && in.MaxMessage() == intake.MaxStrangerMessage:
			return true
		case !small:
			return false
		case c.calls >= intake.PendingCalls, c.out.Size() > intake.QueuedBytes:
			return true
		}
		return c.calls > in.Throttled() && !first
	})
	c.unlockAndRun()
	if err == nil && !small {
		err = in.FindRef(msg)
	}
	return err
}

// rejectEnding ends the connection of a peer from which no more is accepted.
func (c *Conn) rejectEnding(err error) peerconn.Ending {
	wireErr := c.redact(err)
	return peerconn.Ending{Err: &BrokenError{Reason: "no more is taken in: " + wireErr.Error(), Err: err}, Code: closeAborted, Reason: wireErr.Message,
		Flush: true, Abort: wireErr}
}
