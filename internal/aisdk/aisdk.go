package aisdk

// The routes, and the identity of what they ask.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
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
	sum := sha256.Sum256([]byte("mooring ai sdk v1\x00" + what + "\x00" + ref + "\x00" + of))
	return "ai_" + hex.EncodeToString(sum[:16])
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
	if _, _, err := live.GetKeys(q.Context(), []string{session.RequestKey(id)}); err != nil { // before it is asked by a ref that reads no answer
		return q.ToFault(err)
	}
	_, refused = q.ApplyAlone(live, session.MethodAsk, id, []ledger.Arg{
		{Name: "kind", JSON: httpkit.JSON(session.KindPrompt)},
		{Name: "payload", JSON: sent.payload},
	})
	if refused != nil && refused.Code == fault.AlreadyExists {
		return fault.AlreadyExists.With("the message with this id was sent before, with another text: what an agent was given cannot be changed, so send it as a new message").Pos(refused.At)
	}
	if refused != nil {
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
	running, waiting, refused := prompts(q, live)
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

// prompts returns the prompt that is worked on, nil for none, and those that wait, in the order in which they were asked.
func prompts(q *httpapi.Request, live *objects.Capability) (running *session.RequestInfo, waiting []*session.RequestInfo, refused *fault.Error) {
	list := session.RequestQuery{Kinds: []string{session.KindPrompt}}
	for {
		page, err := live.Requests(q.Context(), list)
		if err != nil {
			return nil, nil, q.ToFault(err)
		}
		for _, r := range page.Requests {
			switch of := stateOf(r.State); {
			case of.state == session.RequestClaimed && running == nil:
				running = r
			case of.state == session.RequestOpen:
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
	running, waiting, refused := prompts(q, live)
	if refused != nil {
		return refused
	}
	if running != nil {
		return stopTurn(q, live, running.ID)
	}
	for _, r := range waiting {
		if askedUnder(r) != live.Ref() {
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
	s := newStream(q, live, id)
	if err := s.read(q.Context()); err != nil {
		return q.ToFault(err)
	}
	if len(s.messages) == 0 {
		return fault.Unavailable.With("the agent has the prompt and has not begun to answer it: stop it in a moment")
	}
	message := s.messages[len(s.messages)-1].id
	stop := idOf("stop", live.Ref(), message)
	if _, refused := q.ApplyAlone(live, session.MethodAsk, stop, []ledger.Arg{
		{Name: "kind", JSON: httpkit.JSON(session.KindStop)},
		{Name: "message", JSON: httpkit.JSON(message)},
	}); refused != nil {
		return refused
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(map[string]string{"message": message, "request": stop}))
	return nil
}
