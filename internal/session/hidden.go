package session

// Reverts. A session that is reverted to a message hides it and all later messages, in the session's order,
// with their parts and turns, and nothing else. They are hidden and not removed: unrevert shows them again.
// The first new message, or begun turn, settles the revert: what it hid leaves the state with the event
// settle. Its rows leave the database later and in pieces (store.RemoveReverted); until then every read
// leaves them out. It is state and no secrecy: the log still has all of it.
//
// A part is hidden with its message. One whose message is not in the state is not hidden.

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
)

// Revert is what a session is reverted to. The zero value is nothing.
type Revert struct {
	To      string `json:"to"`                // message/ID, or part/MESSAGE/ID: this and what comes after it is hidden
	Ord     Ord    `json:"ord"`               // the message's place
	Part    Ord    `json:"part,omitzero"`     // the part's place, if To is one
	Cursor  uint64 `json:"cursor"`            // of its event
	Actor   string `json:"actor"`             // who did it
	At      int64  `json:"at"`                // when, Unix ms
	Settled uint64 `json:"settled,omitempty"` // cursor of the event that settled it; 0 of one that is in force
}

// InForce reports whether a session with r is reverted: something may be hidden, and can be shown again.
func (r *Revert) InForce() bool { return r.To != "" }

// Left are reverts that are settled, the oldest first, and of which the database still has rows that they
// hid. It does not change.
type Left struct{ Reverts []Revert }

// MaxLeft is how many reverts of a session may have rows in the database. The next one is settled when some
// have left.
const MaxLeft = 64

// Hiding returns the reverts by which rows that the database has are not in the state.
func (r *Row) Hiding() Reverts {
	var list Reverts
	if r.Left != nil {
		list = slices.Clone(r.Left.Reverts)
	}
	if r.Revert.InForce() {
		list = append(list, r.Revert)
	}
	return list
}

// Reverts are those of a session by which rows are hidden or have left, the oldest first. What a message
// that has left is still known by is no message for later ones.
type Reverts []Revert

// Hides is Revert.Hides, by any of them.
func (list Reverts) Hides(e, head *Entry) bool {
	return list.Any(func(*Revert) *Entry { return head }, func(r *Revert, head *Entry) bool { return r.Hides(e, head) })
}

// HidesTurn is Revert.HidesTurn, by any of them.
func (list Reverts) HidesTurn(t *Turn, head *Entry) bool {
	return list.Any(func(*Revert) *Entry { return head }, func(r *Revert, head *Entry) bool { return r.HidesTurn(t, head) })
}

// Any reports whether one of the reverts hides something, by what is head for it.
func (list Reverts) Any(head func(*Revert) *Entry, hides func(*Revert, *Entry) bool) bool {
	for i := range list {
		r := &list[i]
		h := head(r)
		if hides(r, h) {
			return true
		}
		if h != nil && r.hidesAll(h) {
			return false
		}
	}
	return false
}

// First returns the first place of what they hide.
func (list Reverts) First() (at KeyPosition) {
	for i := range list {
		if r := &list[i]; i == 0 || (KeyPosition{r.Ord, MessageKey(r.Message())}).Compare(ByPut, at) < 0 {
			at = KeyPosition{r.Ord, MessageKey(r.Message())}
		}
	}
	return at
}

// Message returns the id of the message that r is to, or to a part of.
func (r *Revert) Message() string { return MessageOf(r.To) }

// MessageOf returns the message id of the key of a message or a part; "" of any other key.
func MessageOf(key string) string {
	if id, ok := strings.CutPrefix(key, "message/"); ok {
		return id
	}
	if rest, ok := strings.CutPrefix(key, "part/"); ok {
		id, _, _ := strings.Cut(rest, "/")
		return id
	}
	return ""
}

// HeadOf returns the key of the message by which it is decided whether an entry is hidden: its own, of a
// part its message's; "" for any other key.
func HeadOf(key string) string {
	if id := MessageOf(key); id != "" {
		return MessageKey(id)
	}
	return ""
}

// Hides reports whether the entry e is hidden, or has left the state. head is the entry of HeadOf its key,
// without its payload, or nil if there is none.
func (r *Revert) Hides(e, head *Entry) bool {
	if r.To == "" || head == nil || r.Settled > 0 && e.Changed() > r.Settled {
		return false
	}
	return r.hidesAll(head) || r.Settled == 0 && r.HidesPart(e)
}

// HidesPart reports whether a part of the message is hidden that r is to a part of. When r is settled, these
// rows leave at once: the message stays and may be removed, and they are known by it.
func (r *Revert) HidesPart(e *Entry) bool {
	return r.Part != (Ord{}) && MessageOf(e.Key) == r.Message() && HeadOf(e.Key) != e.Key && atOrAfter(e, r.Part, r.To)
}

// Removes reports whether an entry is one of those that are removed.
func (m *RevertedMessage) Removes(e *Entry) bool {
	switch {
	case MessageOf(e.Key) != m.Message || e.Changed() >= m.Before:
		return false
	case m.Part == "":
		return true
	}
	return HeadOf(e.Key) != e.Key && atOrAfter(e, m.From, m.Part)
}

// HidesTurn reports whether a message's turn is hidden, or has left the state.
func (r *Revert) HidesTurn(t *Turn, head *Entry) bool {
	return r.To != "" && head != nil && (r.Settled == 0 || t.Begun < r.Settled) && r.hidesAll(head)
}

// hidesAll reports whether a message is hidden with its parts and its turn.
func (r *Revert) hidesAll(head *Entry) bool {
	if r.Settled > 0 && head.Cursor > r.Settled { // put anew
		return false
	}
	if to := MessageKey(r.Message()); r.Part == (Ord{}) || head.Key != to {
		return atOrAfter(head, r.Ord, to)
	}
	return false
}

// atOrAfter reports whether an entry is at a place, with its key, or after it.
func atOrAfter(e *Entry, o Ord, key string) bool {
	if c := e.Ord.Compare(o); c != 0 {
		return c > 0
	}
	return e.Key >= key
}

// RevertPayload is the payload of a revert event. Those of unrevert and settle have To alone.
type RevertPayload struct {
	To     string      `json:"to,omitempty"`
	Ord    *OrdNumbers `json:"ord,omitempty"`    // Revert.Ord
	Part   *OrdNumbers `json:"part,omitempty"`   // Revert.Part
	Moves  uint64      `json:"moves,omitempty"`  // cursor of the revert event that was in force before
	Hidden int         `json:"hidden,omitempty"` // 1 for a reader whose ref does not show all of the session: it is told to read the state again (scope.go); never in the log
}

// OrdNumbers are an Ord's At and Index.
type OrdNumbers [2]uint64

// Payload returns the payload of the event of r, after a session was reverted to before.
func (r *Revert) Payload(before *Revert) RevertPayload {
	p := RevertPayload{To: r.To, Moves: before.Cursor, Ord: &OrdNumbers{r.Ord.At, r.Ord.Index}}
	if r.Part != (Ord{}) {
		p.Part = &OrdNumbers{r.Part.At, r.Part.Index}
	}
	return p
}

// revertOf returns what a revert event reverts to: nothing, if its reader is not shown it.
func revertOf(e *Event) (r Revert, err error) {
	var p RevertPayload
	if e.Payload == nil { // of a deleted session
		return r, nil
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil || p.Ord == nil {
		return r, err
	}
	r = Revert{To: p.To, Ord: Ord{p.Ord[0], p.Ord[1]}, Cursor: e.Cursor, Actor: e.Actor, At: e.At}
	if p.Part != nil {
		r.Part = Ord{p.Part[0], p.Part[1]}
	}
	return r, nil
}

// Compactions. A session that is compacted up to a message has a summary, a message that stands for that one
// and all before it, in the session's order. It is a mark in the session's state and hides nothing: a reader who
// asks for the compacted view is shown the summary and the messages that come after the mark, with their parts
// and turns, and all other keys. Everyone else is shown everything.
//
// As with reverts, a part is shown or left out with its message; one whose message is not in the state is shown.

// Compaction says up to where a session is compacted. The zero value is nowhere.
type Compaction struct {
	Upto    string `json:"upto"`    // message/ID: this and what comes before it is left out
	Ord     Ord    `json:"ord"`     // its place, which counts though it be removed later
	Summary string `json:"summary"` // message/ID: shown in their place; Upto itself or a later one
	Place   Ord    `json:"place"`   // the summary's
	Cursor  uint64 `json:"cursor"`  // of its event
	Actor   string `json:"actor"`   // who did it
	At      int64  `json:"at"`      // when, Unix ms
}

// InForce reports whether a session with c is compacted.
func (c *Compaction) InForce() bool { return c.Upto != "" }

// LeavesOut reports whether the compacted view leaves out the message head with its parts and its turn, or a key
// with this HeadOf; head has no payload, and is nil for a key that is not left out.
func (c *Compaction) LeavesOut(head *Entry) bool {
	return c.InForce() && head != nil && head.Key != c.Summary && PositionOf(head).Compare(ByPut, KeyPosition{c.Ord, c.Upto}) <= 0
}

// Crosses reports whether a revert hides the summary of c, or a part of it: then the session is shown as not
// compacted, and no longer is once the revert is settled.
func (r *Revert) Crosses(c *Compaction) bool {
	return r.InForce() && c.InForce() && KeyPosition{c.Place, c.Summary}.Compare(ByPut, KeyPosition{r.Ord, MessageKey(r.Message())}) >= 0
}

// Compacted returns up to where a session is compacted, if no revert hides that.
func (r *Row) Compacted() Compaction { return shownCompaction(&r.Compaction, &r.Revert) }

func shownCompaction(c *Compaction, r *Revert) Compaction {
	if r.Crosses(c) {
		return Compaction{}
	}
	return *c
}

// CompactedTo returns what a ref's reader who asks for the compacted view is shown by: nothing is left out for a
// ref that does not show all of the session.
func (r *Row) CompactedTo(g *capability.Grant) Compaction {
	if !ShowsAll(g) {
		return Compaction{}
	}
	return r.Compacted()
}

// RevertedTo returns what a session is reverted to, as a ref is shown it: nothing if the ref does not show all of
// the session.
func (r *Row) RevertedTo(g *capability.Grant) Revert {
	if !ShowsAll(g) {
		return Revert{}
	}
	return r.Revert
}

// CompactPayload is the payload of a compact event, and a member of a fork's.
type CompactPayload struct {
	Upto    string     `json:"upto"`
	Ord     OrdNumbers `json:"ord"` // Compaction.Ord
	Summary string     `json:"summary"`
	Place   OrdNumbers `json:"place"` // Compaction.Place
}

// Payload returns the payload of the event of c.
func (c *Compaction) Payload() CompactPayload {
	return CompactPayload{c.Upto, OrdNumbers{c.Ord.At, c.Ord.Index}, c.Summary, OrdNumbers{c.Place.At, c.Place.Index}}
}

// By returns what the event e compacts a session to: nothing, if its reader is not shown it.
func (p *CompactPayload) By(e *Event) Compaction {
	if p.Upto == "" {
		return Compaction{}
	}
	return Compaction{p.Upto, Ord{p.Ord[0], p.Ord[1]}, p.Summary, Ord{p.Place[0], p.Place[1]}, e.Cursor, e.Actor, e.At}
}

// Forked returns up to where a fork is compacted that begins with entries, in their order: up to the last message
// of them that c leaves out; nil if it is not, since there is none, or not the summary.
func (c *Compaction) Forked(entries []Entry) *CompactPayload {
	var of CompactPayload
	for i := range entries {
		place := OrdNumbers{1, uint64(i)} // of the fork's event (Order.NewOrd)
		switch e := &entries[i]; {
		case c.InForce() && e.Key == c.Summary:
			of.Summary, of.Place = e.Key, place
		case HeadOf(e.Key) == e.Key && c.LeavesOut(e):
			of.Upto, of.Ord = e.Key, place
		}
	}
	if of.Upto == "" || of.Summary == "" {
		return nil
	}
	return &of
}

// compactionOf returns what a compact event compacts a session to.
func compactionOf(e *Event) (Compaction, error) {
	var p CompactPayload
	if e.Payload == nil { // of a deleted session
		return Compaction{}, nil
	}
	err := json.Unmarshal(e.Payload, &p)
	return p.By(e), err
}
