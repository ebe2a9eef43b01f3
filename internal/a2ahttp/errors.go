package a2ahttp

// Faults as errors of the protocol.

import (
	"net/http"
	"strconv"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
)

// kind is an error of the protocol with its code in JSON-RPC and its name in HTTP+JSON.
type kind struct {
	err    error
	number int
	name   string
}

// kindOf returns the error of the protocol for a fault that is answered with a status of HTTP.
func kindOf(f *fault.Error, status int) kind {
	if f.Code == fault.Incompatible {
		return kind{a2a.ErrVersionNotSupported, -32009, "FAILED_PRECONDITION"}
	}
	switch status {
	case http.StatusUnauthorized:
		return kind{a2a.ErrUnauthenticated, -31401, "UNAUTHENTICATED"}
	case http.StatusForbidden:
		return kind{a2a.ErrUnauthorized, -31403, "PERMISSION_DENIED"}
	case http.StatusNotFound, http.StatusGone:
		return kind{a2a.ErrTaskNotFound, -32001, "NOT_FOUND"}
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return kind{a2a.ErrMethodNotFound, -32601, "UNIMPLEMENTED"}
	}
	if status < 500 && status != http.StatusTooManyRequests {
		return kind{a2a.ErrInvalidParams, -32602, "INVALID_ARGUMENT"}
	}
	return kind{a2a.ErrServerError, -32000, "UNAVAILABLE"}
}

// refuseRPC writes a refusal as an error of JSON-RPC.
func refuseRPC(w http.ResponseWriter, status int, f *fault.Error) {
	httpkit.WriteJSON(w, status, httpkit.JSON(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{
		"code": kindOf(f, status).number, "message": text(f), "data": []any{info(kindOf(f, status).err, f)}}}))
}

// refuseREST writes a refusal as an error of HTTP+JSON (https://google.aip.dev/193).
func refuseREST(w http.ResponseWriter, status int, f *fault.Error) {
	httpkit.WriteJSON(w, status, httpkit.JSON(map[string]any{"error": map[string]any{
		"code": status, "status": kindOf(f, status).name, "message": text(f), "details": []any{info(kindOf(f, status).err, f)}}}))
}

func text(f *fault.Error) string { return f.Message + " (" + f.Code.String() + ")" }

func info(err error, f *fault.Error) map[string]any {
	return map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": a2a.ErrorReason(err), "domain": a2a.ProtocolDomain, "metadata": meta(f)}
}

func meta(f *fault.Error) map[string]string {
	return map[string]string{"code": f.Code.String(), "number": strconv.Itoa(int(f.Code))}
}

// refuse returns an error of the server, or of a call, as one of the protocol.
func (s *server) refuse(c *call, err error) error {
	f := c.q.ToFault(err)
	s.cfg.Server.Refused(nil, f)
	return a2a.NewError(kindOf(f, f.Code.HTTPStatus()).err, text(f)).WithErrorInfoMeta(meta(f))
}

// refusal returns an error of the protocol with what to do about it.
func refusal(kind error, why string) error { return a2a.NewError(kind, why) }

// noTask is the refusal of what is no task of the ref. The SDK completes errors, so each is made anew.
func noTask() error {
	return refusal(a2a.ErrTaskNotFound, "there is no such task of this ref: a task is seen by the ref alone that its message was sent under")
}

// noPush is the refusal of push notifications.
func noPush() error {
	return refusal(a2a.ErrPushNotificationNotSupported, "this server pushes nothing of tasks: follow them, or have the session's owner register a webhook")
}
