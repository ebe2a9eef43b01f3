package session

// Lists of a space's sessions: order, filter and position. A list is read a page at a time, for any
// number of sessions: the cost of a page is bounded, so a page of a search may be empty and still
// have a next one.

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// ListOrder is the order of a list of sessions.
type ListOrder uint8

// By time of creation, which is in the ids, of last change, or by title.
const (
	OldestFirst ListOrder = iota
	NewestFirst
	ChangedFirst
	ByTitle // TitleKey, then id
)

var listOrders = [...]string{OldestFirst: "oldest", NewestFirst: "newest", ChangedFirst: "changed", ByTitle: "title"}

// String returns the order's name, also on the wire.
func (o ListOrder) String() string {
	if int(o) < len(listOrders) {
		return listOrders[o]
	}
	return "unknown"
}

// ParseListOrder parses an order's name; "" is oldest, the only order of earlier versions.
func ParseListOrder(name string) (ListOrder, *fault.Error) {
	for o, known := range listOrders {
		if name == known || name == "" {
			return ListOrder(o), nil
		}
	}
	return 0, fault.BadArgument.With("a list's order is oldest, newest, changed or title")
}

// MaxSearch is the maximum length of a search text, in bytes.
const MaxSearch = 200

// ListQuery is a request for a page of a list.
type ListQuery struct {
	Order   ListOrder
	After   string // the previous page's ListPage.Next; "": from the start
	Search  string // a part of the title or an id, its own or that of the session that it was forked from, ignoring case; "": all
	Deleted bool   // include deleted sessions
	Parent  string // only the children of this session, in OldestFirst; "": all
	Limit   int    // the maximum number of sessions

	Activity bool // with what goes on in each; for those who may read the sessions
}

// ListPage is a page of a list.
type ListPage struct {
	Access
	Sessions []*Listing
	Next     string // the After of the next page; "": there is none
}

// TitleKey returns the sort key of a title for ByTitle, compared byte by byte: the title without
// regard to case and surrounding spaces. Sessions without a title come last.
func TitleKey(title string) string {
	title = strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(title, ""), "\x00", ""))
	if title == "" {
		return noTitleKey
	}
	return "t" + strings.ToLower(title)
}

// noTitleKey is above every title's key.
const noTitleKey = "u"

// ListPosition is a position in a list: after the session with this id, time of last change and
// title.
type ListPosition struct {
	ID      string
	Updated int64  // Unix ms; of ChangedFirst alone
	Title   string // its TitleKey; of ByTitle alone
}

// Text returns the position as in ListQuery.After.
func (p ListPosition) Text(order ListOrder) string {
	switch order {
	case ChangedFirst:
		return strconv.FormatInt(p.Updated, 10) + "." + p.ID
	case ByTitle:
		return base64.RawURLEncoding.EncodeToString([]byte(p.Title)) + "." + p.ID
	}
	return p.ID
}

// Position returns the position where a query's page begins.
func (q *ListQuery) Position() (p ListPosition, refused *fault.Error) {
	if q.After == "" {
		return p, nil
	}
	p.ID = q.After
	before, id, _ := strings.Cut(q.After, ".")
	switch q.Order {
	case ChangedFirst:
		n, err := strconv.ParseInt(before, 10, 64)
		if err != nil || n < 0 {
			return p, errListPosition
		}
		p = ListPosition{ID: id, Updated: n}
	case ByTitle:
		title, err := base64.RawURLEncoding.DecodeString(before)
		if err != nil || !utf8.Valid(title) || bytes.ContainsRune(title, 0) {
			return p, errListPosition
		}
		p = ListPosition{ID: id, Title: string(title)}
	}
	if !capability.IsSession(p.ID) {
		return p, errListPosition
	}
	return p, nil
}

var errListPosition = fault.BadArgument.With("a list continues after the previous page's next, in the same order")

// Check refuses an invalid query.
func (q *ListQuery) Check() *fault.Error {
	if len(q.Search) > MaxSearch || strings.ContainsRune(q.Search, 0) {
		return fault.BadArgument.With("a search is text of at most %d bytes", MaxSearch)
	}
	if q.Parent != "" && (q.Order != OldestFirst || !capability.IsSession(q.Parent)) {
		return fault.BadArgument.With("the children of a session are listed by its id, oldest first")
	}
	_, refused := q.Position()
	return refused
}

// ChildrenShown returns what a ref of a session shows of the session's children: which there are, since
// when, and what started them. One that shows some keys alone shows the children that these have started,
// and one with a first cursor none, since nothing says at which cursor they were.
func ChildrenShown(g *capability.Grant, children []*Listing) (shown []*Listing) {
	for _, c := range children {
		if g.VisibleFrom <= 1 && (g.ShowsAllKeys() || c.Parent.Key != "" && InScope(g, c.Parent.Key)) {
			shown = append(shown, &Listing{Row: Row{ID: c.ID, Created: c.Created, Parent: c.Parent}})
		}
	}
	return shown
}

// Matches reports whether the query includes a session.
func (q *ListQuery) Matches(l *Listing) bool {
	if l.Life == Deleted && !q.Deleted {
		return false
	}
	if q.Search == "" {
		return true
	}
	search := strings.ToLower(q.Search)
	for _, text := range []string{l.Title, l.External, l.ID, l.Origin.Session} {
		if strings.Contains(strings.ToLower(text), search) {
			return true
		}
	}
	return false
}

// Old sessions of a space: those in which nothing has changed since a time are listed, deleted, or a key of
// each is purged, by a ref with the right manage. A page is read without locks; each session is looked at
// again under its lock, in the transaction that removes (decide.Direct.Older): what has changed meanwhile is left.

// OlderQuery is a request for a page of a space's old sessions.
type OlderQuery struct {
	Remove OlderRemoval // Before is set by the store from Age, if it is 0
	Age    int64        // ms since the last event, by the database's clock
	After  string       // the previous page's OldPage.Next; "": from the start
	Limit  int          // the maximum number of sessions
}

// OlderRemoval is what is done to each of them.
type OlderRemoval struct {
	Method string // MethodDelete or MethodPurge; "": nothing
	Key    string // that is purged
	Before int64  // a session is old if its last event is from before, Unix ms
}

// OldSession is an old session.
type OldSession struct {
	ID      string
	Updated int64  // time of its last event, Unix ms
	Events  uint64 // in its log
	Bytes   int64  // that it holds
	Running bool   // a turn is streaming, and its lease is not over
}

// OldPage is a page of old sessions, by id.
type OldPage struct {
	Access
	Before   int64 // as in OlderRemoval
	Sessions []OldSession
	Next     string // the After of the next page; "": there is none
}

// Check returns the reason that a query is refused.
func (q *OlderQuery) Check() *fault.Error {
	r := &q.Remove
	switch {
	case r.Method != "" && r.Method != MethodDelete && r.Method != MethodPurge:
		return fault.BadArgument.With("old sessions are deleted (delete), or a key of them is purged (purge); without a method they are listed")
	case (r.Method == MethodPurge) != (r.Key != ""):
		return fault.BadArgument.With("a key goes with purge, which removes every payload of that key from each session")
	case r.Before == 0 && q.Age < MinOlderAge:
		return fault.BadArgument.With("name an age of at least a second: how long nothing has changed in a session")
	case r.Before < 0 || q.Age < 0 || q.Age > 1<<53:
		return fault.BadArgument.With("an age is in milliseconds, and a time in Unix milliseconds")
	case q.After != "" && !capability.IsSession(q.After):
		return fault.BadArgument.With("after is the next of an earlier page")
	}
	if r.Key != "" {
		if _, err := ParseKey(r.Key); err != nil {
			return err
		}
	}
	return nil
}

// MinOlderAge is the least age of a session that counts as old, in ms.
const MinOlderAge = 1000

// SetBefore sets the query's Before by the database's time.
func (q *OlderQuery) SetBefore(now int64) *fault.Error {
	switch {
	case q.Remove.Before == 0:
		q.Remove.Before = max(now-q.Age, 1)
	case q.Remove.Before > now:
		return fault.BadArgument.With("before is a time to come: name an age")
	}
	return nil
}

// RefuseRunning returns the refusal for an old session, nil if it may be removed.
func (s *OldSession) RefuseRunning() *fault.Error {
	if s.Running {
		return fault.TurnOpen.With("a turn is running in it: it is not old")
	}
	return nil
}
