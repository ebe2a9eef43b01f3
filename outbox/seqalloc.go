package outbox

// The allocation of the streams' seqs, by the holder of the lease.

import (
	"sync"

	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// seqAllocator allocates the streams' seqs while this Box holds the lease. Transactions' jobs
// and their done functions use it, one at a time, and so does the sender's loop; it is safe for
// concurrent use.
type seqAllocator struct {
	mu          sync.Mutex
	term        int // counts the terms of sending of this Box
	leading     bool
	streams     map[string]*streamSeqs // nil unless leading; streams that are open or have unfinished batches, and a few others
	open        map[string]bool        // open streams: a new batch would be sent at once
	reclaimable []string               // streams whose seqs may be no longer needed
	touched     []*streamSeqs
	highWater   map[string]highWaterMark // last seqs whose outcomes the running transaction stores
	lease       leaseProbe               // of the running transaction
}

// leaseProbe is how a transaction finds out whether the lease is this Box's.
type leaseProbe struct {
	isHolder *bool // the result; nil until the transaction blocks takeovers, see shareLease
	answered bool  // a statement of the transaction sets it
	needed   bool  // a job needs it
}

// streamSeqs is one stream's seqs.
type streamSeqs struct {
	next    uint64                  // the next seq to allocate
	txNext  uint64                  // the next one in the running transaction
	pending map[string]pendingBatch // batches with seqs whose outcomes are not stored
	bytes   int                     // bytes of pending
}

// pendingBatch is a batch that has seqs.
type pendingBatch struct {
	bytes int
	// storing: its outcomes may be in the running transaction, and be acknowledged before the
	// sender gets the batches committed after them.
	storing bool
}

// beginTx undoes the allocations of a failed transaction, and removes the seqs of streams that
// nothing needs: the stream's row has them. No transaction is using one at that point.
func (l *seqAllocator) beginTx() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.touched {
		lane.txNext = lane.next
	}
	l.touched = l.touched[:0]
	clear(l.highWater)
	l.lease = leaseProbe{}
	for _, session := range l.reclaimable {
		if la := l.streams[session]; la != nil && !l.open[session] && len(la.pending) == 0 {
			delete(l.streams, session)
		}
	}
	l.reclaimable = l.reclaimable[:0]
}

// highWaterMark is the seq up to which a session's outcomes are stored, and the incarnation
// under which they came: one lower than that under which a stream began belongs to the stream
// before it.
type highWaterMark struct {
	seq         uint64
	incarnation int64
}

// raiseHighWater makes the running transaction store, once for all its batches, the seq up to
// which a session's outcomes are stored.
func (l *seqAllocator) raiseHighWater(session string, to highWaterMark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.highWater == nil {
		l.highWater = make(map[string]highWaterMark)
	}
	switch was := l.highWater[session]; {
	case to.incarnation > was.incarnation, to.incarnation == was.incarnation && to.seq > was.seq:
		l.highWater[session] = to
	}
}

func (l *seqAllocator) takeHighWater() map[string]highWaterMark {
	l.mu.Lock()
	defer l.mu.Unlock()
	reached := l.highWater
	l.highWater = nil
	return reached
}

// probeLease returns where the running transaction puts whether the lease is this Box's; first
// reports that it does not block takeovers yet. With tells, a statement of the caller sets it;
// else the caller needs it set.
func (l *seqAllocator) probeLease(tells bool) (held *bool, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = l.lease.isHolder == nil; first {
		l.lease.isHolder = new(bool)
	}
	l.lease.answered = l.lease.answered || tells
	l.lease.needed = l.lease.needed || !tells
	return l.lease.isHolder, first
}

// unansweredProbe returns where to put whether the lease is this Box's; nil if no job needs it,
// or a statement sets it already.
func (l *seqAllocator) unansweredProbe() (held *bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease.needed && !l.lease.answered {
		return l.lease.isHolder
	}
	return nil
}

// setLeading starts a term of sending, with no streams, or ends it. It returns the number of
// the term.
func (l *seqAllocator) setLeading(leading bool) (term int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term++
	l.leading, l.streams, l.open, l.reclaimable, l.touched = leading, nil, nil, nil, nil
	if leading {
		l.streams, l.open = make(map[string]*streamSeqs), make(map[string]bool)
	}
	return l.term
}

// isLeading reports whether this Box sends.
func (l *seqAllocator) isLeading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading
}

// leadsTerm reports whether this Box sends, in that term.
func (l *seqAllocator) leadsTerm(term int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading && l.term == term
}

// addStream adds a session's seqs, if they are not there. They are removed again if the stream
// is not open and the transaction allocates none.
func (l *seqAllocator) addStream(session string, next uint64) *streamSeqs {
	l.mu.Lock()
	defer l.mu.Unlock()
	la := l.streams[session]
	if la == nil && l.streams != nil {
		la = &streamSeqs{next: next, txNext: next, pending: make(map[string]pendingBatch)}
		l.streams[session] = la
		l.reclaimable = append(l.reclaimable, session)
	}
	return la
}

// allocate allocates n seqs of a stream in the running transaction.
func (l *seqAllocator) allocate(la *streamSeqs, n int) (first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = la.txNext
	la.txNext += uint64(n)
	l.touched = append(l.touched, la)
	return first
}

// allocateNow is allocate for a batch that is being committed: only where it would be sent at
// once, and where all batches it still refers to are in flight. 0: it has to wait.
func (l *seqAllocator) allocateNow(session string, n, bytes int, near []string, win Window) (la *streamSeqs, first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la = l.streams[session]
	if la == nil || !l.open[session] || len(la.pending) >= machine.WindowsAhead*win.Batches || la.bytes+bytes > machine.WindowsAhead*win.Bytes {
		return nil, 0
	}
	for _, b := range near {
		if f, in := la.pending[b]; !in || f.storing {
			return nil, 0
		}
	}
	first = la.txNext
	la.txNext += uint64(n)
	l.touched = append(l.touched, la)
	return la, first
}

// deallocate is for a batch that had to wait after all: its seqs are the next ones again. The
// batches that were to follow it in the transaction wait as well.
func (l *seqAllocator) deallocate(la *streamSeqs, first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la.txNext = min(la.txNext, first)
}

// confirm makes seqs final after their transaction committed.
func (l *seqAllocator) confirm(la *streamSeqs, next uint64, batch string, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la.next = next
	la.pending[batch] = pendingBatch{bytes: bytes}
	la.bytes += bytes
}

// forget makes a session's seqs be allocated again: none is in use.
func (l *seqAllocator) forget(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, session)
}

// markStoring records that a batch's outcomes are about to be stored.
func (l *seqAllocator) markStoring(session, batch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if la := l.streams[session]; la != nil {
		if f, in := la.pending[batch]; in {
			f.storing = true
			la.pending[batch] = f
		}
	}
}

// markStored removes a batch whose outcomes are stored.
func (l *seqAllocator) markStored(session, batch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if la := l.streams[session]; la != nil {
		if f, in := la.pending[batch]; in {
			delete(la.pending, batch)
			la.bytes -= f.bytes
			if len(la.pending) == 0 && !l.open[session] {
				l.reclaimable = append(l.reclaimable, session)
			}
		}
	}
}

// setOpen records whether the session's stream is open.
func (l *seqAllocator) setOpen(session string, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.streams == nil:
	case open:
		l.open[session] = true
	default:
		delete(l.open, session)
		l.reclaimable = append(l.reclaimable, session)
	}
}
