package outcomes

// The waiters of a process, and the outcomes that they are delivered.

import (
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/ledger"
)

// Hub delivers outcomes to the waiters of this process as soon as an answer has arrived.
type Hub struct {
	mu             sync.Mutex // guards the fields below
	sending        bool       // this process sends
	waiting        map[string][]chan []ledger.Outcome
	sources        map[string]Source        // of the batches that this process's sender will announce
	received       map[string]receivedBatch // outcomes that are not stored yet, or were stored lately
	storedOrder    []string                 // keys of received that are stored, in order
	storedOutcomes int                      // number of outcomes in storedOrder
	changed        chan struct{}            // closed and replaced when a batch finishes
}

// Source is where a batch's answer will be seen first.
type Source int

const (
	FromDatabase Source = iota // another process may store the answer: poll the database
	FromQueue                  // committed here, while this process sends
	FromSender                 // this process's sender has it
)

// receivedBatch is a batch's outcomes as they arrived.
type receivedBatch struct {
	outs   []ledger.Outcome
	stored bool
}

// Subscribe registers a waiter for a batch, unless its outcomes have arrived: then it returns
// them.
func (n *Hub) Subscribe(batch string) (outs []ledger.Outcome, ch chan []ledger.Outcome, near Source) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.received[batch]; a.outs != nil {
		return a.outs, nil, FromSender
	}
	ch = make(chan []ledger.Outcome, 1)
	if n.waiting == nil {
		n.waiting = make(map[string][]chan []ledger.Outcome)
	}
	n.waiting[batch] = append(n.waiting[batch], ch)
	return nil, ch, n.sources[batch]
}

func (n *Hub) Unsubscribe(batch string, ch chan []ledger.Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, c := range n.waiting[batch] {
		if c == ch {
			n.waiting[batch] = append(n.waiting[batch][:i], n.waiting[batch][i+1:]...)
			break
		}
	}
	if len(n.waiting[batch]) == 0 {
		delete(n.waiting, batch)
	}
}

// Publish delivers a batch's outcomes to its waiters; nil makes them read the database. stored
// reports that they are stored already.
func (n *Hub) Publish(batch string, outs []ledger.Outcome, stored bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.received[batch]; !stored && !a.stored { // else it is a repeated answer, already delivered
		if n.received == nil {
			n.received = make(map[string]receivedBatch)
		}
		n.received[batch] = receivedBatch{outs: outs}
	}
	delete(n.sources, batch)
	for _, ch := range n.waiting[batch] {
		ch <- outs // never blocks: a channel gets one value
	}
	delete(n.waiting, batch)
	n.broadcast()
}

// RecheckAll makes all waiters, present and future, read the database.
func (n *Hub) RecheckAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sources = nil
	for _, waiting := range n.waiting {
		for _, ch := range waiting {
			ch <- nil
		}
	}
	clear(n.waiting)
	n.broadcast()
}

// NoteSent records that a batch is with this process's sender.
func (n *Hub) NoteSent(batch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.setSource(batch, FromSender)
}

// maxQueued bounds the batches that are FromQueue: beyond it they are polled for.
const maxQueued = 4096

// NoteQueued records that a batch was committed here, if this process sends.
func (n *Hub) NoteQueued(batch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sending && len(n.sources) < maxQueued {
		n.setSource(batch, FromQueue)
	}
}

func (n *Hub) setSource(batch string, near Source) {
	if n.sources == nil {
		n.sources = make(map[string]Source)
	}
	n.sources[batch] = max(n.sources[batch], near)
}

// SenderStarted records that this process sends.
func (n *Hub) SenderStarted() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sending = true
}

// SenderStopped records that this process no longer sends.
func (n *Hub) SenderStopped() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sending, n.sources = false, nil
}

// maxStoredOutcomes bounds the outcomes cached after they were stored, for waiters that come a
// moment later.
const maxStoredOutcomes = 512

// MarkStored records that a batch's outcomes can be found in the database.
func (n *Hub) MarkStored(batch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.received[batch]; ok && !a.stored { // else the answer was repeated
		a.stored = true
		n.received[batch] = a
		n.storedOrder = append(n.storedOrder, batch)
		n.storedOutcomes += len(a.outs)
	}
	n.trim(maxStoredOutcomes)
	n.broadcast()
}

// trim removes the oldest stored batches, until no more than most outcomes are left.
func (n *Hub) trim(most int) {
	for n.storedOutcomes > most {
		oldest := n.storedOrder[0]
		n.storedOrder = n.storedOrder[1:]
		n.storedOutcomes -= len(n.received[oldest].outs)
		delete(n.received, oldest)
	}
}

// DropStored removes all stored batches, since tickets have ended.
func (n *Hub) DropStored() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trim(0)
}

// broadcast wakes the waiters of NextChange.
func (n *Hub) broadcast() {
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// NextChange returns a channel that is closed when outcomes of a batch arrive at this process
// or are stored by it.
func (n *Hub) NextChange() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.changed
}

// Polling for answers that another process stores begins often and slows down. For this
// process's own it is only a precaution, since the hub delivers them, and slow: its sender may
// still lose the lease before it reads a queued batch.
const (
	PollMin    = 10 * time.Millisecond
	PollMax    = 250 * time.Millisecond
	pollQueued = 50 * time.Millisecond // the first time; then PollMax
	pollSent   = time.Second
)

// Poll reports whether to read the database now, when polls are pause apart, and how long it is
// until the next poll.
func (n Source) Poll(pause time.Duration) (look bool, next time.Duration) {
	first := pause == PollMin
	switch {
	case n == FromSender:
		return !first, pollSent
	case n == FromQueue && first:
		return false, pollQueued
	case n == FromQueue:
		return true, PollMax
	}
	return true, pause
}

// Waiting is the number of batches that are waited for.
func (n *Hub) Waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.waiting)
}
