package outbox

// The machine's timers.

import (
	"container/heap"
	"time"
)

// timer is when a stream or a host may next have something to do.
type timer struct {
	at     time.Time
	stream *streamState
	host   *host
	index  int // in the heap, from 1; 0: not set
}

// timerHeap has the timers that are set, at most one per stream and host.
type timerHeap []*timer

func (a timerHeap) Len() int           { return len(a) }
func (a timerHeap) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a timerHeap) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i+1, j+1
}
func (a *timerHeap) Push(x any) {
	*a = append(*a, x.(*timer))
	(*a)[len(*a)-1].index = len(*a)
}
func (a *timerHeap) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	x.index = 0
	return x
}

// set sets a timer to a time, replacing its former one; zero: never.
func (a *timerHeap) set(al *timer, at time.Time) {
	al.at = at
	switch {
	case al.index == 0 && !at.IsZero():
		heap.Push(a, al)
	case al.index > 0 && at.IsZero():
		heap.Remove(a, al.index-1)
	case al.index > 0:
		heap.Fix(a, al.index-1)
	}
}

// arm sets a stream's timer to its next due time.
func (m *machine) arm(s *streamState, now time.Time) {
	var next time.Time
	due := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if s.recheck {
		due(s.loadedAt.Add(recheckInterval))
	}
	switch {
	case s.phase == phaseClosed && s.retryAt.After(now):
		due(s.retryAt)
	case s.phase == phaseOpen && !s.idleSince.IsZero():
		due(s.ackAt)
		due(s.idleSince.Add(idleTimeout))
	}
	m.timers.set(&s.timer, next)
}

// wakeAt returns when tick must be called; zero for not at all.
func (m *machine) wakeAt() time.Time {
	if len(m.timers) == 0 {
		return time.Time{}
	}
	return m.timers[0].at
}

// tick handles the timers that are due.
func (m *machine) tick(now time.Time) {
	for len(m.timers) > 0 && !m.timers[0].at.After(now) {
		a := heap.Pop(&m.timers).(*timer)
		if a.host != nil {
			m.probeHost(a.host, now)
			continue
		}
		s := a.stream
		if s.phase == phaseOpen && !s.ackAt.IsZero() && !now.Before(s.ackAt) {
			m.acknowledge(s)
		}
		if s.phase == phaseOpen && !s.idleSince.IsZero() && now.Sub(s.idleSince) >= idleTimeout {
			m.close(s, now)
		}
		if s.recheck && now.Sub(s.loadedAt) >= recheckInterval {
			m.unblock(s)
			m.markBacklog(s, now)
		} else {
			m.step(s, now)
		}
		if m.streams[s.session] == s {
			m.arm(s, now)
		}
	}
}

func (m *machine) acknowledge(s *streamState) {
	s.ackAt = time.Time{}
	if through := s.ackable(); through > s.ackedThrough {
		s.ackedThrough = through
		m.emit(action{kind: actAck, session: s.session, connID: s.connID, through: through})
	}
}
