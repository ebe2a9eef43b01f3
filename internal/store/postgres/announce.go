// Announcing commits to listening servers. A transaction that notifies blocks every other notifying
// transaction of the whole cluster until it is on the disk (Postgres' PreCommit_Notify), so that
// commits would no longer overlap; and the servers it wakes compete with the answers for the
// processor. Therefore commits are announced afterwards, many together, in a transaction that
// writes nothing. Polling finds commits whose announcement was lost in a crash.

package postgres

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// channel is the NOTIFY channel of commits; a payload is "SESSION CURSOR".
const channel = "mooring_events"

const (
	announceEvery   = 2 * time.Millisecond // the least time between two announcements
	announceTimeout = 2 * time.Second
)

// announcer collects pending announcements.
type announcer struct {
	wake  chan struct{} // cursors is not empty; closed by close
	ended chan struct{} // closed when announce has returned

	mu      sync.Mutex // guards the fields below
	cursors map[string]uint64
	closed  bool
}

func newAnnouncer() *announcer {
	return &announcer{wake: make(chan struct{}, 1), ended: make(chan struct{}), cursors: map[string]uint64{}}
}

// add adds sessions' cursors to the pending announcements.
func (a *announcer) add(cursors map[string]uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(cursors) == 0 {
		return
	}
	for session, cursor := range cursors {
		a.cursors[session] = max(a.cursors[session], cursor)
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// take removes and returns the pending announcements.
func (a *announcer) take() map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	cursors := a.cursors
	a.cursors = map[string]uint64{}
	return cursors
}

// close stops the announcer, after one attempt to announce everything pending, and waits for it.
func (a *announcer) close() {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.wake)
	}
	a.mu.Unlock()
	<-a.ended
}

// announce sends announcements until close.
func (b *backend) announce() {
	defer close(b.announcer.ended)
	for open := true; open; {
		_, open = <-b.announcer.wake
		cursors := b.announcer.take()
		if len(cursors) == 0 {
			continue
		}
		pause := announceEvery
		if err := b.notify(cursors); err != nil {
			b.log.Debug("commits cannot be notified yet", "sessions", len(cursors), "error", err)
			b.announcer.add(cursors)
			pause = listenRetryMin
		}
		if open {
			time.Sleep(pause)
		}
	}
}

func (b *backend) notify(cursors map[string]uint64) error {
	payloads := make([]string, 0, len(cursors))
	for session, cursor := range cursors {
		payloads = append(payloads, session+" "+strconv.FormatUint(cursor, 10))
	}
	ctx, cancel := context.WithTimeout(context.Background(), announceTimeout)
	defer cancel()
	conn, release, err := b.sizedPool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	_, err = conn.Exec(ctx, "SELECT pg_notify('"+channel+"', p) FROM unnest($1::text[]) AS p", payloads)
	return err
}
