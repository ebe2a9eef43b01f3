// Error answers.

package web

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/internal/page"
)

// errNoPage is the answer to an unknown path.
var errNoPage = fault.NotFound.With("there is no such page here: check the link")

// refuse answers with an error.
func (q *request) refuse(err error) {
	f := q.toFault(err)
	httpkit.SetRetryAfter(q.w, f.Code)
	q.writeFault(f.Code.HTTPStatus(), f)
}

// toFault returns err as a fault.
func (q *request) toFault(err error) *fault.Error {
	return fault.From(q.site.cfg.Log, err, "make the page", "request", incident.FromContext(q.r.Context()), "peer", q.r.RemoteAddr)
}

// writeFault answers with a page where a page was requested, and else with a line of JSON:
// {"code","message"}.
func (q *request) writeFault(status int, f *fault.Error) {
	q.site.server.Refused(q.w, f)
	if q.wantsHTML() {
		q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		q.w.WriteHeader(status)
		if q.r.Method != http.MethodHead {
			_ = page.Failure(q.w, q.base, status, f) // the reader has gone
		}
		return
	}
	var line []byte // none for HEAD
	if q.r.Method != http.MethodHead {
		line = append(faultJSON(f), '\n')
	}
	httpkit.WriteJSON(q.w, status, line)
}

// wantsHTML reports whether a browser navigates to the page: a script sends an Accept header of
// its own.
func (q *request) wantsHTML() bool {
	return q.r.Method != http.MethodPost && strings.Contains(q.r.Header.Get("Accept"), "text/html")
}

// faultJSON returns a fault as JSON.
func faultJSON(f *fault.Error) []byte {
	line, _ := json.Marshal(struct { // strings: cannot fail
		Code    string `json:"code"`
		Message string `json:"message"`
	}{f.Code.String(), f.Message})
	return line
}
