// Middleware for every request over HTTP: it has an id, which its answer and the log name, and it
// is answered even if its handler panics.

package node

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/incident"
)

// RequestHeader is the header with the request's id in every answer over HTTP.
const RequestHeader = "Mooring-Request"

// withRequestID gives each request an id and logs each that was refused. The log line has the
// pattern that the path matches, not the path, which may be a secret.
func (s *Server) withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		id := incident.New()
		w.Header().Set(RequestHeader, id)
		r = r.WithContext(incident.NewContext(r.Context(), id))
		a := &statusWriter{ResponseWriter: w}
		defer func() {
			p, cut := recover(), a.status != 0
			if p != nil && p != http.ErrAbortHandler {
				s.answerPanic(a, r, p)
			}
			s.instruments.CountRequest(r.Pattern, a.status)
			if a.status >= http.StatusBadRequest || a.code != fault.None {
				s.log.Debug("request refused", "request", id, "method", r.Method, "route", r.Pattern, "status", a.status, "code", a.code,
					"took", time.Since(began), "peer", r.RemoteAddr)
			}
			if p != nil && (cut || p == http.ErrAbortHandler) {
				panic(http.ErrAbortHandler) // half an answer must not look complete
			}
		}()
		next.ServeHTTP(a, r)
	})
}

// answerPanic answers a request whose handler panicked, unless an answer was begun.
func (s *Server) answerPanic(a *statusWriter, r *http.Request, p any) {
	f := s.LogPanic(r, p)
	s.Refused(a, f)
	if a.status == 0 {
		for name := range a.Header() { // the handler's headers were for another answer
			if name != RequestHeader {
				a.Header().Del(name)
			}
		}
		httpkit.WriteText(a, f.Code.HTTPStatus(), f.Message+"\n")
	}
}

// LogPanic logs the panic of a handler and returns the fault for the client: it contains the
// request's id, by which the log has it.
func (s *Server) LogPanic(r *http.Request, p any) *fault.Error {
	id := incident.FromContext(r.Context())
	s.log.Error("a request's handler panicked", "incident", id, slog.String("panic", fmt.Sprint(p)), "method", r.Method, "route", r.Pattern,
		"peer", r.RemoteAddr, "stack", string(debug.Stack()))
	return fault.Internal.With("%s", incident.Internal(id))
}

// Refused counts a refusal by its code, and makes the log line of the request that w answers name
// it. w is nil for a call over a handler's own wire. Each refusal is counted once, where it is sent:
// one returned to a caller within the process is not, since the caller may react to it.
func (s *Server) Refused(w http.ResponseWriter, f *fault.Error) {
	s.instruments.CountRefusal(f)
	for w != nil {
		switch at := w.(type) {
		case *statusWriter:
			at.code = f.Code
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = at.Unwrap()
		default:
			return
		}
	}
}

// statusWriter records the status and refusal of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int        // 0 until the head is written
	code   fault.Code // of the refusal, if it is one
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap supports http.ResponseController, and upgrades to a WebSocket.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ObserveRequest measures a request to a mounted handler that began at began and is answered now.
func (s *Server) ObserveRequest(began time.Time) {
	s.instruments.API.Observe(time.Since(began).Seconds())
}
