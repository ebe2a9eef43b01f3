package aisdk

// The routes, and the identity of what they ask.

import (
	"context"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/prompts"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Path is where the handler is mounted; Chat is the api of a chat.
const (
	Path = "/api/ai/"
	Chat = Path + "chat"
)

// New returns the handler, to be mounted at Path. Its limits and its origins are as the API's.
func New(cfg httpapi.Config) http.Handler {
	return httpapi.NewHandler(cfg, httpapi.HandlerOptions{Path: Path, Refusal: writeRefusal, Routes: httpapi.RouteTable{
		Chat:                  {http.MethodPost: serveMessage},
		Chat + "/{id}/stream": {http.MethodGet: serveStream},
		Chat + "/{id}/stop":   {http.MethodPost: serveStop},
	}})
}

// writeRefusal writes a line of text with the code last: the SDK shows the body of an answer as it is.
func writeRefusal(w http.ResponseWriter, status int, f *fault.Error) {
	httpkit.WriteText(w, status, f.Message+" ("+f.Code.String()+")\n")
}

// idOf returns the id of a request that is asked for something under a ref: the same for the same, and for nothing else.
func idOf(what, ref, of string) string {
	return "ai_" + prompts.Sum("mooring ai sdk v1", what, ref, of)
}

// serveMessage serves POST on the api: it asks for what the last message says, and answers with the message that answers it.
func serveMessage(q *httpapi.Request) *fault.Error {
	if _, refused := q.Query(); refused != nil {
		return refused
	}
	ctx, leave := context.WithCancelCause(q.ClientCtx)
	defer leave(nil)
	live, body, refused := q.SessionOfBody(ctx)
	if refused != nil {
		return refused
	}
	sent, refused := parseSent(body)
	if refused != nil {
		return refused
	}
	id := idOf("prompt", live.Ref(), sent.id)
	if _, refused := prompts.Ask(q, live, id, sent.payload); refused != nil {
		return refused
	}
	return follow(ctx, leave, q, live, id)
}

// serveStream serves GET on a chat's stream: the message that is being made, from its start; 204 if none is.
func serveStream(q *httpapi.Request) *fault.Error {
	if _, refused := q.Query(); refused != nil {
		return refused
	}
	ctx, leave := context.WithCancelCause(q.ClientCtx)
	defer leave(nil)
	live, refused := q.Session(ctx)
	if refused != nil {
		return refused
	}
	running, waiting, refused := listPrompts(q, live)
	switch {
	case refused != nil:
		return refused
	case running != nil:
		return follow(ctx, leave, q, live, running.ID)
	case len(waiting) > 0:
		return follow(ctx, leave, q, live, waiting[0].ID)
	}
	q.W.WriteHeader(http.StatusNoContent)
	return nil
}

// listPrompts returns the prompt that is worked on, nil for none, and those that wait, in the order in which they were asked.
func listPrompts(q *httpapi.Request, live *objects.Capability) (running *session.RequestInfo, waiting []*session.RequestInfo, refused *fault.Error) {
	list := session.RequestQuery{Kinds: []string{session.KindPrompt}}
	for {
		page, err := live.Requests(q.Context(), list)
		if err != nil {
			return nil, nil, q.ToFault(err)
		}
		for _, r := range page.Requests {
			switch state := prompts.StateOf(r.State); {
			case state == session.RequestClaimed && running == nil:
				running = r
			case state == session.RequestOpen:
				waiting = append(waiting, r)
			}
		}
		if list.After = page.Next; list.After == 0 {
			return running, waiting, nil
		}
	}
}

// serveStop serves POST on a chat's stop: it asks the agent to end the turn that runs. Where a prompt of the same ref waits
// for its turn, that is withdrawn.
func serveStop(q *httpapi.Request) *fault.Error {
	if _, refused := q.Query(); refused != nil {
		return refused
	}
	live, refused := q.Session(q.Context())
	if refused != nil {
		return refused
	}
	running, waiting, refused := listPrompts(q, live)
	if refused != nil {
		return refused
	}
	if running != nil {
		return stopTurn(q, live, running.ID)
	}
	for _, r := range waiting {
		if prompts.AskedUnder(r.Asked.Payload) != live.Ref() {
			continue
		}
		if _, refused := q.ApplyAlone(live, session.MethodWithdraw, r.ID, nil); refused != nil {
			return refused
		}
		httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(map[string]string{"withdrawn": r.ID}))
		return nil
	}
	q.W.WriteHeader(http.StatusNoContent)
	return nil
}

// stopTurn asks for the end of the turn that answers a prompt.
func stopTurn(q *httpapi.Request, live *objects.Capability, id string) *fault.Error {
	f := prompts.NewFollower(live, id, nil)
	if _, err := f.Read(q.Context()); err != nil {
		return q.ToFault(err)
	}
	message, stop, refused := f.Stop(q, func(message string) string { return idOf("stop", live.Ref(), message) })
	if refused != nil {
		return refused
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(map[string]string{"message": message, "request": stop}))
	return nil
}
