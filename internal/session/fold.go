package session

// The fold: a session's state from its events alone. It must be equal to the rows that ops write
// (tests compare the two), so that everyone with the log can check the state, and a client can
// follow live.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/digest"
)

// Fold is a session's state as of Cursor. The zero value is not usable: use NewFold or FoldFrom. It
// is not safe for concurrent use.
type Fold struct {
	Session string
	Cursor  uint64
	Epoch   uint64
	Life    Life
	Order   Order  // from the first event; after FoldFrom the caller sets it
	Revert  Revert // what the session is reverted to

	Compaction Compaction // up to where it is compacted, which Revert may hide; after FoldFrom the caller sets it

	entries map[string]*foldEntry
	turns   map[string]*Turn
	claims  map[string]*Claim // by key; some may be of keys whose value is hidden
}

// foldEntry is an entry with its deltas not yet joined, so the cost of a delta is its own size.
type foldEntry struct {
	Entry
	tail []string
}

// NewFold returns the empty state before a session's first event.
func NewFold(session string) *Fold {
	return &Fold{Session: session, entries: map[string]*foldEntry{}, turns: map[string]*Turn{}, claims: map[string]*Claim{}}
}

// FoldFrom returns the state of a snapshot as of cursor, to continue from. The entries' payloads
// are whole values; they are kept, not copied.
func FoldFrom(session string, cursor, epoch uint64, entries []*Entry, turns []*Turn) *Fold {
	f := NewFold(session)
	f.Cursor, f.Epoch, f.Life = cursor, epoch, Live
	for _, e := range entries {
		whole := *e
		if e.Claim != nil {
			f.claims[e.Key] = e.Claim
		}
		whole.LastAppend, whole.Sum, whole.Claim = 0, SumOf(e.Payload), nil
		if k, err := ParseKey(e.Key); err == nil {
			whole.TextLen = EntryTextLen(k, e.Payload)
		}
		f.entries[e.Key] = &foldEntry{Entry: whole}
	}
	for _, t := range turns {
		f.turns[t.Message] = new(*t)
	}
	return f
}

// Apply folds the next event in. Events must come in order of cursor without a duplicate; a gap is
// an error unless the events between are hidden from the reader, as a cursor mark or Skip
// announces. Unknown methods change nothing. If a key was purged, a fold from before the purge
// still has its values as far as they could be read, and drops them at the purge.
func (f *Fold) Apply(e *Event) error {
	if e.Hidden {
		f.Skip(e.Cursor)
		return nil
	}
	if e.Cursor != f.Cursor+1 {
		return fault.Internal.With("event %d came where %d was next", e.Cursor, f.Cursor+1).Pos(f.Cursor + 1)
	}
	f.Cursor = e.Cursor
	if err := f.apply(e); err != nil {
		return fault.Internal.Because(err, "event %d (%s) cannot be folded: %v", e.Cursor, e.Method, err)
	}
	return nil
}

// Skip announces that the events up to cursor exist but are not shown.
func (f *Fold) Skip(cursor uint64) { f.Cursor = max(f.Cursor, cursor) }

func (f *Fold) apply(e *Event) error {
	switch e.Method {
	case MethodCreate, MethodFork:
		f.Life, f.Epoch, f.Order = Live, 1, OrderOf(e)
		if e.Method == MethodFork && e.Payload != nil {
			var p CreatePayload
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				return err
			}
			if p.Compact != nil {
				f.Compaction = p.Compact.By(e)
			}
			return f.setAll(e, p.Entries, p.Purged)
		}
	case MethodPut:
		return f.set(e, 0, EntryPayload{Key: e.Key, Schema: e.Schema, Since: e.Cursor}, e.Payload)
	case MethodBegin:
		message := strings.TrimPrefix(e.Key, MessageKey(""))
		f.turns[message] = &Turn{Session: f.Session, Message: message, Status: Streaming, Outbox: e.Outbox, Ref: e.Ref, Begun: e.Cursor}
		return f.set(e, 0, EntryPayload{Key: e.Key, Schema: e.Schema, Since: e.Cursor}, e.Payload)
	case MethodPatch, MethodAdd:
		return f.edit(e)
	case MethodRemove:
		delete(f.entries, e.Key)
		delete(f.claims, e.Key)
		f.endCompaction(e.Key)
	case MethodClaim:
		var p ClaimPayload
		if e.Payload == nil { // of a deleted session
			return nil
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			return err
		}
		f.claims[e.Key] = ClaimOf(e, &p)
	case MethodRelease, MethodLapse:
		delete(f.claims, e.Key)
	case MethodAppendText:
		if entry := f.entries[e.Key]; entry != nil && e.Payload != nil {
			text := DeltaText(e.Payload)
			entry.tail = append(entry.tail, string(text))
			entry.TextLen += uint64(len(text))
			entry.LastAppend = e.Cursor
		}
	case MethodFinalize:
		return f.finalize(e)
	case MethodInterrupted:
		f.turn(e, StepLapse)
	case MethodResumed:
		f.turn(e, StepResume)
	case MethodPurge:
		delete(f.entries, e.Key)
		delete(f.claims, e.Key)
		f.endCompaction(e.Key)
		return f.purge(e)
	case MethodBumpEpoch:
		f.Epoch++
	case MethodRevert:
		r, err := revertOf(e)
		f.Revert = r
		return err
	case MethodUnrevert:
		f.Revert = Revert{}
	case MethodSettle:
		f.settle()
	case MethodCompact:
		c, err := compactionOf(e)
		f.Compaction = c
		return err
	case MethodDelete:
		f.Life, f.Revert, f.Compaction = Deleted, Revert{}, Compaction{}
		clear(f.entries)
		clear(f.turns)
		clear(f.claims)
	}
	return nil
}

// edit changes a value by a patch or add event. A value that is not known, since what it was made from
// is hidden or purged, stays unknown until it is put whole.
func (f *Fold) edit(e *Event) error {
	entry := f.entries[e.Key]
	if entry == nil {
		return nil
	}
	if e.Payload == nil {
		delete(f.entries, e.Key)
		return nil
	}
	value, err := EditedValue(e.Method, entry.Payload, e.Payload)
	if err != nil {
		return err
	}
	return f.set(e, 0, EntryPayload{Key: e.Key, Schema: e.Schema, Since: entry.Since}, value)
}

// set sets a key's value to payload, nil for none: value i of the event, with the other fields of
// p.
func (f *Fold) set(e *Event, i int, p EntryPayload, payload []byte) error {
	if payload == nil {
		delete(f.entries, p.Key)
		return nil
	}
	k, err := ParseKey(p.Key)
	if err != nil {
		return err
	}
	var old *Entry
	if known := f.entries[p.Key]; known != nil {
		old = &known.Entry
	}
	ord, since := old.nextOrd(f.Order, e, i, p, payload)
	f.entries[p.Key] = &foldEntry{Entry: Entry{Session: f.Session, Key: p.Key, Cursor: e.Cursor, Ord: ord, Since: since, Schema: p.Schema,
		Sum: SumOf(payload), Payload: payload, TextLen: EntryTextLen(k, payload)}}
	return nil
}

// setAll sets the values that an event embeds.
func (f *Fold) setAll(e *Event, entries []EntryPayload, purged []int) error {
	for i, p := range indexed(entries, purged) {
		if err := f.set(e, i, p, []byte(p.JSON)); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fold) finalize(e *Event) error {
	if e.Payload == nil {
		return nil
	}
	var p FinalizePayload
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return err
	}
	step, ok := EndStep(p.Status)
	if !ok {
		return fmt.Errorf("status %q", p.Status)
	}
	if t := f.turn(e, step); t != nil {
		t.Ended = e.Cursor
	}
	return f.setAll(e, p.Entries, p.Purged)
}

// turn advances the turn that an event is about; nil if it is unknown.
func (f *Fold) turn(e *Event, step TurnStep) *Turn {
	t := f.turns[strings.TrimPrefix(e.Key, MessageKey(""))]
	if t == nil {
		return nil
	}
	if next, err := t.Status.Next(step); err == nil {
		t.Status = next
	}
	return t
}

// purge removes what a settled revert hid of a message that is purged since, and which the fold could not
// know to be hidden.
func (f *Fold) purge(e *Event) error {
	message, is := strings.CutPrefix(e.Key, MessageKey(""))
	if !is || e.Payload == nil {
		return nil
	}
	var p PurgePayload
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return err
	}
	places := p.Places(message)
	if places == nil {
		return nil
	}
	if !p.Left.Turn {
		delete(f.turns, message)
	}
	maps.DeleteFunc(f.entries, func(key string, part *foldEntry) bool {
		if !strings.HasPrefix(key, PartPrefix(message)) {
			return false
		}
		at, stays := places[key]
		part.Ord = at
		return !stays
	})
	return nil
}

// settle removes what is hidden.
func (f *Fold) settle() {
	var gone []string
	for key, e := range f.entries {
		if f.hides(e) {
			gone = append(gone, key)
		}
	}
	maps.DeleteFunc(f.turns, func(_ string, t *Turn) bool { return f.hidesTurn(t) })
	for _, key := range gone {
		delete(f.entries, key)
	}
	if f.Revert.Crosses(&f.Compaction) {
		f.Compaction = Compaction{}
	}
	f.Revert = Revert{}
}

// Compacted returns up to where the session is compacted, if no revert hides that.
func (f *Fold) Compacted() Compaction { return shownCompaction(&f.Compaction, &f.Revert) }

// stateView is a state as a reader is shown it.
type stateView struct {
	leftOut []string // messages
	turns   []*Turn
	entries []*Entry
}

// view returns the state without what c leaves out.
func (f *Fold) view(c Compaction) stateView {
	v := stateView{turns: f.Turns(), entries: f.Entries()}
	leftOut := func(key string) bool {
		head := f.entries[HeadOf(key)]
		return head != nil && c.LeavesOut(&head.Entry)
	}
	v.turns = slices.DeleteFunc(v.turns, func(t *Turn) bool { return leftOut(MessageKey(t.Message)) })
	v.entries = slices.DeleteFunc(v.entries, func(e *Entry) bool {
		gone := leftOut(e.Key)
		if gone && HeadOf(e.Key) == e.Key {
			v.leftOut = append(v.leftOut, MessageOf(e.Key))
		}
		return gone
	})
	return v
}

// endCompaction ends the compaction whose summary a key is, which leaves the state.
func (f *Fold) endCompaction(key string) {
	if f.Compaction.Summary == key {
		f.Compaction = Compaction{}
	}
}

// hides reports whether an entry is hidden by a revert.
func (f *Fold) hides(e *foldEntry) bool {
	head := f.entries[HeadOf(e.Key)]
	return head != nil && f.Revert.Hides(&e.Entry, &head.Entry)
}

// hidesTurn reports whether a turn is hidden by a revert.
func (f *Fold) hidesTurn(t *Turn) bool {
	head := f.entries[MessageKey(t.Message)]
	return head != nil && f.Revert.HidesTurn(t, &head.Entry)
}

// Hold puts an entry into the state as it is, without the text that its payload lacks.
func (f *Fold) Hold(e *Entry) { f.entries[e.Key] = &foldEntry{Entry: *e} }

// Held returns the state's entries by key as they were held and as events have put them since: hidden ones too, and
// without the text of later deltas.
func (f *Fold) Held() map[string]*Entry {
	held := make(map[string]*Entry, len(f.entries))
	for key, e := range f.entries {
		held[key] = &e.Entry
	}
	return held
}

// Entries returns the state's entries in the session's order, with all their text, without those that are
// hidden.
func (f *Fold) Entries() []*Entry {
	out := make([]*Entry, 0, len(f.entries))
	for _, e := range f.entries {
		if !f.hides(e) {
			out = append(out, f.flatten(e))
		}
	}
	slices.SortFunc(out, CompareEntries)
	return out
}

// Entry returns a key's entry with all its text; nil if there is none, or it is hidden.
func (f *Fold) Entry(key string) *Entry {
	if e := f.entries[key]; e != nil && !f.hides(e) {
		return f.flatten(e)
	}
	return nil
}

// flatten returns an entry with its claim. It joins the deltas into the payload, once.
func (f *Fold) flatten(e *foldEntry) *Entry {
	if len(e.tail) > 0 {
		e.Payload = FoldText(e.Payload, []byte(strings.Join(e.tail, "")))
		e.Sum, e.tail = SumOf(e.Payload), nil
	}
	whole := e.Entry
	whole.Claim = f.claims[e.Key]
	return &whole
}

// Turns returns the begun turns by message, without those that are hidden. Leases are not in the log, so not here.
func (f *Fold) Turns() []*Turn {
	out := make([]*Turn, 0, len(f.turns))
	for _, m := range slices.Sorted(maps.Keys(f.turns)) {
		if t := f.turns[m]; !f.hidesTurn(t) {
			out = append(out, new(*t))
		}
	}
	return out
}

// Hash returns the state hash: if two are equal, the states have the same keys with the same
// values and claims, and the same turns in the same states, at the same cursor and epoch. What is hidden
// is not part of it.
func (f *Fold) Hash() Hash { return StateHash(f.Cursor, f.Epoch, f.Life, f.Entries(), f.Turns()) }

// StateHash returns the state hash of a session's rows: entries with their whole values, in any
// order, and turns by message. It does not depend on the order.
func StateHash(cursor, epoch uint64, life Life, entries []*Entry, turns []*Turn) Hash {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b *Entry) int { return strings.Compare(a.Key, b.Key) })
	w := digest.New("mooring state v1")
	w.Num(cursor)
	w.Num(epoch)
	w.Num(uint64(life))
	w.Num(uint64(len(entries)))
	for _, e := range entries {
		w.Text(e.Key)
		w.Num(e.Cursor)
		w.Num(uint64(e.Schema))
		w.Sum32(SumOf(e.Payload))
	}
	w.Num(uint64(len(turns)))
	for _, t := range turns {
		w.Text(t.Message)
		w.Num(uint64(t.Status))
		w.Num(t.Begun)
		w.Num(t.Ended)
	}
	entries = slices.DeleteFunc(entries, func(e *Entry) bool { return e.Claim == nil })
	if len(entries) == 0 { // as before there were claims
		return w.Sum()
	}
	w.Num(uint64(len(entries)))
	for _, e := range entries {
		w.Text(e.Key)
		w.Num(e.Claim.Cursor)
		w.Num(uint64(e.Claim.Until))
		w.Text(OutboxOf(e.Claim.Outbox))
		w.Text(e.Claim.Worker)
	}
	return w.Sum()
}
