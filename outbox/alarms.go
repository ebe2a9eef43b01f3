package outbox

// The machine's clock work: what is due when.

import (
	"container/heap"
	"time"
)

// alarm is when a stream or a host may next have something to do.
type alarm struct {
	at    time.Time
	s     *stream
	h     *host
	place int // in alarms, from 1; 0: it is not set
}

// alarms are those that are set, one at most of each stream and host.
type alarms []*alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i+1, j+1
}
func (a *alarms) Push(x any) {
	*a = append(*a, x.(*alarm))
	(*a)[len(*a)-1].place = len(*a)
}
func (a *alarms) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	x.place = 0
	return x
}

// set has an alarm go off at a time, and not at another that it was set to; zero: never.
func (a *alarms) set(al *alarm, at time.Time) {
	al.at = at
	switch {
	case al.place == 0 && !at.IsZero():
		heap.Push(a, al)
	case al.place > 0 && at.IsZero():
		heap.Remove(a, al.place-1)
	case al.place > 0:
		heap.Fix(a, al.place-1)
	}
}

// arm sets a stream's alarm to what is due next.
func (m *machine) arm(s *stream, now time.Time) {
	var next time.Time
	due := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if s.relook {
		due(s.lookedAt.Add(owedRelook))
	}
	switch {
	case s.phase == closed && s.retryAt.After(now):
		due(s.retryAt)
	case s.phase == open && !s.idleSince.IsZero():
		due(s.ackAt)
		due(s.idleSince.Add(idleClose))
	}
	m.alarms.set(&s.alarm, next)
}

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
		a := heap.Pop(&m.alarms).(*alarm)
		if a.h != nil {
			m.tryHost(a.h, now)
			continue
		}
		s := a.s
		if s.phase == open && !s.ackAt.IsZero() && !now.Before(s.ackAt) {
			m.acknowledge(s)
		}
		if s.phase == open && !s.idleSince.IsZero() && now.Sub(s.idleSince) >= idleClose {
			m.close(s, now)
		}
		if s.relook && now.Sub(s.lookedAt) >= owedRelook {
			m.paid(s)
			m.more(s, now)
		} else {
			m.step(s, now)
		}
		if m.streams[s.session] == s {
			m.arm(s, now)
		}
	}
}

func (m *machine) acknowledge(s *stream) {
	s.ackAt = time.Time{}
	if through := s.ackable(); through > s.told {
		s.told = through
		m.do(action{kind: actAck, session: s.session, conn: s.conn, through: through})
	}
}
