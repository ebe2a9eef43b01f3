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
	params := q.params("key", "prefix", "after", "limit", "order", "values", "compacted")
	if key, one := params.values["key"]; one {
		if len(params.values) > 1 {
			return fault.BadArgument.With("key reads one key: it goes without other parameters")
		}
		return serveKey(q, key)
	}
	list := session.KeyQuery{Prefix: params.values["prefix"], After: params.values["after"], Values: params.bool("values"), Compacted: params.bool("compacted"),
		Limit: params.limitTo(session.MaxListKeys, session.DefaultListKeys)}
	order, refused := session.ParseKeyOrder(params.values["order"])
	params.check(refused)
	list.Order = order
	params.check(list.Check())
	if params.refused != nil {
		return params.refused
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
	params := q.params("q", "after", "limit")
	search := session.SearchQuery{Text: params.values["q"], After: params.values["after"], Limit: params.limitTo(session.MaxFound, session.DefaultFound)}
	_, refused := search.Parse()
	if params.check(refused); params.refused != nil {
		return params.refused
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
