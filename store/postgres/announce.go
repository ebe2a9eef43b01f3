// Announcing commits to the servers that listen. A transaction that notifies
// keeps every other one of the whole cluster that does out until it is on the
// disk (Postgres' PreCommit_Notify), so that commits would no longer overlap;
// and whoever is woken by it takes the processor from the answers. Therefore
// commits are announced after the fact, many together, in a transaction that
// writes nothing. What a crash in between leaves unsaid is found by who polls.

package postgres

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// channel is the name under which commits are announced; the payload is a
// session id, a space and the session's cursor.
const channel = "mooring_events"

const (
	announceEvery   = 2 * time.Millisecond // the least time between two announcements
	announceTimeout = 2 * time.Second
)

// announcer gathers what is to be announced.
type announcer struct {
	wake  chan struct{} // something is in cursors; closed by close
	ended chan struct{} // nothing is announced any more

	mu      sync.Mutex // guards what follows
	cursors map[string]uint64
	closed  bool
}

func newAnnouncer() *announcer {
	return &announcer{wake: make(chan struct{}, 1), ended: make(chan struct{}), cursors: map[string]uint64{}}
}

// add has sessions' cursors announced.
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

// take gives what is to be announced now.
func (a *announcer) take() map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	cursors := a.cursors
	a.cursors = map[string]uint64{}
	return cursors
}

// close has what waits announced, if that is possible now, and waits for it.
func (a *announcer) close() {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.wake)
	}
	a.mu.Unlock()
	<-a.ended
}

// announce runs until close.
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
			b.log.Debug("commits cannot be announced yet", "sessions", len(cursors), "error", err)
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
