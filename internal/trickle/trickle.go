// Package trickle sends events to a reader who may take them slowly, or not at all, and
// holds next to nothing for it: what a piece that is not taken keeps waiting is let go
// of, is read again when the reader goes on, and continues at the byte where it stopped.
package trickle

import (
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// ChunkBytes is what is written at a time, and held while that is not taken.
const ChunkBytes = 4 << 10

// dropAfter is how long a piece may take before what comes after it is let go of.
const dropAfter = 500 * time.Millisecond

var chunkBuffers = sync.Pool{New: func() any { b := make([]byte, 0, ChunkBytes); return &b }}

// Sender sends to one reader. Its methods are not for concurrent use.
type Sender struct {
	Render func(*session.Event) ([]byte, error)      // an event as it is sent; the same each time
	Write  func(piece []byte, until time.Time) error // waits until the reader has room for it; keeps nothing
	Flush  func(until time.Time) error               // has all leave that was written
	Sent   fanout.Position                           // of the last event that was written as a whole

	MinRateTime  time.Duration // a reader that is behind has to take,
	MinRateBytes int           // in this time of being waited for, so many bytes

	waited    time.Duration // for it in Write, since it fell behind or took MinRateBytes last
	taken     int           // bytes since then
	behind    bool          // the last Send has not sent all
	dropTimer *time.Timer

	mu       sync.Mutex
	events   []*session.Event // still to be sent
	rendered []byte           // the first of them
	sent     int              // so much of that, or, if it was let go of, of what is to come again,
	sentSum  uint64           // which had this sum
	dropped  bool             // something was let go of
}

var (
	seed       = maphash.MakeSeed()
	errChanged = errors.New("an event changed after a part of it was sent")
)

// Send sends events, and then what is to follow them. What it returns is for Capability.Follow: objects.Rewind
// if the reader was slow and there is something left to be sent.
func (s *Sender) Send(events []*session.Event, then []byte) error {
	s.begin(events)
	defer s.end()
	some := len(events) > 0 // they are not held on to below
	if !s.behind {          // it has taken all that there was
		s.waited, s.taken = 0, 0
	}
	s.behind = s.behind || some
	pooled := chunkBuffers.Get().(*[]byte)
	defer chunkBuffers.Put(pooled)
	for last := false; !last; {
		piece, err := s.fill((*pooled)[:0])
		if err != nil {
			return err
		}
		if len(piece)+len(then) <= ChunkBytes && s.allWritten() {
			piece, last = append(piece, then...), true
		}
		if len(piece) > 0 {
			s.dropTimer.Reset(dropAfter)
			start := time.Now()
			err = s.Write(piece, s.deadline(start))
			s.waited += time.Since(start)
			s.dropTimer.Stop()
		}
		if err != nil {
			return err
		}
		if s.taken += len(piece); s.taken >= s.MinRateBytes {
			s.waited, s.taken = 0, 0
		}
		if s.anyDropped() {
			return objects.Rewind{After: s.Sent}
		}
	}
	if some {
		s.behind = false
	}
	return s.Flush(s.deadline(time.Now()))
}

// deadline returns until when the reader must have taken what is written now. What the server takes to read and to render is
// not counted against it.
func (s *Sender) deadline(now time.Time) time.Time { return now.Add(s.MinRateTime - s.waited) }

// Partial says that an event was sent in part, and nothing else can follow.
func (s *Sender) Partial() bool { return s.sent > 0 }

func (s *Sender) begin(events []*session.Event) {
	if s.dropTimer == nil {
		s.dropTimer = time.AfterFunc(dropAfter, s.dropPending)
		s.dropTimer.Stop() // nothing is being written
	}
	s.mu.Lock()
	s.events, s.dropped = events, false
	s.mu.Unlock()
}

func (s *Sender) end() {
	s.mu.Lock()
	s.events, s.rendered = nil, nil
	s.mu.Unlock()
}

// dropPending drops what is not written.
func (s *Sender) dropPending() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return
	}
	if s.rendered != nil {
		s.sentSum = maphash.Bytes(seed, s.rendered[:s.sent])
	}
	s.events, s.rendered, s.dropped = nil, nil, true
}

// fill adds to a piece what it has room for.
func (s *Sender) fill(piece []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.events) > 0 && len(piece) < ChunkBytes {
		e := s.events[0]
		if s.rendered == nil {
			made, err := s.Render(e)
			if err != nil {
				return nil, err
			}
			if s.sent > 0 && (len(made) < s.sent || maphash.Bytes(seed, made[:s.sent]) != s.sentSum) { // purged meanwhile, perhaps
				return nil, errChanged
			}
			s.rendered = made
		}
		n := min(ChunkBytes-len(piece), len(s.rendered)-s.sent)
		piece = append(piece, s.rendered[s.sent:s.sent+n]...)
		if s.sent += n; s.sent == len(s.rendered) {
			s.Sent = fanout.Position{Cursor: e.Cursor, Hash: e.Hash}
			s.events, s.rendered, s.sent = s.events[1:], nil, 0
		}
	}
	return piece, nil
}

// allWritten reports whether every event is written, and none was dropped instead.
func (s *Sender) allWritten() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events) == 0 && !s.dropped
}

func (s *Sender) anyDropped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}
