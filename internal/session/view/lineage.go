package view

// Lineages: who acts in a session, under which grants.

import (
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Lineage returns a ref and its ancestors in its session; empty if there is no such ref. That of a
// space's ref, which acts in the session by the right manage, is its grant there alone, alive or dead; that of a
// ref of a session above has the grants of those that reach the session.
func (v *View) Lineage(s *Session, id string) (line []*capability.Grant, err *fault.Error) {
	if capability.IsSpace(capability.Target(id)) {
		g, err := v.Grant(id)
		if err != nil {
			return nil, err
		}
		if g, _ = Managing(&s.Row, g, nil, v.Now); g != nil {
			line = append(line, g)
		}
		return line, nil
	}
	if above := capability.Target(id); above != "" && above != s.Row.ID {
		return v.reachingLine(s, above, id)
	}
	for strings.HasPrefix(id, s.Row.ID) { // without the space's refs
		g, err := v.Grant(id)
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

// Reaching is capability.Reaching in session id, for the row of a ref of the session above, whose row is above.
// row is nil if there is no such session. What is refused to a ref that reaches nothing, and to a dead one outside its
// reach, does not depend on whether there is one.
func Reaching(id string, row, above *session.Row, g, narrow *capability.Grant, now int64) (*capability.Grant, *fault.Error) {
	switch {
	case g == nil && above != nil && above.Forgotten:
		return nil, errAboveDeleted()
	case g == nil || above == nil:
		return nil, capability.Check(nil, 0, now, 0, "")
	}
	acting, err := capability.Reaching(g, narrow, above.Epoch, id, now)
	if err == nil && above.Life != session.Live {
		acting.Epoch = 0
		err = errAboveDeleted()
	}
	if acting != nil && (row == nil || row.Life == session.Absent || !row.Below(above.ID)) {
		if acting = nil; err == nil {
			err = session.NoChild()
		}
	}
	return acting, err
}

func errAboveDeleted() *fault.Error {
	return fault.SessionDeleted.With("the session of the ref was deleted, and with it the ref")
}

// RowOf returns a session's row as this group has it: locked and maybe changed, or as it was read.
func (v *View) RowOf(id string) *session.Row {
	if s := v.Sessions[id]; s != nil {
		return &s.Row
	}
	return v.others[id]
}

// reachingLine is lineage for a ref of a session above.
func (v *View) reachingLine(s *Session, above, id string) (line []*capability.Grant, err *fault.Error) {
	if v.RowOf(above) == nil {
		if err := v.loadMissing(&session.ReadSet{Others: []string{above}}); err != nil {
			return nil, err
		}
	}
	for capability.Target(id) == above {
		g, err := v.Grant(id)
		if err != nil {
			return nil, err
		}
		acting, _ := Reaching(s.Row.ID, &s.Row, v.RowOf(above), g, nil, v.Now)
		if acting == nil {
			break
		}
		line, id = append(line, acting), g.Parent
	}
	return line, nil
}

// Managing is capability.Managing in a session, for the row of a ref. Who may not manage is refused alike whether the space has
// the session or not, and a session of another space like one that is not there.
func Managing(row *session.Row, g, narrow *capability.Grant, now int64) (*capability.Grant, *fault.Error) {
	if g == nil {
		return nil, capability.Check(nil, 0, now, 0, "")
	}
	acting, refused := capability.Managing(g, narrow, row.ID, now)
	if row.Life != session.Absent && g.Target == row.Space {
		return acting, refused
	}
	if refused == nil {
		refused = errNotInSpace(row.ID)
	}
	return nil, refused
}

func errNotInSpace(session string) *fault.Error {
	return fault.NotFound.With("the space has no session %s", fault.Clip(session))
}
