package decide

// Counting open turns. The limit of a ref applies to the ref and all its descendants together, or
// sharing would multiply it. An owner's ref is limited only by the session's limit: otherwise one
// guest could use up all of the owner's.
//
// Turns of dead refs are not counted: no holder is left to end them. A begin that finds such turns
// marks their rows (Orphan), and later batches do not read them. So there may be any number of
// them, as of ended ones, within the session's quota; a batch reads no more than MaxSessionTurns
// turns, and the turns of refs that have died since the last begin.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// turnCount is the number of open turns of a session under living refs.
type turnCount struct {
	authGen  uint64 // the session's AuthGen at the count: if it differs, refs have died since or have new parents
	total    int
	byStream map[string]int
	byRef    map[string]int // by ref, descendants included
	orphans  []string       // messages of the uncounted turns
}

// checkTurnLimits returns the reason that one more turn may not be begun. The stream's own open
// turns are a refusal that is recorded. Open turns of others are not: the batch waits until there
// is room.
func (a *applier) checkTurnLimits() *fault.Error {
	n, err := a.v.turnCount(a.s)
	if err != nil {
		return err
	}
	switch {
	case n.byStream[a.outbox] >= session.MaxOpenTurns:
		return fault.TooLarge.With("%d turns of this stream are open, the maximum: finalize some", n.byStream[a.outbox])
	case n.total >= session.MaxSessionTurns:
		return fault.Overloaded.With("%d turns of this session are open, the maximum: the op waits until some are finalized, or aborted (mooring session abort-turns)", n.total)
	}
	line, err := a.v.lineage(a.s, a.grant.ID)
	if err != nil {
		return err
	}
	for _, g := range line {
		if !g.Owner && n.byRef[g.ID] >= session.MaxOpenTurns {
			return fault.Overloaded.With("%d turns are open under ref %s and refs made from it, the maximum: the op waits until some are finalized, or aborted (mooring session abort-turns)", n.byRef[g.ID], g.ID)
		}
	}
	return nil
}

// turnCount counts a session's open turns, or returns an earlier count, which is kept up to date.
func (v *view) turnCount(s *sessionView) (*turnCount, *fault.Error) {
	if s.openCount != nil && s.openCount.authGen == s.row.AuthGen {
		return s.openCount, nil
	}
	turns, err := v.openTurns(s, "")
	if err != nil {
		return nil, err
	}
	turns = slices.DeleteFunc(turns, func(t *session.Turn) bool { return t.Orphan })
	for _, t := range turns { // loads the refs, if they were not loaded with the turns
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

// countTurn adds n to the counts of a turn, and reports whether it is counted. A turn of an earlier
// version, which stored no ref, counts for its stream and its session.
func (v *view) countTurn(s *sessionView, t *session.Turn, n int) bool {
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

// markOrphans marks the rows of the uncounted turns.
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

// lineage returns a ref and its ancestors in its session; empty if there is no such ref. That of a
// space's ref, which acts in the session by the right manage, is its grant there alone, alive or dead; that of a
// ref of a session above has the grants of those that reach the session.
func (v *view) lineage(s *sessionView, id string) (line []*capability.Grant, err *fault.Error) {
	if capability.IsSpace(capability.Target(id)) {
		g, err := v.grant(id)
		if err != nil {
			return nil, err
		}
		if g, _ = managing(&s.row, g, nil, v.now); g != nil {
			line = append(line, g)
		}
		return line, nil
	}
	if above := capability.Target(id); above != "" && above != s.row.ID {
		return v.reachingLine(s, above, id)
	}
	for strings.HasPrefix(id, s.row.ID) { // without the space's refs
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
