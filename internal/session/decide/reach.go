package decide

// The reach of a ref: its rights in the sessions below its own, which it acts in under its own id. Nothing is
// stored of a child: every transaction and every read there reads the ref's row and that of its session. A space's ref acts in its
// sessions likewise, by the right manage (trees.go of package maintain).
//
// Whatever ends such a ref, and that alone, is a cut in each child: it locks the ref's session and all those below it, in the
// order of their ids, and gives each an event. Which these are is read before the locks, and again under them:
// a session that was made meanwhile is not locked, and the transaction is tried again (ErrMoreChildren). A child
// is made under its parent's lock, so after the locks there are no more. A ref that expires ends without a cut.

import (
	"context"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// maxCutsListed is how many of the children that were cut an answer lists.
const maxCutsListed = 1000

// ChildCut is the cut of a session's ref in a child: nothing under it commits there after Cut.
type ChildCut struct {
	Session string `json:"session"`
	Cut     uint64 `json:"cut"`
}

// CheckReaching returns the grant under which a ref of a session acts in the access's session, which is id and is below
// it, and why it may not; the grant of a dead ref is returned too. narrow are the limits of the live capability
// of the session above, nil if it has none.
func CheckReaching(at *session.Access, id, ref string, narrow *capability.Grant) (*capability.Grant, *fault.Error) {
	above := at.Others[capability.Target(ref)]
	if capability.Target(ref) == id {
		above = at.Row // which is not below itself
	}
	return view.Reaching(id, at.Row, above, at.Grants[ref], narrow, at.Now)
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
				e.add(id, opargs.Text(op, "ref")) // "" if it is a reference
			case session.MethodBumpEpoch, session.MethodDelete:
				e.add(id, "")
			case session.MethodShare:
				if opargs.HasArgument(op, "children") {
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
func loadLocked(ctx context.Context, tx session.Tx, v *view.View, w *session.ReadSet, e endings) error {
	first := e.readSet()
	if first == nil {
		return v.Load(w, true)
	}
	rows, err := tx.Load(ctx, first)
	if err != nil {
		return err
	}
	maps.DeleteFunc(first.Below, func(id string, _ bool) bool { return e.spares(id, rows) })
	for id := range first.Below {
		w.Sessions = append(w.Sessions, rows.Below[id]...)
	}
	slices.Sort(w.Sessions)
	w.Sessions, w.Below = slices.Compact(w.Sessions), first.Below
	if err := v.Load(w, true); err != nil {
		return err
	}
	for _, ids := range v.Below {
		for _, id := range ids {
			if v.Sessions[id] == nil {
				return maintain.ErrMoreChildren
			}
		}
	}
	return nil
}

// reachEnding returns the living sessions below the applier's if a ref that is about to end reaches them: one of
// the tree of a ref, or any if root is "".
func (a *applier) reachEnding(root string) ([]string, *fault.Error) {
	ids := a.v.Below[a.s.Row.ID]
	if len(ids) == 0 {
		return nil, nil
	}
	known := map[string]bool{root: true}
	for _, id := range slices.Sorted(maps.Keys(a.v.Grants)) {
		g := a.v.Grants[id].Grant
		if g == nil || g.Children == 0 || g.Target != a.s.Row.ID || capability.Check(g, a.s.Row.Epoch, a.v.Now, 0, "") != nil {
			continue
		}
		if root == "" {
			return ids, nil
		}
		if under, err := a.v.DescendsFrom(id, known); under || err != nil {
			return ids, err
		}
	}
	return nil, nil
}

// cutChildren writes the cut of an ended ref, or of all refs of the session if that is its id, into children.
func (a *applier) cutChildren(ids []string, ended string) (list []ChildCut, total int) {
	for _, id := range ids {
		s := a.v.Sessions[id]
		if s.Row.Life != session.Live { // deleted by this group
			continue
		}
		maintain.WithdrawUnder(a.v, s, a.grant, ended) // an error is of the store, and ends the group
		maintain.Cut(a.v, s, a.grant, ended, a.sub.Peer)
		if total++; len(list) < maxCutsListed {
			list = append(list, ChildCut{id, s.Row.Cursor})
		}
	}
	return list, total
}

// CheckManaging returns the grant under which the space's ref of an access acts in a session, the access's,
// and why it may not; the grant of a dead ref is returned too. narrow are the limits of the space's live
// capability, nil if it has none.
func CheckManaging(at *session.Access, id, ref string, narrow *capability.Grant) (*capability.Grant, *fault.Error) {
	row := at.Row
	if row == nil {
		row = &session.Row{ID: id, Life: session.Absent}
	}
	return view.Managing(row, at.Grants[ref], narrow, at.Now)
}
