// Requests: asking, answering and withdrawing without an outbox, those that are open or claimed, and waiting for the end
// of one.

package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// maxWait is how long a request may wait for the end of another, in milliseconds: below a minute, after which proxies
// commonly give up.
const maxWait = 55_000

// argsOf returns members of a body that become arguments of an op, their JSON byte for byte.
func argsOf(to *[]ledger.Arg, names ...string) []member {
	members := make([]member, len(names))
	for i, name := range names {
		members[i] = member{name: name, parse: func(_ *bodyPath, v gjson.Result) *fault.Error {
			*to = append(*to, ledger.Arg{Name: name, JSON: []byte(v.Raw)})
			return nil
		}}
	}
	return members
}

// ApplyAlone applies one op about a request without an outbox, and returns the cursor of its event or of the one that it
// repeats.
func (q *Request) ApplyAlone(live *objects.Capability, method, request string, args []ledger.Arg) (uint64, *fault.Error) {
	op := ledger.Intent{OpID: ulid.Make().String(), BatchID: ulid.Make().String(), Session: live.Target(), Method: method,
		Args: append([]ledger.Arg{stringArg("request", request)}, args...)}
	cursor, err := live.ApplyDirect(q.Context(), op)
	if err != nil {
		return 0, q.ToFault(err)
	}
	return cursor, nil
}

// askRequest serves POST /sessions/{id}/requests.
func askRequest(q *Request, live *objects.Capability) *fault.Error {
	body, refused := q.ReadBody()
	if refused != nil {
		return refused
	}
	var id string
	var args []ledger.Arg
	refused = parseObject(nil, body, append(argsOf(&args, "kind", "payload", "choices", "message"), text("request", &id),
		member{name: "expires_in", parse: func(at *bodyPath, v gjson.Result) *fault.Error {
			var ms uint64
			refused := parseNumber(at, v, &ms)
			args = append(args, ledger.Arg{Name: "expires_in", JSON: httpkit.JSON(ms)})
			return refused
		}})...)
	if refused != nil {
		return refused
	}
	id = cmp.Or(id, ulid.Make().String())
	cursor, refused := q.ApplyAlone(live, session.MethodAsk, id, args)
	if refused != nil {
		return refused
	}
	httpkit.WriteJSON(q.W, http.StatusCreated, httpkit.JSON(struct {
		Session string `json:"session"`
		Request string `json:"request"`
		Cursor  uint64 `json:"cursor"`
	}{live.Target(), id, cursor}))
	return nil
}

// endRequest serves POST on a request's answer or withdraw, whose op takes the arguments of names.
func endRequest(method string, names ...string) liveHandler {
	return func(q *Request, live *objects.Capability) *fault.Error {
		body, refused := q.ReadBody()
		if refused != nil {
			return refused
		}
		var args []ledger.Arg
		if refused = parseObject(nil, body, argsOf(&args, names...)...); refused != nil {
			return refused
		}
		cursor, refused := q.ApplyAlone(live, method, q.PathValue("request_id"), args)
		if refused != nil {
			return refused
		}
		httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(map[string]any{"cursor": cursor}))
		return nil
	}
}

// requestJSON returns a request as JSON text, its values byte for byte.
func requestJSON(id string, cursor uint64, asked, state []byte) []byte {
	if state == nil {
		state = httpkit.JSON(map[string]any{"state": session.RequestOpen})
	}
	return addMember(addMember(httpkit.JSON(struct {
		Request string `json:"request"`
		Cursor  uint64 `json:"cursor"` // of its last change
	}{id, cursor}), "asked", asked), "state", state)
}

// listRequests serves GET /sessions/{id}/requests.
func listRequests(q *Request, live *objects.Capability) *fault.Error {
	params := q.params("kinds", "after")
	list := session.RequestQuery{After: params.uint("after", 0)}
	if kinds, given := params.values["kinds"]; given {
		list.Kinds = strings.Split(kinds, ",")
	}
	if params.refused != nil {
		return params.refused
	}
	page, err := live.Requests(q.Context(), list)
	if err != nil {
		return q.ToFault(err)
	}
	shown := make([][]byte, len(page.Requests))
	for i, r := range page.Requests {
		var state []byte
		if r.State != nil {
			state = r.State.Payload
		}
		shown[i] = requestJSON(r.ID, r.Cursor(), r.Asked.Payload, state)
	}
	b := httpkit.JSON(struct {
		Cursor uint64 `json:"cursor"`
		More   bool   `json:"more"`
		Next   uint64 `json:"next,omitempty"`
	}{page.Row.Cursor, page.Next != 0, page.Next})
	httpkit.WriteCompressedJSON(q.W, q.Request, http.StatusOK, addMember(b, "requests", fmt.Appendf(nil, "[%s]", bytes.Join(shown, []byte{','}))))
	return nil
}

// oneRequest is a request as it was read.
type oneRequest struct {
	at    fanout.Position // of the log
	text  []byte          // JSON; nil: there is none that the ref shows
	ended bool
}

// readRequest reads a request by its keys, what was asked and what became of it: at once, unless they are too large for
// one answer of the session. What was asked never changes.
func (q *Request) readRequest(ctx context.Context, live *objects.Capability, id string) (*oneRequest, *fault.Error) {
	r := &oneRequest{}
	var asked, state []byte
	cursor := uint64(0)
	for keys := []string{session.RequestKey(id), session.RequestStateKey(id)}; len(keys) > 0; {
		page, next, err := live.GetKeys(ctx, keys)
		if err != nil {
			return nil, q.ToFault(err)
		}
		if keys = keys[next:]; r.at.Cursor == 0 { // of the first
			r.at = fanout.Position{Cursor: page.Row.Cursor, Hash: page.Row.Head}
		}
		for _, e := range page.Entries {
			if cursor = max(cursor, e.Cursor); e.Key == session.RequestKey(id) {
				asked = e.Payload
			} else {
				state = e.Payload
			}
		}
	}
	if asked != nil {
		r.text = requestJSON(id, cursor, asked, state)
		r.ended = state != nil && session.RequestState(gjson.GetBytes(state, "state").Str).Ended()
	}
	return r, nil
}

// serveRequest serves GET /sessions/{id}/requests/{request_id}.
func serveRequest(q *Request) *fault.Error {
	params := q.params("wait")
	wait := params.uint("wait", 0)
	if wait > maxWait {
		params.check(fault.BadArgument.With("wait is 0 to %d milliseconds: ask again", maxWait))
	}
	if params.refused != nil {
		return params.refused
	}
	id := q.PathValue("request_id")
	if refused := session.CheckKeys([]string{session.RequestStateKey(id)}); refused != nil {
		return refused
	}
	ctx, leave := context.WithCancel(q.ClientCtx)
	defer leave()
	live, refused := q.Session(ctx)
	if refused != nil {
		return refused
	}
	r, refused := q.readRequest(q.Context(), live, id)
	if refused == nil && wait > 0 && !r.ended {
		r, refused = q.awaitRequest(live, id, r, time.Duration(wait)*time.Millisecond)
	}
	switch {
	case refused != nil:
		return refused
	case r.text == nil:
		return fault.NotFound.With("there is no request of this id that the ref shows")
	}
	httpkit.WriteCompressedJSON(q.W, q.Request, http.StatusOK, r.text)
	return nil
}

// errRequestEnded ends the following of a request.
var errRequestEnded = errors.New("the request has ended")

// awaitRequest returns a request, which was read as r, once it has ended, or as it is after a time. It follows the request's
// keys and reads it when one has changed. The answer is a long one: it counts as a stream, and may take longer than a
// request does.
func (q *Request) awaitRequest(live *objects.Capability, id string, r *oneRequest, wait time.Duration) (*oneRequest, *fault.Error) {
	keys, refused := session.SelectKeys([]string{session.RequestKey(id), session.RequestStateKey(id)})
	if refused == nil {
		refused = q.BeginStream()
	}
	if refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(q.ClientCtx, wait)
	defer cancel()
	err := live.Follow(ctx, r.at, keys, func(events []*session.Event) error {
		for _, e := range events {
			if e.Hidden {
				continue
			}
			now, refused := q.readRequest(q.ClientCtx, live, id)
			if refused != nil {
				return refused
			}
			if r = now; r.ended {
				return errRequestEnded
			}
		}
		return nil
	})
	switch {
	case err == errRequestEnded:
		return r, nil
	case ctx.Err() != nil && q.ClientCtx.Err() == nil: // the time is over
		return q.readRequest(q.ClientCtx, live, id)
	}
	return nil, q.ToFault(err)
}
