// Old sessions of a space: listed, deleted, or a key of each purged.

package httpapi

import (
	"math"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// olderJSON is what was done to a page of old sessions.
type olderJSON struct {
	Before    int64      `json:"before"`
	Done      uint32     `json:"done"`
	Unchanged uint32     `json:"unchanged"`
	Sessions  []oldJSON  `json:"sessions"`
	More      bool       `json:"more"`
	Next      string     `json:"next,omitempty"`
	Stopped   *errorJSON `json:"stopped,omitempty"`
}

// oldJSON is an old session that is listed, or was left.
type oldJSON struct {
	ID      string     `json:"id"`
	Updated int64      `json:"updated"`
	Events  uint64     `json:"events"`
	Bytes   int64      `json:"bytes"`
	Error   *errorJSON `json:"error,omitempty"`
}

// removeOlder serves POST /spaces/{id}/older.
func removeOlder(q *Request, live *objects.Capability) *fault.Error {
	body, refused := q.ReadBody()
	if refused != nil {
		return refused
	}
	var older session.OlderQuery
	var age, before, limit uint64
	refused = parseObject(nil, body, text("method", &older.Remove.Method), text("key", &older.Remove.Key), number("age", &age),
		number("before", &before), text("after", &older.After), number("limit", &limit))
	if refused != nil {
		return refused
	}
	if age > math.MaxInt64 || before > math.MaxInt64 {
		return fault.BadArgument.With("age is in milliseconds, and before in Unix milliseconds")
	}
	older.Age, older.Remove.Before, older.Limit = int64(age), int64(before), int(min(limit, math.MaxInt32))
	done, err := live.RemoveOlder(q.Context(), older)
	if err != nil {
		return q.ToFault(err)
	}
	shown := olderJSON{Before: done.Before, Done: done.Done, Unchanged: done.Unchanged, Sessions: make([]oldJSON, len(done.Sessions)), More: done.Next != "", Next: done.Next}
	for i, one := range done.Sessions {
		shown.Sessions[i] = oldJSON{ID: one.ID, Updated: one.Updated, Events: one.Events, Bytes: one.Bytes}
		if one.Why != nil {
			shown.Sessions[i].Error = newErrorJSON(one.Why)
		}
	}
	if done.Stopped != nil {
		shown.Stopped = newErrorJSON(done.Stopped)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(shown))
	return nil
}
