package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/httpref"
	"github.com/mooring-rpc/mooring/internal/mcpserver"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/origin"
	"github.com/mooring-rpc/mooring/internal/server/node"
)

// Path is where the handler is mounted.
const Path = "/mcp"

// The protocol's headers, and the first of its versions without sessions.
const (
	sessionHeader  = "Mcp-Session-Id"
	versionHeader  = "Mcp-Protocol-Version"
	sessionless    = "2026-07-28"
	methodsAllowed = "GET, POST, DELETE"
)

// bytesPerStall is how many bytes a client must read in each Config.StallTimeout.
const bytesPerStall = 64 << 10

// Config configures a Handler. Server is required; other zero fields take the defaults given.
type Config struct {
	Server  *node.Server
	Origins []string // of pages allowed besides those of the server's own host, as for /rpc
	Allow   []string // what is allowed beside reading (mcpserver.AllowAppend, AllowAsk), where a ref allows it
	Version string
	Log     *slog.Logger // nil discards; never gets a secret

	BodyBytes    int           // of one request's body; 2 MiB
	Timeout      time.Duration // from a request's head to its answer, except streams; a minute
	StallTimeout time.Duration // a client that takes nothing for this long is disconnected; 10 s
	Heartbeat    time.Duration // interval on a silent stream; 15 s

	Sessions       int           // at once, of about 22 KB each; 1024
	SessionsPerRef int           // of one ref; 256
	IdleTimeout    time.Duration // for which a session may have no request; 10 minutes
}

// Handler serves Path. It is safe for concurrent use.
type Handler struct {
	cfg                Config
	stateful, separate *mcp.StreamableHTTPHandler // of clients with and without sessions

	mu       sync.Mutex
	sessions map[string]*clientSession
	closed   bool
}

// New returns a handler, to be mounted at Path.
func New(cfg Config) *Handler {
	defaults.Fill(&cfg, Config{Log: slog.New(slog.DiscardHandler), BodyBytes: 2 << 20, Timeout: time.Minute, StallTimeout: 10 * time.Second, Heartbeat: 15 * time.Second,
		Sessions: 1024, SessionsPerRef: 256, IdleTimeout: 10 * time.Minute})
	h := &Handler{cfg: cfg, sessions: map[string]*clientSession{}}
	// The hosts by which the server may be called over loopback are checked for all of its handlers alike.
	o := mcp.StreamableHTTPOptions{JSONResponse: true, DisableLocalhostProtection: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: int64(cfg.BodyBytes)}
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

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if !origin.Admit(w, r, h.cfg.Origins) {
		h.refuse(w, http.StatusForbidden, fault.MissingRight.With("pages of this origin are not allowed: the server's operator can allow them (mooring serve --allow-origin, or server.Config.Origins)"))
		return
	}
	if head.Get("Access-Control-Allow-Origin") != "" {
		head.Add("Access-Control-Expose-Headers", sessionHeader)
	}
	switch {
	case origin.IsPreflight(r):
		origin.Preflight(w, r, methodsAllowed)
	case r.Method == http.MethodGet, r.Method == http.MethodPost, r.Method == http.MethodDelete:
		h.serve(w, r)
	default:
		head.Set("Allow", methodsAllowed)
		h.refuse(w, http.StatusMethodNotAllowed, fault.UnknownMethod.With("this path takes %s", methodsAllowed))
	}
}

// request is one admitted request.
type request struct {
	*http.Request
	h    *Handler
	w    *httpkit.PacedWriter
	done func() // ends its count as a connection
}

// serve handles an admitted request. It counts as a connection until it is answered, and has its own deadlines, as a
// request of package httpapi.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	q := &request{Request: r, h: h, w: httpkit.NewPacedWriter(w, httpkit.Pace{PieceBytes: bytesPerStall, PieceTime: h.cfg.StallTimeout})}
	done, err := h.cfg.Server.Admit(r.RemoteAddr)
	if err != nil {
		h.refuse(w, 0, h.toFault(err))
		return
	}
	q.done = done
	defer func() { q.done() }()
	began := time.Now()
	_ = http.NewResponseController(w).SetReadDeadline(began.Add(h.cfg.Timeout)) // a server without support has no deadlines either
	refused := func() (refused *fault.Error) {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				refused = h.cfg.Server.LogPanic(r, p)
			}
		}()
		return q.answer()
	}()
	switch {
	case refused == nil:
	case q.w.Started():
		h.cfg.Server.Refused(w, refused)
		panic(http.ErrAbortHandler)
	default:
		h.refuse(q.w, 0, refused)
	}
	if r.Method != http.MethodGet {
		h.cfg.Server.ObserveRequest(began)
	}
}

func (h *Handler) toFault(err error) *fault.Error { return fault.From(h.cfg.Log, err, "answer") }

// refuse answers with a fault, as an error of JSON-RPC. status is 0 for the code's own.
func (h *Handler) refuse(w http.ResponseWriter, status int, f *fault.Error) {
	if status == 0 {
		status = f.Code.HTTPStatus()
		httpkit.SetRetryAfter(w, f.Code)
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="mooring"`)
	}
	h.cfg.Server.Refused(w, f)
	httpkit.WriteJSON(w, status, httpkit.JSON(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{
		"code": -32000, "message": f.Error(), "data": map[string]any{"code": f.Code.String(), "number": uint16(f.Code)}}}))
}

// answer finds the request's ref and session and has the protocol's server answer it.
func (q *request) answer() *fault.Error {
	ref, refused := httpref.Bearer(q.Header)
	if refused != nil {
		return refused
	}
	if q.Header.Get(versionHeader) >= sessionless && q.Method == http.MethodPost {
		return q.answerSeparate(ref)
	}
	id := q.Header.Get(sessionHeader)
	var s *clientSession
	if id != "" {
		s, refused = q.h.session(q, id, ref)
	} else if q.Method == http.MethodPost {
		s, refused = q.h.begin(q, ref)
	} else {
		refused = fault.BadArgument.With("%s is missing: a session begins with a POST of initialize", sessionHeader)
	}
	if refused != nil {
		return refused
	}
	defer q.h.leave(s)
	if q.Method == http.MethodGet {
		return q.stream(s.server, q.h.stateful)
	}
	if refused := q.read(s.ref); refused != nil {
		return refused
	}
	defer q.Body.Close()
	q.pass(q.Context(), q.w, s.server, q.h.stateful)
	if q.Method == http.MethodDelete {
		q.h.drop(s, false)
	}
	return nil
}

// answerSeparate answers a request of a client without sessions.
func (q *request) answerSeparate(ref capability.Ref) *fault.Error {
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	live, err := httpref.Restore(q.h.cfg.Server.Caller(ctx, q.RemoteAddr), ref, q.Header)
	if err != nil {
		return q.h.toFault(err)
	}
	if refused := q.read(live.Ref()); refused != nil {
		return refused
	}
	defer q.Body.Close()
	server := q.h.newServer(ctx, source{live}, nil)
	if q.Header.Get("Mcp-Method") == "subscriptions/listen" { // which the protocol's server compares with the body
		return q.stream(server, q.h.separate)
	}
	q.pass(ctx, q.w, server, q.h.separate)
	return nil
}

func (h *Handler) newServer(ctx context.Context, from mcpserver.Source, sessionID func() string) *mcp.Server {
	return mcpserver.New(ctx, mcpserver.Config{Source: from, Allow: h.cfg.Allow, Version: h.cfg.Version, Log: h.cfg.Log, SessionID: sessionID,
		Refused: func(f *fault.Error) { h.cfg.Server.Refused(nil, f) }})
}

// pass has the protocol's server answer the request.
func (q *request) pass(ctx context.Context, w http.ResponseWriter, server *mcp.Server, handler http.Handler) {
	handler.ServeHTTP(w, q.WithContext(context.WithValue(ctx, serverKey{}, server)))
}

// bodyChunk is the initial capacity of a body's buffer, in bytes.
const bodyChunk = 16 << 10

// charged is a body that was read, and the memory that it is charged with.
type charged struct {
	io.Reader
	memory *membudget.Account
}

// Close implements io.Closer.
func (c charged) Close() error { c.memory.Close(); return nil }

// read reads the body, charged to the ref. No body is read before its ref was restored.
func (q *request) read(ref string) *fault.Error {
	tooLarge := fault.TooLarge.With("the body has more than the %d bytes that a body may have", q.h.cfg.BodyBytes)
	if q.ContentLength > int64(q.h.cfg.BodyBytes) {
		return tooLarge
	}
	_, known := q.h.cfg.Server.MemoryBudgets()
	memory := known.Open(ref)
	text, err := httpkit.ReadBody(http.MaxBytesReader(q.w, q.Body, int64(q.h.cfg.BodyBytes)), bodyChunk, func(n int) error {
		if memory.TryGrow(int64(3 * n)) { // it is parsed twice
			return nil
		}
		return fault.Overloaded.With("the server's memory for this ref, or for all, is used up: try again later")
	})
	if err == nil {
		q.Request = q.WithContext(q.Context())
		q.Body = charged{bytes.NewReader(text), memory}
		return nil
	}
	memory.Close()
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return tooLarge
	}
	if refused, is := errors.AsType[*fault.Error](err); is {
		return refused
	}
	return fault.Malformed.Because(err, "the body did not come whole, or not in time")
}

// stream answers with a stream of events, which ends when the client goes or the server drains.
func (q *request) stream(server *mcp.Server, handler http.Handler) *fault.Error {
	q.done() // or it would count twice
	q.done = func() {}
	bare := *q.Request // of which a body was read
	bare.ContentLength = 0
	if q.Method == http.MethodGet {
		bare.ContentLength = q.ContentLength
	}
	done, err := q.h.cfg.Server.AdmitStream(q.w, &bare)
	if err != nil {
		return q.h.toFault(err)
	}
	q.done = done
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	events := &eventWriter{PacedWriter: q.w}
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() {
		t := time.NewTicker(q.h.cfg.Heartbeat)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-q.h.cfg.Server.Draining():
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
	q.w.Header().Set("X-Accel-Buffering", "no")
	q.pass(ctx, events, server, handler)
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
