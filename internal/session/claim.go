package session

// Claims: who works on a key, as entries, the log and a store have it.

import (
	"encoding/json"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/rawjson"
)

// Claim is who works on a key.
type Claim struct {
	Cursor  uint64 // of the event that made it: what the owner's ops name
	Renewed uint64 // the cursor of its last event, which sets Until
	Until   int64  // database clock, Unix ms: when the lease is over
	Outbox  string // the owner's stream; in a fold and for readers, the stream's outbox
	Worker  string // of the stream, "" for none
	Ref     string // it was last claimed under
	Actor   string
}

// ClaimPayload is the payload of a claim event.
type ClaimPayload struct {
	Claim  uint64 `json:"claim,omitempty"` // the claim that it renews
	Lease  int64  `json:"lease"`           // milliseconds
	Until  int64  `json:"until"`           // Unix ms
	Worker string `json:"worker,omitempty"`
}

// ClaimOf returns the claim that a claim event makes or renews.
func ClaimOf(e *Event, p *ClaimPayload) *Claim {
	c := &Claim{Cursor: p.Claim, Renewed: e.Cursor, Until: p.Until, Outbox: e.Outbox, Worker: p.Worker, Ref: e.Ref, Actor: e.Actor}
	if c.Cursor == 0 {
		c.Cursor = e.Cursor
	}
	return c
}

// FreeKeys is a search for the first keys below a prefix that are not claimed, in key order.
type FreeKeys struct {
	Session string
	After   string // the keys after this one
	Below   string // and before this one
	Now     int64  // a claim with a lease until then, or before, counts as none
	Limit   int    // free keys
	Passed  int    // keys that it looks at, most of them claimed
}

// MarshalClaim and UnmarshalClaim are the form in which a store keeps a claim, without Until and Ref.
func MarshalClaim(c *Claim) string { return string(rawjson.Encode((*claimRow)(c))) }

// UnmarshalClaim parses the result of MarshalClaim.
func UnmarshalClaim(text string, until int64, ref string) (*Claim, error) {
	c := &Claim{}
	err := json.Unmarshal([]byte(text), (*claimRow)(c))
	c.Until, c.Ref = until, ref
	return c, err
}

// claimRow is a Claim as a store keeps it.
type claimRow struct {
	Cursor  uint64 `json:"cursor"`
	Renewed uint64 `json:"renewed"`
	Until   int64  `json:"-"`
	Outbox  string `json:"stream"`
	Worker  string `json:"worker,omitempty"`
	Ref     string `json:"-"`
	Actor   string `json:"actor"`
}

// showTo returns an entry as a ref shows it that shows its value: without a claim whose last event is
// from before the ref's first visible cursor.
func (e *Entry) showTo(g *capability.Grant) *Entry {
	if e.Claim == nil || e.Claim.Renewed >= g.VisibleFrom {
		return e
	}
	shown := *e
	shown.Claim = nil
	return &shown
}
