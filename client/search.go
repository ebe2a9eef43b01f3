// Searches of a session's state for words, page by page.

package client

import (
	"context"
	"errors"
	"iter"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// Found is an entry in whose value a search has found its words.
type Found struct {
	EntryInfo          // without Payload
	Place     string   // of the text in the value: a JSON Pointer, "" the value as a whole; "key" in the key's ids
	Excerpt   []string // of that text: in turn what is beside a match, which may be "", and a match
}

// FoundPage is a part of what a search has found.
type FoundPage struct {
	Found    []Found
	Cursor   uint64 // the session's, when it was searched
	Next     string // the after of the next page; "": there is none
	Indexing bool   // the server's index of the session is not up to date yet: there may be others
}

// Search yields the entries in whose values all words of a query are, the last in the session's order
// first, any number of them. Words are letters and digits in any case; those of identifiers
// (user_name, userName) are found one by one as well, as are characters of scripts without spaces,
// and emoji; words in double quotes are found one after the other. Searched are titles, messages,
// parts and the values of own kinds, as far as the ref shows them, text that streams included. If the
// session's index is not made yet, Search waits for it. The iteration ends after an error: BadArgument
// for a query without a word or of more than 1,000 bytes or 64 words, Incompatible if the server is
// too old, Unsupported while servers of an earlier version run beside it.
func (s *Session) Search(ctx context.Context, query string) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		for after, more := "", true; more; {
			page, err := s.SearchPage(ctx, query, after, session.MaxFound)
			if err != nil {
				yield(Found{}, err)
				return
			}
			if after == "" && page.Indexing {
				continue // the server has gone on with the index
			}
			for _, e := range page.Found {
				if !yield(e, nil) {
					return
				}
			}
			after, more = page.Next, page.Next != ""
		}
	}
}

// SearchPage returns a page of Search: up to limit entries (0: 20; 100 at most). after is the previous
// page's Next, "" for the first. A page may be empty and have a Next, since the server compares a
// limited number of bytes for it. Where Indexing is set, the next search goes on with the index.
func (s *Session) SearchPage(ctx context.Context, query, after string, limit uint32) (page FoundPage, err error) {
	err = s.call(ctx, capability.Read, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return call(ctx, live, methods.SessionSearch, func(s capnp.Struct, _ *rpc.CapTable) error {
			p := wire.Session_search_Params(s)
			p.SetLimit(limit)
			return errors.Join(p.SetQuery(query), p.SetAfter(after))
		})
	}, func(results capnp.Struct) error {
		r := wire.Session_search_Results(results)
		list, err := r.Found()
		if err != nil {
			return err
		}
		t := textReader{}
		page = FoundPage{Cursor: r.Cursor(), Next: t.get(r.Next()), Indexing: r.Indexing()}
		for i := range list.Len() {
			w := list.At(i)
			entry, err := w.Entry()
			if err != nil {
				return err
			}
			excerpt, err := w.Excerpt()
			if err != nil {
				return err
			}
			found := Found{EntryInfo: t.entryInfo(entry), Place: t.get(w.Place())}
			for n := range excerpt.Len() {
				found.Excerpt = append(found.Excerpt, t.get(excerpt.At(n)))
			}
			page.Found = append(page.Found, found)
		}
		return t.err
	})
	return page, err
}
