package session

// Searches of a session's state for words, a page at a time. A search finds what its ref shows: others'
// values are neither compared nor counted, so neither a page nor a position depends on them.

import (
	"cmp"
	"math"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/search"
)

// Limits of a page of a search.
const (
	DefaultFound = 20 // entries of a page whose query names no limit
	MaxFound     = 100
)

// SearchQuery is a request for the entries that have some words, from the last in the session's order.
type SearchQuery struct {
	Text  string // search.Parse
	After string // the previous page's SearchPage.Next; "": from the start
	Limit int    // entries; 0: DefaultFound
}

// Parse returns what is searched for, or refuses an invalid query.
func (q *SearchQuery) Parse() (*search.Query, *fault.Error) {
	words, refused := search.Parse(q.Text)
	if refused != nil {
		return nil, refused
	}
	if q.Limit < 0 || q.Limit > MaxFound {
		return nil, fault.BadArgument.With("limit is 1 to %d entries", MaxFound)
	}
	if q.After != "" && !strings.HasPrefix(q.After, sealedMark) { // what is sealed is opened by the database's key
		if _, refused := parseKeyPosition(ByPut, q.After); refused != nil {
			return nil, errSearchPosition
		}
	}
	return words, nil
}

var errSearchPosition = fault.BadArgument.With("a search continues after the previous page's next, of the same session")

// MaxFound is the limit of the query's page.
func (q *SearchQuery) MaxFound() int { return cmp.Or(q.Limit, DefaultFound) }

// Position returns the place before which, in the session's order, the query's page of a session has its
// entries.
func (q *SearchQuery) Position(session string, key *HashKey) (KeyPosition, *fault.Error) {
	if q.After == "" {
		return KeyPosition{Ord: Ord{At: math.MaxInt64, Index: math.MaxInt64}, Key: PrefixEnd("")}, nil
	}
	list := KeyQuery{After: q.After, Order: ByPut}
	p, refused := list.Position(session, key)
	if refused != nil {
		refused = errSearchPosition
	}
	return p, refused
}

// SearchPage is a part of what a search finds, in one snapshot.
type SearchPage struct {
	Access
	Found []*Found
	Next  string // the After of the next page; "": there is none. That may be empty: a page compares a limited number of bytes

	// Indexing is set if the session's index is not up to date yet, as when a large session is searched
	// first: there may be other entries, and the next search goes on with it.
	Indexing bool
}

// Found is an entry, without its value, and where the query matches it.
type Found struct {
	*EntryInfo
	*search.Match
}

func (p *SearchPage) access() *Access { return &p.Access }

func (p *SearchPage) limitedTo(g *capability.Grant) *SearchPage {
	if ShowsAll(g) {
		return p
	}
	infos := make([]*EntryInfo, len(p.Found))
	matches := make(map[string]*search.Match, len(p.Found))
	for i, f := range p.Found {
		infos[i], matches[f.Key] = f.EntryInfo, f.Match
	}
	shown := (&KeyPage{Access: p.Access, Entries: infos}).limitedTo(g)
	page := &SearchPage{Access: shown.Access, Next: p.Next, Indexing: p.Indexing}
	for _, e := range shown.Entries {
		page.Found = append(page.Found, &Found{e, matches[e.Key]})
	}
	return page
}

// ChangedKeys returns the keys whose values an event may change: one, and those that begin with below;
// "" for none. The first event of a session is not meant.
func ChangedKeys(method, key string) (one, below string) {
	switch method {
	case MethodPut, MethodRemove, MethodPatch, MethodAdd, MethodBegin, MethodAppendText, MethodPurge:
		return key, ""
	case MethodFinalize:
		return key, PartPrefix(strings.TrimPrefix(key, MessageKey("")))
	}
	return "", ""
}
