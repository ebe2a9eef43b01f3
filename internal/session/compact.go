package session

// Compactions. A session that is compacted up to a message has a summary, a message that stands for that one
// and all before it, in the session's order. It is a mark in the session's state and hides nothing: a reader who
// asks for the compacted view is shown the summary and the messages that come after the mark, with their parts
// and turns, and all other keys. Everyone else is shown everything.
//
// As with reverts, a part is shown or left out with its message; one whose message is not in the state is shown.

import (
	"encoding/json"

	"github.com/mooring-rpc/mooring/capability"
)

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
