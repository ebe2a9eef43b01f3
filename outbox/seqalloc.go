package outbox

// The streams' seqs, as whoever holds the lease gives them out.

import "sync"

// seqAllocator are the streams' seqs, kept by whoever holds the lease. They are changed
// by jobs and their ends, one at a time, and by the sender's loop.
type seqAllocator struct {
	mu          sync.Mutex
	term        int // counts the terms of sending of this Box
	leading     bool
	streams     map[string]*streamSeqs // nil unless leading; those that are open or have unfinished batches, and a few
	open        map[string]bool        // streams that are: a new batch would be sent at once
	reclaimable []string               // streams whose seqs may be of no more use
	touched     []*streamSeqs
	highWater   map[string]highWaterMark // last seqs whose outcomes the running transaction stores
	lease       leaseProbe               // of the running transaction
}

// leaseProbe is what a transaction does to find out whether the lease is this Box's.
type leaseProbe struct {
	isHolder *bool // what it finds; nil until it keeps takeovers out, for which see shareLease
	answered bool  // a statement of it will tell
	needed   bool  // somebody needs to know
}

// streamSeqs is one stream's seqs.
type streamSeqs struct {
	next    uint64                  // the next seq to give
	txNext  uint64                  // the next one in the transaction that runs now
	pending map[string]pendingBatch // batches with seqs whose outcomes are not stored
	bytes   int                     // theirs
}

// pendingBatch is a batch that has seqs.
type pendingBatch struct {
	bytes int
	// storing: its outcomes may be in the transaction that runs now, and be
	// acknowledged before the sender hears of what is committed after them.
	storing bool
}

// beginTx forgets what a transaction that failed had given, and the seqs of streams that nothing
// needs: the stream's row tells again where they were. No transaction has one in
// hand just then.
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

// highWaterMark is how far a session's outcomes are stored, and the incarnation under which they
// came: under a lower one than a stream began, they are of the one before it.
type highWaterMark struct {
	seq         uint64
	incarnation int64
}

// raiseHighWater has the transaction keep, once for all its batches, how far a session's
// outcomes are stored.
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

// probeLease is where the running transaction keeps whether the lease is this Box's; first
// says that it does not keep takeovers out yet. Who asks says whether a statement of his
// tells, or he wants to be told.
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

// unansweredProbe is where to put whether the lease is this Box's; nil if nobody needs to know, or a
// statement tells already.
func (l *seqAllocator) unansweredProbe() (held *bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease.needed && !l.lease.answered {
		return l.lease.isHolder
	}
	return nil
}

// setLeading starts a term of sending, with nothing known of any stream, or ends it. It
// gives the number of the term.
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

// isLeading says whether this Box does.
func (l *seqAllocator) isLeading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading
}

// leadsTerm says whether this Box sends, in that term.
func (l *seqAllocator) leadsTerm(term int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading && l.term == term
}

// addStream sets up a session's seqs, if it is not there. It is let go if its stream is not
// open and the transaction gives nothing.
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

// allocate takes n seqs of a stream for the running transaction.
func (l *seqAllocator) allocate(la *streamSeqs, n int) (first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = la.txNext
	la.txNext += uint64(n)
	l.touched = append(l.touched, la)
	return first
}

// allocateNow is allocate for a batch that is being committed: only where it would be
// sent at once, and where what it still refers to is in flight. 0: it has to wait.
func (l *seqAllocator) allocateNow(session string, n, bytes int, near []string, win Window) (la *streamSeqs, first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la = l.streams[session]
	if la == nil || !l.open[session] || len(la.pending) >= windowsAhead*win.Batches || la.bytes+bytes > windowsAhead*win.Bytes {
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

// deallocate is for a batch that had to wait after all: its seqs are the next
// ones again. Those that were to follow it in the transaction wait as well.
func (l *seqAllocator) deallocate(la *streamSeqs, first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la.txNext = min(la.txNext, first)
}

// windowsAhead is how many windows of batches may have seqs.
const windowsAhead = 4

// confirm makes seqs final after their transaction committed.
func (l *seqAllocator) confirm(la *streamSeqs, next uint64, batch string, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la.next = next
	la.pending[batch] = pendingBatch{bytes: bytes}
	la.bytes += bytes
}

// forget has a session's seqs be given out anew: none that was given is in use.
func (l *seqAllocator) forget(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, session)
}

// markStoring says that a batch's outcomes are about to be stored.
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

// markStored takes a batch whose outcomes are stored out.
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

// setOpen says whether the session's stream is open.
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
