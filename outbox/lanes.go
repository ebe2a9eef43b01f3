package outbox

// The streams' seqs, as whoever holds the lease gives them out.

import "sync"

// lanes are the streams' seqs, kept by whoever holds the lease. They are changed
// by jobs and their ends, one at a time, and by the sender's loop.
type lanes struct {
	mu      sync.Mutex
	term    int // counts the terms of sending of this Box
	leading bool
	by      map[string]*lane // nil unless leading; those that are open or have unfinished batches, and a few
	open    map[string]bool  // streams that are: a new batch would be sent at once
	closed  []string         // streams whose lanes may be of no more use
	touched []*lane
	reached map[string]reach // last seqs whose outcomes the running transaction stores
	lease   leaseCheck       // of the running transaction
}

// leaseCheck is what a transaction does to find out whether the lease is this Box's.
type leaseCheck struct {
	held   *bool // what it finds; nil until it keeps takeovers out, for which see share
	told   bool  // a statement of it will tell
	wanted bool  // somebody needs to know
}

// lane is one stream's seqs.
type lane struct {
	next  uint64            // the next seq to give
	given uint64            // the next one in the transaction that runs now
	ahead map[string]flight // batches with seqs whose outcomes are not stored
	bytes int               // theirs
}

// flight is a batch that has seqs.
type flight struct {
	bytes int
	// storing: its outcomes may be in the transaction that runs now, and be
	// acknowledged before the sender hears of what is committed after them.
	storing bool
}

// begin forgets what a transaction that failed had given, and lanes that nothing
// needs: the stream's row tells again where they were. No transaction has one in
// hand just then.
func (l *lanes) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.touched {
		lane.given = lane.next
	}
	l.touched = l.touched[:0]
	clear(l.reached)
	l.lease = leaseCheck{}
	for _, session := range l.closed {
		if la := l.by[session]; la != nil && !l.open[session] && len(la.ahead) == 0 {
			delete(l.by, session)
		}
	}
	l.closed = l.closed[:0]
}

// reach is how far a session's outcomes are stored, and the incarnation under which they
// came: under a lower one than a stream began, they are of the one before it.
type reach struct {
	seq         uint64
	incarnation int64
}

// reach has the transaction keep, once for all its batches, how far a session's
// outcomes are stored.
func (l *lanes) reach(session string, to reach) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reached == nil {
		l.reached = make(map[string]reach)
	}
	switch was := l.reached[session]; {
	case to.incarnation > was.incarnation, to.incarnation == was.incarnation && to.seq > was.seq:
		l.reached[session] = to
	}
}

func (l *lanes) takeReached() map[string]reach {
	l.mu.Lock()
	defer l.mu.Unlock()
	reached := l.reached
	l.reached = nil
	return reached
}

// sharing is where the running transaction keeps whether the lease is this Box's; first
// says that it does not keep takeovers out yet. Who asks says whether a statement of his
// tells, or he wants to be told.
func (l *lanes) sharing(tells bool) (held *bool, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = l.lease.held == nil; first {
		l.lease.held = new(bool)
	}
	l.lease.told = l.lease.told || tells
	l.lease.wanted = l.lease.wanted || !tells
	return l.lease.held, first
}

// untold is where to put whether the lease is this Box's; nil if nobody needs to know, or a
// statement tells already.
func (l *lanes) untold() (held *bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease.wanted && !l.lease.told {
		return l.lease.held
	}
	return nil
}

// lead starts a term of sending, with nothing known of any stream, or ends it. It
// gives the number of the term.
func (l *lanes) lead(leading bool) (term int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term++
	l.leading, l.by, l.open, l.closed, l.touched = leading, nil, nil, nil, nil
	if leading {
		l.by, l.open = make(map[string]*lane), make(map[string]bool)
	}
	return l.term
}

// sends says whether this Box does.
func (l *lanes) sends() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading
}

// leads says whether this Box sends, in that term.
func (l *lanes) leads(term int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading && l.term == term
}

// learn sets up a session's lane, if it is not there. It is let go if its stream is not
// open and the transaction gives nothing.
func (l *lanes) learn(session string, next uint64) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	la := l.by[session]
	if la == nil && l.by != nil {
		la = &lane{next: next, given: next, ahead: make(map[string]flight)}
		l.by[session] = la
		l.closed = append(l.closed, session)
	}
	return la
}

// give takes n seqs of a lane for the running transaction.
func (l *lanes) give(la *lane, n int) (first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = la.given
	la.given += uint64(n)
	l.touched = append(l.touched, la)
	return first
}

// giveNow is give for a batch that is being committed: only where it would be
// sent at once, and where what it still refers to is in flight. 0: it has to wait.
func (l *lanes) giveNow(session string, n, bytes int, near []string, win Window) (la *lane, first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la = l.by[session]
	if la == nil || !l.open[session] || len(la.ahead) >= aheadFactor*win.Batches || la.bytes+bytes > aheadFactor*win.Bytes {
		return nil, 0
	}
	for _, b := range near {
		if f, in := la.ahead[b]; !in || f.storing {
			return nil, 0
		}
	}
	first = la.given
	la.given += uint64(n)
	l.touched = append(l.touched, la)
	return la, first
}

// takeBack is for a batch that had to wait after all: its seqs are the next
// ones again. Those that were to follow it in the transaction wait as well.
func (l *lanes) takeBack(la *lane, first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la.given = min(la.given, first)
}

// aheadFactor is how many windows of batches may have seqs.
const aheadFactor = 4

// gave makes seqs final after their transaction committed.
func (l *lanes) gave(la *lane, next uint64, batch string, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la.next = next
	la.ahead[batch] = flight{bytes: bytes}
	la.bytes += bytes
}

// restart has a session's seqs be given out anew: none that was given is in use.
func (l *lanes) restart(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.by, session)
}

// storing says that a batch's outcomes are about to be stored.
func (l *lanes) storing(session, batch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if la := l.by[session]; la != nil {
		if f, in := la.ahead[batch]; in {
			f.storing = true
			la.ahead[batch] = f
		}
	}
}

// stored takes a batch whose outcomes are stored out.
func (l *lanes) stored(session, batch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if la := l.by[session]; la != nil {
		if f, in := la.ahead[batch]; in {
			delete(la.ahead, batch)
			la.bytes -= f.bytes
			if len(la.ahead) == 0 && !l.open[session] {
				l.closed = append(l.closed, session)
			}
		}
	}
}

// setOpen says whether the session's stream is open.
func (l *lanes) setOpen(session string, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.by == nil:
	case open:
		l.open[session] = true
	default:
		delete(l.open, session)
		l.closed = append(l.closed, session)
	}
}
