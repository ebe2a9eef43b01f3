// Errors as replies over HTTP and Cap'n Web.

package share

import (
	"context"
	"net/http"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/internal/opencode"
)

// errorReply returns the status and body of an error, and counts the refusal, of the request that w answers or of a call.
func (s *Service) errorReply(ctx context.Context, w http.ResponseWriter, err error, what opencode.Audience) (int, *fault.Error, opencode.ErrorReply) {
	f := fault.From(s.cfg.Log, err, "answer", "request", incident.FromContext(ctx))
	s.cfg.Server.Refused(w, f)
	status, body := opencode.Refusal(f, what)
	return status, f, body
}

func (s *Service) refuse(w http.ResponseWriter, v *visitor, err error, what opencode.Audience) {
	status, f, body := s.errorReply(v.Context(), w, err, what)
	httpkit.SetRetryAfter(w, f.Code)
	writeJSON(w, status, body)
}

// rejection returns a refusal over Cap'n Web.
func (s *Service) rejection(ctx context.Context, err error, what opencode.Audience) error {
	if err == nil {
		return nil
	}
	status, _, body := s.errorReply(ctx, nil, err, what)
	return &capnweb.Error{Name: "Error", Message: body.Error, Props: map[string]any{"code": body.Code, "status": float64(status), "detail": body.Message}}
}
