// Answers: JSON, and errors with the codes of all protocols.

package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// errorJSON is an error. Number is the code's, At the cursor it is about, Request the id of the
// refused request, as in the log.
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
	shown.Request = w.Header().Get(objects.RequestHeader)
	a.cfg.Server.Refused(w, f)
	writeJSON(w, status, encode(map[string]any{"error": shown}))
}

// writeJSON sends JSON text. An error of the write is ignored: the client has gone.
func writeJSON(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// toFault returns err as the client sees it. An error that is neither a fault nor a context's is
// a defect of this server, and is logged.
func toFault(log *slog.Logger, request string, err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.ContextError(err, nil)
	}
	return fault.Unexpected(log, err, "answer", "request", request)
}

// encode returns JSON without HTML escapes; v is one of this package's types, so it cannot fail.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("httpapi: encode: " + err.Error())
	}
	return b.Bytes()[:b.Len()-1] // without the line feed
}

// addMember appends a member whose value is JSON text, unchanged, to an object that has other
// members. nil appends none.
func addMember(object []byte, name string, raw []byte) []byte {
	if raw == nil {
		return object
	}
	b := append(object[:len(object)-1], `,"`+name+`":`...)
	return append(append(b, raw...), '}')
}
