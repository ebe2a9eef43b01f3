// What is taken in of a stranger: a peer that has not shown a ref yet (Config.Intake). Its calls on the bootstrap interface
// are decoded, if they are small. What comes behind them, as a first flight's calls on what they are about to give, is kept
// as the bytes that came until it is known whether they give anything, and only then decoded: in order, for nothing
// overtakes what is kept.

package rpc

import (
	"context"
	"errors"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/intake"
)

// errHeld is that a message is not to be decoded yet.
var errHeld = errors.New("held")

// stranger is what core knows of a peer that is one, or was.
type stranger struct {
	in      *intake.Peer // nil: there are none
	allowed Limits       // when it is none any more
	intros  int          // its calls of the bootstrap interface that are unanswered
	raw     []byte       // framed messages that are kept
	at      int          // where in raw the first one begins
	early   int          // so many bytes of them came before draining began
	paused  bool         // the reader waits for what is kept to be taken in
}

// strangerTable is how much of anything a stranger may have.
const strangerTable = 2 * intake.PendingCalls

// meet begins with a peer that may be a stranger.
func (c *Conn) meet(in *intake.Peer) {
	if c.in = in; in.Trusted() {
		return
	}
	c.allowed = c.lim
	for _, bound := range []*int{&c.lim.Answers, &c.lim.Exports, &c.lim.Imports, &c.lim.QueuedCalls} {
		*bound = min(*bound, strangerTable)
	}
	c.lim.QueuedBytes = min(c.lim.QueuedBytes, 4*intake.QueuedBytes)
	in.Bind(c.regard, c.awaitIntros)
}

// regard is told that more may be taken in.
func (c *Conn) regard() {
	c.mu.Lock()
	defer c.unlock()
	if c.in.Trusted() {
		c.lim.Answers, c.lim.Exports, c.lim.Imports = c.allowed.Answers, c.allowed.Exports, c.allowed.Imports
		c.lim.QueuedCalls, c.lim.QueuedBytes = c.allowed.QueuedCalls, c.allowed.QueuedBytes
	}
	c.roomMade()
	c.takeKept()
}

// awaitIntros waits until the peer is no stranger any more, or has no call left that could make it none.
func (c *Conn) awaitIntros(ctx context.Context) error {
	c.mu.Lock()
	defer c.unlock()
	return c.pause(ctx, func() bool { return c.intros > 0 || len(c.raw) > 0 })
}

// pause has the reader wait, as long as the peer is a stranger and there is something to wait for. The lock is held.
func (c *Conn) pause(ctx context.Context, on func() bool) error {
	c.paused = true
	defer func() {
		c.paused = false
		c.heard()
	}()
	for c.ended == nil && !c.in.Trusted() && on() {
		if c.waitForRoom(ctx) != nil {
			return c.in.Overloaded()
		}
	}
	return nil
}

// takeBatch takes in what the reader has read, behind what is kept. The lock is held.
func (c *Conn) takeBatch(batch []byte) {
	if len(c.raw) > 0 && len(c.raw)-c.at+len(batch) > c.in.Message() {
		ctx, cancel := context.WithTimeout(context.Background(), c.in.Patience())
		defer cancel()
		if err := c.pause(ctx, func() bool { return len(c.raw) > 0 }); err != nil {
			c.endLocked(refusedEnding(err))
			return
		}
	}
	if len(c.raw) == 0 {
		batch = c.takeIn(batch)
	}
	if len(batch) == 0 || c.ended != nil {
		return
	}
	if !c.in.TryGrow(len(batch)) {
		c.endLocked(refusedEnding(c.in.Overloaded()))
		return
	}
	c.raw = append(c.raw, batch...)
}

// takeKept takes in what is kept, as far as that may be now. The lock is held.
func (c *Conn) takeKept() {
	if len(c.raw) == 0 || c.ended != nil {
		return
	}
	kept := c.raw[c.at:]
	left := kept
	if c.early > 0 { // it was there before, and only waited
		draining := c.draining
		c.draining = false
		n := len(c.takeIn(kept[:c.early]))
		c.draining = draining
		left = kept[c.early-n:]
		c.early = n
	}
	if c.early == 0 {
		left = c.takeIn(left)
	}
	c.in.Shrink(len(kept) - len(left))
	if c.at = len(c.raw) - len(left); len(left) == 0 {
		poison(c.raw)
		c.raw, c.at = nil, 0
		c.roomMade()
	}
}

// keptCalls is how many calls are kept.
func (co *core) keptCalls() (n int) {
	for rest := co.raw[co.at:]; len(rest) > 0; {
		var frame []byte
		var err error
		if frame, rest, err = cutFrame(rest, &co.lim); err != nil {
			break
		}
		if keepsContent(frame) {
			n++
		}
	}
	return n
}

// takeIn handles messages up to the first that is not to be decoded yet, and gives the rest. The lock is held.
func (c *Conn) takeIn(batch []byte) (rest []byte) {
	for len(batch) > 0 && c.ended == nil {
		frame, rest, err := cutFrame(batch, &c.lim)
		if err == nil {
			if err = c.admit(frame); err == errHeld {
				return batch
			}
			if err != nil {
				c.endLocked(refusedEnding(err))
				return nil
			}
			err = c.handle(frame)
		}
		if err != nil {
			c.hitBy(err)
			c.endLocked(abortEnding(err))
		}
		batch = rest
	}
	return nil
}

// refusedEnding ends the connection of a peer of which no more is taken in.
func refusedEnding(err error) ending {
	ex, _ := exceptionFor(err)
	return ending{err: ex, code: closeLater, reason: ex.Type.String(), flush: true, abort: ex}
}

// refusal is what a transport was told when it asked whether it may read on.
type refusal struct{ error }

func (e refusal) Unwrap() error { return e.error }

// refused marks what a transport was told.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// charge takes memory for a call; false if there is none.
func (co *core) charge(ans *answer) bool {
	if n := ans.bytes + intake.CallBytes; co.in.TryGrow(n) {
		ans.charged = n
		return true
	}
	return false
}

// admit says whether a message may be decoded: errHeld says not yet, another error not at all.
func (co *core) admit(frame []byte) error {
	switch {
	case co.in.Trusted():
		return nil
	case len(frame) > intake.SmallMessage && co.intros > 0:
		return errHeld
	case len(frame) > intake.SmallMessage:
		return co.in.TooLarge()
	case co.intros >= intake.PendingCalls, co.queuedBytes() > intake.QueuedBytes:
		return errHeld
	case co.intros > co.in.Delayed() && co.pipelined(frame):
		return errHeld
	}
	return nil
}

// pipelined says whether a message is a call on what an unanswered call will give. Nothing of it is kept.
func (co *core) pipelined(frame []byte) bool {
	var in inMsg
	if in.parse(frame, &co.lim) != nil {
		return false // which is found out again
	}
	m, err := rpccp.ReadRootMessage(&in.msg)
	if err != nil || m.Which() != rpccp.Message_Which_call {
		return false
	}
	call, err := m.Call()
	if err != nil {
		return false
	}
	target, err := call.Target()
	if err != nil || target.Which() != rpccp.MessageTarget_Which_promisedAnswer {
		return false
	}
	on, err := target.PromisedAnswer()
	if err != nil {
		return false
	}
	ans := co.answers[on.QuestionId()]
	return ans != nil && !ans.returned
}

// introduce notes that a stranger's call is one of those that may make it none.
func (co *core) introduce(ans *answer, dst *destination) {
	if !co.in.Trusted() && dst.ref != nil && dst.ref.node == node(co.boot) {
		ans.intro = true
		co.intros++
	}
}

// introduced notes that it is answered.
func (co *core) introduced(ans *answer) {
	if !ans.intro {
		return
	}
	ans.intro = false
	co.intros--
	co.roomMade()
}

// keptWaits has what is kept looked at again when the lock is free.
func (co *core) keptWaits() {
	if len(co.raw) > 0 && co.ended == nil {
		co.after = append(co.after, func() {
			co.conn.mu.Lock()
			defer co.conn.unlock()
			co.conn.takeKept()
		})
	}
}
