// Sessions: listed and created under their space's ref, described and counted under their own.

package httpapi

import (
	"encoding/base64"
	"net/http"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

var sessionRoutes = RouteTable{
	Path + "spaces/{id}/sessions": {http.MethodGet: listSessions, http.MethodPost: ofSpace(plain(createSession))},
	Path + "sessions/{id}":        {http.MethodGet: ofSession(plain(describeSession))},
	Path + "sessions/{id}/stat":   {http.MethodGet: ofSession(plain(statSession))},
	Path + "sessions/{id}/state":  {http.MethodGet: serveState},
	Path + "sessions/{id}/search": {http.MethodGet: serveSearch},

	Path + "sessions/{id}/children": {http.MethodGet: ofSession(listChildren)},

	Path + "sessions/{id}/requests":                       {http.MethodGet: ofSession(listRequests), http.MethodPost: ofSession(plain(askRequest))},
	Path + "sessions/{id}/requests/{request_id}":          {http.MethodGet: serveRequest},
	Path + "sessions/{id}/requests/{request_id}/answer":   {http.MethodPost: ofSession(plain(endRequest(session.MethodAnswer, "choice", "payload", "shown")))},
	Path + "sessions/{id}/requests/{request_id}/withdraw": {http.MethodPost: ofSession(plain(endRequest(session.MethodWithdraw, "reason")))},
}

// sessionJSON describes a session.
type sessionJSON struct {
	ID       string `json:"id"`
	External string `json:"external,omitempty"`
	Title    string `json:"title,omitempty"`
	Cursor   uint64 `json:"cursor"`
	Base     uint64 `json:"base"`
	Epoch    uint64 `json:"epoch"`
	Created  int64  `json:"created"`
	Updated  int64  `json:"updated"`
	Deleted  bool   `json:"deleted,omitempty"`
	Order    string `json:"order,omitempty"`

	Origin   *originJSON   `json:"origin,omitempty"`
	Parent   *parentJSON   `json:"parent,omitempty"`
	Reverted *revertedJSON `json:"reverted,omitempty"`

	Compacted *compactedJSON `json:"compacted,omitempty"`
}

// compactedJSON says up to where a session is compacted.
type compactedJSON struct {
	Upto    string `json:"upto"`
	Summary string `json:"summary"`
	Cursor  uint64 `json:"cursor"`
	Actor   string `json:"actor"`
	At      int64  `json:"at"`

	// Ord is the place of Upto in the session's order, as of entries, and Place the summary's.
	Ord   [2]uint64 `json:"ord"`
	Place [2]uint64 `json:"place"`
}

// newCompactedJSON returns nil for a session that is not compacted.
func newCompactedJSON(c *session.Compaction) *compactedJSON {
	if !c.InForce() {
		return nil
	}
	return &compactedJSON{c.Upto, c.Summary, c.Cursor, c.Actor, c.At, [2]uint64{c.Ord.At, c.Ord.Index}, [2]uint64{c.Place.At, c.Place.Index}}
}

// revertedJSON says what a session is reverted to: to a ref that does not show all of it, the cursor alone.
type revertedJSON struct {
	To     string `json:"to,omitempty"`
	Cursor uint64 `json:"cursor"`
	Actor  string `json:"actor,omitempty"`
	At     int64  `json:"at,omitempty"`
}

// originJSON says what a session was forked from.
type originJSON struct {
	Session string `json:"session"`
	Cursor  uint64 `json:"cursor"`
	Message string `json:"message,omitempty"`
}

// parentJSON says whose child a session is.
type parentJSON struct {
	Session string `json:"session"`
	Key     string `json:"key,omitempty"`
}

func newSessionJSON(row *session.Row, title string) sessionJSON {
	shown := sessionJSON{ID: row.ID, External: row.External, Title: title, Cursor: row.Cursor, Base: row.Base, Epoch: row.Epoch,
		Created: row.Created, Updated: row.Updated, Deleted: row.Life == session.Deleted, Order: row.Order.String()}
	if row.Origin.Session != "" {
		shown.Origin = new(originJSON(row.Origin))
	}
	if of := row.Parent; of.Session != "" {
		shown.Parent = &parentJSON{of.Session, of.Key}
	}
	if r := row.Revert; r.Cursor > 0 {
		shown.Reverted = &revertedJSON{r.To, r.Cursor, r.Actor, r.At}
	}
	shown.Compacted = newCompactedJSON(new(row.Compacted()))
	return shown
}

// grantJSON describes a ref: what it allows, and until when.
type grantJSON struct {
	Ref         string   `json:"ref"`
	Target      string   `json:"target"`
	Owner       bool     `json:"owner"`
	Rights      []string `json:"rights"`
	Children    []string `json:"children,omitempty"`
	Methods     []string `json:"methods,omitempty"`
	Epoch       uint64   `json:"epoch,omitempty"`
	Expires     int64    `json:"expires_at,omitempty"`
	From        uint64   `json:"from,omitempty"`
	Message     string   `json:"message,omitempty"`
	ReadKeys    []string `json:"read_keys,omitempty"`
	WriteKeys   []string `json:"write_keys,omitempty"`
	AskKinds    []string `json:"ask,omitempty"`
	AnswerKinds []string `json:"answer,omitempty"`
	Redemptions uint32   `json:"redemptions,omitempty"`
	Used        uint32   `json:"used"`
	Label       string   `json:"label,omitempty"`
	Actor       string   `json:"actor,omitempty"`
}

func newGrantJSON(g *capability.Grant) grantJSON {
	shown := grantJSON{Ref: g.ID, Target: g.Target, Owner: g.Owner, Rights: g.Rights.Names(), Methods: g.Methods, Epoch: g.Epoch, Expires: g.Expires,
		From: g.VisibleFrom, Message: g.Message, ReadKeys: g.ReadKeys, WriteKeys: g.WriteKeys, AskKinds: g.AskKinds, AnswerKinds: g.AnswerKinds, Redemptions: g.MaxRedemptions, Used: g.Redemptions, Label: g.Label, Actor: g.Actor}
	if g.Children != 0 {
		shown.Children = g.Children.Names()
	}
	return shown
}

// describeSession serves GET /sessions/{id}.
func describeSession(q *Request, live *objects.Capability) *fault.Error {
	d, err := live.Describe(q.Context())
	if err != nil {
		return q.ToFault(err)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(map[string]any{"session": newSessionJSON(d.Row, d.Title()), "grant": newGrantJSON(d.Grant), "now": d.Now}))
	return nil
}

// describeSpace serves GET /spaces/{id}.
func describeSpace(q *Request, live *objects.Capability) *fault.Error {
	d, err := live.Describe(q.Context())
	if err != nil {
		return q.ToFault(err)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(map[string]any{"grant": newGrantJSON(d.Grant), "now": d.Now}))
	return nil
}

// statSession serves GET /sessions/{id}/stat.
func statSession(q *Request, live *objects.Capability) *fault.Error {
	stat, err := live.Stat(q.Context())
	if err != nil {
		return q.ToFault(err)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(stat))
	return nil
}

// listSessions serves GET /spaces/{id}/sessions.
func listSessions(q *Request) *fault.Error {
	params := q.params("after", "limit", "order", "search", "deleted", "parent")
	list := session.ListQuery{After: params.values["after"], Search: params.values["search"], Deleted: params.bool("deleted"), Parent: params.values["parent"], Limit: params.limit()}
	order, refused := session.ParseListOrder(params.values["order"])
	params.check(refused)
	list.Order = order
	params.check(list.Check())
	if params.refused != nil {
		return params.refused
	}
	live, refused := q.space()
	if refused != nil {
		return refused
	}
	page, err := live.List(q.Context(), list)
	if err != nil {
		return q.ToFault(err)
	}
	shown := make([]sessionJSON, len(page.Sessions))
	for i, one := range page.Sessions {
		shown[i] = newSessionJSON(&one.Row, one.Title)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(pageJSON[sessionJSON]{shown, page.Next != "", page.Next}))
	return nil
}

// listChildren serves GET /sessions/{id}/children.
func listChildren(q *Request, live *objects.Capability) *fault.Error {
	params := q.params("after", "limit")
	limit := params.limit()
	if params.refused != nil {
		return params.refused
	}
	page, err := live.Children(q.Context(), params.values["after"], limit)
	if err != nil {
		return q.ToFault(err)
	}
	shown := make([]childJSON, len(page.Sessions))
	for i, one := range page.Sessions {
		shown[i] = childJSON{one.ID, one.Parent.Key, one.Created}
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(pageJSON[childJSON]{shown, page.Next != "", page.Next}))
	return nil
}

// childJSON is a child of a session, and the key of what started it.
type childJSON struct {
	ID      string `json:"id"`
	Key     string `json:"key,omitempty"`
	Created int64  `json:"created"`
}

// pageJSON is a page of sessions.
type pageJSON[S any] struct {
	Sessions []S    `json:"sessions"`
	More     bool   `json:"more"`
	Next     string `json:"next,omitempty"`
}

// creation is a parsed request to create a session.
type creation struct {
	session, ref           string // chosen by the client; "": by the server
	hash                   []byte // of the ref's secret
	external, label, actor string
	order                  string
	parent, part           string     // the text of a ref of the parent, and the key of what starts the child; "": none
	origin                 originJSON // what it was forked from where it was exported
	batch                  *sentBatch // the create op's, with these as its arguments
}

// createSession serves POST /spaces/{id}/sessions: the session alone, or an outbox's first batch,
// which creates it.
func createSession(q *Request, live *objects.Capability) *fault.Error {
	body, refused := q.ReadBody()
	if refused != nil {
		return refused
	}
	var c creation
	refused = parseObject(nil, body, text("session", &c.session), text("ref", &c.ref), bytes32("hash", &c.hash),
		text("external", &c.external), text("label", &c.label), text("actor", &c.actor), text("order", &c.order),
		text("parent", &c.parent), text("part", &c.part),
		member{name: "origin", parse: func(at *bodyPath, v gjson.Result) *fault.Error {
			return parseObject(at, v, text("session", &c.origin.Session), number("cursor", &c.origin.Cursor), text("message", &c.origin.Message))
		}},
		member{name: "batch", parse: func(at *bodyPath, v gjson.Result) *fault.Error {
			c.batch = &sentBatch{}
			return parseBatch(at, v, c.batch)
		}})
	named := c.session != "" && c.ref != ""
	switch {
	case refused != nil:
		return refused
	case c.batch == nil:
		if named != (c.hash != nil) || named != (c.session != "" || c.ref != "") {
			return fault.Malformed.With("session, ref and hash go together: the client makes all of them, or none")
		}
		return q.create(live, &c)
	case !named || c.hash != nil || c.external != "" || c.label != "" || c.actor != "" || c.order != "" || c.parent != "" || c.part != "" || c.origin != (originJSON{}):
		return fault.Malformed.With("besides batch there may be session and ref only: the batch's create op has the rest")
	}
	stream, err := live.CreateStream(q.Context(), c.session, c.ref, c.batch.outbox, c.batch.secret, c.batch.incarnation)
	if err != nil {
		return q.ToFault(err)
	}
	return q.apply(stream, c.batch)
}

// create creates a session without an outbox.
func (q *Request) create(live *objects.Capability, c *creation) *fault.Error {
	var made capability.Ref
	if c.ref == "" {
		c.session = capability.SessionPrefix + ulid.Make().String()
		made = q.api.cfg.Address.New(c.session)
		hash := made.Secret.Hash()
		c.ref, c.hash = made.ID, hash[:]
	}
	if refused := capability.CheckClientMade(c.ref); refused != nil {
		return refused
	}
	var with []*objects.Capability
	var parent, via string
	if c.parent != "" {
		held, refused := q.restoreText(c.parent)
		if refused != nil {
			return refused
		}
		with, parent, via = append(with, held), held.Target(), held.Ref()
	}
	args := []ledger.Arg{stringArg("ref", c.ref), stringArg("hash", base64.RawURLEncoding.EncodeToString(c.hash))}
	for _, a := range []struct{ name, text string }{{"external", c.external}, {"label", c.label}, {"actor", c.actor}, {"order", c.order}, {"parent", parent}, {"via", via}, {"part", c.part}} {
		if a.text != "" {
			args = append(args, stringArg(a.name, a.text))
		}
	}
	if c.origin != (originJSON{}) {
		args = append(args, stringArg(ledger.HintOrigin, c.origin.Session), ledger.Arg{Name: ledger.HintOriginAt, JSON: httpkit.JSON(c.origin.Cursor)})
		if c.origin.Message != "" {
			args = append(args, stringArg(ledger.HintOriginID, c.origin.Message))
		}
	}
	if err := live.Create(q.Context(), c.session, c.ref, with, args...); err != nil {
		return q.ToFault(err)
	}
	q.answerMinted(newMintedJSON(c.ref, made))
	return nil
}

func stringArg(name, text string) ledger.Arg { return ledger.Arg{Name: name, JSON: httpkit.JSON(text)} }

// mintedJSON describes a new ref, with its text if it was made here: its secret is stored nowhere
// else and not sent again.
type mintedJSON struct {
	Session string  `json:"session,omitempty"`
	Space   string  `json:"space,omitempty"`
	Ref     string  `json:"ref"`
	Text    string  `json:"text,omitempty"`
	Cut     *uint64 `json:"cut,omitempty"` // of the ref that it has replaced
}

// newMintedJSON describes the ref id; made is zero if the client has made it.
func newMintedJSON(id string, made capability.Ref) (shown mintedJSON) {
	shown.Ref = id
	if target := capability.Target(id); capability.IsSpace(target) {
		shown.Space = target
	} else {
		shown.Session = target
	}
	if !made.Secret.IsZero() {
		shown.Text = made.Text()
	}
	return shown
}

// answerMinted answers with a new ref.
func (q *Request) answerMinted(shown mintedJSON) {
	httpkit.WriteJSON(q.W, http.StatusCreated, httpkit.JSON(shown))
}
