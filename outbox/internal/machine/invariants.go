package machine

// The machine's invariants.

import (
	"fmt"
	"slices"
)

// BrokenInvariant describes a condition that holds at all times and does not hold now; "" for
// none. Tests ask after every event.
func (m *Machine) BrokenInvariant() string {
	open := 0
	for id, st := range m.Streams {
		if st.Phase != PhaseClosed {
			open++
		}
		for _, batch := range st.BlockedOn {
			if !m.BlockedSessions[batch][id] {
				return fmt.Sprintf("%s waits for %s, which is not known to block it", id, batch)
			}
		}
		bytes, holds := 0, 0
		for i, e := range st.Queue {
			bytes += e.Bytes
			if e.PinSeq > 0 {
				holds++
			}
			if i > 0 && e.FirstSeq <= st.Queue[i-1].LastSeq() {
				return fmt.Sprintf("%s: seq %d follows %d", id, e.FirstSeq, st.Queue[i-1].LastSeq())
			}
		}
		if bytes != st.queuedBytes || holds != st.pins || st.InFlight > len(st.Queue) || st.Phase == PhaseClosed && st.InFlight > 0 || st.ackedThrough > st.StoredThrough {
			return fmt.Sprintf("%s: %+v", id, *st)
		}
	}
	for batch, sessions := range m.BlockedSessions {
		for id := range sessions {
			if st := m.Streams[id]; st == nil || !slices.Contains(st.BlockedOn, batch) {
				return fmt.Sprintf("%s does not wait for %s", id, batch)
			}
		}
	}
	if open != m.OpenStreams {
		return fmt.Sprintf("%d slots are taken, %d counted", open, m.OpenStreams)
	}
	return ""
}
