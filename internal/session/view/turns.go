package view

// The count of open turns, without those of dead refs.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// TurnCount is the number of open turns of a session under living refs.
type TurnCount struct {
	authGen  uint64 // the session's AuthGen at the count: if it differs, refs have died since or have new parents
	Total    int
	ByStream map[string]int
	ByRef    map[string]int // by ref, descendants included
	orphans  []string       // messages of the uncounted turns
}

// TurnCount counts a session's open turns, or returns an earlier count, which is kept up to date.
func (v *View) TurnCount(s *Session) (*TurnCount, *fault.Error) {
	if s.openCount != nil && s.openCount.authGen == s.Row.AuthGen {
		return s.openCount, nil
	}
	turns, err := v.OpenTurns(s, "")
	if err != nil {
		return nil, err
	}
	turns = slices.DeleteFunc(turns, func(t *session.Turn) bool { return t.Orphan })
	for _, t := range turns { // loads the refs, if they were not loaded with the turns
		if _, err := v.Lineage(s, t.Ref); err != nil {
			return nil, err
		}
	}
	s.openCount = &TurnCount{authGen: s.Row.AuthGen, ByStream: map[string]int{}, ByRef: map[string]int{}}
	for _, t := range turns {
		if !v.countTurn(s, t, 1) {
			s.openCount.orphans = append(s.openCount.orphans, t.Message)
		}
	}
	return s.openCount, nil
}

// countTurn adds n to the counts of a turn, and reports whether it is counted. A turn of an earlier
// version, which stored no ref, counts for its stream and its session.
func (v *View) countTurn(s *Session, t *session.Turn, n int) bool {
	if t == nil || !t.Status.Open() || t.Orphan {
		return false
	}
	line, err := v.Lineage(s, t.Ref)
	if err != nil || t.Ref != "" && (len(line) == 0 || capability.Check(line[0], s.Row.Epoch, v.Now, 0, "") != nil) {
		return false
	}
	s.openCount.Total += n
	s.openCount.ByStream[t.Outbox] += n
	for _, g := range line {
		s.openCount.ByRef[g.ID] += n
	}
	return true
}

// MarkOrphans marks the rows of the uncounted turns.
func (v *View) MarkOrphans(s *Session) {
	if s.openCount == nil {
		return
	}
	messages := s.openCount.orphans
	s.openCount.orphans = nil
	for _, m := range messages {
		if t := *s.turns[m].turn; t.Status.Open() {
			t.Orphan = true
			v.SetTurn(s, t)
		}
	}
}
