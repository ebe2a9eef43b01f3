// What holds for every request over HTTP, at all doors: it has an id, which its answer and
// the log name, and it is answered even where its handler panics.

package server

import (
	"context"
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

// requestKey is a request's id in its context.
type requestKey struct{}

// RequestID is the id of the request that a context is of; "" if it is of none that a Server has served.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// withRequestID gives each request an id of the server's own and writes a line about each that
// was refused. It has no path, which may be a secret, but the pattern that the path fits.
func (s *Server) withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		id := incident.New()
		w.Header().Set(RequestHeader, id)
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, id))
		a := &statusWriter{ResponseWriter: w}
		defer func() {
			p, cut := recover(), a.status != 0
			if p != nil && p != http.ErrAbortHandler {
				s.answerPanic(a, r, p)
			}
			s.instruments.countRequest(r.Pattern, a.status)
			if a.status >= http.StatusBadRequest || a.code != fault.None {
				s.log.Debug("request refused", "request", id, "method", r.Method, "route", r.Pattern, "status", a.status, "code", a.code,
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
	f := s.LogPanic(r, p)
	s.Refused(a, f)
	if a.status == 0 {
		for name := range a.Header() { // what is set was for another answer
			if name != RequestHeader {
				a.Header().Del(name)
			}
		}
		writePlain(a, f.Code.HTTPStatus(), f.Message+"\n")
	}
}

// LogPanic logs what a handler panicked with and gives what the client is told: the
// request's id, by which the log has it.
func (s *Server) LogPanic(r *http.Request, p any) *fault.Error {
	id := RequestID(r.Context())
	s.log.Error("a request's handler panicked", "incident", id, slog.String("panic", fmt.Sprint(p)), "method", r.Method, "route", r.Pattern,
		"peer", r.RemoteAddr, "stack", string(debug.Stack()))
	return fault.Internal.With("%s", incident.Internal(id))
}

// Refused counts a refusal by its code, and has the log name that with the request that w answers.
// w is nil where it answers a call over a wire of a face's own. Each is counted once, where it is
// answered: what a caller within the process is refused is not, since it may do something else then.
func (s *Server) Refused(w http.ResponseWriter, f *fault.Error) {
	s.instruments.countRefusal(f)
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

// statusWriter remembers how a request is answered.
type statusWriter struct {
	http.ResponseWriter
	status int        // 0 until it is
	code   fault.Code // that it is refused with, if it is
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
