// Reads of entries of a session's state: of single keys, of a prefix's, and of those in which a search finds words, page by page.

package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// EntryInfo is a key of a session's state, its value, and who changed it last.
type EntryInfo struct {
	Key     string
	Cursor  uint64    // of the value's last change; text that was appended is one
	Schema  uint32    // the payload's schema_version
	Payload []byte    // the value, JSON text; nil in a list without values
	Bytes   uint64    // of the value; about so many while text is appended to it and Payload is nil
	Ref     string    // the id of the ref that the last change was written under
	Actor   string    // who wrote it, as the ref says
	At      time.Time // when, by the server's database
	Claim   *Claim    // who works on the key; nil for nobody

	// Ref, Actor and At are empty where the ref does not show the event of the last change, and
	// where the log no longer has it, unless the event put this value alone.
}

// EntryPage is a part of a session's state by key.
type EntryPage struct {
	Entries []EntryInfo
	Cursor  uint64 // the session's, when they were read
	Next    string // the after of the next page; "": there is none
}

// maxGetKeys is how many keys are requested at once.
const maxGetKeys = session.MaxGetKeys

// Get returns the entries of keys, in their order. A key without a value, or that the ref does not
// show, has no entry. A call asks for up to 64 keys and gets about 4 MiB of values, which are of one
// snapshot; Get makes as many calls as it needs, and Cursor is the first one's. The error is
// Incompatible if the server is too old, and BadKey if one of keys is not a key.
func (s *Session) Get(ctx context.Context, keys ...string) (page EntryPage, err error) {
	for first := true; first || len(keys) > 0; first = false {
		asked := keys[:min(len(keys), maxGetKeys)]
		next := uint32(0)
		var part EntryPage
		err := s.call(ctx, capability.Read, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
			return calls.Make(ctx, live, methods.SessionGet, func(s capnp.Struct, _ *rpc.CapTable) error {
				return calls.SetTexts(wire.Session_get_Params(s).NewKeys, asked)
			})
		}, func(results capnp.Struct) error {
			r := wire.Session_get_Results(results)
			next = r.Next()
			return part.read(r.Cursor(), r.Entries)
		})
		if err == nil && int(next) > len(asked) {
			err = fault.Incompatible.With("the server read %d of %d keys", next, len(asked))
		}
		if err != nil {
			return EntryPage{}, err
		}
		if page.Entries = append(page.Entries, part.Entries...); first {
			page.Cursor = part.Cursor
		}
		if next == 0 {
			next = uint32(len(asked))
		}
		keys = keys[next:]
	}
	return page, nil
}

// KeyOrder is the order of a list of keys; "" is ByKey.
type KeyOrder string

// By the bytes of the key, or in the session's order: by first put or, in a session ordered by time,
// by creation.
const (
	ByKey KeyOrder = "key"
	ByPut KeyOrder = "put"
)

// KeyOptions say which keys are listed, and how.
type KeyOptions struct {
	Prefix string // the keys below it: todo/ is all that begin so. It ends with "/"; "" is all keys
	Order  KeyOrder
	Values bool // with their values

	Compacted bool // of the compacted view, as in SnapshotOptions
}

// maxListKeys is how many entries are requested at once.
const maxListKeys = session.MaxListKeys

// List yields the entries of a prefix's keys, page by page: any number of them. Each page is of a
// snapshot of its own. A key that is there during the whole iteration, and is not removed and put
// again, comes once. The iteration ends after an error: Incompatible if the server is too old.
func (s *Session) List(ctx context.Context, o KeyOptions) iter.Seq2[EntryInfo, error] {
	return func(yield func(EntryInfo, error) bool) {
		for after, more := "", true; more; more = after != "" {
			page, err := s.ListPage(ctx, o, after, maxListKeys)
			if err != nil {
				yield(EntryInfo{}, err)
				return
			}
			for _, e := range page.Entries {
				if !yield(e, nil) {
					return
				}
			}
			after = page.Next
		}
	}
}

// ListPage returns a page of a prefix's keys: up to limit entries (0: 100; 1,000 at most), with
// values of about 4 MiB at most. after is the previous page's Next, "" for the first. A page may be
// empty and have a Next, since the server looks at a limited number of keys that the ref does not
// show or, by put, that are not below a prefix of more than 50,000 keys.
func (s *Session) ListPage(ctx context.Context, o KeyOptions, after string, limit uint32) (page EntryPage, err error) {
	err = s.call(ctx, capability.Read, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, methods.SessionList, func(s capnp.Struct, _ *rpc.CapTable) error {
			p := wire.Session_list_Params(s)
			p.SetLimit(limit)
			p.SetValues(o.Values)
			p.SetCompacted(o.Compacted)
			return errors.Join(p.SetPrefix(o.Prefix), p.SetAfter(after), p.SetOrder(string(o.Order)))
		})
	}, func(results capnp.Struct) error {
		r := wire.Session_list_Results(results)
		page = EntryPage{}
		if err := page.read(r.Cursor(), r.Entries); err != nil || !r.More() {
			return err
		}
		var err error
		if page.Next, err = r.Next(); err == nil && page.Next == "" {
			err = fault.Incompatible.With("the server has more keys and does not say after which")
		}
		return err
	})
	return page, err
}

func (p *EntryPage) read(cursor uint64, entries func() (wire.EntryInfo_List, error)) error {
	p.Cursor, p.Entries = cursor, nil
	list, err := entries()
	if err != nil {
		return err
	}
	t := calls.Texts{}
	for i := range list.Len() {
		p.Entries = append(p.Entries, readEntryInfo(&t, list.At(i)))
	}
	return t.Err
}

func readEntryInfo(t *calls.Texts, w wire.EntryInfo) EntryInfo {
	e := EntryInfo{Key: t.Get(w.Key()), Cursor: w.Cursor(), Schema: w.Schema(), Bytes: w.Bytes(), Ref: t.Get(w.Ref()), Actor: t.Get(w.Actor()), At: timeOf(w.At()),
		Claim: readClaim(t, w.HasClaim(), w.Claim)}
	if w.HasPayload() {
		e.Payload = []byte(t.Get(w.Payload()))
	}
	return e
}

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
		return calls.Make(ctx, live, methods.SessionSearch, func(s capnp.Struct, _ *rpc.CapTable) error {
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
		t := calls.Texts{}
		page = FoundPage{Cursor: r.Cursor(), Next: t.Get(r.Next()), Indexing: r.Indexing()}
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
			found := Found{EntryInfo: readEntryInfo(&t, entry), Place: t.Get(w.Place())}
			for n := range excerpt.Len() {
				found.Excerpt = append(found.Excerpt, t.Get(excerpt.At(n)))
			}
			page.Found = append(page.Found, found)
		}
		return t.Err
	})
	return page, err
}
