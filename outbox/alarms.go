package outbox

// The machine's clock work: what is due when.

import (
	"container/heap"
	"time"
)

// alarms are times at which a stream or a host may have something to do. Those
// that have been overtaken do no harm.
type alarms []alarm

type alarm struct {
	at time.Time
	s  *stream
	h  *host
}

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)        { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}

func (a *alarms) set(at time.Time, s *stream, h *host) { heap.Push(a, alarm{at, s, h}) }

// wakeAt is when tick wants to be called; zero for not at all.
func (m *machine) wakeAt() time.Time {
	if len(m.alarms) == 0 {
		return time.Time{}
	}
	return m.alarms[0].at
}

// tick does what is due.
func (m *machine) tick(now time.Time) {
	for len(m.alarms) > 0 && !m.alarms[0].at.After(now) {
		a := heap.Pop(&m.alarms).(alarm)
		if a.h != nil {
			m.tryHost(a.h, now)
			continue
		}
		s := a.s
		if m.streams[s.session] != s {
			continue
		}
		if s.phase == open && !s.ackAt.IsZero() && !now.Before(s.ackAt) {
			m.acknowledge(s)
		}
		if s.phase == open && !s.idleSince.IsZero() && now.Sub(s.idleSince) >= idleClose {
			m.close(s, now)
		}
		if s.relook && now.Sub(s.lookedAt) >= owedRelook {
			m.paid(s)
			m.more(s, now)
			continue
		}
		m.step(s, now)
	}
}

func (m *machine) acknowledge(s *stream) {
	s.ackAt = time.Time{}
	if through := s.ackable(); through > s.told {
		s.told = through
		m.do(action{kind: actAck, session: s.session, conn: s.conn, through: through})
	}
}
