// State by key: one value, pages of the keys below a prefix, and pages of what a search finds.

package httpapi

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/session"
)

// entryInfoJSON is an entry and who changed it last. Its payload is a separate member.
type entryInfoJSON struct {
	entryJSON        // Cursor is that of the value's last change
	Bytes     uint64 `json:"bytes"`
	Ref       string `json:"ref,omitempty"`
	Actor     string `json:"actor,omitempty"`
	At        int64  `json:"at,omitempty"`
}

// serveState serves GET /sessions/{id}/state.
func serveState(q *Request) *fault.Error {
	params, refused := q.Query("key", "prefix", "after", "limit", "order", "values", "compacted")
	if refused != nil {
		return refused
	}
	if key, one := params["key"]; one {
		if len(params) > 1 {
			return fault.BadArgument.With("key reads one key: it goes without other parameters")
		}
		return serveKey(q, key)
	}
	list := session.KeyQuery{Prefix: params["prefix"], After: params["after"]}
	if list.Values, refused = parseBoolParam("values", params["values"]); refused == nil {
		list.Compacted, refused = parseBoolParam("compacted", params["compacted"])
	}
	if refused != nil {
		return refused
	}
	limit, refused := parseUintParam("limit", params["limit"], session.DefaultListKeys)
	if refused == nil && (limit < 1 || limit > session.MaxListKeys) {
		refused = fault.BadArgument.With("limit is 1 to %d entries", session.MaxListKeys)
	}
	if refused != nil {
		return refused
	}
	list.Limit = int(limit)
	if list.Order, refused = session.ParseKeyOrder(params["order"]); refused != nil {
		return refused
	}
	if refused = list.Check(); refused != nil {
		return refused
	}
	live, refused := q.Session(q.Context())
	if refused != nil {
		return refused
	}
	page, err := live.ListKeys(q.Context(), list)
	if err != nil {
		return q.ToFault(err)
	}
	b := fmt.Appendf(nil, `{"cursor":%d,"more":%t`, page.Row.Cursor, page.More)
	if page.More {
		b = append(append(b, `,"next":`...), httpkit.JSON(page.Next)...)
	}
	entries := make([][]byte, len(page.Entries))
	for i, e := range page.Entries {
		entries[i] = newEntryInfoJSON(e)
	}
	b = append(append(append(b, `,"entries":[`...), bytes.Join(entries, []byte{','})...), `]}`...)
	httpkit.WriteCompressedJSON(q.W, q.Request, http.StatusOK, b)
	return nil
}

// serveKey answers with the entry of a key.
func serveKey(q *Request, key string) *fault.Error {
	if refused := session.CheckKeys([]string{key}); refused != nil {
		return refused
	}
	live, refused := q.Session(q.Context())
	if refused != nil {
		return refused
	}
	page, _, err := live.GetKeys(q.Context(), []string{key})
	if err != nil {
		return q.ToFault(err)
	}
	if len(page.Entries) == 0 {
		return fault.NotFound.With("%s has no value that the ref shows", key)
	}
	httpkit.WriteCompressedJSON(q.W, q.Request, http.StatusOK, newEntryInfoJSON(page.Entries[0]))
	return nil
}

// serveSearch serves GET /sessions/{id}/search.
func serveSearch(q *Request) *fault.Error {
	params, refused := q.Query("q", "after", "limit")
	if refused != nil {
		return refused
	}
	limit, refused := parseUintParam("limit", params["limit"], session.DefaultFound)
	if refused == nil && (limit < 1 || limit > session.MaxFound) {
		refused = fault.BadArgument.With("limit is 1 to %d entries", session.MaxFound)
	}
	if refused != nil {
		return refused
	}
	search := session.SearchQuery{Text: params["q"], After: params["after"], Limit: int(limit)}
	if _, refused = search.Parse(); refused != nil {
		return refused
	}
	live, refused := q.Session(q.Context())
	if refused != nil {
		return refused
	}
	page, err := live.Search(q.Context(), search)
	if err != nil {
		return q.ToFault(err)
	}
	found := make([][]byte, len(page.Found))
	for i, e := range page.Found {
		found[i] = fmt.Appendf(nil, `{"entry":%s,"place":%s,"excerpt":%s}`, newEntryInfoJSON(e.EntryInfo), httpkit.JSON(e.Place), httpkit.JSON(e.Excerpt))
	}
	httpkit.WriteCompressedJSON(q.W, q.Request, http.StatusOK, fmt.Appendf(nil, `{"cursor":%d,"indexing":%t,"next":%s,"found":[%s]}`,
		page.Row.Cursor, page.Indexing, httpkit.JSON(page.Next), bytes.Join(found, []byte{','})))
	return nil
}

func newEntryInfoJSON(e *session.EntryInfo) []byte {
	shown := entryInfoJSON{Bytes: e.Bytes, Ref: e.Change.Ref, Actor: e.Change.Actor, At: e.Change.At,
		entryJSON: newEntryJSON(e.Entry, e.Change.Cursor)}
	return addMember(httpkit.JSON(shown), "payload", e.Payload)
}
