// Package fault is the closed list of errors of Mooring that cross a wire.
//
// Every refusal that crosses a wire, an exit text or an HTTP reply is one of
// the codes in this file. The list is append-only: a number, once released,
// keeps its meaning for ever, so that peers one version apart agree. A new
// code goes to the end of its block.
//
// A Code is itself an error and is the sentinel for errors.Is; *Error carries
// a Code together with what was wrong and how to fix it:
//
//	return fault.Conflict.With("the session is at cursor %d", at)
//	if errors.Is(err, fault.Revoked) { … }
package fault

import "fmt"

// Code identifies one kind of refusal. The zero Code means "none".
type Code uint16

// None is the absence of a fault; it never travels as an error.
const None Code = 0

// Outcomes: why an op intent that was recorded did not apply.
const (
	Skipped      Code = 1 + iota // an op it refers to or depends on did not apply
	Denied                       // no authority; the reason code says which
	Conflict                     // expected_cursor differs from the session's cursor, or expect from the key's
	Rejected                     // the op breaks a rule; the reason code says which
	Voided                       // dropped by its own outbox; a void took its place
	BatchAborted                 // a sibling in an atomic batch did not apply
)

// Call-level answers: nothing was recorded, the batch may be sent again.
const (
	Fenced         Code = 20 + iota // the outbox's lease moved to a newer incarnation
	ServerBehind                    // the server was restored to a state before an op it had acknowledged
	OutboxDiverged                  // same seq, other op: a copied or restored outbox
	Gap                             // seq beyond the next one expected
	Overloaded                      // at a limit now; retry later
	NotYetKnown                     // a ref or session whose creation has not arrived yet
	Unavailable                     // the database or server is down; retry later
	Disconnected                    // the link broke before the answer
	Draining                        // the server is stopping; go to another or retry
	QuotaExceeded                   // the session, or the ref, has reached its bound of bytes; goes on when some are purged
	Unsupported                     // needs a feature that not every replica of the server has yet; goes on when all do
)

// Authority: reasons for Denied, and the answer of a dead capability.
const (
	UnknownRef   Code = 40 + iota // no such ref, or not with this secret: never distinguished
	Revoked                       // the ref, or an ancestor of it, was revoked
	StaleEpoch                    // minted under an epoch that was bumped since
	Expired                       // past its expiry
	MissingRight                  // the ref lacks the right required
	Exhausted                     // redeemed as often as it allows
	WrongOutbox                   // the outbox's secret does not match its id
	NotAnOwner                    // only an owner's ref may do this
	Sealed                        // the ref is bound to a key, and the call had no proof of it
)

// Rules: reasons for Rejected.
const (
	Malformed      Code = 60 + iota // cannot be decoded
	UnknownMethod                   // no such op method
	BadKey                          // the key does not fit the grammar
	BadPayload                      // the payload, or the value that an op changes, is not as the op needs it
	TooLarge                        // above a size limit
	NotFound                        // no such session, key or turn
	AlreadyExists                   // the session, external key or ref exists already
	WrongOffset                     // appendText does not continue at the text's end
	TurnEnded                       // the turn has reached its end state
	TurnOpen                        // the turn has begun already
	NotYourTurn                     // the turn belongs to another stream
	BadReference                    // a reference's path is not in the result it names
	SessionDeleted                  // the session was deleted
	Widening                        // a minted ref would exceed its parent
	BadArgument                     // an argument is missing, of the wrong type or out of range
	Reverted                        // the session is reverted to before the key
	NotReverted                     // there is no revert to take back
	RequestEnded                    // the request was withdrawn, has expired, or ended as unknown
)

// Errors of reading, and of use.
const (
	CursorExpired Code = 90 + iota // the log no longer reaches back to that cursor
	Pruned                         // applied or refused before; the outcome was acknowledged and is deleted
	BadRefText                     // not a sturdy ref's text
	Plaintext                      // would send a secret in clear to a host that is not loopback
	Incompatible                   // the peer speaks no protocol version that this side does
	Usage                          // the command or call was used wrongly
	OutboxFull                     // the outbox is at its bound
	DiskFull                       // no space left where it must be durable
	InUse                          // another process has the data folder open, or a waiter needs it
	UnsafeStore                    // the database is set to lose commits, or a pooler in front of it to lose locks
	Canceled                       // the caller cancelled
	Internal                       // a defect of ours; details are in the server's log
	SlowConsumer                   // a subscriber did not keep up and was ended
	Ambiguous                      // a short name fits more than one
	OutboxDamaged                  // a stored op, or the outbox's file, differs from what was written
)

var names = map[Code]string{
	None: "none",

	Skipped: "skipped", Denied: "denied", Conflict: "conflict", Rejected: "rejected",
	Voided: "voided", BatchAborted: "batch_aborted",

	Fenced: "fenced", ServerBehind: "server_behind", OutboxDiverged: "outbox_diverged", Gap: "gap",
	Overloaded: "overloaded", NotYetKnown: "not_yet_known", Unavailable: "unavailable",
	Disconnected: "disconnected", Draining: "draining", QuotaExceeded: "quota_exceeded", Unsupported: "unsupported",

	UnknownRef: "unknown_ref", Revoked: "revoked", StaleEpoch: "stale_epoch", Expired: "expired",
	MissingRight: "missing_right", Exhausted: "exhausted", WrongOutbox: "wrong_outbox", NotAnOwner: "not_an_owner",
	Sealed: "sealed",

	Malformed: "malformed", UnknownMethod: "unknown_method", BadKey: "bad_key", BadPayload: "bad_payload",
	TooLarge: "too_large", NotFound: "not_found", AlreadyExists: "already_exists", WrongOffset: "wrong_offset",
	TurnEnded: "turn_ended", TurnOpen: "turn_open", NotYourTurn: "not_your_turn", BadReference: "bad_reference",
	SessionDeleted: "session_deleted", Widening: "widening", BadArgument: "bad_argument",
	Reverted: "reverted", NotReverted: "not_reverted", RequestEnded: "request_ended",

	CursorExpired: "cursor_expired", Pruned: "pruned", BadRefText: "bad_ref_text", Plaintext: "plaintext",
	Incompatible: "incompatible", Usage: "usage", OutboxFull: "outbox_full", DiskFull: "disk_full",
	InUse: "in_use", UnsafeStore: "unsafe_store", Canceled: "canceled", Internal: "internal",
	SlowConsumer: "slow_consumer", Ambiguous: "ambiguous", OutboxDamaged: "outbox_damaged",
}

// String returns the code's name as used on every wire.
func (c Code) String() string {
	if n, ok := names[c]; ok {
		return n
	}
	return fmt.Sprintf("code_%d", uint16(c))
}

// Error makes a Code usable as the sentinel for errors.Is.
func (c Code) Error() string { return c.String() }

// ParseCode returns the code of a name; ok is false for a name this version does not know.
func ParseCode(name string) (c Code, ok bool) {
	for c, n := range names {
		if n == name {
			return c, true
		}
	}
	return None, false
}

// Authority reports whether the code is in the authority block: the ref allows nothing,
// or not this.
func (c Code) Authority() bool { return c >= UnknownRef && c < Malformed }

// Transient reports whether the same request may succeed later without anyone
// changing it: such requests are retried for ever.
func (c Code) Transient() bool {
	switch c {
	case Gap, Overloaded, NotYetKnown, Unavailable, Disconnected, Draining, QuotaExceeded, Unsupported:
		return true
	}
	return false
}
