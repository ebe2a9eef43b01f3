// codec: the core, as the loop of internal/peerconn drives it, and how a connection ends: once, for one reason. Messages are read and
// written one by one. They are handled without the lock, for which decoding them would take too long.

package capnweb

import (
	"context"
	"errors"
	"io"
	"runtime/debug"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
	"github.com/mooring-rpc/mooring/capnweb/internal/transport"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// codec implements peerconn.Codec.
type codec Conn

func (d *codec) Read() ([]byte, error) {
	msg, err := d.transport.Read(context.Background())
	if err == nil {
		err = peerconn.RefusedRead((*Conn)(d).admitMessage(msg))
	}
	return msg, err
}

func (d *codec) Write(batch []byte, ends []int) error {
	messages, from := d.messages[:0], 0
	for _, end := range ends {
		messages = append(messages, batch[from:end])
		from = end
	}
	err := d.transport.Write(context.Background(), messages)
	clear(messages)
	if d.messages = messages; cap(messages) > 64 { // as after a burst
		d.messages = nil
	}
	return err
}

// Receive first handles the message, however long that takes; the calls in it are delivered afterwards. Only during
// delivery may another reader take over.
func (d *codec) Receive(msg []byte, r *peerconn.Reading) {
	c := (*Conn)(d)
	on := via{c: c}
	if c.loop.ClaimDelivery(r) {
		on.tasks = &r.Found
	}
	c.loop.SetPaused(true)
	c.unlockAndRun()
	err := c.handleMessage(msg, on)
	c.mu.Lock()
	c.loop.SetPaused(false)
	if err != nil {
		c.loop.EndLocked(abortEnding(err))
	}
}

// handleMessage is receive with panics, which are defects of ours, recovered.
func (c *Conn) handleMessage(msg []byte, on via) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("a message caused a panic", "peer", c.RemoteAddr(), "panic", r, "stack", string(debug.Stack()))
			err = expr.Violationf("internal error")
		}
	}()
	if c.cfg.Intake != nil {
		if c.messageCost = jsontext.DecodedBytes(msg); c.messageCost > minChargedMessage {
			if err := c.cfg.Intake.Grow(c.messageCost); err != nil {
				c.loop.End(c.rejectEnding(err))
				return nil
			}
			defer c.cfg.Intake.Shrink(c.messageCost)
		}
	}
	return c.receive(msg, on)
}

// minChargedMessage is the size below which a message is not charged while it is handled: what results from it is charged.
const minChargedMessage = 64 << 10

func (d *codec) UnlockAndRun() { (*Conn)(d).unlockAndRun() }

func (d *codec) Wrote() { d.out.WakeWaiters() }

func (d *codec) InFlight() int { return d.pendingPulls + d.calls }

func (d *codec) IsUnused() bool { return d.exportCount == 0 && len(d.imports) <= 1 }

func (d *codec) TransportEnding(err error) peerconn.Ending {
	if refused, ok := peerconn.AsRefusal(err); ok {
		return (*Conn)(d).rejectEnding(refused)
	}
	return transportEnding(err)
}

func (d *codec) Disconnected(why error) error {
	return &BrokenError{Reason: why.Error(), Err: errors.Unwrap(why)}
}

func (d *codec) SendAbort(why error) {
	wireErr := *why.(*Error)
	wireErr.Props = nil
	d.enc.start((*Conn)(d), `["abort",`)
	_ = d.enc.error(&wireErr, 0) // it has no properties
	d.enc.b = append(d.enc.b, ']')
	d.enc.mustSend()
}

func (d *codec) Break(why error) {
	broken, ok := why.(*BrokenError)
	if !ok {
		broken = &BrokenError{Reason: "the connection was closed", Err: why}
	}
	d.ended = broken
	d.hasEnded.Store(true)
	(*Conn)(d).breakAll(broken)
}

func (d *codec) Finish() (done bool) {
	if len(d.watchedCalls) > 0 {
		d.mu.Unlock()
		(*Conn)(d).failUnanswered()
		d.mu.Lock()
		return false
	}
	return d.drop == nil && len(d.drops)+len(d.afterUnlock) == 0
}

func (d *codec) LogText(err error) string {
	if e, ok := err.(*Error); ok {
		return e.Message
	}
	return err.Error()
}

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
