package opargs

// create and fork: what begins a session.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Create has the arguments of create.
type Create struct {
	External     string
	Shared       bool // other sessions that were made under the ref may have the external id
	Ref          string
	Hash         session.Hash
	Label, Actor string
	Order        session.Order
	Parent, Via  string         // the parent, and the ref that it is held under; "" for none
	Part         string         // key of the parent's message or part that starts the child; "" for none
	Origin       session.Origin // what an imported session was forked from: a record, which proves nothing
}

func decodeCreate(r *Decoder) Op {
	o := decodeCreation(r)
	o.Parent, o.Part = r.text("parent", r.has("parent")), r.messageKey("part")
	if r.has("parent") {
		o.Via = r.refID("via")
	} else if r.known = append(r.known, "via"); r.has("via") || r.has("part") {
		r.needs("parent, to which via and part belong")
	}
	if r.err == nil && !r.unresolved("parent") && o.Parent != "" && !capability.IsSession(o.Parent) {
		r.fail(fault.BadArgument.With("parent is not a session id"))
	}
	o.Origin, o.Shared = decodeOrigin(r), r.set("shared_external")
	switch order := r.text("order", optional); order {
	case "", session.ByTime.String():
		o.Order = session.ParseOrder(order)
	default:
		r.fail(fault.BadArgument.With("order is %q for a session in the order of its messages' times, or nothing for that of its log", session.ByTime))
	}
	return o
}

// decodeOrigin decodes create's arguments of what the session was forked from where it was exported.
func decodeOrigin(r *Decoder) (o session.Origin) {
	o.Session = r.text(ledger.HintOrigin, r.has(ledger.HintOrigin))
	o.Cursor, _ = r.number(ledger.HintOriginAt, r.has(ledger.HintOrigin))
	o.Message = r.id(ledger.HintOriginID, optional)
	if (r.has(ledger.HintOriginAt) || r.has(ledger.HintOriginID)) && !r.has(ledger.HintOrigin) {
		r.needs("origin, to which origin_at and origin_message belong")
	}
	if r.err == nil && !r.unresolved(ledger.HintOrigin) && o.Session != "" && !capability.IsSession(o.Session) {
		r.fail(fault.BadArgument.With("origin is not a session id"))
	}
	return o
}

// decodeCreation decodes the common arguments of create and fork.
func decodeCreation(r *Decoder) *Create {
	return &Create{
		External: r.text("external", optional),
		Ref:      r.newRef("ref"),
		Hash:     r.hash("hash"),
		Label:    r.text("label", optional),
		Actor:    r.text("actor", optional),
	}
}

// Fork has the arguments of fork.
type Fork struct {
	Create
	Source, Via string
	At          uint64
	AtSet       bool
	AtHash      []byte // of the event at cursor at; nil: not compared
	Message     string // id of the last message, in the session's order, that is copied; "" for all
}

func decodeFork(r *Decoder) Op {
	o := &Fork{Create: *decodeCreation(r)}
	o.Source = r.text("source", required)
	o.Via = r.refID("via")
	o.At, o.AtSet = r.number("at", optional)
	o.AtHash = r.eventHash(ledger.HintAtHash)
	o.Message = r.id("message", optional)
	if r.err == nil && !r.unresolved("source") && !capability.IsSession(o.Source) {
		r.fail(fault.BadArgument.With("source is not a session id"))
	}
	return o
}
