// Limits: every bound of a connection, with what happens at it. None can be switched off, except the two timeouts that
// only a server sets.

package rpc

import (
	"errors"
	"time"

	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// Limits bounds the cost of one connection. A zero field takes the value of DefaultLimits.
type Limits struct {
	// MessageBytes is the largest Cap'n Proto message accepted, framing included. Beyond it the connection is aborted.
	MessageBytes int
	// SendBytes is the largest message sent. Beyond it the call or answer fails. 0 takes MessageBytes.
	SendBytes int
	// Segments is the most segments a message may have, checked before anything is allocated. Beyond it: abort.
	Segments int
	// Nesting is how deep pointers may nest and how long a pipeline's path may be. Beyond it: reading fails.
	Nesting int
	// Traversal is how many bytes may be read from one message, repeated reads counted. Beyond it: reading fails.
	Traversal int

	// Questions is how many calls of ours may be unanswered. At it Ref.Call waits (backpressure).
	Questions int
	// Answers is how many of the peer's calls may be unanswered. At it further calls are answered overloaded; at twice
	// as many unfinished ones the connection is aborted, and at as many disembargoes that wait behind calls.
	Answers int
	// AnswerBytes bounds the bytes of parameters of the peer's unanswered calls, capabilities included, and separately the
	// bytes of results of its unfinished calls. At it further calls are answered overloaded.
	AnswerBytes int
	// Exports is how many of our objects the peer may reference. At it calls and returns that would export another fail
	// as overloaded.
	Exports int
	// Imports is how many of the peer's objects we reference, how many of its promises that have resolved since, and how many
	// disembargoes may be outstanding. Beyond it: abort.
	Imports int
	// QueuedCalls is how many calls, or promises of results passed on, may wait on one unresolved promise. At it further
	// calls are answered overloaded. On all promises together as many as Answers may wait.
	QueuedCalls int
	// QueuedBytes is how many bytes may wait to be written to the peer. At it Ref.Call waits (backpressure) and calls of the
	// peer are answered overloaded; at four times as many the connection is closed.
	QueuedBytes int

	// WriteTimeout closes the connection when one write has made no progress for this long.
	WriteTimeout time.Duration
	// PingInterval is how long a connection is silent before it is pinged.
	PingInterval time.Duration
	// PingTimeout closes the connection when a ping has no answer for this long, and a second more for each 64 KiB, up to
	// 8 MiB, that may be in a buffer of the system or a proxy still. Interval plus timeout is the time in
	// which a dead peer is found. It is also the longest that a silent peer may read nothing of a write under way, which
	// a ping would wait behind; and on TCP, where the system has a setting for it, that it may acknowledge nothing.
	PingTimeout time.Duration
	// CloseTimeout is how long Close, abort and the end of Run may spend on sending pending output.
	CloseTimeout time.Duration
	// HandshakeTimeout closes a connection on which the peer has sent no message for this long after Run began; 0 never.
	HandshakeTimeout time.Duration
	// IdleTimeout closes a connection on which the peer has sent no message for this long, while neither side has a call
	// unanswered or references anything of the other but the bootstrap interface; 0 never.
	IdleTimeout time.Duration
}

// DefaultLimits returns the limits that a server gives to strangers. A dead peer is found within 9 seconds.
func DefaultLimits() Limits {
	return Limits{
		MessageBytes: 8 << 20,
		Segments:     64,
		Nesting:      64,
		Traversal:    64 << 20,
		Questions:    8192,
		Answers:      16384,
		AnswerBytes:  64 << 20,
		Exports:      65536,
		Imports:      65536,
		QueuedCalls:  4096,
		QueuedBytes:  16 << 20,
		WriteTimeout: 10 * time.Second,
		PingInterval: 5 * time.Second,
		PingTimeout:  4 * time.Second,
		CloseTimeout: 2 * time.Second,
	}
}

// withDefaults fills fields that have no value.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	defaults.Set(&l.MessageBytes, d.MessageBytes)
	defaults.Set(&l.Segments, d.Segments)
	defaults.Set(&l.Nesting, d.Nesting)
	defaults.Set(&l.Traversal, d.Traversal)
	defaults.Set(&l.Questions, d.Questions)
	defaults.Set(&l.Answers, d.Answers)
	defaults.Set(&l.AnswerBytes, d.AnswerBytes)
	defaults.Set(&l.Exports, d.Exports)
	defaults.Set(&l.Imports, d.Imports)
	defaults.Set(&l.QueuedCalls, d.QueuedCalls)
	defaults.Set(&l.QueuedBytes, d.QueuedBytes)
	defaults.Set(&l.WriteTimeout, d.WriteTimeout)
	defaults.Set(&l.PingInterval, d.PingInterval)
	defaults.Set(&l.PingTimeout, d.PingTimeout)
	defaults.Set(&l.CloseTimeout, d.CloseTimeout)
	defaults.Set(&l.SendBytes, l.MessageBytes)
	return l
}

// frame returns the bounds of a message's frame.
func (l *Limits) frame() framing.Limits {
	return framing.Limits{MessageBytes: l.MessageBytes, Segments: l.Segments}
}

// Limit is the name of a field of Limits, for counting.
type Limit = peerconn.Limit

// The limits that a connection counts when they are reached. SendBytes is not among them: it bounds this side.
const (
	LimitMessageBytes     Limit = framing.LimitMessageBytes
	LimitSegments         Limit = framing.LimitSegments
	LimitNesting          Limit = "nesting"
	LimitTraversal        Limit = "traversal"
	LimitQuestions        Limit = "questions"
	LimitAnswers          Limit = "answers"
	LimitAnswerBytes      Limit = "answer_bytes"
	LimitExports          Limit = "exports"
	LimitImports          Limit = "imports"
	LimitQueuedCalls      Limit = "queued_calls"
	LimitQueuedBytes            = peerconn.LimitQueuedBytes
	LimitWriteTimeout           = peerconn.LimitWriteTimeout
	LimitPingTimeout            = peerconn.LimitPingTimeout
	LimitHandshakeTimeout       = peerconn.LimitHandshakeTimeout
	LimitIdleTimeout            = peerconn.LimitIdleTimeout
)

// AllLimits returns the limits that are counted.
func AllLimits() []Limit {
	return []Limit{
		LimitMessageBytes, LimitSegments, LimitNesting, LimitTraversal, LimitQuestions, LimitAnswers, LimitAnswerBytes,
		LimitExports, LimitImports, LimitQueuedCalls, LimitQueuedBytes, LimitWriteTimeout, LimitPingTimeout, LimitHandshakeTimeout,
		LimitIdleTimeout,
	}
}

// LimitHits counts how often each limit was reached. Any number of connections may share one.
type LimitHits = peerconn.LimitHits

func (co *core) countHit(l Limit) { co.conn.loop.CountHit(l) }

// countHitOf counts the limit that caused err, if one did. The serialization library identifies its own limits by error text
// only: the innermost error's text is compared whole, so text of others around it does not count.
func (co *core) countHitOf(err error) {
	if over, ok := errors.AsType[peerconn.LimitError](err); ok {
		co.countHit(over.Limit)
		return
	}
	if err == nil {
		return
	}
	for cause := err; cause != nil; cause = errors.Unwrap(err) {
		err = cause
	}
	switch err.Error() {
	case "read pointer: depth limit reached":
		co.countHit(LimitNesting)
	case "read pointer: read traversal limit reached":
		co.countHit(LimitTraversal)
	}
}
