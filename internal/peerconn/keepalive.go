// Keepalive: a silent peer is pinged, one that does not answer or read is dead, and an unused connection is ended.

package peerconn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// heard records a sign of life of the peer. The lock need not be held.
func (l *Loop) heard() {
	l.restartSilence()
	if l.arrival.Load()-l.lastActivity.Load() < int64(time.Second) {
		l.arrival.Store(0)
	}
}

// restartSilence has the peer's silence begin now: it could not be heard, or is reading. The lock need not be held.
func (l *Loop) restartSilence() { l.lastActivity.Store(int64(time.Since(l.start))) }

// startKeepalive starts the timer that pings whenever the peer was silent for Timeouts.PingInterval, and that ends unused
// connections. The lock is not held.
func (l *Loop) startKeepalive() *time.Timer {
	began := time.Since(l.start)
	interval, timeout := l.cfg.Timeouts.PingInterval, l.cfg.Timeouts.Ping
	var timer *time.Timer
	var writing writeProgress
	timer = time.AfterFunc(time.Hour, func() {
		l.mu.Lock()
		if l.ended {
			l.mu.Unlock()
			return
		}
		if l.endIfUnused(began) {
			l.codec.UnlockAndRun()
			return
		}
		l.workers++
		l.replaceReader() // a handler that takes long is not the peer's fault
		if l.since(&l.lastMessage) >= interval {
			l.releaseIdle()
		}
		busy, pieces := l.busy, l.chunksWritten
		if l.readerPaused {
			l.restartSilence()
		}
		l.codec.UnlockAndRun()
		defer l.WorkerDone()
		switch silent := l.since(&l.lastActivity); {
		case silent < interval:
			writing = writeProgress{}
		case busy && (!l.reportsProgress || writing.advanced(pieces)): // the former is left to stallTimer
			l.restartSilence()
		case busy && silent < interval+timeout:
			timer.Reset(max(timeout/4, time.Millisecond))
			return
		case busy:
			l.endUnresponsive(errors.New("a write made no progress"))
			return
		default:
			writing = writeProgress{}
			if !l.ping() {
				return
			}
		}
		timer.Reset(l.nextCheck(began, time.Since(l.start)))
	})
	timer.Reset(l.nextCheck(began, began))
	return timer
}

// writeProgress watches a write that is under way while the peer is silent. A ping would wait behind it; but as long as
// pieces are written, the peer reads.
type writeProgress struct {
	watched bool
	chunks  uint64 // at the last check
}

// advanced reports whether pieces were written since the last check, if there was one.
func (w *writeProgress) advanced(pieces uint64) bool {
	on := w.watched && pieces != w.chunks
	*w = writeProgress{watched: !on, chunks: pieces}
	return on
}

// maxUnackedBytes is how many bytes may be on their way to a peer although they are written: the size of buffers.
const maxUnackedBytes = 8 << 20

// written records that bytes were written, and may be in a buffer of the system or a proxy still. An answer to a ping shows that
// they have arrived; a message shows that of few, as it may have been sent before. The lock is held.
func (l *Loop) written(bytes int) {
	now := time.Since(l.start)
	by := max(time.Duration(l.arrival.Load()), now) + time.Duration(bytes)*time.Second/minWriteRate
	l.arrival.Store(int64(min(by, now+maxUnackedBytes/minWriteRate*time.Second)))
}

// ping asks the peer for a sign of life, and ends the connection if none comes. The answer comes behind what was written
// before, which is given time to arrive. The lock is not held.
func (l *Loop) ping() (alive bool) {
	last := l.lastActivity.Load()
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.Timeouts.Ping+max(-l.since(&l.arrival), 0))
	err := l.cfg.Transport.Ping(ctx)
	cancel()
	if err != nil && l.lastActivity.Load() == last { // else the answer comes behind a message that takes long
		l.endUnresponsive(err)
		return false
	}
	l.arrival.Store(0)
	l.heard()
	return true
}

func (l *Loop) endUnresponsive(err error) {
	l.CountHit(LimitPingTimeout)
	l.End(Ending{Err: l.codec.Disconnected(fmt.Errorf("the peer is silent: %w", err)), Code: ClosePolicyViolation, Reason: "no answer to a ping"})
}

// since returns the time since lastActivity, lastMessage or arrival.
func (l *Loop) since(at *atomic.Int64) time.Duration {
	return time.Since(l.start) - time.Duration(at.Load())
}

// nextCheck returns how long the keepalive timer may sleep.
func (l *Loop) nextCheck(began, now time.Duration) time.Duration {
	t := &l.cfg.Timeouts
	next := time.Duration(l.lastActivity.Load()) + t.PingInterval
	if l.lastMessage.Load() == 0 && t.Handshake > 0 {
		next = min(next, began+t.Handshake)
	}
	if idle := max(time.Duration(l.lastMessage.Load()), began) + t.Idle; idle > now {
		next = min(next, idle)
	}
	return max(next-now, time.Millisecond)
}

// endIfUnused ends a connection whose peer has sent nothing since it began, or nothing for long while it can be waiting for
// nothing; false if neither is true.
func (l *Loop) endIfUnused(began time.Duration) bool {
	t := &l.cfg.Timeouts
	now, read := time.Since(l.start), time.Duration(l.lastMessage.Load())
	switch {
	case read == 0 && t.Handshake > 0 && now-began >= t.Handshake:
		l.CountHit(LimitHandshakeTimeout)
		l.EndLocked(Ending{Err: l.codec.Disconnected(fmt.Errorf("the peer said nothing for %v", t.Handshake)), Code: ClosePolicyViolation,
			Reason: "no message came", Flush: true})
	case t.Idle > 0 && now-max(read, began) >= t.Idle && l.out.pending() == 0 && l.codec.IsUnused():
		l.CountHit(LimitIdleTimeout)
		l.EndLocked(Ending{Err: l.codec.Disconnected(fmt.Errorf("the connection was of no use for %v", t.Idle)), Code: CloseNormal,
			Reason: "idle: nothing is held over this connection", Flush: true, NoLog: true})
	default:
		return false
	}
	return true
}
