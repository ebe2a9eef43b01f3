package fault

// The one table from codes to HTTP: the status, and whether the same
// request may be retried.

import "net/http"

// statuses has every code. The outcome of a recorded op (the list's first
// block) travels inside an answer of 200; its statuses here are for answers
// that consist of nothing else.
var statuses = map[Code]int{
	Skipped: http.StatusConflict, Denied: http.StatusForbidden, Conflict: http.StatusConflict,
	Rejected: http.StatusUnprocessableEntity, Voided: http.StatusConflict, BatchAborted: http.StatusConflict,

	Fenced: http.StatusConflict, ServerBehind: http.StatusConflict, OutboxDiverged: http.StatusConflict, Gap: http.StatusConflict,
	Overloaded: http.StatusTooManyRequests, NotYetKnown: http.StatusNotFound, Unavailable: http.StatusServiceUnavailable,
	Disconnected: http.StatusServiceUnavailable, Draining: http.StatusServiceUnavailable,
	QuotaExceeded: http.StatusInsufficientStorage, Unsupported: http.StatusServiceUnavailable,

	UnknownRef: http.StatusUnauthorized, Revoked: http.StatusForbidden, StaleEpoch: http.StatusForbidden, Expired: http.StatusForbidden,
	MissingRight: http.StatusForbidden, Exhausted: http.StatusForbidden, WrongOutbox: http.StatusForbidden, NotAnOwner: http.StatusForbidden,
	Sealed: http.StatusForbidden,

	Malformed: http.StatusBadRequest, UnknownMethod: http.StatusBadRequest, BadKey: http.StatusBadRequest, BadPayload: http.StatusBadRequest,
	TooLarge: http.StatusRequestEntityTooLarge, NotFound: http.StatusNotFound, AlreadyExists: http.StatusConflict,
	WrongOffset: http.StatusConflict, TurnEnded: http.StatusConflict, TurnOpen: http.StatusConflict, NotYourTurn: http.StatusConflict,
	BadReference: http.StatusBadRequest, SessionDeleted: http.StatusGone, Widening: http.StatusForbidden, BadArgument: http.StatusBadRequest,
	Reverted: http.StatusConflict, NotReverted: http.StatusConflict, RequestEnded: http.StatusConflict,

	CursorExpired: http.StatusGone, Pruned: http.StatusGone, BadRefText: http.StatusUnauthorized, Plaintext: http.StatusForbidden,
	Incompatible: http.StatusBadRequest, Usage: http.StatusBadRequest, OutboxFull: http.StatusInsufficientStorage,
	DiskFull: http.StatusInsufficientStorage, InUse: http.StatusConflict, UnsafeStore: http.StatusInternalServerError,
	Canceled: http.StatusServiceUnavailable, Internal: http.StatusInternalServerError, OutboxDamaged: http.StatusInternalServerError, SlowConsumer: http.StatusServiceUnavailable,
	Ambiguous: http.StatusConflict,
}

// HTTPStatus returns the status of an HTTP answer with this code; 500 for a code
// that this version does not know, and for None.
func (c Code) HTTPStatus() int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// RetryAfter returns the value, in seconds, of the Retry-After header of an
// answer to a request that may be retried; "" for all others. A
// gap is transient too, but the missing ops come from the same client.
func (c Code) RetryAfter() string {
	switch {
	case c == QuotaExceeded, c == Unsupported: // until a purge or a higher quota; until all replicas are upgraded
		return "60"
	case c.Transient() && c != Gap:
		return "1"
	}
	return ""
}
