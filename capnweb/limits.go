// Limits: every bound of a connection, with what happens at it. None can be switched off, except the two timeouts that
// only a server sets.

package capnweb

import (
	"time"

	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// Limits bounds the cost of one connection. A zero field takes the value of DefaultLimits.
type Limits struct {
	MessageBytes int // the largest message accepted, in bytes of UTF-8. Beyond it: abort. Nor is a larger one sent
	Depth        int // how deep values may nest, and how long a path may be. Beyond it: abort
	BigIntDigits int // Beyond it: abort
	Calls        int // the peer's calls whose handlers run or wait, and waiting gets. At it: rejected overloaded; at twice: abort
	CallBytes    int // bytes, about, of the peer's unanswered calls and of values made of its messages. At it: rejected
	Exports      int // our objects that the peer may reference, results included. At it exporting fails; at twice: abort
	Imports      int // objects of the peer that we reference. Beyond it: abort
	MapSteps     int // instructions and copied values of one remap, over all elements and nested maps. Beyond it: it fails
	BlobBytes    int // the largest blob received. Beyond it: the call it is for fails
	StreamBytes  int // bytes of a stream that wait for its reader. Beyond it: the stream fails
	QueuedBytes  int // bytes that may wait to be written. At it our calls wait and the peer's are rejected; at four times: abort

	// WriteTimeout ends the connection when one write has made no progress for this long.
	WriteTimeout time.Duration
	// PingInterval is how long a connection is silent before it is pinged.
	PingInterval time.Duration
	// PingTimeout ends the connection when a ping has no answer for this long, and a second more for each 64 KiB, up to
	// 8 MiB, that may be in a buffer of the system or a proxy still. With PingInterval it is also the
	// longest that a silent peer may read nothing of a write under way.
	PingTimeout      time.Duration
	CloseTimeout     time.Duration // how long the end may spend on sending pending output
	HandshakeTimeout time.Duration // ends a connection on which no message came for this long after Run began; 0 never
	IdleTimeout      time.Duration // ends a connection silent for this long while neither side waits or references anything; 0 never
}

// DefaultLimits returns the limits that a server gives to strangers. A dead peer is found within 9 seconds.
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

// withDefaults fills fields that have no value.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	defaults.Set(&l.MessageBytes, d.MessageBytes)
	defaults.Set(&l.Depth, d.Depth)
	defaults.Set(&l.BigIntDigits, d.BigIntDigits)
	defaults.Set(&l.Calls, d.Calls)
	defaults.Set(&l.CallBytes, d.CallBytes)
	defaults.Set(&l.Exports, d.Exports)
	defaults.Set(&l.Imports, d.Imports)
	defaults.Set(&l.MapSteps, d.MapSteps)
	defaults.Set(&l.BlobBytes, d.BlobBytes)
	defaults.Set(&l.StreamBytes, d.StreamBytes)
	defaults.Set(&l.QueuedBytes, d.QueuedBytes)
	defaults.Set(&l.WriteTimeout, d.WriteTimeout)
	defaults.Set(&l.PingInterval, d.PingInterval)
	defaults.Set(&l.PingTimeout, d.PingTimeout)
	defaults.Set(&l.CloseTimeout, d.CloseTimeout)
	l.Depth = min(l.Depth, maxDepth)
	return l
}

// Limit is the name of a field of Limits, for counting.
type Limit = peerconn.Limit

// The limits that a connection counts when they are reached.
const (
	LimitMessageBytes     Limit = "message_bytes"
	LimitDepth            Limit = "depth"
	LimitBigIntDigits     Limit = "bigint_digits"
	LimitCalls            Limit = "calls"
	LimitCallBytes        Limit = "call_bytes"
	LimitExports          Limit = "exports"
	LimitImports          Limit = "imports"
	LimitMapSteps         Limit = "map_steps"
	LimitBlobBytes        Limit = "blob_bytes"
	LimitStreamBytes      Limit = "stream_bytes"
	LimitQueuedBytes            = peerconn.LimitQueuedBytes
	LimitWriteTimeout           = peerconn.LimitWriteTimeout
	LimitPingTimeout            = peerconn.LimitPingTimeout
	LimitHandshakeTimeout       = peerconn.LimitHandshakeTimeout
	LimitIdleTimeout            = peerconn.LimitIdleTimeout
)

// AllLimits returns the limits that are counted.
func AllLimits() []Limit {
	return []Limit{
		LimitMessageBytes, LimitDepth, LimitBigIntDigits, LimitCalls, LimitCallBytes, LimitExports, LimitImports, LimitMapSteps,
		LimitBlobBytes, LimitStreamBytes, LimitQueuedBytes, LimitWriteTimeout, LimitPingTimeout, LimitHandshakeTimeout,
		LimitIdleTimeout,
	}
}

// LimitHits counts how often each limit was reached. Any number of connections may share one.
type LimitHits = peerconn.LimitHits

func (c *Conn) countHit(l Limit) { c.loop.CountHit(l) }
