// Error answers.

package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/internal/page"
)

// notFound answers an unknown path.
func (q *request) notFound() {
	q.refuse(fault.NotFound.With("there is no such page here: check the link"))
}

// refuse answers with an error.
func (q *request) refuse(err error) {
	f := q.toFault(err)
	if after := f.Code.RetryAfter(); after != "" {
		q.w.Header().Set("Retry-After", after)
	}
	q.writeFault(f.Code.HTTPStatus(), f)
}

// toFault returns err as a fault. An error that is not a fault is a defect of this server, and is
// logged.
func (q *request) toFault(err error) *fault.Error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.ContextError(err, nil)
	}
	return fault.Unexpected(q.site.cfg.Log, err, "make the page", "request", incident.FromContext(q.r.Context()), "peer", q.r.RemoteAddr)
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
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(status)
	if q.r.Method != http.MethodHead {
		_, _ = q.w.Write(append(faultJSON(f), '\n'))
	}
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
