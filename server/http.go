// The HTTP side: the WebSocket endpoint, and what a supervisor asks.

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/hostguard"
	"github.com/mooring-rpc/mooring/rpc"
)

// Handler serves GET /capnp (the WebSocket endpoint), /rpc (Cap'n Web: GET for a
// WebSocket, POST for a batch), /healthz (the process
// lives) and /readyz (it takes connections, its database answers, and nothing is known that
// keeps commits from succeeding), at the
// root and, where Config names a prefix, below it too, and what was mounted. It may
// itself be mounted in a server of one's own, together with Run. Whatever is asked
// for: over loopback it has to be asked of a host of the server's own.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, prefix := range s.prefixes() {
		mux.HandleFunc("GET "+prefix+"/capnp", s.serveCapnpSocket)
		mux.HandleFunc(prefix+"/rpc", s.serveCapnweb)
		mux.HandleFunc("GET "+prefix+"/healthz", func(w http.ResponseWriter, _ *http.Request) {
			writePlain(w, http.StatusOK, "ok\n")
		})
		mux.HandleFunc("GET "+prefix+"/readyz", s.serveReady)
		for path, face := range s.mounts {
			if strings.HasPrefix(path, "/api/v1") {
				face = s.withHistory(face)
			}
			mux.Handle(prefix+path, http.StripPrefix(prefix, face))
		}
	}
	own := s.withRequestID(hostguard.Hosts{Names: s.cfg.Hosts, Patterns: s.cfg.OriginPatterns}.Guard(mux))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handshakes.requestReceived(r.Context())
		own.ServeHTTP(w, r)
		drainBody(w, r)
	})
}

// maxDrainBytes is how much of a body net/http reads that nobody has asked for.
const maxDrainBytes = 256 << 10

// drainBody reads what is left of a body whose sender wants the connection closed after
// the answer. net/http does it for those who keep theirs: to these it would be closed
// at once, and who still sends, a proxy, say, then loses the answer with it. What is
// read takes no body, so none is waited for, and what began as a GET may be a WebSocket
// by now, which others read.
func drainBody(w http.ResponseWriter, r *http.Request) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if r.Close && !reads && r.ContentLength != 0 && r.Header.Get("Expect") == "" {
		// Where there is more, the reader has net/http wait a while before it closes.
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxDrainBytes))
	}
}

func (s *Server) prefixes() []string {
	if s.cfg.Prefix == "" {
		return []string{""}
	}
	return []string{"", "/" + s.cfg.Prefix}
}

func writePlain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// readyTimeout is how long the database may take to say that it is there.
const readyTimeout = 2 * time.Second

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	if s.drainAnnounced.Load() || s.draining() {
		writePlain(w, http.StatusServiceUnavailable, "draining\n")
		return
	}
	if cause, why, since := s.outage.current(); cause != dbfault.None {
		writePlain(w, http.StatusServiceUnavailable, fmt.Sprintf("nothing can be committed for %s (%s): %s\n", time.Since(since).Round(time.Second), cause, why))
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
		if cause := dbfault.Of(err); cause != dbfault.None { // if it lasts, that is said once
			s.outage.suspect(cause)
			level = slog.LevelDebug
		}
		s.log.Log(r.Context(), level, "not ready", "error", err)
		why := "the database does not answer"
		if f, ok := errors.AsType[*fault.Error](err); ok && !errors.Is(err, context.DeadlineExceeded) {
			why = f.Message
		}
		writePlain(w, http.StatusServiceUnavailable, why+"\n")
		return
	}
	said := "ready"
	if have, most, short := s.cfg.Store.PoolStats(); short {
		said += fmt.Sprintf(", with %d of %d connections to the database: there are no more to be had", have, most)
	}
	writePlain(w, http.StatusOK, said+"\nhistory "+s.historyID()+"\n")
}

// serveCapnpSocket turns a request into a connection of the vat.
func (s *Server) serveCapnpSocket(w http.ResponseWriter, r *http.Request) {
	s.serveUpgrade(w, r, func() (serve func(), err error) {
		t, err := rpc.Accept(w, r, rpc.AcceptOptions{OriginPatterns: s.cfg.OriginPatterns})
		return func() { s.serve(t) }, err
	})
}

// serveUpgrade turns a request into a connection, which is served by a goroutine
// of its own: what the request needed is given back at once, and an idle
// connection costs little. Browsers of other origins are refused by the handshake.
func (s *Server) serveUpgrade(w http.ResponseWriter, r *http.Request, accept func() (serve func(), err error)) {
	done, refused := s.admit(r.RemoteAddr)
	if refused != nil {
		s.unavailable(w, refused)
		return
	}
	serve, err := accept()
	if err != nil {
		done()
		s.log.Info("handshake refused", "request", RequestID(r.Context()), "peer", r.RemoteAddr, "error", err)
		return
	}
	go func() {
		defer done()
		serve()
	}()
}

// newHTTPServer is the server for ln, with bounds on what a stranger may hold open
// before it is a connection of the vat.
func (s *Server) newHTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.Handler(),
		ConnState:         s.handshakes.track,
		ConnContext:       withConn,
		ReadHeaderTimeout: s.cfg.RPC.HandshakeTimeout,
		ReadTimeout:       s.cfg.RPC.HandshakeTimeout, // a WebSocket has neither of these any more, a batch its own
		WriteTimeout:      s.cfg.RPC.HandshakeTimeout + readyTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             h2Limits(s.cfg.RPC.WriteTimeout),
		ErrorLog:          log.New(logWriter{s.log}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return s.connCtx },
	}
}

// h2Limits bound what one connection of HTTP/2 may hold, which is as much as several
// of HTTP/1.1 do. Clients that want a WebSocket make one of HTTP/1.1 for it.
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
