// Package trickle sends events to a reader who may take them slowly, or not at all, and
// holds next to nothing for it: what a piece that is not taken keeps waiting is let go
// of, is read again when the reader goes on, and continues at the byte where it stopped.
package trickle

import (
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/session"
)

// PieceBytes is what is written at a time, and held while that is not taken.
const PieceBytes = 4 << 10

// patience is how long a piece may take before what comes after it is let go of.
const patience = 500 * time.Millisecond

var pieces = sync.Pool{New: func() any { b := make([]byte, 0, PieceBytes); return &b }}

// Sender sends to one reader. Its methods are not for concurrent use.
type Sender struct {
	Render func(*session.Event) ([]byte, error)      // an event as it is sent; the same each time
	Write  func(piece []byte, until time.Time) error // waits until the reader has room for it; keeps nothing
	Flush  func(until time.Time) error               // has all leave that was written
	At     server.Position                           // of the last event that was written as a whole

	Limit time.Duration // a reader that is behind has to take,
	Least int           // in this time, so many bytes

	since  time.Time // it has been behind, or took Least last
	taken  int       // bytes since then
	behind bool      // the last Send has not sent all
	slow   *time.Timer

	mu     sync.Mutex
	events []*session.Event // still to be sent
	made   []byte           // the first of them
	sent   int              // so much of that, or, if it was let go of, of what is to come again,
	sum    uint64           // which had this sum
	gone   bool             // something was let go of
}

var (
	seed       = maphash.MakeSeed()
	errChanged = errors.New("an event of which a part was sent is another now")
)

// Send sends events, and then what is to follow them. What it returns is for Held.Follow: server.Again
// if the reader was slow and there is something left to be sent.
func (s *Sender) Send(events []*session.Event, then []byte) error {
	s.begin(events)
	defer s.end()
	some := len(events) > 0 // they are not held on to below
	if !s.behind {          // it has taken all that there was
		s.since, s.taken = time.Now(), 0
	}
	s.behind = s.behind || some
	pooled := pieces.Get().(*[]byte)
	defer pieces.Put(pooled)
	for last := false; !last; {
		piece, err := s.fill((*pooled)[:0])
		if err != nil {
			return err
		}
		if len(piece)+len(then) <= PieceBytes && s.all() {
			piece, last = append(piece, then...), true
		}
		if len(piece) > 0 {
			s.slow.Reset(patience)
			err = s.Write(piece, s.since.Add(s.Limit))
			s.slow.Stop()
		}
		if err != nil {
			return err
		}
		if s.taken += len(piece); s.taken >= s.Least {
			s.since, s.taken = time.Now(), 0
		}
		if s.lost() {
			return server.Again{After: s.At}
		}
	}
	if some {
		s.behind = false
	}
	return s.Flush(s.since.Add(s.Limit))
}

// Torn says that an event was sent in part, and nothing else can follow.
func (s *Sender) Torn() bool { return s.sent > 0 }

func (s *Sender) begin(events []*session.Event) {
	if s.slow == nil {
		s.slow = time.AfterFunc(patience, s.letGo)
		s.slow.Stop() // nothing is being written
	}
	s.mu.Lock()
	s.events, s.gone = events, false
	s.mu.Unlock()
}

func (s *Sender) end() {
	s.mu.Lock()
	s.events, s.made = nil, nil
	s.mu.Unlock()
}

// letGo drops what is not written.
func (s *Sender) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return
	}
	if s.made != nil {
		s.sum = maphash.Bytes(seed, s.made[:s.sent])
	}
	s.events, s.made, s.gone = nil, nil, true
}

// fill adds to a piece what it has room for.
func (s *Sender) fill(piece []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.events) > 0 && len(piece) < PieceBytes {
		e := s.events[0]
		if s.made == nil {
			made, err := s.Render(e)
			if err != nil {
				return nil, err
			}
			if s.sent > 0 && (len(made) < s.sent || maphash.Bytes(seed, made[:s.sent]) != s.sum) { // purged meanwhile, perhaps
				return nil, errChanged
			}
			s.made = made
		}
		n := min(PieceBytes-len(piece), len(s.made)-s.sent)
		piece = append(piece, s.made[s.sent:s.sent+n]...)
		if s.sent += n; s.sent == len(s.made) {
			s.At = server.Position{Cursor: e.Cursor, Hash: e.Hash}
			s.events, s.made, s.sent = s.events[1:], nil, 0
		}
	}
	return piece, nil
}

// all says that every event is written; lost that some were let go of instead.
func (s *Sender) all() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events) == 0 && !s.gone
}

func (s *Sender) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}
