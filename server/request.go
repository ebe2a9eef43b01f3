// What holds for every request over HTTP, at all doors: it has an id, which its answer and
// the log name, and it is answered even where its handler panics.

package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/incident"
)

// RequestHeader names the request's id in every answer over HTTP.
const RequestHeader = "Mooring-Request"

// RequestID is the id of the request that w answers; "" if no Server has it served.
func RequestID(w http.ResponseWriter) string { return w.Header().Get(RequestHeader) }

// identified gives each request an id of the server's own and writes a line about each that
// was refused. It has no path, which may be a secret, but the pattern that the path fits.
func (s *Server) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		w.Header().Set(RequestHeader, incident.New())
		a := &statusWriter{ResponseWriter: w}
		defer func() {
			p, cut := recover(), a.status != 0
			if p != nil && p != http.ErrAbortHandler {
				s.answerPanic(a, r, p)
			}
			s.observed.request(r.Pattern, a.status)
			if a.status >= http.StatusBadRequest {
				s.log.Debug("request refused", "request", RequestID(w), "method", r.Method, "route", r.Pattern, "status", a.status,
					"took", time.Since(began), "peer", r.RemoteAddr)
			}
			if p != nil && (cut || p == http.ErrAbortHandler) {
				panic(http.ErrAbortHandler) // half an answer must not look like a whole one
			}
		}()
		next.ServeHTTP(a, r)
	})
}

// answerPanic answers a request whose handler panicked, unless some of another answer is on its way.
func (s *Server) answerPanic(a *statusWriter, r *http.Request, p any) {
	f := s.Panicked(a, r, p)
	s.observed.refused(f)
	if a.status == 0 {
		for name := range a.Header() { // what is set was for another answer
			if name != RequestHeader {
				a.Header().Del(name)
			}
		}
		plain(a, f.Code.HTTPStatus(), f.Message+"\n")
	}
}

// Panicked logs what a handler panicked with and gives what the client is told: the
// request's id, by which the log has it.
func (s *Server) Panicked(w http.ResponseWriter, r *http.Request, p any) *fault.Error {
	id := RequestID(w)
	s.log.Error("a request's handler panicked", "incident", id, slog.String("panic", fmt.Sprint(p)), "method", r.Method, "route", r.Pattern,
		"peer", r.RemoteAddr, "stack", string(debug.Stack()))
	return fault.Internal.With("%s", incident.Internal(id))
}

// statusWriter remembers how a request is answered.
type statusWriter struct {
	http.ResponseWriter
	status int // 0 until it is
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

// Unwrap is for http.ResponseController, and for who makes a WebSocket of it.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
