package httpapi

// The API: its configuration, the admission of requests, and the table of routes.

import (
	"context"
	_ "embed" // openapi.json
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/internal/origin"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// bytesPerStall is how many bytes a client must read in each Config.StallTimeout. The whole
// answer's time is not bounded.
const bytesPerStall = 64 << 10

// Path is where the API is mounted.
const Path = "/api/v1/"

// Config configures an API. Server is required; other zero fields take the defaults given.
type Config struct {
	Server  *node.Server
	Address capability.Ref // where clients reach the server: in the texts of refs minted here
	Origins []string       // of pages allowed besides those of the server's own host, as for /rpc
	Log     *slog.Logger   // nil discards; never gets a secret

	BodyBytes    int           // of one request's body; 32 MiB
	Timeout      time.Duration // from a request's head to its answer, except streams; a minute
	StallTimeout time.Duration // a client that takes nothing for this long is disconnected; 10 s
	Heartbeat    time.Duration // interval on a silent stream; 15 s
}

// WithDefaults returns the Config with its defaults.
func (c Config) WithDefaults() Config {
	defaults.Fill(&c, Config{Log: slog.New(slog.DiscardHandler), BodyBytes: 32 << 20, Timeout: time.Minute, StallTimeout: 10 * time.Second, Heartbeat: 15 * time.Second})
	return c
}

// description is the OpenAPI description of the API.
//
//go:embed openapi.json
var description []byte

// API serves everything below Path, or what NewHandler was given. It is safe for concurrent use.
type API struct {
	cfg     Config
	mux     *http.ServeMux
	unknown string // says which paths there are
	refusal Refusal
	expose  string
}

// Refusal writes the answer to a request that is refused.
type Refusal func(w http.ResponseWriter, status int, f *fault.Error)

// HandlerOptions are what a handler has that is not the API's.
type HandlerOptions struct {
	Path    string // where it is mounted
	Routes  RouteTable
	Refusal Refusal
	Expose  string // a header of answers that pages of other origins may read; "" for none
}

// New returns an API, to be mounted at Path.
func New(cfg Config) *API {
	a := &API{cfg: cfg.WithDefaults(), unknown: Path + "openapi.json lists the paths", refusal: writeError}
	return a.route(Path, a.routes())
}

// NewHandler returns a handler of another protocol for sessions: it admits requests as the API does, restores their refs by the same
// rules, and has its own routes and form of errors.
func NewHandler(cfg Config, o HandlerOptions) *API {
	a := &API{cfg: cfg.WithDefaults(), refusal: o.Refusal, expose: o.Expose, unknown: "it has " + strings.Join(slices.Sorted(maps.Keys(o.Routes)), ", ")}
	return a.route(o.Path, o.Routes)
}

func (a *API) route(path string, routes RouteTable) *API {
	a.mux = http.NewServeMux()
	for pattern, methods := range routes {
		a.mux.Handle(pattern, a.byMethod(methods))
	}
	if routes[path] == nil {
		a.mux.Handle(path, a.byMethod(nil))
	}
	return a
}

// Handler handles a request; it returns why it refused, or nil.
type Handler func(*Request) *fault.Error

// liveHandler is a handler with the session or space of the path, to which the request's ref was restored.
type liveHandler func(*Request, *objects.Capability) *fault.Error

func ofSession(do liveHandler) Handler {
	return func(q *Request) *fault.Error {
		live, refused := q.Session(q.Context())
		if refused != nil {
			return refused
		}
		return do(q, live)
	}
}

func ofSpace(do liveHandler) Handler {
	return func(q *Request) *fault.Error {
		live, refused := q.space()
		if refused != nil {
			return refused
		}
		return do(q, live)
	}
}

// plain is do for a path without parameters.
func plain(do liveHandler) liveHandler {
	return func(q *Request, live *objects.Capability) *fault.Error {
		if _, refused := q.Query(); refused != nil {
			return refused
		}
		return do(q, live)
	}
}

// RouteTable has handlers by pattern and method.
type RouteTable map[string]map[string]Handler

// routes returns all handlers: those of sessions.go and the others.
func (a *API) routes() RouteTable {
	all := RouteTable{
		Path + "openapi.json":                {http.MethodGet: serveDescription},
		Path + "spaces/{id}":                 {http.MethodGet: ofSpace(plain(describeSpace))},
		Path + "spaces/{id}/audit":           {http.MethodGet: ofSpace(audit)},
		Path + "spaces/{id}/refs":            {http.MethodGet: ofSpace(listRefs), http.MethodPost: ofSpace(plain(share))},
		Path + "spaces/{id}/refs/{ref_id}":   {http.MethodDelete: ofSpace(plain(revokeSpaceRef))},
		Path + "spaces/{id}/rotate":          {http.MethodPost: ofSpace(plain(rotate))},
		Path + "spaces/{id}/older":           {http.MethodPost: ofSpace(plain(removeOlder))},
		Path + "sessions/{id}/audit":         {http.MethodGet: ofSession(audit)},
		Path + "sessions/{id}/events":        {http.MethodGet: serveEvents},
		Path + "sessions/{id}/snapshot":      {http.MethodGet: serveSnapshot},
		Path + "sessions/{id}/batches":       {http.MethodPost: ofSession(plain(applyBatch))},
		Path + "sessions/{id}/acknowledge":   {http.MethodPost: ofSession(plain(acknowledge))},
		Path + "sessions/{id}/refs":          {http.MethodGet: ofSession(listRefs), http.MethodPost: ofSession(plain(share))},
		Path + "sessions/{id}/refs/{ref_id}": {http.MethodDelete: ofSession(revokeRef)},
		Path + "sessions/{id}/rotate":        {http.MethodPost: ofSession(plain(rotate))},
	}
	maps.Copy(all, sessionRoutes)
	return all
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// byMethod serves a path with these methods; nil for an unknown path.
func (a *API) byMethod(methods map[string]Handler) http.Handler {
	names := make([]string, 0, len(methods)+1)
	for name := range methods {
		names = append(names, name)
	}
	slices.Sort(names)
	allowed := strings.Join(names, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if !origin.Admit(w, r, a.cfg.Origins) {
			a.answerError(w, http.StatusForbidden, fault.MissingRight.With("pages of this origin are not allowed: the server's operator can allow them (mooring serve --allow-origin, or server.Config.Origins)"))
			return
		}
		if a.expose != "" && h.Get("Access-Control-Allow-Origin") != "" {
			h.Add("Access-Control-Expose-Headers", a.expose)
		}
		do, ok := methods[r.Method]
		switch {
		case methods == nil:
			a.answerError(w, http.StatusNotFound, fault.NotFound.With("there is nothing at this path: %s", a.unknown))
		case origin.IsPreflight(r):
			origin.Preflight(w, r, allowed)
		case !ok:
			h.Set("Allow", allowed)
			a.answerError(w, http.StatusMethodNotAllowed, fault.UnknownMethod.With("this path takes %s", allowed))
		default:
			a.serve(w, r, do)
		}
	})
}

// serve handles an admitted request. It counts as a connection until it is answered, and has its
// own deadlines: the HTTP server's are for requests answered at once.
func (a *API) serve(w http.ResponseWriter, r *http.Request, do Handler) {
	done, err := a.cfg.Server.Admit(r.RemoteAddr)
	if err != nil {
		a.refuse(w, a.toFault(r.Context(), err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.Timeout)
	defer cancel()
	q := &Request{api: a, Request: r.WithContext(ctx), W: httpkit.NewPacedWriter(w, httpkit.Pace{PieceBytes: bytesPerStall, PieceTime: a.cfg.StallTimeout}), ClientCtx: r.Context(), done: done}
	defer q.release()
	began := time.Now()
	if r.ContentLength != 0 { // until the body is read (ReadBytes): one that ran out later would end the requests after this one on its connection
		_ = http.NewResponseController(w).SetReadDeadline(began.Add(a.cfg.Timeout)) // a server without support has no deadlines either
	}
	refused := q.catchPanic(do)
	if !q.streaming {
		defer a.cfg.Server.ObserveRequest(began)
	}
	switch {
	case refused == nil:
	case q.W.Started(): // a partial answer must not look like a whole one
		a.cfg.Server.Refused(w, refused)
		a.cfg.Log.Debug("an answer was cut off", "request", incident.FromContext(ctx), "peer", r.RemoteAddr, "error", refused)
		panic(http.ErrAbortHandler)
	default:
		a.refuse(q.W, refused)
	}
}

// catchPanic handles a request. A panic becomes a refusal.
func (q *Request) catchPanic(do Handler) (refused *fault.Error) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			panic(p)
		} else if p != nil {
			refused = q.api.cfg.Server.LogPanic(q.Request, p)
		}
	}()
	return do(q)
}

// toFault returns an error of the server as the client sees it.
func (a *API) toFault(ctx context.Context, err error) *fault.Error {
	return toFault(a.cfg.Log, incident.FromContext(ctx), err)
}
