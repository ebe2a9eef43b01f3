// HTTP: the WebSocket endpoints, health checks, and mounted handlers.

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/internal/origin"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/rpc"
)

// Handler serves GET /capnp (the WebSocket endpoint), /rpc (Cap'n Web: GET for a WebSocket, POST
// for a batch), /healthz (the process is alive), /readyz (it accepts connections, its database
// answers, and no outage of commits is known), and the mounted handlers, at the root and, if Config
// names a prefix, below it too. Another http.Server than Serve's may serve it, after Start.
// Requests over loopback must name a host of this server.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, prefix := range s.prefixes() {
		mux.HandleFunc("GET "+prefix+"/capnp", s.serveCapnpSocket)
		mux.HandleFunc(prefix+"/rpc", s.serveCapnweb)
		mux.HandleFunc("GET "+prefix+"/healthz", func(w http.ResponseWriter, _ *http.Request) {
			httpkit.WriteText(w, http.StatusOK, "ok\n")
		})
		mux.HandleFunc("GET "+prefix+"/readyz", s.serveReady)
		for path, handler := range s.mounts {
			if strings.HasPrefix(path, "/api/v1") {
				handler = s.withHistory(handler)
			}
			mux.Handle(prefix+path, http.StripPrefix(prefix, handler))
		}
	}
	hosts := origin.Hosts{Names: s.cfg.Hosts, Patterns: s.cfg.OriginPatterns}
	own, foreign := s.withRequestID(hosts.Guard(mux)), s.withRequestID(hosts.Guard(s.countForeign(mux)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.handshakes.RequestReceived(r.Context()) {
			own.ServeHTTP(w, r)
		} else {
			foreign.ServeHTTP(w, r)
		}
		drainBody(w, r)
	})
}

// countForeign counts requests that another http.Server has received, since Serve's own waits for
// its requests by itself: drain waits for their end, and cuts off what does not end. While the
// server drains it refuses them, except for those that refuse by themselves or say how the server
// is: /healthz, /readyz and /api/v1.
func (s *Server) countForeign(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, refused := s.connections.AdmitForeign()
		switch {
		case refused == nil:
			defer done()
			counted, ended := s.cutOffInTheEnd(w, r)
			defer ended()
			defer func() { r.Pattern = counted.Pattern }() // which metrics count by
			next.ServeHTTP(w, counted)
		case s.refusesItself(r.URL.Path):
			next.ServeHTTP(w, r)
		default:
			s.unavailable(w, refused)
		}
	})
}

// refusesItself reports whether the endpoint at a path answers while the server drains.
func (s *Server) refusesItself(path string) bool {
	return slices.ContainsFunc(s.prefixes(), func(prefix string) bool {
		below, ok := strings.CutPrefix(path, prefix)
		return ok && (below == "/healthz" || below == "/readyz" || strings.HasPrefix(below, "/api/v1/"))
	})
}

// cutOffInTheEnd returns a request that ends when the last connections are cut off. The caller
// calls ended when it has been answered. A request that cannot be cut off, since its ResponseWriter
// has no deadlines, ends drain's wait if it does not end by itself.
func (s *Server) cutOffInTheEnd(w http.ResponseWriter, r *http.Request) (_ *http.Request, ended func()) {
	ctx, cancel := context.WithCancel(r.Context())
	cut := make(chan struct{})
	var abandon *time.Timer // set before cut is closed
	stop := context.AfterFunc(s.connCtx, func() {
		defer close(cut)
		cancel()
		conn := http.NewResponseController(w)
		if err := errors.Join(conn.SetReadDeadline(time.Now()), conn.SetWriteDeadline(time.Now())); err != nil {
			abandon = time.AfterFunc(s.cfg.DrainTimeout/8, func() { // half of what drain leaves
				s.log.Warn("a request that does not end was abandoned", "request", incident.FromContext(ctx), "error", err)
				s.abandonRequests()
			})
		}
	})
	return r.WithContext(ctx), func() {
		if !stop() {
			<-cut // w is not used after the request
		}
		if abandon != nil {
			abandon.Stop()
		}
		cancel()
	}
}

// Refuse refuses all requests from now on, of a server that has not been started.
func (s *Server) Refuse() { s.connections.Drain() }

// maxDrainBytes is how much of an unread body net/http reads.
const maxDrainBytes = 256 << 10

// drainBody reads the rest of a body whose sender asks for the connection to be closed after the
// answer. net/http does that only for connections that are kept; it would close this one at once,
// and a sender still sending, such as a proxy, would lose the answer. Methods that read have no
// body to wait for, and a GET may be a WebSocket by now, which others read.
func drainBody(w http.ResponseWriter, r *http.Request) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if r.Close && !reads && r.ContentLength != 0 && r.Header.Get("Expect") == "" {
		// If there is more, the reader makes net/http wait a while before it closes.
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxDrainBytes))
	}
}

func (s *Server) prefixes() []string {
	if s.cfg.Prefix == "" {
		return []string{""}
	}
	return []string{"", "/" + s.cfg.Prefix}
}

// readyTimeout bounds the database's answer to a readiness check.
const readyTimeout = 2 * time.Second

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	if s.drainAnnounced.Load() || s.connections.IsDraining() {
		httpkit.WriteText(w, http.StatusServiceUnavailable, "draining\n")
		return
	}
	if cause, why, since := s.outage.Current(); cause != dbfault.None {
		httpkit.WriteText(w, http.StatusServiceUnavailable, fmt.Sprintf("nothing can be committed for %s (%s): %s\n", time.Since(since).Round(time.Second), cause, why))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	err := s.cfg.Store.Ping(ctx)
	if err == nil {
		err = s.loadHistory(ctx)
	}
	if err != nil {
		level := slog.LevelWarn
		if cause := dbfault.Of(err); cause != dbfault.None { // an outage that lasts is logged once
			s.outage.Suspect(cause)
			level = slog.LevelDebug
		}
		s.log.Log(r.Context(), level, "not ready", "error", err)
		why := "the database does not answer"
		if f, ok := errors.AsType[*fault.Error](err); ok && !errors.Is(err, context.DeadlineExceeded) {
			why = f.Message
		}
		httpkit.WriteText(w, http.StatusServiceUnavailable, why+"\n")
		return
	}
	message := "ready"
	if have, limit, short := s.cfg.Store.PoolStats(); short {
		message += fmt.Sprintf(", with %d of %d connections to the database: there are no more to be had", have, limit)
	}
	httpkit.WriteText(w, http.StatusOK, message+"\nhistory "+s.historyID()+"\n")
}

// serveCapnpSocket upgrades a request to an rpc connection.
func (s *Server) serveCapnpSocket(w http.ResponseWriter, r *http.Request) {
	s.serveUpgrade(w, r, func() (serve func(), err error) {
		t, err := rpc.Accept(w, r, rpc.AcceptOptions{OriginPatterns: s.cfg.OriginPatterns})
		return func() { s.serve(t) }, err
	})
}

// serveUpgrade upgrades a request to a connection, which is served by a goroutine of its own: the
// request's memory is freed at once, so that an idle connection costs little. The handshake
// refuses browsers of other origins.
func (s *Server) serveUpgrade(w http.ResponseWriter, r *http.Request, accept func() (serve func(), err error)) {
	done, refused := s.connections.Admit(r.RemoteAddr)
	if refused != nil {
		s.unavailable(w, refused)
		return
	}
	serve, err := accept()
	if err != nil {
		done()
		s.log.Info("handshake refused", "request", incident.FromContext(r.Context()), "peer", r.RemoteAddr, "error", err)
		return
	}
	go func() {
		defer done()
		serve()
	}()
}

// newHTTPServer returns the HTTP server, with bounds on the resources of a stranger before the
// upgrade to a connection.
func (s *Server) newHTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.Handler(),
		ConnState:         s.handshakes.Track,
		ConnContext:       admission.WithConn,
		ReadHeaderTimeout: s.cfg.RPC.HandshakeTimeout,
		ReadTimeout:       s.cfg.RPC.HandshakeTimeout, // a WebSocket is exempt from both, a batch has its own
		WriteTimeout:      s.cfg.RPC.HandshakeTimeout + readyTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             h2Limits(s.cfg.RPC.WriteTimeout),
		ErrorLog:          log.New(logWriter{s.log}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return s.connCtx },
	}
}

// h2Limits bounds one connection of HTTP/2 to the resources of a few of HTTP/1.1. Clients open
// WebSockets over HTTP/1.1.
func h2Limits(stall time.Duration) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          100,
		MaxReceiveBufferPerConnection: 256 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		MaxReadFrameSize:              16 << 10,
		MaxDecoderHeaderTableSize:     4 << 10,
		MaxEncoderHeaderTableSize:     4 << 10,
		WriteByteTimeout:              stall,
	}
}

// Caller returns the caller of a request from remote (http.Request.RemoteAddr).
func (s *Server) Caller(ctx context.Context, remote string) *objects.Caller {
	return s.objects.Caller(ctx, remote)
}

// Mount serves a handler at path, and below it if it ends in a slash, at the root and below
// Config.Prefix, which is stripped for it. It is called before Run and Handler.
func (s *Server) Mount(path string, handler http.Handler) { s.mounts[path] = handler }

// Admit counts a long answer over HTTP (server-sent events, a WebSocket of a mounted handler) as a
// connection. If the error is nil, the handler calls done at its end, and ends it when the server
// drains: subscriptions end then by themselves.
func (s *Server) Admit(remote string) (done func(), err error) {
	done, refused := s.connections.Admit(remote)
	if refused != nil {
		return nil, refused
	}
	return done, nil
}

// Draining returns a channel that is closed when the server begins to drain: a handler ends
// connections without a subscription then.
func (s *Server) Draining() <-chan struct{} { return s.connections.Draining() }
