// Every bound of a connection, with what happens at it. There is no way to switch one off, but for the two times that
// only a server sets.

package rpc

import (
	"errors"
	"sync/atomic"
	"time"
)

// Limits bounds what one connection may cost. A zero field takes the value of DefaultLimits.
type Limits struct {
	// MessageBytes is the largest Cap'n Proto message accepted, framing included. Beyond it the connection is aborted.
	MessageBytes int
	// SendBytes is the largest message sent. Beyond it the call or answer fails. 0 takes MessageBytes.
	SendBytes int
	// Segments is the most segments a message may have, checked before anything is allocated. Beyond it: abort.
	Segments int
	// Nesting is how deep pointers may nest and how long a pipeline's path may be. Beyond it: reading fails.
	Nesting int
	// Traversal is how many bytes may be read out of one message, repeated reads counted. Beyond it: reading fails.
	Traversal int

	// Questions is how many calls of ours may be unanswered. At it Ref.Call waits (backpressure).
	Questions int
	// Answers is how many of the peer's calls may be unanswered. At it further calls are answered overloaded; at twice
	// as many unfinished ones the connection is aborted, and at as many disembargoes that wait behind calls.
	Answers int
	// AnswerBytes is how many bytes of parameters the peer's unanswered calls may hold, capabilities included, and how
	// many bytes of results its unfinished calls may. At it further calls are answered overloaded.
	AnswerBytes int
	// Exports is how many of our objects the peer may hold. At it calls and returns that would hand out another fail
	// as overloaded.
	Exports int
	// Imports is how many of the peer's objects we hold, how many of its promises that have become something since, and how
	// many disembargoes it may owe us. Beyond it: abort.
	Imports int
	// QueuedCalls is how many calls, or promises of results passed on, may wait on one unresolved promise. At it further
	// calls are answered overloaded. On all promises together Answers may wait.
	QueuedCalls int
	// QueuedBytes is how much may wait to be written to the peer. At it Ref.Call waits (backpressure) and calls of the
	// peer are answered overloaded; at four times as much the connection is closed.
	QueuedBytes int

	// WriteTimeout closes the connection when one write has made no progress for so long.
	WriteTimeout time.Duration
	// PingInterval is how long a silent connection is left alone before it is pinged.
	PingInterval time.Duration
	// PingTimeout closes the connection when a ping has no answer for so long. Interval plus timeout is the time in
	// which a dead peer is found. It is also the longest that a silent peer may take nothing in of a write under way, which
	// a ping would wait behind; and on TCP, as far as the system can be told so, that it may acknowledge nothing.
	PingTimeout time.Duration
	// CloseTimeout is how long Close, abort and the end of Run may spend on sending what waits.
	CloseTimeout time.Duration
	// HandshakeTimeout closes a connection on which the peer has sent no message for so long after Run began; 0 never.
	HandshakeTimeout time.Duration
	// IdleTimeout closes a connection on which the peer has sent no message for so long, while neither side has a call
	// unanswered or holds anything of the other but the bootstrap interface; 0 never.
	IdleTimeout time.Duration
}

// DefaultLimits are those a server gives to strangers. A dead peer is found within 9 seconds.
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

// withDefaults fills zero fields.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ have, want *int }{
		{&l.MessageBytes, &d.MessageBytes}, {&l.Segments, &d.Segments}, {&l.Nesting, &d.Nesting},
		{&l.Traversal, &d.Traversal}, {&l.Questions, &d.Questions}, {&l.Answers, &d.Answers},
		{&l.AnswerBytes, &d.AnswerBytes}, {&l.Exports, &d.Exports}, {&l.Imports, &d.Imports},
		{&l.QueuedCalls, &d.QueuedCalls}, {&l.QueuedBytes, &d.QueuedBytes},
	} {
		if *f.have <= 0 {
			*f.have = *f.want
		}
	}
	if l.SendBytes <= 0 {
		l.SendBytes = l.MessageBytes
	}
	for _, f := range []struct{ have, want *time.Duration }{
		{&l.WriteTimeout, &d.WriteTimeout}, {&l.PingInterval, &d.PingInterval}, {&l.PingTimeout, &d.PingTimeout},
		{&l.CloseTimeout, &d.CloseTimeout},
	} {
		if *f.have <= 0 {
			*f.have = *f.want
		}
	}
	return l
}

// Limit names one of Limits, for counting.
type Limit int

// The limits a connection counts when they are met. SendBytes is not among them: it bounds what this side does.
const (
	LimitMessageBytes Limit = iota
	LimitSegments
	LimitNesting
	LimitTraversal
	LimitQuestions
	LimitAnswers
	LimitAnswerBytes
	LimitExports
	LimitImports
	LimitQueuedCalls
	LimitQueuedBytes
	LimitWriteTimeout
	LimitPingTimeout
	LimitHandshakeTimeout
	LimitIdleTimeout
	limitCount
)

var limitNames = [limitCount]string{
	"message_bytes", "segments", "nesting", "traversal", "questions", "answers", "answer_bytes", "exports", "imports",
	"queued_calls", "queued_bytes", "write_timeout", "ping_timeout", "handshake_timeout", "idle_timeout",
}

// String gives a limit's name as it stands in metrics.
func (l Limit) String() string { return limitNames[l] }

// AllLimits lists the limits that are counted.
func AllLimits() []Limit {
	all := make([]Limit, limitCount)
	for i := range all {
		all[i] = Limit(i)
	}
	return all
}

// LimitHits counts how often each limit was met. Any number of connections may share one.
type LimitHits struct{ n [limitCount]atomic.Uint64 }

// Of is how often l was met.
func (h *LimitHits) Of(l Limit) uint64 { return h.n[l].Load() }

func (co *core) countHit(l Limit) { co.hits.n[l].Add(1) }

// limitError is an error that a limit has caused.
type limitError struct {
	limit Limit
	error
}

func (e limitError) Unwrap() error { return e.error }

// countHitOf counts the limit that has caused err, if one has. The serialization library names its own in words only, which are
// not looked for in what others say around them.
func (co *core) countHitOf(err error) {
	if over, ok := errors.AsType[limitError](err); ok {
		co.countHit(over.limit)
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
