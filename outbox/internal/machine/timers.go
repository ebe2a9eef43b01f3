package machine

// The machine's timers.

import (
	"container/heap"
	"time"
)

// timer is when a stream or a host may next have something to do.
type timer struct {
	at     time.Time
	stream *Stream
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
func (m *Machine) arm(s *Stream, now time.Time) {
	var next time.Time
	due := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if s.Recheck {
		due(s.loadedAt.Add(RecheckInterval))
	}
	switch {
	case s.Phase == PhaseClosed && s.RetryAt.After(now):
		due(s.RetryAt)
	case s.Phase == PhaseOpen && !s.idleSince.IsZero():
		due(s.ackAt)
		due(s.idleSince.Add(IdleTimeout))
	}
	m.Timers.set(&s.timer, next)
}

// WakeAt returns when tick must be called; zero for not at all.
func (m *Machine) WakeAt() time.Time {
	if len(m.Timers) == 0 {
		return time.Time{}
	}
	return m.Timers[0].at
}

// Tick handles the timers that are due.
func (m *Machine) Tick(now time.Time) {
	for len(m.Timers) > 0 && !m.Timers[0].at.After(now) {
		a := heap.Pop(&m.Timers).(*timer)
		if a.host != nil {
			m.probeHost(a.host, now)
			continue
		}
		s := a.stream
		if s.Phase == PhaseOpen && !s.ackAt.IsZero() && !now.Before(s.ackAt) {
			m.acknowledge(s)
		}
		if s.Phase == PhaseOpen && !s.idleSince.IsZero() && now.Sub(s.idleSince) >= IdleTimeout {
			m.close(s, now)
		}
		if s.Recheck && now.Sub(s.loadedAt) >= RecheckInterval {
			m.unblock(s)
			m.markBacklog(s, now)
		} else {
			m.Step(s, now)
		}
		if m.Streams[s.Session] == s {
			m.arm(s, now)
		}
	}
}

func (m *Machine) acknowledge(s *Stream) {
	s.ackAt = time.Time{}
	if through := s.ackable(); through > s.ackedThrough {
		s.ackedThrough = through
		m.emit(Action{Kind: ActAck, Session: s.Session, ConnID: s.connID, Through: through})
	}
}
