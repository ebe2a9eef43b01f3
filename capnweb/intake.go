// What is taken in of a stranger: a peer that has not shown a ref yet (Config.Intake), and what decoding costs. A stranger's
// calls on the main object are decoded, if they are small. The reader waits with what comes behind them until it is known
// whether they give anything, and what has come by then stays as it came.

package capnweb

import (
	"bytes"
	"context"
	"errors"

	"github.com/mooring-rpc/mooring/internal/intake"
)

const (
	strangerTable = 2 * intake.PendingCalls // how much of anything a stranger may have
	strangerSteps = 1 << 10                 // of its maps
)

// initIntake begins with a peer that may be a stranger.
func (c *Conn) initIntake() {
	if !c.cfg.Intake.Trusted() {
		c.setBounds(true)
		c.cfg.Intake.Bind(c.onIntakeChange, c.awaitCalls)
	}
}

// setBounds sets the bounds of the tables. They are looked at with the lock held, which whoever calls it has, or is alone.
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

// onIntakeChange is told that more may be taken in.
func (c *Conn) onIntakeChange() {
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.cfg.Intake.Trusted() {
		c.setBounds(false)
	}
	c.wakeLimitWaiters()
}

// steps is how many a map may take.
func (c *Conn) steps() int {
	if !c.cfg.Intake.Trusted() {
		return min(c.limits.MapSteps, strangerSteps)
	}
	return c.limits.MapSteps
}

// awaitCalls waits until the peer is no stranger any more, or has no call left that could make it none, and the answers
// are sent.
func (c *Conn) awaitCalls(ctx context.Context) error {
	c.mu.Lock()
	defer c.unlockAndRun()
	return c.pauseReader(ctx, func() (bool, error) { return c.unanswered() > 0, nil })
}

// pauseReader has the reader wait, as long as the peer is a stranger and there is something to wait for. The lock is held.
func (c *Conn) pauseReader(ctx context.Context, on func() (bool, error)) error {
	c.readerPaused.Store(true)
	defer func() {
		c.readerPaused.Store(false)
		c.markActivity()
	}()
	for c.ended == nil && !c.cfg.Intake.Trusted() {
		if wait, err := on(); !wait || err != nil {
			return err
		}
		if c.waitForRoom(ctx) != nil {
			return c.cfg.Intake.Overloaded()
		}
	}
	return nil
}

// admitMessage waits until a message may be decoded. An error is what the peer is told instead.
func (c *Conn) admitMessage(msg []byte) error {
	in := c.cfg.Intake
	if in.Trusted() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), in.MaxWait())
	defer cancel()
	small, first := len(msg) <= in.MaxMessage() && !isStreamMessage(msg), mayAuthenticate(msg)
	c.mu.Lock()
	err := c.pauseReader(ctx, func() (bool, error) {
		switch {
		case !small && c.unanswered() > 0 && in.MaxMessage() == intake.MaxStrangerMessage:
			return true, nil
		case !small:
			return false, nil
		case c.calls >= intake.PendingCalls, c.out.size() > intake.QueuedBytes:
			return true, nil
		}
		return c.calls > in.Throttled() && !first, nil
	})
	c.unlockAndRun()
	if err == nil && !small {
		err = in.FindRef(msg)
	}
	return err
}

// authPrefixes are how messages begin that wait for no answer: calls on the main object, and what is no call.
var authPrefixes = [][]byte{[]byte(`["push",["pipeline",0,`), []byte(`["push",["import",0,`), []byte(`["pull",`), []byte(`["release",`),
	[]byte(`["resolve",`), []byte(`["reject",`), []byte(`["abort",`)}

func mayAuthenticate(msg []byte) bool { return hasAnyPrefix(msg, authPrefixes) }

// streamPrefixes is how messages begin that a stranger has no use for: of streams much waits for its reader.
var streamPrefixes = [][]byte{[]byte(`["pipe"`), []byte(`["stream"`)}

func isStreamMessage(msg []byte) bool { return hasAnyPrefix(msg, streamPrefixes) }

func hasAnyPrefix(msg []byte, with [][]byte) bool {
	for _, b := range with {
		if bytes.HasPrefix(msg, b) {
			return true
		}
	}
	return false
}

// What a value takes once it is decoded, about, in bytes.
const (
	valueBytes  = 56 // its place in a list, in that under construction, and a number's own
	memberBytes = 48
	objectBytes = 336
)

// decodedBytes is what a message takes once it is decoded, about: for small values many times what it is itself. It does
// not say whether the message is one.
func decodedBytes(msg []byte) int {
	size := len(msg)
	for i := 0; i < len(msg); i++ {
		switch msg[i] {
		case '"':
			for i++; i < len(msg) && msg[i] != '"'; i++ {
				n := bytes.IndexByte(msg[i:], '"')
				if n < 0 {
					return size
				}
				if k := bytes.IndexByte(msg[i:i+n], '\\'); k >= 0 {
					i += k + 1 // and past what is escaped
					continue
				}
				i += n - 1
			}
		case ',', '[':
			size += valueBytes
		case ':':
			size += memberBytes
		case '{':
			size += objectBytes
		}
	}
	return size
}

// refusal is what a transport was told when it asked whether it may read on.
type refusal struct{ error }

func (e refusal) Unwrap() error { return e.error }

// refusedRead marks what a transport was told.
func refusedRead(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// rejectEnding ends the connection of a peer of which no more is taken in.
func (c *Conn) rejectEnding(err error) ending {
	told := c.redact(err)
	return ending{err: &BrokenError{Reason: "no more is taken in: " + told.Error(), Err: err}, code: closeAborted, reason: told.Message,
		flush: true, abort: told}
}

// asRefusal is an error of reading that is one.
func asRefusal(err error) (error, bool) {
	r, ok := errors.AsType[refusal](err)
	return r.error, ok
}
