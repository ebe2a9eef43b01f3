package a2ahttp

// The routes, and how a request comes to the SDK's handlers.

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/log"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// Where the handlers are mounted: that of JSON-RPC, that of HTTP+JSON, and the agent's card.
const (
	RPCPath  = "/a2a"
	RESTPath = "/a2a/v1/"
	CardPath = a2asrv.WellKnownAgentCardPath
)

// methods of JSON-RPC whose answers are streams.
var streams = map[string]bool{"SendStreamingMessage": true, "SubscribeToTask": true}

// Handlers returns the handlers by the paths to mount them at. Their limits and their origins are as the API's. version is the
// server's.
func Handlers(cfg httpapi.Config, version string) map[string]http.Handler {
	cfg = cfg.WithDefaults()
	s := &server{cfg: cfg, version: version}
	alive := a2asrv.WithTransportKeepAlive(cfg.Heartbeat)
	rpc, rest := a2asrv.NewJSONRPCHandler(s, alive), http.StripPrefix(RESTPath[:len(RESTPath)-1], a2asrv.NewRESTHandler(s, alive))

	plain := s.pass(rest, func([]byte) bool { return false })
	stream := s.pass(rest, func([]byte) bool { return true })
	oneTask := func(q *httpapi.Request) *fault.Error {
		if isSubscription(q.PathValue("task")) {
			return stream(q)
		}
		return plain(q)
	}
	list := func(q *httpapi.Request) *fault.Error {
		if of := q.URL.Query(); of.Has("lastUpdatedAfter") { // as the SDK's client in Go 2.4.0 calls it
			of.Set("statusTimestampAfter", of.Get("lastUpdatedAfter"))
			named := *q.URL
			named.RawQuery = of.Encode()
			q.URL = &named
		}
		return plain(q)
	}
	return map[string]http.Handler{
		CardPath: httpapi.NewHandler(cfg, httpapi.HandlerOptions{Path: CardPath, Refusal: refuseREST, Routes: httpapi.RouteTable{
			CardPath: {http.MethodGet: s.serveCard},
		}}),
		RPCPath: httpapi.NewHandler(cfg, httpapi.HandlerOptions{Path: RPCPath, Refusal: refuseRPC, Routes: httpapi.RouteTable{
			RPCPath: {http.MethodPost: s.pass(rpc, func(body []byte) bool {
				var asked struct {
					Method string
					Params json.RawMessage
				}
				decode(body, &asked)
				return streams[asked.Method] || asked.Method == "SendMessage" && waits(asked.Params)
			})},
		}}),
		RESTPath: httpapi.NewHandler(cfg, httpapi.HandlerOptions{Path: RESTPath, Refusal: refuseREST, Routes: httpapi.RouteTable{
			RESTPath + "message:send":                                  {http.MethodPost: s.pass(rest, waits)},
			RESTPath + "message:stream":                                {http.MethodPost: stream},
			RESTPath + "tasks":                                         {http.MethodGet: list},
			RESTPath + "tasks/{task}":                                  {http.MethodGet: oneTask, http.MethodPost: oneTask},
			RESTPath + "tasks/{task}/pushNotificationConfigs":          {http.MethodGet: plain, http.MethodPost: plain},
			RESTPath + "tasks/{task}/pushNotificationConfigs/{config}": {http.MethodGet: plain, http.MethodDelete: plain},
			RESTPath + "extendedAgentCard":                             {http.MethodGet: plain},
		}}),
	}
}

// waits reports whether a request to send a message waits for the task's end.
func waits(send []byte) bool {
	var asked struct {
		Configuration struct{ ReturnImmediately bool }
	}
	decode(send, &asked)
	return !asked.Configuration.ReturnImmediately
}

// decode decodes a value as the SDK's handlers do, which of members that stand twice, or in other letters, take the last: what
// they will do is known by nothing else. What they refuse is left as it is.
func decode(text []byte, to any) { _ = json.NewDecoder(bytes.NewReader(text)).Decode(to) }

// server implements the SDK's RequestHandler, for the call that a context has.
type server struct {
	cfg     httpapi.Config
	version string
}

// call is one request. The SDK makes a stream's events in a goroutine of its own, which it does not wait for.
type call struct {
	q    *httpapi.Request
	live *objects.Capability

	streaming sync.Mutex // held while events are made
	over      bool       // guarded by streaming: the request is answered

	mu   sync.Mutex
	held []func() // release what is charged for what is not written yet
}

// begin locks streaming, unless the request is answered.
func (c *call) begin() bool {
	c.streaming.Lock()
	if c.over {
		c.streaming.Unlock()
	}
	return !c.over
}

// charged keeps what is charged for a part of the answer, which the SDK has by now, until that is written.
func (c *call) charged(held []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = append(c.held, held...)
}

// written releases what is charged for what is written.
func (c *call) written() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, release := range c.held {
		release()
	}
	c.held = nil
}

// end waits until no more events are made. The call's context has ended.
func (c *call) end() {
	c.streaming.Lock()
	c.over = true
	c.streaming.Unlock()
	c.written()
}

type callKey struct{}

// pass returns a handler that restores a request's ref, which is one of a session, and has the SDK's handler answer it.
// long says of its body whether the answer may take longer than a request does.
func (s *server) pass(handler http.Handler, long func(body []byte) bool) httpapi.Handler {
	return func(q *httpapi.Request) *fault.Error {
		ctx, cancel := context.WithCancel(q.ClientCtx)
		defer cancel()
		shown, refused := q.Credentials()
		if refused != nil {
			return refused
		}
		live, refused := q.Restore(ctx, &shown)
		if refused != nil {
			return refused
		}
		if live.IsSpace() {
			return fault.BadArgument.With("the ref is one of a space: show a ref of the session whose agent is meant, which mooring share makes")
		}
		if v := q.Header.Get(a2a.SvcParamVersion); v != "" && v != string(a2a.Version) {
			return fault.Incompatible.With("the version %q of the protocol is not served: use %s", fault.Clip(v), a2a.Version)
		}
		body, done, refused := q.BufferBody(live.Ref())
		if refused != nil {
			return refused
		}
		defer done()
		if long(body) {
			if refused := q.BeginStream(); refused != nil {
				return refused
			}
		} else {
			stop := context.AfterFunc(q.Context(), cancel)
			defer stop()
		}
		c := &call{q: q, live: live}
		defer func() {
			cancel()
			c.end()
		}()
		ctx = log.AttachLogger(context.WithValue(ctx, callKey{}, c), s.cfg.Log)
		h := q.W.Header()
		handler.ServeHTTP(flusher{q.W, c, h["Connection"], h["Cache-Control"]}, q.WithContext(ctx))
		return nil
	}
}

// flusher is an http.Flusher, which the SDK asks for.
type flusher struct {
	*httpkit.PacedWriter
	call              *call
	connection, cache []string // of the answer's header
}

// WriteHeader implements http.ResponseWriter. The SDK has headers of its own for streams, by which their connections would be kept.
func (w flusher) WriteHeader(status int) {
	h := w.Header()
	h["Cache-Control"] = w.cache
	if delete(h, "Connection"); w.connection != nil {
		h["Connection"] = w.connection
	}
	w.PacedWriter.WriteHeader(status)
}

// Flush implements http.Flusher. After one that failed the next write fails, too.
func (w flusher) Flush() {
	_ = w.PacedWriter.Flush()
	w.call.written()
}

// callOf returns the call that a context has.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }
