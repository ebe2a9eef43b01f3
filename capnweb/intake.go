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

// meet begins with a peer that may be a stranger.
func (c *Conn) meet() {
	if !c.cfg.Intake.Trusted() {
		c.bound(true)
		c.cfg.Intake.Bind(c.regard, c.awaitCalls)
	}
}

// bound sets the bounds of the tables. They are looked at with the lock held, which whoever calls it has, or is alone.
func (c *Conn) bound(stranger bool) {
	full := c.cfg.Limits.withDefaults()
	c.lim.Calls, c.lim.Exports, c.lim.Imports, c.lim.QueuedBytes = full.Calls, full.Exports, full.Imports, full.QueuedBytes
	if !stranger {
		return
	}
	for _, b := range []*int{&c.lim.Calls, &c.lim.Exports, &c.lim.Imports} {
		*b = min(*b, strangerTable)
	}
	c.lim.QueuedBytes = min(c.lim.QueuedBytes, 4*intake.QueuedBytes)
}

// regard is told that more may be taken in.
func (c *Conn) regard() {
	c.mu.Lock()
	defer c.unlock()
	if c.cfg.Intake.Trusted() {
		c.bound(false)
	}
	c.roomMade()
}

// steps is how many a map may take.
func (c *Conn) steps() int {
	if !c.cfg.Intake.Trusted() {
		return min(c.lim.MapSteps, strangerSteps)
	}
	return c.lim.MapSteps
}

// awaitCalls waits until the peer is no stranger any more, or has no call left that could make it none, and the answers
// are sent.
func (c *Conn) awaitCalls(ctx context.Context) error {
	c.mu.Lock()
	defer c.unlock()
	return c.pause(ctx, func() (bool, error) { return c.unanswered() > 0, nil })
}

// pause has the reader wait, as long as the peer is a stranger and there is something to wait for. The lock is held.
func (c *Conn) pause(ctx context.Context, on func() (bool, error)) error {
	c.paused.Store(true)
	defer func() {
		c.paused.Store(false)
		c.heard()
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

// admit waits until a message may be decoded. An error is what the peer is told instead.
func (c *Conn) admitMessage(msg []byte) error {
	in := c.cfg.Intake
	if in.Trusted() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), in.Patience())
	defer cancel()
	small, first := len(msg) <= in.Small() && !streams(msg), introduces(msg)
	c.mu.Lock()
	err := c.pause(ctx, func() (bool, error) {
		switch {
		case !small && c.unanswered() > 0 && in.Small() == intake.SmallMessage:
			return true, nil
		case !small:
			return false, nil
		case c.calls >= intake.PendingCalls, c.out.size() > intake.QueuedBytes:
			return true, nil
		}
		return c.calls > in.Delayed() && !first, nil
	})
	c.unlock()
	if err == nil && !small {
		err = in.Show(msg)
	}
	return err
}

// introductions are how messages begin that wait for no answer: calls on the main object, and what is no call.
var introductions = [][]byte{[]byte(`["push",["pipeline",0,`), []byte(`["push",["import",0,`), []byte(`["pull",`), []byte(`["release",`),
	[]byte(`["resolve",`), []byte(`["reject",`), []byte(`["abort",`)}

func introduces(msg []byte) bool { return begins(msg, introductions) }

// streaming is how messages begin that a stranger has no use for: of streams much waits for its reader.
var streaming = [][]byte{[]byte(`["pipe"`), []byte(`["stream"`)}

func streams(msg []byte) bool { return begins(msg, streaming) }

func begins(msg []byte, with [][]byte) bool {
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

// refused marks what a transport was told.
func refusedRead(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// refusedEnding ends the connection of a peer of which no more is taken in.
func (c *Conn) refusedEnding(err error) ending {
	told := c.redact(err)
	return ending{err: &BrokenError{Reason: "no more is taken in: " + told.Error(), Err: err}, code: closeFatal, reason: told.Message,
		flush: true, abort: told}
}

// asRefusal is an error of reading that is one.
func asRefusal(err error) (error, bool) {
	r, ok := errors.AsType[refusal](err)
	return r.error, ok
}
