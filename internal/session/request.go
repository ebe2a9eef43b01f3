package session

// Requests: what somebody asks of the agent of a session, or the agent of people, and what became of it.
//
//	request/ID        what was asked, by whom and until when: it never changes
//	request/ID/state  what became of it; there is none until something did
//
// Both are values like any other to who reads, follows or folds a log: their events are puts. Only the ops
// ask, claim, release, answer and withdraw change them, and the rules here:
//
//	open → claimed → answered | withdrawn | expired | unknown
//
// A request may be answered while it is open, by the first who does; whoever works on it for longer claims
// it first. A claim whose lease is over counts as none, except for a prompt: what an agent was given may have
// been done, so nobody is given it again. Only its claimer goes on with such a one or gives it back; anybody
// else can end it, as unknown.
//
// What is open or claimed has a row of its own (OpenRequest), which ends with it.

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
)

// The kinds of requests that Mooring gives a meaning; others are their users' own.
const (
	KindPrompt     = "prompt"     // text for the agent: it is handed over at most once
	KindStop       = "stop"       // ends the turn that the request names
	KindPermission = "permission" // may the agent do this; the answer names the digest of what was shown
	KindQuestion   = "question"
)

// RequestState is what became of a request.
type RequestState string

// The states. The last four are ends.
const (
	RequestOpen      RequestState = "open"
	RequestClaimed   RequestState = "claimed"
	RequestAnswered  RequestState = "answered"
	RequestWithdrawn RequestState = "withdrawn"
	RequestExpired   RequestState = "expired"
	RequestUnknown   RequestState = "unknown" // it was handed over, and nobody knows what came of it
)

// Ended reports whether nothing more becomes of a request in this state.
func (s RequestState) Ended() bool { return s != RequestOpen && s != RequestClaimed }

// OpenRequest is a request that is open or claimed.
type OpenRequest struct {
	Session string        `json:"-"`
	ID      string        `json:"-"`
	Kind    string        `json:"kind"`
	Ref     string        `json:"ref"`               // it was asked under
	Message string        `json:"message,omitempty"` // the message whose turn it is about; "" for none
	Digest  string        `json:"digest"`            // SHA-256 of its payload, in hexadecimal
	Choices []string      `json:"choices,omitempty"` // their ids; nil: any answer
	Expires int64         `json:"expires,omitempty"` // Unix ms, while nobody has claimed it; 0 never
	Claim   *RequestClaim `json:"claim,omitempty"`
}

// RequestClaim is who works on a request.
type RequestClaim struct {
	Cursor uint64 `json:"cursor"` // of the event that made it: what the claimer's ops name
	Until  int64  `json:"until"`  // Unix ms: when the lease is over
	Stream string `json:"stream"`
	Worker string `json:"worker,omitempty"`
}

// Due returns when something happens to the request by itself, Unix ms; 0 for never.
func (r *OpenRequest) Due() int64 {
	switch {
	case r.Claim == nil:
		return r.Expires
	case r.Kind == KindPrompt:
		return 0
	}
	return r.Claim.Until
}

// Marshal and UnmarshalRequest are the form in which a store keeps a row, beside its session and id.
func (r *OpenRequest) Marshal() string { return string(rawjson.Encode(r)) }

// UnmarshalRequest parses the result of Marshal.
func UnmarshalRequest(id, request, text string) (*OpenRequest, error) {
	r := &OpenRequest{}
	err := json.Unmarshal([]byte(text), r)
	r.Session, r.ID = id, request
	return r, err
}

const (
	RequestKind  = "request"
	stateSuffix  = "/state"
	requestStart = RequestKind + "/"
)

// RequestKey returns the key of what a request asks.
func RequestKey(id string) string { return requestStart + id }

// RequestStateKey returns the key of what became of a request.
func RequestStateKey(id string) string { return requestStart + id + stateSuffix }

// RequestOf returns the id of the request that a key is about, and whether the key is that of its state.
func RequestOf(key string) (id string, state, ok bool) {
	id, ok = strings.CutPrefix(key, requestStart)
	id, state = strings.CutSuffix(id, stateSuffix)
	return id, state, ok
}

// Held returns the claim that is in force at a time, or of a prompt, which no lapse gives back; nil for none.
func (r *OpenRequest) Held(now int64) *RequestClaim {
	if r.Claim != nil && (now < r.Claim.Until || r.Kind == KindPrompt) {
		return r.Claim
	}
	return nil
}

// Expired reports whether nobody may answer the request any more, though its row is still there.
func (r *OpenRequest) Expired(now int64) bool {
	return r.Claim == nil && r.Expires != 0 && r.Expires <= now
}

// RequestQuery is a request for a page of a session's requests that are open or claimed.
type RequestQuery struct {
	Kinds []string // nil: all
	After uint64   // the previous page's RequestPage.Next; 0: from the start
}

// maxQueryKinds bounds the kinds of a query.
const maxQueryKinds = 64

// Check refuses an invalid query.
func (q *RequestQuery) Check() *fault.Error {
	if q.Kinds != nil && (len(q.Kinds) == 0 || len(q.Kinds) > maxQueryKinds) {
		return fault.BadArgument.With("kinds are 1 to %d kinds of requests", maxQueryKinds)
	}
	for _, kind := range q.Kinds {
		if !capability.IsKind(kind) {
			return fault.BadArgument.With("%q is not a kind of requests: use prompt, stop, permission, question or one of your own", fault.Clip(kind))
		}
	}
	return nil
}

// Selects reports whether the query is for requests of a kind.
func (q *RequestQuery) Selects(kind string) bool {
	return q.Kinds == nil || slices.Contains(q.Kinds, kind)
}

// RequestPage is requests in the order in which they were asked, in one snapshot.
type RequestPage struct {
	Access
	Requests []*RequestInfo
	Next     uint64 // the After of the next page; 0: there are no others
}

// RequestInfo is a request as its two values are.
type RequestInfo struct {
	ID    string
	Asked *Entry
	State *Entry // nil: nothing has become of it, or the ref does not show what
}

// Cursor returns the cursor of the request's last change.
func (r *RequestInfo) Cursor() uint64 {
	if r.State != nil {
		return r.State.Cursor
	}
	return r.Asked.Cursor
}

func (p *RequestPage) access() *Access { return &p.Access }

func (p *RequestPage) limitedTo(g *capability.Grant) *RequestPage {
	if ShowsAll(g) {
		return p
	}
	shown := &RequestPage{Access: p.Access.limitedTo(g), Next: p.Next}
	for _, r := range p.Requests {
		if !ShowsEntry(g, r.Asked) {
			continue
		}
		if r.State != nil && !ShowsEntry(g, r.State) {
			r = &RequestInfo{ID: r.ID, Asked: r.Asked}
		}
		shown.Requests = append(shown.Requests, r)
	}
	return shown
}
