package mcphttp

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/mcpserver"
)

// Path is where the handler is mounted.
const Path = "/mcp"

// The protocol's headers, and the first of its versions without sessions.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	sessionless   = "2026-07-28"
)

// bodyBytes bounds a request's body.
const bodyBytes = 2 << 20

// Config configures a Handler. Config.Server is required; other zero fields take the defaults given. Config.BodyBytes is not used.
type Config struct {
	httpapi.Config
	Allow   []string // what is allowed beside reading (mcpserver.AllowAppend, AllowAsk), where a ref allows it
	Version string

	Sessions       int           // at once, of about 22 KB each; 1024
	SessionsPerRef int           // of one ref; 256
	IdleTimeout    time.Duration // for which a session may have no request; 10 minutes
}

// Handler serves Path. It is safe for concurrent use.
type Handler struct {
	http.Handler       // of package httpapi: it admits requests
	cfg                Config
	stateful, separate *mcp.StreamableHTTPHandler // of clients with and without sessions

	mu       sync.Mutex
	sessions map[string]*clientSession
	closed   bool
}

// New returns a handler, to be mounted at Path.
func New(cfg Config) *Handler {
	cfg.BodyBytes = bodyBytes
	cfg.Config = cfg.WithDefaults()
	defaults.Set(&cfg.Sessions, 1024)
	defaults.Set(&cfg.SessionsPerRef, 256)
	defaults.Set(&cfg.IdleTimeout, 10*time.Minute)
	h := &Handler{cfg: cfg, sessions: map[string]*clientSession{}}
	h.Handler = httpapi.NewHandler(cfg.Config, httpapi.HandlerOptions{Path: Path, Refusal: writeRefusal, Expose: sessionHeader, Routes: httpapi.RouteTable{
		Path: {http.MethodGet: h.serveGet, http.MethodPost: h.servePost, http.MethodDelete: h.serveDelete},
	}})
	// The hosts by which the server may be called over loopback are checked for all of its handlers alike.
	o := mcp.StreamableHTTPOptions{JSONResponse: true, DisableLocalhostProtection: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: bodyBytes}
	h.stateful = mcp.NewStreamableHTTPHandler(serverOf, &o)
	o.Stateless = true
	h.separate = mcp.NewStreamableHTTPHandler(serverOf, &o)
	return h
}

// serverKey is the key of a request's server in its context.
type serverKey struct{}

func serverOf(r *http.Request) *mcp.Server {
	s, _ := r.Context().Value(serverKey{}).(*mcp.Server)
	return s
}

// Close ends all sessions. Later requests are refused.
func (h *Handler) Close() {
	h.mu.Lock()
	h.closed = true
	all := h.sessions
	h.sessions = map[string]*clientSession{}
	h.mu.Unlock()
	for _, s := range all {
		s.end()
	}
}

// writeRefusal writes a refusal as an error of JSON-RPC.
func writeRefusal(w http.ResponseWriter, status int, f *fault.Error) {
	httpkit.WriteJSON(w, status, httpkit.JSON(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{
		"code": -32000, "message": f.Error(), "data": map[string]any{"code": f.Code.String(), "number": uint16(f.Code)}}}))
}

// serveGet serves the stream of a session.
func (h *Handler) serveGet(q *httpapi.Request) *fault.Error {
	return h.ofSession(q, func(s *clientSession) *fault.Error { return h.stream(q, s.server, h.stateful) })
}

// serveDelete ends a session.
func (h *Handler) serveDelete(q *httpapi.Request) *fault.Error {
	return h.ofSession(q, func(s *clientSession) *fault.Error {
		defer h.drop(s, false)
		return h.answer(q, s)
	})
}

// servePost serves messages: the first of a session, one of a session, or one of a client without sessions.
func (h *Handler) servePost(q *httpapi.Request) *fault.Error {
	switch {
	case q.Header.Get(versionHeader) >= sessionless:
		return h.answerSeparate(q)
	case q.Header.Get(sessionHeader) != "":
		return h.ofSession(q, func(s *clientSession) *fault.Error { return h.answer(q, s) })
	}
	c, refused := q.Credentials()
	if refused != nil {
		return refused
	}
	s, refused := h.begin(q, &c)
	if refused != nil {
		return refused
	}
	defer h.leave(s)
	return h.answer(q, s)
}

// ofSession calls do with the session that a request names, and is of.
func (h *Handler) ofSession(q *httpapi.Request, do func(*clientSession) *fault.Error) *fault.Error {
	c, refused := q.Credentials()
	if refused != nil {
		return refused
	}
	id := q.Header.Get(sessionHeader)
	if id == "" {
		return fault.BadArgument.With("%s is missing: a session begins with a POST of initialize", sessionHeader)
	}
	s, refused := h.session(q, id, &c)
	if refused != nil {
		return refused
	}
	defer h.leave(s)
	return do(s)
}

// answer answers a request of a session.
func (h *Handler) answer(q *httpapi.Request, s *clientSession) *fault.Error {
	_, done, refused := q.BufferBody(s.ref)
	if refused != nil {
		return refused
	}
	defer done()
	pass(q.ClientCtx, q.W, q, s.server, h.stateful)
	return nil
}

// answerSeparate answers a request of a client without sessions.
func (h *Handler) answerSeparate(q *httpapi.Request) *fault.Error {
	ctx, cancel := context.WithCancel(q.ClientCtx)
	defer cancel()
	c, refused := q.Credentials()
	if refused != nil {
		return refused
	}
	live, refused := q.Restore(ctx, &c)
	if refused != nil {
		return refused
	}
	_, done, refused := q.BufferBody(live.Ref())
	if refused != nil {
		return refused
	}
	defer done()
	server := h.newServer(ctx, source{live}, nil)
	if q.Header.Get("Mcp-Method") == "subscriptions/listen" { // which the protocol's server compares with the body
		return h.stream(q, server, h.separate)
	}
	pass(ctx, q.W, q, server, h.separate)
	return nil
}

func (h *Handler) newServer(ctx context.Context, from mcpserver.Source, sessionID func() string) *mcp.Server {
	return mcpserver.New(ctx, mcpserver.Config{Source: from, Allow: h.cfg.Allow, Version: h.cfg.Version, Log: h.cfg.Log, SessionID: sessionID,
		Refused: func(f *fault.Error) { h.cfg.Server.Refused(nil, f) }})
}

// pass has the protocol's server answer a request.
func pass(ctx context.Context, w http.ResponseWriter, q *httpapi.Request, server *mcp.Server, handler http.Handler) {
	handler.ServeHTTP(w, q.WithContext(context.WithValue(ctx, serverKey{}, server)))
}

// stream answers with a stream of events, which ends when the client goes or the server drains.
func (h *Handler) stream(q *httpapi.Request, server *mcp.Server, handler http.Handler) *fault.Error {
	if refused := q.BeginStream(); refused != nil {
		return refused
	}
	ctx, cancel := context.WithCancel(q.ClientCtx)
	defer cancel()
	events := &eventWriter{PacedWriter: q.W}
	var beats sync.WaitGroup
	defer beats.Wait()
	defer cancel()
	beats.Go(func() {
		t := time.NewTicker(h.cfg.Heartbeat)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-h.cfg.Server.Draining():
				cancel()
				return
			case <-t.C:
				if events.beat() != nil {
					cancel()
					return
				}
			}
		}
	})
	q.W.Header().Set("X-Accel-Buffering", "no")
	pass(ctx, events, q, server, handler)
	return nil
}

// eventWriter writes a stream of events, and comments between them.
type eventWriter struct {
	*httpkit.PacedWriter
	mu     sync.Mutex
	stream bool // it is one, and no refusal
	inside bool // an event has begun and not ended
}

// WriteHeader implements http.ResponseWriter.
func (w *eventWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stream = status == http.StatusOK
	w.PacedWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *eventWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.Started() {
		w.stream = true
	}
	w.inside = !bytes.HasSuffix(b, []byte("\n\n"))
	return w.PacedWriter.Write(b)
}

// Flush implements http.Flusher.
func (w *eventWriter) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.PacedWriter.Flush() // the next write fails, too
}

// FlushError is for http.ResponseController.
func (w *eventWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.PacedWriter.Flush()
}

// beat writes a comment, to detect a dead connection, and to keep a silent one from being cut.
func (w *eventWriter) beat() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stream || w.inside {
		return nil
	}
	_, err := w.PacedWriter.Write([]byte(": hb\n\n"))
	if err == nil {
		err = w.PacedWriter.Flush()
	}
	return err
}
