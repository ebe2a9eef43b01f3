// Every bound of a connection, with what happens at it. There is no way to switch one off, but for the two times that
// only a server sets.

package capnweb

import (
	"sync/atomic"
	"time"
)

// Limits bounds what one connection may cost. A zero field takes the value of DefaultLimits.
type Limits struct {
	MessageBytes int // the largest message accepted, in bytes of UTF-8. Beyond it: abort. Nor is a larger one sent
	Depth        int // how deep values may nest, and how long a path may be. Beyond it: abort
	BigIntDigits int // Beyond it: abort
	Calls        int // the peer's calls whose handlers run or wait, and gets that wait. At it further ones are rejected overloaded; at twice as many: abort
	CallBytes    int // what the peer's unanswered calls and all values made of its messages hold, about, released or not. At it: rejected
	Exports      int // things of ours that the peer may hold, results among them. At it what would hand out another fails; at twice as many: abort
	Imports      int // things of the peer that we hold. Beyond it: abort
	MapSteps     int // instructions that one remap may run, and values it may copy, over all elements and nested maps. Beyond it: it fails
	BlobBytes    int // the largest blob received. Beyond it: the call it is for fails
	StreamBytes  int // bytes of a stream that wait for its reader. Beyond it: the stream fails
	QueuedBytes  int // what may wait to be written. At it our calls wait and the peer's are rejected; at four times: abort

	WriteTimeout     time.Duration // ends the connection when one write has made no progress for so long
	PingInterval     time.Duration // how long a silent connection is left alone before it is pinged
	PingTimeout      time.Duration // ends the connection when a ping has no answer for so long
	CloseTimeout     time.Duration // how long the end may spend on sending what waits
	HandshakeTimeout time.Duration // ends a connection on which no message came for so long after Run began; 0 never
	IdleTimeout      time.Duration // ends a connection silent for so long while neither side waits for or holds anything; 0 never
}

// DefaultLimits are those a server gives to strangers. A dead peer is found within 9 seconds.
func DefaultLimits() Limits {
	return Limits{
		MessageBytes: 8 << 20,
		Depth:        maxDepth,
		BigIntDigits: 16384,
		Calls:        8192,
		CallBytes:    64 << 20,
		Exports:      65536,
		Imports:      65536,
		MapSteps:     1 << 20,
		BlobBytes:    16 << 20,
		StreamBytes:  8 << 20,
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
		{&l.MessageBytes, &d.MessageBytes}, {&l.Depth, &d.Depth}, {&l.BigIntDigits, &d.BigIntDigits},
		{&l.Calls, &d.Calls}, {&l.CallBytes, &d.CallBytes}, {&l.Exports, &d.Exports}, {&l.Imports, &d.Imports},
		{&l.MapSteps, &d.MapSteps}, {&l.BlobBytes, &d.BlobBytes}, {&l.StreamBytes, &d.StreamBytes},
		{&l.QueuedBytes, &d.QueuedBytes},
	} {
		if *f.have <= 0 {
			*f.have = *f.want
		}
	}
	l.Depth = min(l.Depth, maxDepth)
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

// The limits a connection counts when they are met.
const (
	LimitMessageBytes Limit = iota
	LimitDepth
	LimitBigIntDigits
	LimitCalls
	LimitCallBytes
	LimitExports
	LimitImports
	LimitMapSteps
	LimitBlobBytes
	LimitStreamBytes
	LimitQueuedBytes
	LimitWriteTimeout
	LimitPingTimeout
	LimitHandshakeTimeout
	LimitIdleTimeout
	limitCount
)

var limitNames = [limitCount]string{
	"message_bytes", "depth", "bigint_digits", "calls", "call_bytes", "exports", "imports", "map_steps", "blob_bytes",
	"stream_bytes", "queued_bytes", "write_timeout", "ping_timeout", "handshake_timeout", "idle_timeout",
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

func (c *Conn) countHit(l Limit) { c.limitHits.n[l].Add(1) }
