// Answers: JSON, and errors with the codes of all protocols.

package httpapi

import (
	"log/slog"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/node"
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
	status := f.Code.HTTPStatus()
	httpkit.SetRetryAfter(w, f.Code)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="mooring"`)
	}
	a.answerError(w, status, f)
}

// answerError answers with a fault and a status that is not its code's.
func (a *API) answerError(w http.ResponseWriter, status int, f *fault.Error) {
	a.cfg.Server.Refused(w, f)
	a.refusal(w, status, f)
}

// writeError is the API's form of a refusal.
func writeError(w http.ResponseWriter, status int, f *fault.Error) {
	shown := newErrorJSON(f)
	shown.Request = w.Header().Get(node.RequestHeader)
	httpkit.WriteJSON(w, status, httpkit.JSON(map[string]any{"error": shown}))
}

// toFault returns err as the client sees it.
func toFault(log *slog.Logger, request string, err error) *fault.Error {
	return fault.From(log, err, "answer", "request", request)
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
