package writer

// The allocation of the streams' seqs, by the holder of the lease.

import (
	"sync"

	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// Seqs allocates the streams' seqs while this Box holds the lease. Transactions' jobs
// and their Done functions use it, one at a time, and so does the sender's loop; it is safe for
// concurrent use.
type Seqs struct {
	mu          sync.Mutex
	term        int // counts the terms of sending of this Box
	leading     bool
	streams     map[string]*StreamSeqs // nil unless leading; streams that are open or have unfinished batches, and a few others
	open        map[string]bool        // open streams: a new batch would be sent at once
	reclaimable []string               // streams whose seqs may be no longer needed
	touched     []*StreamSeqs
	highWater   map[string]HighWater // last seqs whose outcomes the running transaction stores
	lease       leaseProbe           // of the running transaction
}

// leaseProbe is how a transaction finds out whether the lease is this Box's.
type leaseProbe struct {
	isHolder *bool // the result; nil until the transaction blocks takeovers, see ShareLease
	answered bool  // a statement of the transaction sets it
	needed   bool  // a job needs it
}

// StreamSeqs is one stream's seqs.
type StreamSeqs struct {
	Next    uint64                  // the next seq to allocate
	TxNext  uint64                  // the next one in the running transaction
	Pending map[string]pendingBatch // batches with seqs whose outcomes are not stored
	Bytes   int                     // bytes of Pending
}

// pendingBatch is a batch that has seqs.
type pendingBatch struct {
	bytes int
	// storing: its outcomes may be in the running transaction, and be acknowledged before the
	// sender gets the batches committed after them.
	storing bool
}

// BeginTx undoes the allocations of a failed transaction, and removes the seqs of streams that
// nothing needs: the stream's row has them. No transaction is using one at that point.
func (a *Seqs) BeginTx() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.touched {
		s.TxNext = s.Next
	}
	a.touched = a.touched[:0]
	clear(a.highWater)
	a.lease = leaseProbe{}
	for _, session := range a.reclaimable {
		if s := a.streams[session]; s != nil && !a.open[session] && len(s.Pending) == 0 {
			delete(a.streams, session)
		}
	}
	a.reclaimable = a.reclaimable[:0]
}

// HighWater is the seq up to which a session's outcomes are stored, and the incarnation
// under which they came: one lower than that under which a stream began belongs to the stream
// before it.
type HighWater struct {
	Seq         uint64
	Incarnation int64
}

// RaiseHighWater makes the running transaction store, once for all its batches, the seq up to
// which a session's outcomes are stored.
func (a *Seqs) RaiseHighWater(session string, to HighWater) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.highWater == nil {
		a.highWater = make(map[string]HighWater)
	}
	switch was := a.highWater[session]; {
	case to.Incarnation > was.Incarnation, to.Incarnation == was.Incarnation && to.Seq > was.Seq:
		a.highWater[session] = to
	}
}

func (a *Seqs) takeHighWater() map[string]HighWater {
	a.mu.Lock()
	defer a.mu.Unlock()
	reached := a.highWater
	a.highWater = nil
	return reached
}

// probeLease returns where the running transaction puts whether the lease is this Box's; first
// reports that it does not block takeovers yet. With tells, a statement of the caller sets it;
// else the caller needs it set.
func (a *Seqs) probeLease(tells bool) (isHolder *bool, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if first = a.lease.isHolder == nil; first {
		a.lease.isHolder = new(bool)
	}
	a.lease.answered = a.lease.answered || tells
	a.lease.needed = a.lease.needed || !tells
	return a.lease.isHolder, first
}

// unansweredProbe returns where to put whether the lease is this Box's; nil if no job needs it,
// or a statement sets it already.
func (a *Seqs) unansweredProbe() (isHolder *bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease.needed && !a.lease.answered {
		return a.lease.isHolder
	}
	return nil
}

// SetLeading starts a term of sending, with no streams, or ends it. It returns the number of
// the term.
func (a *Seqs) SetLeading(leading bool) (term int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.term++
	a.leading, a.streams, a.open, a.reclaimable, a.touched = leading, nil, nil, nil, nil
	if leading {
		a.streams, a.open = make(map[string]*StreamSeqs), make(map[string]bool)
	}
	return a.term
}

// IsLeading reports whether this Box sends.
func (a *Seqs) IsLeading() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leading
}

// LeadsTerm reports whether this Box sends, in that term.
func (a *Seqs) LeadsTerm(term int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leading && a.term == term
}

// AddStream adds a session's seqs, if they are not there. They are removed again if the stream
// is not open and the transaction allocates none.
func (a *Seqs) AddStream(session string, next uint64) *StreamSeqs {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.streams[session]
	if s == nil && a.streams != nil {
		s = &StreamSeqs{Next: next, TxNext: next, Pending: make(map[string]pendingBatch)}
		a.streams[session] = s
		a.reclaimable = append(a.reclaimable, session)
	}
	return s
}

// Allocate allocates n seqs of a stream in the running transaction.
func (a *Seqs) Allocate(s *StreamSeqs, n int) (first uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first = s.TxNext
	s.TxNext += uint64(n)
	a.touched = append(a.touched, s)
	return first
}

// AllocateNow is Allocate for a batch that is being committed: only where it would be sent at
// once, and where all batches it still refers to are in flight. 0: it has to wait.
func (a *Seqs) AllocateNow(session string, n, bytes int, near []string, win machine.Window) (s *StreamSeqs, first uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s = a.streams[session]
	if s == nil || !a.open[session] || len(s.Pending) >= machine.WindowsAhead*win.Batches || s.Bytes+bytes > machine.WindowsAhead*win.Bytes {
		return nil, 0
	}
	for _, b := range near {
		if f, in := s.Pending[b]; !in || f.storing {
			return nil, 0
		}
	}
	first = s.TxNext
	s.TxNext += uint64(n)
	a.touched = append(a.touched, s)
	return s, first
}

// Deallocate is for a batch that had to wait after all: its seqs are the next ones again. The
// batches that were to follow it in the transaction wait as well.
func (a *Seqs) Deallocate(s *StreamSeqs, first uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.TxNext = min(s.TxNext, first)
}

// Confirm makes seqs final after their transaction committed.
func (a *Seqs) Confirm(s *StreamSeqs, next uint64, batch string, bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Next = next
	s.Pending[batch] = pendingBatch{bytes: bytes}
	s.Bytes += bytes
}

// Forget makes a session's seqs be allocated again: none is in use.
func (a *Seqs) Forget(session string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.streams, session)
}

// MarkStoring records that a batch's outcomes are about to be stored.
func (a *Seqs) MarkStoring(session, batch string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.streams[session]; s != nil {
		if f, in := s.Pending[batch]; in {
			f.storing = true
			s.Pending[batch] = f
		}
	}
}

// MarkStored removes a batch whose outcomes are stored.
func (a *Seqs) MarkStored(session, batch string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.streams[session]; s != nil {
		if f, in := s.Pending[batch]; in {
			delete(s.Pending, batch)
			s.Bytes -= f.bytes
			if len(s.Pending) == 0 && !a.open[session] {
				a.reclaimable = append(a.reclaimable, session)
			}
		}
	}
}

// SetOpen records whether the session's stream is open.
func (a *Seqs) SetOpen(session string, open bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.streams == nil:
	case open:
		a.open[session] = true
	default:
		delete(a.open, session)
		a.reclaimable = append(a.reclaimable, session)
	}
}

// Len is the number of streams with seqs.
func (a *Seqs) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.streams)
}
