// Package httpapi is Mooring for whoever has HTTP and nothing else: sessions are
// read, followed, appended to and shared by requests below /api/v1, each under a
// ref in its Authorization header. openapi.json describes all of it and is served
// with it.
//
// A request's way: this file lets it in and finds its route, request.go turns its
// ref into a live capability of the server, body.go and json.go read what it
// carries, and batch.go, events.go, snapshot.go, sessions.go and refs.go do what is
// asked; answer.go says what came of it. No rule of what a ref allows or of what
// becomes of an op is written here: those are the server's, as over the other wires.
package httpapi

import (
	"context"
	_ "embed" // openapi.json
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/origin"
	"github.com/mooring-rpc/mooring/server"
)

// Path is where the API is mounted.
const Path = "/api/v1/"

// Config is what an API works with. Server is required; other zero fields take the
// values named.
type Config struct {
	Server  *server.Server
	Address capability.Ref // where clients reach the server: in the texts of refs that are minted here
	Origins []string       // of pages let in besides those of the server's own host, as for /rpc
	Log     *slog.Logger   // nil discards; never gets a secret

	BodyBytes    int           // of one request's body; 32 MiB
	Timeout      time.Duration // a request's time, from its head to its answer, but for streams; a minute
	StallTimeout time.Duration // a client that takes nothing for so long is left; 10 s
	Heartbeat    time.Duration // a stream that says nothing says so this often; 15 s
}

func (c Config) withDefaults() Config {
	if c.BodyBytes <= 0 {
		c.BodyBytes = 32 << 20
	}
	for _, f := range []struct {
		have *time.Duration
		want time.Duration
	}{{&c.Timeout, time.Minute}, {&c.StallTimeout, 10 * time.Second}, {&c.Heartbeat, 15 * time.Second}} {
		if *f.have <= 0 {
			*f.have = f.want
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

//go:embed openapi.json
var description []byte

// Description is the OpenAPI description of the API, as it is served.
func Description() []byte { return slices.Clone(description) }

// API serves everything below Path. It is safe for concurrent use.
type API struct {
	cfg Config
	mux *http.ServeMux
}

// New makes an API, to be mounted at Path.
func New(cfg Config) *API {
	a := &API{cfg: cfg.withDefaults(), mux: http.NewServeMux()}
	for pattern, methods := range a.routes() {
		a.mux.Handle(pattern, a.byMethod(methods))
	}
	a.mux.Handle(Path, a.byMethod(nil))
	return a
}

// handler does a request, or says why not.
type handler func(*request) *fault.Error

// routes are the handlers by pattern and method.
func (a *API) routes() map[string]map[string]handler {
	return map[string]map[string]handler{
		Path + "openapi.json":                {http.MethodGet: serveDescription},
		Path + "spaces/{id}/sessions":        {http.MethodGet: listSessions, http.MethodPost: createSession},
		Path + "spaces/{id}/refs":            {http.MethodGet: listSpaceRefs},
		Path + "sessions/{id}":               {http.MethodGet: describeSession},
		Path + "sessions/{id}/events":        {http.MethodGet: serveEvents},
		Path + "sessions/{id}/snapshot":      {http.MethodGet: serveSnapshot},
		Path + "sessions/{id}/batches":       {http.MethodPost: applyBatch},
		Path + "sessions/{id}/refs":          {http.MethodGet: listRefs, http.MethodPost: shareSession},
		Path + "sessions/{id}/refs/{ref_id}": {http.MethodDelete: revokeRef},
	}
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// byMethod serves a path with these methods; nil for a path that there is not.
func (a *API) byMethod(methods map[string]handler) http.Handler {
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
			a.answerError(w, http.StatusForbidden, fault.MissingRight.With("pages of this origin are not let in: mooring serve --allow-origin names those that are"))
			return
		}
		do, ok := methods[r.Method]
		switch {
		case methods == nil:
			a.answerError(w, http.StatusNotFound, fault.NotFound.With("there is nothing at this path: %sopenapi.json says what there is", Path))
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

// serve does a request that was let in. It counts as a connection until it is
// answered, and has a time of its own: the HTTP server's is for what is answered at
// once.
func (a *API) serve(w http.ResponseWriter, r *http.Request, do handler) {
	done, err := a.cfg.Server.Admit(r.RemoteAddr)
	if err != nil {
		a.refuse(w, a.toFault(r.Context(), err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.Timeout)
	defer cancel()
	q := &request{api: a, Request: r.WithContext(ctx), w: &deadlineWriter{ResponseWriter: w, stallTimeout: a.cfg.StallTimeout}, clientCtx: r.Context(), done: done}
	defer q.release()
	began := time.Now()
	_ = http.NewResponseController(w).SetReadDeadline(began.Add(a.cfg.Timeout)) // a server that cannot has no deadlines either
	refused := q.catchPanic(do)
	if !q.streaming {
		defer a.cfg.Server.ObserveRequest(began)
	}
	switch {
	case refused == nil:
	case q.w.wroteHeader: // half an answer must not look like a whole one
		a.cfg.Server.Refused(w, refused)
		a.cfg.Log.Debug("an answer was cut off", "request", server.RequestID(ctx), "peer", r.RemoteAddr, "error", refused)
		panic(http.ErrAbortHandler)
	default:
		a.refuse(q.w, refused)
	}
}

// catchPanic does a request. A panic is a refusal.
func (q *request) catchPanic(do handler) (refused *fault.Error) {
	defer func() {
		if p := recover(); p != nil {
			refused = q.api.cfg.Server.LogPanic(q.Request, p)
		}
	}()
	return do(q)
}

// toFault is what a client is told of an error of the server.
func (a *API) toFault(ctx context.Context, err error) *fault.Error {
	return toFault(a.cfg.Log, server.RequestID(ctx), err)
}
