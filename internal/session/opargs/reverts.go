package opargs

// revert, unrevert, compact and delete: methods of the session as a whole.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Revert hides a message or part, and what comes after it.
type Revert struct {
	To       session.Key
	Cursor   uint64 // in place of to: the first message that was put after it
	ByCursor bool   // cursor is set
}

func decodeRevert(r *Decoder) Op {
	o := &Revert{}
	o.Cursor, o.ByCursor = r.number("cursor", optional)
	if !r.has("to") {
		r.known = append(r.known, "to")
	}
	switch {
	case r.has("to") && r.has("cursor"):
		r.fail(fault.BadArgument.With("revert takes the message or part to revert to, or a cursor, and not both"))
	case r.has("to"):
		o.To = r.key("to")
		if r.err == nil && !r.unresolved("to") && o.To.Kind != session.KeyMessage && o.To.Kind != session.KeyPart {
			r.fail(fault.BadKey.With("a session is reverted to a message or a part: message/ID or part/MESSAGE/ID"))
		}
	case !r.has("cursor") && r.err == nil:
		r.needs("to or cursor")
	}
	return o
}

// Unrevert is for unrevert, which has no arguments.
type Unrevert struct{}

func decodeUnrevert(*Decoder) Op { return &Unrevert{} }

// Compact marks a message up to which, and with it, a summary stands for what was said.
type Compact struct{ Upto, Summary session.Key }

func decodeCompact(r *Decoder) Op {
	o := &Compact{Upto: r.key("upto"), Summary: r.key("summary")}
	if r.err == nil && (!r.unresolved("upto") && o.Upto.Kind != session.KeyMessage || !r.unresolved("summary") && o.Summary.Kind != session.KeyMessage) {
		r.fail(fault.BadKey.With("a session is compacted up to a message, with a message as the summary: message/ID"))
	}
	return o
}

// Delete is for delete, which has no arguments.
type Delete struct{}

func decodeDelete(*Decoder) Op { return &Delete{} }
