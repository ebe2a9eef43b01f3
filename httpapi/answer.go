// Answers: JSON, errors with the codes of every other wire, and the pace at which a
// client has to take them.

package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/server"
)

// errorJSON is why something was not done. Number is the code's, At the position
// that it speaks of, Request the id of the request that was refused, which the log names.
type errorJSON struct {
	Code    string `json:"code"`
	Number  uint16 `json:"number"`
	Message string `json:"message"`
	At      uint64 `json:"at,omitempty"`
	Request string `json:"request,omitempty"`
}

func newErrorJSON(f *fault.Error) *errorJSON {
	return &errorJSON{Code: f.Code.String(), Number: uint16(f.Code), Message: f.Message, At: f.At}
}

// refuse answers with a fault and its status.
func (a *API) refuse(w http.ResponseWriter, f *fault.Error) {
	h, status := w.Header(), f.Code.HTTPStatus()
	if after := f.Code.RetryAfter(); after != "" {
		h.Set("Retry-After", after)
	}
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="mooring"`)
	}
	a.answerError(w, status, f)
}

// answerError answers with a fault and a status that is not its code's.
func (a *API) answerError(w http.ResponseWriter, status int, f *fault.Error) {
	shown := newErrorJSON(f)
	shown.Request = w.Header().Get(server.RequestHeader)
	a.cfg.Server.Refused(w, f)
	writeJSON(w, status, encode(map[string]any{"error": shown}))
}

// writeJSON sends JSON text. A client that does not take it is none of anybody's
// business any more.
func writeJSON(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// toFault is what a client is told of an error. What is no fault is a defect of
// ours, but for a context's end.
func toFault(log *slog.Logger, request string, err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.ContextError(err, nil)
	}
	return fault.Unexpected(log, err, "answer", "request", request)
}

// encode is JSON without HTML escapes; v is one of this package's own types, so
// that it cannot fail.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("httpapi: encode: " + err.Error())
	}
	return b.Bytes()[:b.Len()-1] // without the line feed
}

// addMember adds a member whose value is JSON text, byte for byte, to an object that has
// others. nil adds none.
func addMember(object []byte, name string, raw []byte) []byte {
	if raw == nil {
		return object
	}
	b := append(object[:len(object)-1], `,"`+name+`":`...)
	return append(append(b, raw...), '}')
}

// deadlineWriter gives up a client that takes nothing for a while, however long the
// whole takes.
type deadlineWriter struct {
	http.ResponseWriter
	stallTimeout time.Duration
	wroteHeader  bool
}

// bytesPerStall is how much has to be taken in that while.
const bytesPerStall = 64 << 10

// WriteHeader implements http.ResponseWriter.
func (w *deadlineWriter) WriteHeader(status int) {
	w.wroteHeader = true
	w.extendDeadline()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *deadlineWriter) Write(b []byte) (n int, err error) {
	w.wroteHeader = true
	for {
		piece := b[n:min(n+bytesPerStall, len(b))]
		w.extendDeadline()
		m, err := w.ResponseWriter.Write(piece)
		if n += m; err != nil || n == len(b) {
			return n, clientGone(err)
		}
	}
}

// clientGone is what a write to a client that has gone, or takes nothing, failed with: it
// is no defect of ours.
func clientGone(err error) error {
	if err == nil {
		return nil
	}
	return fault.ContextError(err, nil)
}

// writeUntil is Write with a time limit of the caller's.
func (w *deadlineWriter) writeUntil(piece []byte, until time.Time) error {
	w.wroteHeader = true
	w.setDeadline(until)
	_, err := w.ResponseWriter.Write(piece)
	return clientGone(err)
}

// flushUntil sends what was written.
func (w *deadlineWriter) flushUntil(until time.Time) error {
	w.setDeadline(until)
	return clientGone(http.NewResponseController(w.ResponseWriter).Flush())
}

func (w *deadlineWriter) extendDeadline() { w.setDeadline(time.Now().Add(w.stallTimeout)) }

func (w *deadlineWriter) setDeadline(until time.Time) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(until) // a server that cannot has no deadlines either
}

// Unwrap is for http.ResponseController.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
