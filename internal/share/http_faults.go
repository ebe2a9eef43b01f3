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

// audience is whom a refusal is for: a dead ref is reported differently to a creator of shares
// and to a user of one.
type audience int

const (
	forCreator audience = iota
	forWriter           // with a secret
	forReader           // without one
)

// errorReply returns the status and body of an error. A missing share and a wrong secret are
// reported in the words of opencode's own server. It counts the refusal, of the request that w
// answers or of a call.
func (s *Service) errorReply(ctx context.Context, w http.ResponseWriter, err error, what audience) (int, *fault.Error, opencode.ErrorReply) {
	f := fault.From(s.cfg.Log, err, "answer", "request", incident.FromContext(ctx))
	s.cfg.Server.Refused(w, f)
	status, text := f.Code.HTTPStatus(), f.Message
	if text == "" {
		text = f.Code.String()
	}
	switch f.Code {
	case fault.UnknownRef:
		if what == forWriter {
			status, text = http.StatusForbidden, opencode.InvalidSecret
			break
		}
		fallthrough // a missing reader's ref is that of a share that was never finished
	case fault.NotFound, fault.Revoked, fault.StaleEpoch, fault.Expired, fault.SessionDeleted:
		if what != forCreator {
			status, text = http.StatusNotFound, opencode.ShareNotFound
		}
	}
	return status, f, opencode.ErrorReply{Error: text, Code: f.Code.String(), Message: f.Message}
}

func (s *Service) refuse(w http.ResponseWriter, v *visitor, err error, what audience) {
	status, f, body := s.errorReply(v.Context(), w, err, what)
	httpkit.SetRetryAfter(w, f.Code)
	writeJSON(w, status, body)
}

// rejection returns a refusal over Cap'n Web.
func (s *Service) rejection(ctx context.Context, err error, what audience) error {
	if err == nil {
		return nil
	}
	status, _, body := s.errorReply(ctx, nil, err, what)
	return &capnweb.Error{Name: "Error", Message: body.Error, Props: map[string]any{"code": body.Code, "status": float64(status), "detail": body.Message}}
}
