package decide

// The reach of a ref: its rights in the sessions below its own, which it acts in under its own id. Nothing is
// stored of a child: every transaction and every read there reads the ref's row and that of its session.
//
// Whatever ends such a ref, and that alone, is a cut in each child: it locks the ref's session and all those below it, in the
// order of their ids, and gives each an event. Which these are is read before the locks, and again under them:
// a session that was made meanwhile is not locked, and the transaction is tried again (ErrMoreChildren). A child
// is made under its parent's lock, so after the locks there are no more. A ref that expires ends without a cut.

import (
	"errors"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// ErrMoreChildren is the error of a transaction that was to cut refs off in the children of a session, while one
// was made there: it is tried again.
var ErrMoreChildren = errors.New("a child was made meanwhile in a session whose refs are cut off in its children")

// maxCutsListed is how many of the children that were cut an answer lists.
const maxCutsListed = 1000

// ChildCut is the cut of a session's ref in a child: nothing under it commits there after Cut.
type ChildCut struct {
	Session string `json:"session"`
	Cut     uint64 `json:"cut"`
}

// NoChild returns the refusal of a session that is not below another. It is the same whether there is such a
// session or not.
func NoChild() *fault.Error { return fault.NotFound.With("the session has no such child") }

// reaching is capability.Reaching in session id, for the row of a ref of the session above, whose row is above.
// row is nil if there is no such session. What is refused to a ref that reaches nothing, and to a dead one outside its
// reach, does not depend on whether there is one.
func reaching(id string, row, above *session.Row, g, narrow *capability.Grant, now int64) (*capability.Grant, *fault.Error) {
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
			err = NoChild()
		}
	}
	return acting, err
}

func errAboveDeleted() *fault.Error {
	return fault.SessionDeleted.With("the session of the ref was deleted, and with it the ref")
}

// CheckReaching returns the grant under which a ref of a session acts in the access's session, which is id and is below
// it, and why it may not; the grant of a dead ref is returned too. narrow are the limits of the live capability
// of the session above, nil if it has none.
func CheckReaching(at *session.Access, id, ref string, narrow *capability.Grant) (*capability.Grant, *fault.Error) {
	above := at.Others[capability.Target(ref)]
	if capability.Target(ref) == id {
		above = at.Row // which is not below itself
	}
	return reaching(id, at.Row, above, at.Grants[ref], narrow, at.Now)
}

// rowOf returns a session's row as this group has it: locked and maybe changed, or as it was read.
func (v *view) rowOf(id string) *session.Row {
	if s := v.sessions[id]; s != nil {
		return &s.row
	}
	return v.others[id]
}

// reachingLine is lineage for a ref of a session above.
func (v *view) reachingLine(s *sessionView, above, id string) (line []*capability.Grant, err *fault.Error) {
	if v.rowOf(above) == nil {
		if err := v.loadMissing(&session.ReadSet{Others: []string{above}}); err != nil {
			return nil, err
		}
	}
	for capability.Target(id) == above {
		g, err := v.grant(id)
		if err != nil {
			return nil, err
		}
		acting, _ := reaching(s.row.ID, &s.row, v.rowOf(above), g, nil, v.now)
		if acting == nil {
			break
		}
		line, id = append(line, acting), g.Parent
	}
	return line, nil
}

// endings are the sessions in which a group ends refs, each with those of whose trees it does, "" for all refs of the
// session; and the sessions where it also makes refs that reach children.
type endings struct {
	roots   map[string][]string
	reached map[string]struct{}
}

func (e *endings) add(session, root string) { e.roots[session] = append(e.roots[session], root) }

func endingsOf(subs []Submission) (e endings) {
	e = endings{map[string][]string{}, map[string]struct{}{}}
	for i := range subs {
		sub := &subs[i]
		id := sub.Batch.Session
		switch d := sub.Direct; {
		case d == nil || d.Ops:
		case d.Share != nil:
			if d.Rotate == nil && d.Older == nil && d.Share.Children != 0 {
				e.reached[id] = struct{}{}
			}
		case d.Rotate != nil: // what was made from the owner's ref goes on
		case d.Older == nil && !d.Epoch:
			e.add(id, d.Ref)
		case d.Older == nil || d.Older.Method == session.MethodDelete:
			e.add(id, "")
		}
		for j := range sub.Batch.Ops {
			switch op := &sub.Batch.Ops[j]; op.Method {
			case session.MethodRevoke:
				e.add(id, argText(op, "ref")) // "" if it is a reference
			case session.MethodBumpEpoch, session.MethodDelete:
				e.add(id, "")
			case session.MethodShare:
				if hasArgument(op, "children") {
					e.reached[id] = struct{}{}
				}
			}
		}
	}
	return e
}

// readSet returns what is read of the sessions below; nil if nothing ends.
func (e endings) readSet() *session.ReadSet {
	if len(e.roots) == 0 {
		return nil
	}
	w := &session.ReadSet{Below: map[string]bool{}}
	for id, roots := range e.roots {
		_, w.Below[id] = e.reached[id]
		w.Grants = append(w.Grants, roots...)
	}
	slices.Sort(w.Grants)
	w.Grants = slices.DeleteFunc(slices.Compact(w.Grants), func(root string) bool { return capability.Target(root) == "" })
	return w
}

// spares reports whether no ref of a session that reaches children ends, as the refs that end were read: each is none that
// does, nor an owner's, from which alone, and from one another, such refs are made. So what is below needs no lock.
func (e endings) spares(session string, found *session.Rows) bool {
	if _, more := e.reached[session]; more {
		return false
	}
	return !slices.ContainsFunc(e.roots[session], func(root string) bool {
		g := found.Grants[root]
		return g == nil || g.Owner || g.Children != 0 || g.Target != session
	})
}

// loadLocked is the group's first load, which locks: with the sessions below those in which refs that reach them
// may end.
func (v *view) loadLocked(w *session.ReadSet, e endings) error {
	first := e.readSet()
	if first == nil {
		return v.load(w, true)
	}
	rows, err := v.tx.Load(v.ctx, first)
	if err != nil {
		return err
	}
	maps.DeleteFunc(first.Below, func(id string, _ bool) bool { return e.spares(id, rows) })
	for id := range first.Below {
		w.Sessions = append(w.Sessions, rows.Below[id]...)
	}
	slices.Sort(w.Sessions)
	w.Sessions, w.Below = slices.Compact(w.Sessions), first.Below
	if err := v.load(w, true); err != nil {
		return err
	}
	for _, ids := range v.below {
		for _, id := range ids {
			if v.sessions[id] == nil {
				return ErrMoreChildren
			}
		}
	}
	return nil
}

// reachEnding returns the living sessions below the applier's if a ref that is about to end reaches them: one of
// the tree of a ref, or any if root is "".
func (a *applier) reachEnding(root string) ([]string, *fault.Error) {
	ids := a.v.below[a.s.row.ID]
	if len(ids) == 0 {
		return nil, nil
	}
	known := map[string]bool{root: true}
	for _, id := range slices.Sorted(maps.Keys(a.v.grants)) {
		g := a.v.grants[id].grant
		if g == nil || g.Children == 0 || g.Target != a.s.row.ID || capability.Check(g, a.s.row.Epoch, a.v.now, 0, "") != nil {
			continue
		}
		if root == "" {
			return ids, nil
		}
		if under, err := a.v.descendsFrom(id, known); under || err != nil {
			return ids, err
		}
	}
	return nil, nil
}

// cutChildren writes the cut of an ended ref, or of all refs of the session if that is its id, into children.
func (a *applier) cutChildren(ids []string, ended string) (list []ChildCut, total int) {
	for _, id := range ids {
		s := a.v.sessions[id]
		if s.row.Life != session.Live { // deleted by this group
			continue
		}
		a.v.withdrawUnder(s, a.grant, ended) // an error is of the store, and ends the group
		a.v.cut(s, a.grant, ended, a.sub.Peer)
		if total++; len(list) < maxCutsListed {
			list = append(list, ChildCut{id, s.row.Cursor})
		}
	}
	return list, total
}
