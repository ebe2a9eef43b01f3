package decide

// revert, unrevert, and how a revert is settled.

import (
	"maps"
	"math"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
)

// revertResult is the result of revert and unrevert.
type revertResult struct {
	changeResult
	To string `json:"to,omitempty"` // the message or part that the session is, or was, reverted to, which a ref that may not read has to have named
}

// reverted returns the result of what was done by the op, of a revert to r.
func (a *applier) reverted(done changeResult, r *session.Revert, named bool) revertResult {
	if !named && !a.grant.Rights.Has(capability.Read) {
		return revertResult{changeResult: done}
	}
	return revertResult{done, r.To}
}

func (o *opRevert) apply(a *applier) (result, *fault.Error) {
	if err := a.coversAll("revert"); err != nil {
		return nil, err
	}
	r, err := o.target(a)
	if err != nil {
		return nil, err
	}
	if at := &a.s.row.Revert; at.To == r.To && at.Ord == r.Ord && at.Part == r.Part {
		return a.reverted(a.unchanged(), &r, !o.byCursor), nil
	}
	if err := a.abortTurns(&r); err != nil {
		return nil, err
	}
	if err := a.withdrawHidden(&r); err != nil {
		return nil, err
	}
	ev := a.emit(session.MethodRevert, "", 1, rawjson.Encode(r.Payload(&a.s.row.Revert)))
	r.Cursor, r.Actor, r.At = ev.Cursor, ev.Actor, ev.At
	a.v.changeRow(a.s).Revert = r
	return a.reverted(a.changed(), &r, !o.byCursor), nil
}

func (o *opUnrevert) apply(a *applier) (result, *fault.Error) {
	if err := a.coversAll("revert"); err != nil {
		return nil, err
	}
	r := a.s.row.Revert
	if !r.InForce() {
		return nil, fault.NotReverted.With("the session is not reverted, or something new was said since, which settled it: there is nothing to take back")
	}
	a.emit(session.MethodUnrevert, "", 1, rawjson.Encode(session.RevertPayload{To: r.To}))
	a.v.changeRow(a.s).Revert = session.Revert{}
	return a.reverted(a.changed(), &r, false), nil
}

// coversAll refuses what is to be done to all messages of sessions that are not live, and under refs of a part of
// the session: what they would hide is not theirs to see.
func (a *applier) coversAll(verb string) *fault.Error {
	if err := a.requireLive(); err != nil {
		return err
	}
	if !session.ShowsAll(a.grant) || a.grant.WriteKeys != nil {
		return fault.MissingRight.With("a ref of a part of the session does not %s it: ask for one that covers all", verb)
	}
	return nil
}

// target returns what the op reverts to, without its event.
func (o *opRevert) target(a *applier) (r session.Revert, err *fault.Error) {
	if o.byCursor {
		head, err := o.firstAfter(a)
		if err != nil {
			return r, err
		}
		return session.Revert{To: head.Key, Ord: head.Ord}, nil
	}
	r.To = o.to.String()
	head, err := a.v.entryMeta(a.s, session.MessageKey(o.to.Message))
	if err != nil {
		return r, err
	}
	at, err := a.v.entryMeta(a.s, r.To)
	if err != nil {
		return r, err
	}
	if head.entry == nil || at.entry == nil {
		return r, fault.NotFound.With("there is no %s with its message: revert to one that is there", fault.Clip(r.To))
	}
	if r.Ord = head.entry.Ord; o.to.Kind == session.KeyPart {
		r.Part = at.entry.Ord
	}
	return r, nil
}

// firstAfter returns the first message that was put after the op's cursor.
func (o *opRevert) firstAfter(a *applier) (*session.Entry, *fault.Error) {
	if a.s.row.Order != session.ByLog {
		return nil, fault.BadArgument.With("this session is in the order of its messages' times, not of its log: name the message to revert to")
	}
	var first *session.Entry
	for key, slot := range a.s.entries { // of this group too, which the database does not have yet
		if k, bad := session.ParseKey(key); bad == nil && k.Kind == session.KeyMessage && slot.entry != nil && slot.entry.Ord.At > o.cursor && (first == nil || session.CompareEntries(slot.entry, first) < 0) {
			first = slot.entry
		}
	}
	for after := (session.KeyPosition{Ord: session.Ord{At: o.cursor, Index: math.MaxInt64}}); ; {
		rows, err := a.v.loadBounded(&session.ReadSet{FirstMessage: map[string]session.KeyPosition{a.s.row.ID: after}})
		if err != nil {
			return nil, err
		}
		found := slices.Collect(maps.Values(rows.Entries[a.s.row.ID]))
		if len(found) == 0 || first != nil && session.CompareEntries(first, found[0]) <= 0 {
			break
		}
		slot, err := a.v.entryMeta(a.s, found[0].Key)
		if err != nil {
			return nil, err
		}
		if slot.entry != nil && slot.entry.Ord == found[0].Ord {
			first = slot.entry
			break
		}
		after = session.PositionOf(found[0]) // removed, and perhaps put again: then it is among those of the group
	}
	if first == nil {
		return nil, fault.NotFound.With("no message was put after cursor %d: there is nothing to revert", o.cursor)
	}
	return first, nil
}

// abortTurns ends the open turns that r hides, or hides a part of: as aborted, with events of their own, so
// that their text does not depend on its deltas.
func (a *applier) abortTurns(r *session.Revert) *fault.Error {
	open, err := a.v.allOpenTurns(a.s)
	if err != nil {
		return err
	}
	for _, t := range open {
		head, err := a.v.entryMeta(a.s, session.MessageKey(t.Message))
		if err != nil {
			return err
		}
		if head.entry == nil || !r.HidesTurn(t, head.entry) && t.Message != r.Message() {
			continue
		}
		end := &opFinalize{message: t.Message, step: session.StepAbort, status: session.Aborted.String()}
		if err := a.aside(func() *fault.Error { return end.end(a, t, session.Aborted) }); err != nil {
			return err
		}
	}
	return nil
}

// aside runs what makes an event beside the op's own: such an event names no op.
func (a *applier) aside(do func() *fault.Error) *fault.Error {
	op := a.op
	a.op = nil
	defer func() { a.op = op }()
	return do()
}

// notHidden returns Reverted if a message, or a part of it, is hidden. key is what the op is about.
func (a *applier) notHidden(key string) *fault.Error {
	r := &a.s.row.Revert
	if !r.InForce() {
		return nil
	}
	head, err := a.v.entryMeta(a.s, session.HeadOf(key))
	if err != nil || head.entry == nil {
		return err
	}
	e := head.entry
	if key != e.Key {
		slot, err := a.v.entryMeta(a.s, key)
		if err != nil {
			return err
		}
		if e = slot.entry; e == nil { // it would come last
			e = &session.Entry{Key: key, Ord: session.Ord{At: math.MaxUint64, Index: math.MaxUint64}}
		}
	}
	if r.Hides(e, head.entry) {
		return errReverted(key, r, a.grant)
	}
	return nil
}

// settle ends a revert that is in force, before something new is said: what it hid leaves the state.
func (a *applier) settle() *fault.Error {
	r := a.s.row.Revert
	if !r.InForce() {
		return nil
	}
	left := &session.Left{}
	if of := a.s.row.Left; of != nil {
		left.Reverts = slices.Clone(of.Reverts)
	}
	if len(left.Reverts) >= session.MaxLeft {
		return fault.Overloaded.With("what %d reverts hid is being removed: the op waits until some of it is", session.MaxLeft)
	}
	heads, err := a.v.heads(a.s, r.To) // before the row says that they have left
	if err != nil {
		return err
	}
	return a.aside(func() *fault.Error {
		ev := a.emit(session.MethodSettle, "", 1, rawjson.Encode(session.RevertPayload{To: r.To}))
		r.Settled = ev.Cursor
		left.Reverts = append(left.Reverts, r)
		row := a.v.changeRow(a.s)
		if r.Crosses(&row.Compaction) {
			row.Compaction = session.Compaction{}
		}
		row.Revert, row.Left = session.Revert{}, left
		a.v.leave(a.s, &r, heads)
		return nil
	})
}

// leave removes from the view what a revert hid that is settled now. Rows that the group has changed are
// removed with it, and the others later. heads are those of the view.
func (v *view) leave(s *sessionView, r *session.Revert, heads map[string]*session.Entry) {
	before := *s
	v.journalUndo(func() {
		s.entries, s.turns, s.reverted, s.settled, s.openCount = before.entries, before.turns, before.reverted, before.settled, nil
	})
	changed := map[string]*session.Entry{}
	s.entries, s.turns, s.openCount = maps.Clone(s.entries), maps.Clone(s.turns), nil
	s.reverted, s.settled = added(s.reverted), added(s.settled)
	s.settled[r.Settled] = changed
	for key, slot := range before.entries {
		written, message := slot.write != writeNone, session.HeadOf(key) == key
		if written && message {
			changed[key] = slot.entry
		}
		head := heads[session.HeadOf(key)]
		if slot.entry == nil || !r.Hides(slot.entry, head) && (head == nil || !r.HidesPart(slot.entry)) {
			continue
		}
		s.entries[key] = &absentEntry
		if written {
			s.entries[key] = &entryState{hasPayload: true, write: writeDrop, edits: slot.edits}
		}
		if written && message {
			s.dropReverted(session.MessageOf(key), r)
		}
	}
	for message, slot := range before.turns {
		if slot.turn != nil && r.HidesTurn(slot.turn, heads[session.MessageKey(message)]) {
			s.turns[message] = &turnState{}
			if slot.dirty {
				s.dropReverted(message, r)
			}
		}
	}
	if r.Part != (session.Ord{}) && heads[session.HeadOf(r.To)] != nil { // later the message may be removed, by which its parts are known
		s.reverted[r.To] = session.RevertedMessage{Session: s.row.ID, Message: r.Message(), Before: r.Settled, Part: r.To, From: r.Part}
	}
}

// dropReverted makes this group remove a message that a settled revert hid, with its parts and its turn.
func (s *sessionView) dropReverted(message string, r *session.Revert) {
	s.reverted[message] = session.RevertedMessage{Session: s.row.ID, Message: message, Before: r.Settled}
}

// added returns a copy of m to add to.
func added[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// heads returns the entries, without payloads, of all messages that the view has something of, and of key's.
func (v *view) heads(s *sessionView, key string) (map[string]*session.Entry, *fault.Error) {
	heads := map[string]*session.Entry{session.HeadOf(key): nil}
	for key := range s.entries {
		if head := session.HeadOf(key); head != "" {
			heads[head] = nil
		}
	}
	for message := range s.turns {
		heads[session.MessageKey(message)] = nil
	}
	var unread []string
	for key := range heads {
		if s.entries[key] == nil {
			unread = append(unread, key)
		}
	}
	if slices.Sort(unread); len(unread) > 0 {
		if err := v.loadMissing(&session.ReadSet{EntryMeta: map[string][]string{s.row.ID: unread}}); err != nil {
			return nil, err
		}
	}
	for key := range heads {
		heads[key] = s.entries[key].entry
	}
	return heads, nil
}

// replaceReverted makes a message, which is put anew, begin without the rows that settled reverts hid of the
// one before.
func (v *view) replaceReverted(s *sessionView, key string) {
	if s.row.Left == nil || session.HeadOf(key) != key {
		return
	}
	if v.storeErr == nil {
		v.storeErr = v.loadLeft(s, []string{key})
	}
	known := true // what the database has is no message for reverts after the one by which it left
	for _, r := range s.row.Left.Reverts {
		head, changed := s.settled[r.Settled][key]
		if !changed && known {
			head = s.stored[key]
		}
		if head != nil && r.Hides(head, head) {
			known = known && changed
			old := s.reverted
			v.journalUndo(func() { s.reverted = old })
			s.reverted = added(old)
			s.dropReverted(session.MessageOf(key), &r)
		}
	}
}

// eraseReverted makes this group remove the row of a key that the database still has, though a settled revert has removed it from
// the state, with the other such rows of its message; it reports whether there is one that was to stay.
func (v *view) eraseReverted(s *sessionView, key string) bool {
	head := session.HeadOf(key)
	if s.row.Left == nil || head == "" {
		return false
	}
	if v.storeErr == nil {
		v.storeErr = v.loadLeft(s, slices.Compact([]string{head, key}))
	}
	row := s.stored[key]
	if row == nil || s.replaced(row) || !s.hasLeft(row) {
		return false
	}
	v.replaceReverted(s, head)
	return true
}

// left returns a message as it was when a revert was settled, or as it was put since then; nil if there was
// none. The key was given to loadLeft.
func (s *sessionView) left(r *session.Revert, key string) *session.Entry {
	if head, changed := s.settled[r.Settled][key]; changed {
		return head
	}
	return s.stored[key]
}

// leftHead is left for one message.
func (s *sessionView) leftHead(key string) func(*session.Revert) *session.Entry {
	return func(r *session.Revert) *session.Entry { return s.left(r, key) }
}

// hasLeft reports whether a row that the database has was removed from the state by a settled revert. Its message was given to
// loadLeft.
func (s *sessionView) hasLeft(row *session.Entry) bool {
	return session.Reverts(s.row.Left.Reverts).Any(s.leftHead(session.HeadOf(row.Key)), func(r *session.Revert, head *session.Entry) bool { return r.Hides(row, head) })
}

// replaced reports whether this group removes such a row.
func (s *sessionView) replaced(row *session.Entry) bool {
	for _, gone := range s.reverted {
		if gone.Removes(row) {
			return true
		}
	}
	return false
}

// loadLeft reads messages as the database has them.
func (v *view) loadLeft(s *sessionView, keys []string) error {
	if s.stored == nil {
		s.stored = map[string]*session.Entry{}
	}
	var unread []string
	for _, key := range keys {
		if _, known := s.stored[key]; key != "" && !known {
			s.stored[key] = nil
			unread = append(unread, key)
		}
	}
	if len(unread) == 0 {
		return nil
	}
	slices.Sort(unread)
	found, err := v.tx.Load(v.ctx, &session.ReadSet{EntryMeta: map[string][]string{s.row.ID: unread}})
	if err == nil {
		maps.Copy(s.stored, found.Entries[s.row.ID])
	}
	return err
}

// dropLeft removes from what was loaded the rows that settled reverts hid, as if they had left the database
// already.
func (v *view) dropLeft(rows *session.Rows) error {
	for id, s := range v.sessions {
		if s.row.Left == nil {
			continue
		}
		reverts := session.Reverts(s.row.Left.Reverts)
		last := reverts[len(reverts)-1].Settled
		entries, turns := rows.Entries[id], rows.Turns[id]
		var heads []string
		for key, e := range entries {
			if e.Cursor < last {
				heads = append(heads, session.HeadOf(key))
			}
		}
		for message, t := range turns {
			if t.Begun < last {
				heads = append(heads, session.MessageKey(message))
			}
		}
		if err := v.loadLeft(s, heads); err != nil {
			return err
		}
		maps.DeleteFunc(entries, func(_ string, e *session.Entry) bool { return s.replaced(e) || s.hasLeft(e) })
		maps.DeleteFunc(turns, func(message string, t *session.Turn) bool {
			return reverts.Any(s.leftHead(session.MessageKey(message)), func(r *session.Revert, head *session.Entry) bool { return r.HidesTurn(t, head) })
		})
	}
	return nil
}

// errReverted refuses an op on a key that is hidden. Where the session was reverted to it says to who is shown all of it.
func errReverted(key string, r *session.Revert, g *capability.Grant) *fault.Error {
	if !session.ShowsAll(g) || !g.Rights.Has(capability.Read) {
		return fault.Reverted.With("%s is hidden: the session was reverted; wait until that is taken back (unrevert), or until a new message begins", fault.Clip(key))
	}
	return fault.Reverted.With("%s is hidden: the session was reverted to %s; take that back (unrevert), or go on with a new message", fault.Clip(key), r.To)
}
