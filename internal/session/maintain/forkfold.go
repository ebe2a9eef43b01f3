package maintain

// Forks in pieces as of an earlier cursor. What the source was then is folded from its log, a range of events in each
// piece, into what is kept for the fork: entries, whose text may be in the source's log. They are copied from there as all
// that is kept (ForkMends).
//
// A range needs only the entries that its events name. Two events change others too: settle, which removes what is
// hidden, and the purge of a message, which says what there is of its parts. These begin a range, and what they change is changed
// before it, in pieces too.

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// forkHeads is how many messages are removed in one piece.
const forkHeads = 64

// fold folds the next events.
func (c *forkCopier) fold() error {
	if c.f.Fold.Cursor == c.f.At {
		return c.endFold()
	}
	rows, err := c.tx.Load(c.ctx, &session.ReadSet{LogRange: &session.LogRange{Session: c.f.Source, After: c.f.Fold.Cursor, Events: c.keys, Bytes: c.bytes}})
	if err != nil {
		return err
	}
	events := rows.LogRange
	if end := slices.IndexFunc(events, func(e *session.Event) bool { return e.Cursor > c.f.At || e != events[0] && changesOthers(e) }); end >= 0 {
		events = events[:end]
	}
	if len(events) == 0 {
		c.fail(fault.Internal.With("the source's log ends at %d", c.f.Fold.Cursor))
		return nil
	}
	if done, err := c.changeOthers(events[0]); err != nil || !done {
		return err
	}
	events, known, err := c.known(events)
	if err != nil {
		return err
	}
	id, at := c.s.Row.ID, *c.f.Fold
	f := session.NewFold(id)
	f.Cursor, f.Life, f.Order, f.Revert, f.Compaction = at.Cursor, session.Live, c.f.Order, at.Revert, at.Compaction
	for _, e := range known {
		f.Hold(e)
	}
	for _, e := range events {
		err := f.Apply(e)
		if err != nil {
			c.fail(fault.Internal.Because(err, "the source's log could not be folded"))
			return nil
		}
		if e.Cursor == c.f.At {
			if err := CheckForkHash(c.v.Grants[c.f.Via].Grant, e.Cursor, at.Hash, e.Hash); err != nil {
				c.fail(err)
				return nil
			}
		}
	}
	held := f.Held()
	for _, key := range slices.Sorted(maps.Keys(held)) {
		e, old := *held[key], known[key]
		if old != nil && old.Cursor == e.Cursor { // not put, but perhaps its text has grown
			if e.Payload = nil; old.LastAppend == e.LastAppend {
				continue
			}
		}
		c.changes.Before = append(c.changes.Before, &e)
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if held[key] == nil {
			view.AddKey(&c.changes.DropBefore, id, key)
		}
	}
	at.Cursor, at.Revert, at.Compaction = f.Cursor, f.Revert, f.Compaction
	c.f.Fold, c.f.After = &at, ""
	return nil
}

// known returns the entries that events change, with their values where these are edited, and those of the events, at least
// the first, for which there is room for that.
func (c *forkCopier) known(events []*session.Event) ([]*session.Event, map[string]*session.Entry, error) {
	id := c.s.Row.ID
	var keys []string
	for _, e := range events {
		if keys = append(keys, e.Key); e.Method == session.MethodFinalize {
			entries, _ := session.Embedded(e)
			for _, in := range entries {
				keys = append(keys, in.Key)
			}
		}
	}
	slices.Sort(keys)
	rows, err := c.tx.Load(c.ctx, &session.ReadSet{Before: &session.BeforeSet{Session: id, Keys: slices.Compact(keys)}})
	if err != nil {
		return nil, nil, err
	}
	known := rows.Before
	bases := map[string]int{} // of edits: the first's place among the events
	for i, e := range events {
		if _, seen := bases[e.Key]; !seen && known[e.Key] != nil && (e.Method == session.MethodPatch || e.Method == session.MethodAdd) {
			bases[e.Key] = i
		}
	}
	read := func(keys []string) error {
		rows, err := c.tx.Load(c.ctx, &session.ReadSet{Before: &session.BeforeSet{Session: id, Values: keys, Bytes: c.bytes}})
		if err == nil {
			for key, e := range rows.Before {
				known[key] = e
				delete(bases, key)
			}
		}
		return err
	}
	if err := read(slices.Sorted(maps.Keys(bases))); err != nil {
		return nil, nil, err
	}
	if len(bases) > 0 { // there was no room for these
		n := slices.Min(slices.Collect(maps.Values(bases)))
		if n == 0 {
			n = 1
			if err := read([]string{events[0].Key}); err != nil {
				return nil, nil, err
			}
		}
		events = events[:n]
	}
	return events, known, nil
}

// changesOthers reports whether an event changes other entries than those that it names.
func changesOthers(e *session.Event) bool {
	return e.Method == session.MethodSettle || leftBy(e) != nil
}

// leftBy returns what the purge of a message says of its parts, by key; nil if it says nothing.
func leftBy(e *session.Event) map[string]session.Ord {
	message, is := strings.CutPrefix(e.Key, session.MessageKey(""))
	if !is || e.Method != session.MethodPurge || e.Payload == nil {
		return nil
	}
	var p session.PurgePayload
	if json.Unmarshal(e.Payload, &p) != nil {
		return nil // Fold.Apply says why
	}
	return p.Places(message)
}

// changeOthers changes, of the entries that an event does not name, some of those that it changes. done reports that there are no
// more of them, and that it has changed none.
func (c *forkCopier) changeOthers(e *session.Event) (done bool, err error) {
	if places := leftBy(e); places != nil {
		return c.changeParts(strings.TrimPrefix(e.Key, session.MessageKey("")), func(part *session.Entry) {
			if at, stays := places[part.Key]; !stays {
				view.AddKey(&c.changes.DropBefore, part.Session, part.Key)
			} else if part.Ord != at {
				part.Ord = at
				c.changes.Before = append(c.changes.Before, part)
			}
		})
	}
	r := &c.f.Fold.Revert
	if e.Method != session.MethodSettle || !r.InForce() {
		return true, nil
	}
	if done, err := c.dropMessages(r); err != nil || !done || r.Part == (session.Ord{}) {
		return done, err
	}
	return c.changeParts(r.Message(), func(part *session.Entry) {
		if r.HidesPart(part) {
			view.AddKey(&c.changes.DropBefore, part.Session, part.Key)
		}
	})
}

// dropMessages drops some of the messages that r hides, with their parts.
func (c *forkCopier) dropMessages(r *session.Revert) (done bool, err error) {
	id := c.s.Row.ID
	rows, err := c.tx.Load(c.ctx, &session.ReadSet{Before: &session.BeforeSet{Session: id, From: session.KeyPosition{Ord: r.Ord, Key: session.MessageKey(r.Message())}, Limit: forkHeads}})
	if err != nil {
		return false, err
	}
	heads := maps.Clone(rows.Before)
	maps.DeleteFunc(heads, func(_ string, head *session.Entry) bool { return !r.Hides(head, head) })
	if len(heads) == 0 {
		return true, nil
	}
	w := &session.BeforeSet{Session: id, Limit: c.keys/forkHeads + 1}
	for _, key := range slices.Sorted(maps.Keys(heads)) {
		w.Parts = append(w.Parts, session.MessageOf(key))
	}
	if rows, err = c.tx.Load(c.ctx, &session.ReadSet{Before: w}); err != nil {
		return false, err
	}
	parts := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(rows.Before)) {
		view.AddKey(&c.changes.DropBefore, id, key)
		parts[session.HeadOf(key)]++
	}
	for _, key := range slices.Sorted(maps.Keys(heads)) {
		if parts[key] < w.Limit { // these were all: they are known by it
			view.AddKey(&c.changes.DropBefore, id, key)
		}
	}
	slices.Sort(c.changes.DropBefore[id])
	return false, nil
}

// changeParts has change do what it does to some parts of a message, those after Forking.After.
func (c *forkCopier) changeParts(message string, change func(*session.Entry)) (done bool, err error) {
	rows, err := c.tx.Load(c.ctx, &session.ReadSet{Before: &session.BeforeSet{Session: c.s.Row.ID, Parts: []string{message}, After: c.f.After, Limit: c.keys}})
	if err != nil || len(rows.Before) == 0 {
		return true, err
	}
	for _, key := range slices.Sorted(maps.Keys(rows.Before)) {
		change(rows.Before[key])
		c.f.After = key
	}
	return false, nil
}

// endFold fixes what else the source was at the fork's cursor.
func (c *forkCopier) endFold() error {
	via, at := c.v.Grants[c.f.Via].Grant, c.f.Fold
	if at.Revert.InForce() {
		c.f.Reverts = session.Reverts{at.Revert}
	}
	if session.ShowsAll(via) {
		c.f.Compaction = (&session.Row{Revert: at.Revert, Compaction: at.Compaction}).Compacted()
	}
	if c.f.Message != "" {
		key := session.MessageKey(c.f.Message)
		rows, err := c.tx.Load(c.ctx, &session.ReadSet{Before: &session.BeforeSet{Session: c.s.Row.ID, Keys: []string{key}}})
		if err != nil {
			return err
		}
		head, scope := rows.Before[key], scopeOf(&c.f, via)
		if head == nil || !scope.shows(head, head) {
			c.fail(ErrNoMessage(c.f.Message, c.f.At))
			return nil
		}
		c.f.Place = head.Ord
	}
	c.f.State = session.ForkMends
	return nil
}
