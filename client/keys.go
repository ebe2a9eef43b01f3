// Reads of single keys of a session's state, and of a prefix's, page by page.

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
			return call(ctx, live, methods.SessionGet, func(s capnp.Struct, _ *rpc.CapTable) error {
				return setTexts(wire.Session_get_Params(s).NewKeys, asked)
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
		return call(ctx, live, methods.SessionList, func(s capnp.Struct, _ *rpc.CapTable) error {
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
	t := textReader{}
	for i := range list.Len() {
		p.Entries = append(p.Entries, t.entryInfo(list.At(i)))
	}
	return t.err
}

func (t *textReader) entryInfo(w wire.EntryInfo) EntryInfo {
	e := EntryInfo{Key: t.get(w.Key()), Cursor: w.Cursor(), Schema: w.Schema(), Bytes: w.Bytes(), Ref: t.get(w.Ref()), Actor: t.get(w.Actor()), At: timeOf(w.At()),
		Claim: t.claim(w.HasClaim(), w.Claim)}
	if w.HasPayload() {
		e.Payload = []byte(t.get(w.Payload()))
	}
	return e
}
