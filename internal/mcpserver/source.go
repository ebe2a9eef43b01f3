package mcpserver

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Source has the sessions that a server shows, under the authority that it was made with, which it checks anew for every
// call. Its methods, and those of its sessions, may be called concurrently; their errors are faults.
type Source interface {
	// List returns a page of sessions: up to limit of those with search in their title or id ("": all), after the
	// previous page's next.
	List(ctx context.Context, search, after string, limit int) (sessions []Info, next string, err error)
	// Open returns a session of this id.
	Open(ctx context.Context, id string) (Session, error)
}

// Session is a session of a Source.
type Session interface {
	Describe(ctx context.Context) (Info, error)
	// Keys returns a page of entries, and the After of the next page.
	Keys(ctx context.Context, q session.KeyQuery) (entries []Entry, next string, err error)
	// Get returns the entries of keys, with values. Keys without one have no entry.
	Get(ctx context.Context, keys ...string) ([]Entry, error)
	Search(ctx context.Context, q session.SearchQuery) (Found, error)
	// Requests returns what is open or claimed, after the request of this place (0: from the first), and whether there is
	// more.
	Requests(ctx context.Context, kinds []string, after uint64) (list []Request, more bool, err error)
	// Follow calls changed once it follows the session, and from then on after each change of keys (nil: any), until that
	// returns an error, which it returns, ctx ends, or the authority does (its fault).
	Follow(ctx context.Context, keys []string, changed func() error) error
	// Apply applies ops, all or none.
	Apply(ctx context.Context, ops ...Op) (Applied, error)
}

// Op is a change: a method of package session and its arguments.
type Op struct {
	Method string
	Args   []ledger.Arg
}

// Applied says what became of ops: Cursor is that of the last one's event. Queued ones are durable on this machine, and
// are sent when a server can be reached.
type Applied struct {
	Cursor uint64
	Queued bool
}

// Info describes a session.
type Info struct {
	ID, External, Title string
	Parent              string // the session whose child it is; "" for none
	Cursor              uint64
	Updated             time.Time
}

// Entry is a value of a session.
type Entry struct {
	Key    string
	Value  []byte // JSON; nil where none was asked for
	Bytes  uint64
	Cursor uint64
	Actor  string
	At     time.Time
}

// Found is a page of what a search has found.
type Found struct {
	Matches  []Match
	Next     string
	Indexing bool // there may be others: the index is being made
}

// Match is an entry that a search has found, without its value, and in turn what is beside a match and a match.
type Match struct {
	Entry
	Excerpt []string
}

// Request is a request of a session.
type Request struct {
	ID, Kind, Message string
	Place             uint64 // in the list of requests
	Payload           json.RawMessage
	Choices           []Choice
	AskedBy           string
	Asked, Expires    time.Time // Expires is zero for never

	State  session.RequestState
	Choice string          // of its answer
	Answer json.RawMessage // nil for none
	By     string          // who changed it last
	Reason string
}

// Choice is one of the answers that a request offers.
type Choice struct {
	ID    string `json:"id" jsonschema:"what the answer names"`
	Label string `json:"label,omitempty" jsonschema:"what people are shown"`
}

// ParseRequest returns a request by the values of its two keys; state is nil for one of which nothing has become.
func ParseRequest(id string, asked, state []byte) (Request, error) {
	r := Request{ID: id, State: session.RequestOpen}
	type actor struct{ Actor string }
	var a struct {
		Kind, Message string
		Payload       json.RawMessage
		Choices       []Choice
		By            actor
		At            int64
		Expires       int64 `json:"expires_at"`
	}
	if err := json.Unmarshal(asked, &a); err != nil {
		return r, fault.Malformed.Because(err, "request %s cannot be read", id)
	}
	r.Kind, r.Message, r.Payload, r.Choices, r.AskedBy, r.Asked = a.Kind, a.Message, a.Payload, a.Choices, a.By.Actor, time.UnixMilli(a.At)
	if a.Expires != 0 {
		r.Expires = time.UnixMilli(a.Expires)
	}
	if state == nil {
		return r, nil
	}
	var s struct {
		State          session.RequestState
		Choice, Reason string
		Payload        json.RawMessage
		By             actor
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return r, fault.Malformed.Because(err, "the state of request %s cannot be read", id)
	}
	r.State, r.Choice, r.Answer, r.By, r.Reason = s.State, s.Choice, s.Payload, s.By.Actor, s.Reason
	return r, nil
}

// Matches reports whether a text is a part of a session's title or ids, in any case; "" is of any.
func Matches(i Info, search string) bool {
	search = strings.ToLower(search)
	return slices.ContainsFunc([]string{i.Title, i.ID, i.External}, func(text string) bool { return strings.Contains(strings.ToLower(text), search) })
}
