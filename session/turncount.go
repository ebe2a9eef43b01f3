package session

// How many turns are open. What one ref may have, it has together with all that descend
// from it, or who may share would have any number. An owner's ref has what is left of the
// session's: else one guest could have all of the owner's.
//
// Turns of dead refs do not count: nobody is there any more to end them. A begin that finds
// such turns says so in their rows (Orphan), and no other batch looks at them again. So there
// may be any number of them, as of ended ones, within the session's quota; a batch looks at
// no more than MaxSessionTurns and those of refs that have died since the last begin.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// turnCount is how many open turns of living refs a session has.
type turnCount struct {
	authGen  uint64 // the session's AuthGen then: refs have died since, or have another parent
	total    int
	byStream map[string]int // by stream
	byRef    map[string]int // by ref, with those of all refs below it
	orphans  []string       // messages of the others
}

// checkTurnLimits says why one more turn may not be begun. What the stream itself has open is its
// own fault, and recorded. What others have open is not: it waits until there is room.
func (a *applier) checkTurnLimits() *fault.Error {
	n, err := a.v.turnCount(a.s)
	if err != nil {
		return err
	}
	switch {
	case n.byStream[a.outbox] >= MaxOpenTurns:
		return fault.TooLarge.With("%d turns of this stream are open, the most that may be: finalize some", n.byStream[a.outbox])
	case n.total >= MaxSessionTurns:
		return fault.Overloaded.With("%d turns of this session are open, the most that may be: it waits until some are finalized, or aborted (mooring session abort-turns)", n.total)
	}
	line, err := a.v.lineage(a.s, a.grant.ID)
	if err != nil {
		return err
	}
	for _, g := range line {
		if !g.Owner && n.byRef[g.ID] >= MaxOpenTurns {
			return fault.Overloaded.With("%d turns are open under ref %s and what was shared from it, the most that may be: it waits until some are finalized, or aborted (mooring session abort-turns)", n.byRef[g.ID], g.ID)
		}
	}
	return nil
}

// turnCount counts a session's open turns, or gives the count that was made before and has
// followed every change since.
func (v *view) turnCount(s *sessionView) (*turnCount, *fault.Error) {
	if s.openCount != nil && s.openCount.authGen == s.row.AuthGen {
		return s.openCount, nil
	}
	turns, err := v.openTurns(s, "")
	if err != nil {
		return nil, err
	}
	turns = slices.DeleteFunc(turns, func(t *Turn) bool { return t.Orphan })
	for _, t := range turns { // read, if they did not come with the turns
		if _, err := v.lineage(s, t.Ref); err != nil {
			return nil, err
		}
	}
	s.openCount = &turnCount{authGen: s.row.AuthGen, byStream: map[string]int{}, byRef: map[string]int{}}
	for _, t := range turns {
		if !v.countTurn(s, t, 1) {
			s.openCount.orphans = append(s.openCount.orphans, t.Message)
		}
	}
	return s.openCount, nil
}

// countTurn counts n more of a turn, if it counts: one of a version that noted no ref does,
// for its stream and its session.
func (v *view) countTurn(s *sessionView, t *Turn, n int) bool {
	if t == nil || !t.Status.Open() || t.Orphan {
		return false
	}
	line, err := v.lineage(s, t.Ref)
	if err != nil || t.Ref != "" && (len(line) == 0 || capability.Check(line[0], s.row.Epoch, v.now, 0, "") != nil) {
		return false
	}
	s.openCount.total += n
	s.openCount.byStream[t.Outbox] += n
	for _, g := range line {
		s.openCount.byRef[g.ID] += n
	}
	return true
}

// markOrphans has the rows of those turns say so that were found not to count.
func (v *view) markOrphans(s *sessionView) {
	if s.openCount == nil {
		return
	}
	messages := s.openCount.orphans
	s.openCount.orphans = nil
	for _, m := range messages {
		if t := *s.turns[m].turn; t.Status.Open() {
			t.Orphan = true
			v.setTurn(s, t)
		}
	}
}

// lineage is a ref and all that it descends from in its session; nothing if there is no such ref.
func (v *view) lineage(s *sessionView, id string) (line []*capability.Grant, err *fault.Error) {
	for strings.HasPrefix(id, s.row.ID) { // and not the space's
		g, err := v.grant(id)
		if err != nil {
			return nil, err
		}
		if g == nil {
			break
		}
		line, id = append(line, g), g.Parent
	}
	return line, nil
}
