// A request's ref, restored as a live capability, and its parameters.

package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Request is one admitted request. Its context ends with its timeout; ClientCtx ends only when
// the client goes or the server stops. It is for one goroutine at a time, except for what writes to W
// under a lock of its handler's.
type Request struct {
	*http.Request
	W         *httpkit.PacedWriter // the answer
	ClientCtx context.Context

	api       *API
	done      func()             // ends its count as a connection
	streaming bool               // see BeginStream
	ref       string             // the first that was restored
	memory    *membudget.Account // for its body; nil if none was read, or if whoever handles it has it (BufferBody)
	bodyRead  bool
}

// release releases the request's memory and its connection count.
func (q *Request) release() {
	if q.memory != nil {
		q.memory.Close()
	}
	q.done()
}

// ToFault returns an error of the server as the client sees it.
func (q *Request) ToFault(err error) *fault.Error { return q.api.toFault(q.ClientCtx, err) }

// BeginStream makes the answer a stream: it counts as one from now on, and only the rate at which
// it is read bounds its time. A body that was read is let go of: no part of it may be used any more.
func (q *Request) BeginStream() *fault.Error {
	q.streaming = true
	q.done() // or it would count twice
	q.done = func() {}
	r := q.Request
	if q.memory != nil {
		q.memory.Close()
		q.memory = nil
	}
	if q.bodyRead { // to its end
		read := *r
		read.ContentLength = 0
		r = &read
	}
	done, err := q.api.cfg.Server.AdmitStream(q.W, r)
	if err != nil {
		return q.ToFault(err)
	}
	q.done = done
	return nil
}

// Session restores the request's ref for the session that the path names. The capability is valid
// as long as ctx.
func (q *Request) Session(ctx context.Context) (*objects.Capability, *fault.Error) {
	return q.restoreFromPath(ctx, "session", capability.IsSession)
}

// space restores the request's ref for the space that the path names.
func (q *Request) space() (*objects.Capability, *fault.Error) {
	return q.restoreFromPath(q.Context(), "space", capability.IsSpace)
}

func (q *Request) restoreFromPath(ctx context.Context, kind string, is func(string) bool) (*objects.Capability, *fault.Error) {
	c, refused := q.Credentials()
	id := q.PathValue("id")
	switch {
	case refused != nil:
		return nil, refused
	case !is(id):
		return nil, fault.NotFound.With("the path names no %s: its id is %s and a ULID", kind, map[string]string{"session": capability.SessionPrefix, "space": capability.SpacePrefix}[kind])
	case c.ref.Target() != id && kind != "session":
		return nil, fault.NotFound.With("the ref is not one of the %s that the path names", kind)
	}
	live, refused := q.restore(ctx, c.ref)
	if refused != nil {
		return nil, refused
	}
	return q.reach(ctx, live, id, c.limits)
}

// SessionOfBody restores the request's ref, reads its body, and returns it with the session that it names by the member
// id, whose capability is valid as long as ctx.
func (q *Request) SessionOfBody(ctx context.Context) (*objects.Capability, gjson.Result, *fault.Error) {
	none := gjson.Result{}
	c, refused := q.Credentials()
	if refused != nil {
		return nil, none, refused
	}
	live, refused := q.restore(ctx, c.ref)
	if refused != nil {
		return nil, none, refused
	}
	body, refused := q.ReadBody()
	if refused != nil {
		return nil, none, refused
	}
	id := body.Get("id")
	if id.Type != gjson.String || !capability.IsSession(id.Str) {
		return nil, none, fault.NotFound.With("the body names no session: its id is %s and a ULID", capability.SessionPrefix)
	}
	live, refused = q.reach(ctx, live, id.Str, c.limits)
	return live, body, refused
}

// reach returns the capability of a session or space, for which the request's ref was restored as live, below the
// request's limits if it has some.
func (q *Request) reach(ctx context.Context, live *objects.Capability, id string, limits *capability.MintRequest) (_ *objects.Capability, refused *fault.Error) {
	if live.IsSpace() && live.Target() != id { // limits are of the session
		live, refused = q.open(ctx, live, id)
	}
	if refused == nil && limits != nil {
		live, refused = q.attenuate(live, limits)
	}
	if refused == nil && live.Target() != id { // they are of the ref, and say what it reaches
		live, refused = q.open(ctx, live, id)
	}
	return live, refused
}

// open returns the capability of a session that the request's ref is not one of: of its space, by the right manage,
// or of a session above, which reaches it.
func (q *Request) open(ctx context.Context, outer *objects.Capability, id string) (*objects.Capability, *fault.Error) {
	open := outer.OpenChild
	if outer.IsSpace() {
		open = outer.Open
	}
	live, err := open(ctx, id)
	if code := fault.CodeOf(err); !outer.IsSpace() && (code == fault.MissingRight || code == fault.Unsupported) {
		return nil, fault.NotFound.With("the ref is not one of the session that the path names, and does not reach it")
	}
	if err != nil {
		return nil, q.ToFault(err)
	}
	return live, nil
}

// restoreText is restore for the text of a ref in a body.
func (q *Request) restoreText(text string) (*objects.Capability, *fault.Error) {
	ref, refused := parseRef(strings.TrimSpace(text))
	if refused != nil {
		return nil, refused
	}
	return q.restore(q.Context(), ref)
}

// Query parses the parameters; only those in names are allowed. Errors do not contain the values,
// since secrets get into queries by mistake.
func (q *Request) Query(names ...string) (map[string]string, *fault.Error) {
	takes := "none"
	if len(names) > 0 {
		takes = strings.Join(names, ", ")
	}
	got, values := map[string]string{}, q.URL.Query()
	for name, list := range values {
		switch {
		case !slices.Contains(names, name):
			return nil, fault.BadArgument.With("the path has a parameter that it does not take; it takes %s", takes)
		case len(list) > 1:
			return nil, fault.BadArgument.With("%s is given twice", name)
		}
		got[name] = list[0]
	}
	if strings.Contains(q.URL.RawQuery, ";") { // which Query ignores
		return nil, fault.BadArgument.With("parameters are separated by &")
	}
	return got, nil
}

// params are the parameters of a request, and why the first of them that is refused is.
type params struct {
	values  map[string]string
	refused *fault.Error
}

// params is Query for parameters that are parsed.
func (q *Request) params(names ...string) *params {
	values, refused := q.Query(names...)
	return &params{values, refused}
}

// check refuses the parameters, unless they are refused already.
func (p *params) check(refused *fault.Error) {
	if p.refused == nil {
		p.refused = refused
	}
}

// keys parses the parameter keys: keys and prefixes with commas. nil if it is absent.
func (p *params) keys() (keys *session.Selection) {
	if text, given := p.values["keys"]; given {
		var refused *fault.Error
		keys, refused = session.SelectKeys(strings.Split(text, ","))
		p.check(refused)
	}
	return keys
}

// uint parses a whole number.
func (p *params) uint(name string, absent uint64) uint64 {
	n, refused := parseUintParam(name, p.values[name], absent)
	p.check(refused)
	return n
}

// parseUintParam parses a whole number in a parameter or header; "" is absent.
func parseUintParam(name, text string, absent uint64) (uint64, *fault.Error) {
	if text == "" {
		return absent, nil
	}
	n, ok := parseUint(text)
	if !ok {
		return 0, fault.BadArgument.With("%s is a whole number", name)
	}
	return n, nil
}

// bool parses true or false; "" is false.
func (p *params) bool(name string) bool {
	text := p.values[name]
	if text != "" && text != "true" && text != "false" {
		p.check(fault.BadArgument.With("%s is true or false", name))
	}
	return text == "true"
}

// position parses a position from the parameter of this name and hash.
func (p *params) position(name string) fanout.Position {
	at := fanout.Position{Cursor: p.uint(name, 0)}
	if hash := p.values["hash"]; hash != "" {
		var err error
		if at.Hash, err = session.ParseHash(hash); err != nil {
			p.check(fault.BadArgument.With("hash is an event's, as it was shown: 64 hexadecimal digits"))
		}
	}
	return at
}

// parseUint parses decimal digits.
func parseUint(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == text
}

// limit parses the maximum size of a page.
func (p *params) limit() int {
	n := p.uint("limit", maxPage)
	if n == 0 {
		p.check(fault.BadArgument.With("limit is at least 1"))
	}
	return int(min(n, maxPage))
}

// limitTo parses the maximum size of a page of up to most entries.
func (p *params) limitTo(most, absent uint64) int {
	n := p.uint("limit", absent)
	if n < 1 || n > most {
		p.check(fault.BadArgument.With("limit is 1 to %d entries", most))
	}
	return int(min(n, most))
}

// maxPage is the maximum length of any page; the server may return less.
const maxPage = 1000
