// What a share server is asked for, and the answers, as opencode reads them.

package opencode

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
)

// maxSessionID bounds opencode's id of a session, in bytes.
const maxSessionID = 256

// CheckSessionID refuses what cannot be opencode's id of a session (BadArgument).
func CheckSessionID(id string) error {
	if id == "" || len(id) > maxSessionID || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return fault.BadArgument.With("sessionID is the session's id: 1 to %d bytes of text", maxSessionID)
	}
	return nil
}

// CreateReply answers a create: the only answer that carries a secret.
type CreateReply struct {
	ID     string `json:"id"`
	URL    string `json:"url"`
	Secret string `json:"secret"`
}

// SyncReply answers a sync.
type SyncReply struct {
	Success   bool `json:"success"`
	SyncCount int  `json:"syncCount"`
}

// DeleteReply answers a DELETE.
type DeleteReply struct {
	Success bool `json:"success"`
}

// ErrorReply refuses a request. Error is opencode's field; the others are additional detail.
type ErrorReply struct {
	Error   string `json:"error"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// What opencode's own server says of a share that is not there, and of a secret that is not one of the share.
const (
	ShareNotFound = "Share not found"
	InvalidSecret = "Invalid secret"
)

// Audience is whom a refusal is for: a share that has ended is reported otherwise to who uses it than to who makes one.
type Audience int

// The audiences.
const (
	ForCreator Audience = iota
	ForWriter           // with a secret of a share
	ForReader           // without one
)

// Refusal returns the status and body of a refusal. A share that is missing, and a wrong secret, are reported in the words of opencode's own
// server.
func Refusal(f *fault.Error, to Audience) (status int, body ErrorReply) {
	status, body = f.Code.HTTPStatus(), ErrorReply{Error: f.Message, Code: f.Code.String(), Message: f.Message}
	if f.Message == "" {
		body.Error = body.Code
	}
	switch f.Code {
	case fault.UnknownRef:
		if to == ForWriter {
			return http.StatusForbidden, ErrorReply{InvalidSecret, body.Code, body.Message}
		}
		fallthrough // a missing reader's ref is that of a share that was never finished
	case fault.NotFound, fault.Revoked, fault.StaleEpoch, fault.Expired, fault.SessionDeleted:
		if to != ForCreator {
			return http.StatusNotFound, ErrorReply{ShareNotFound, body.Code, body.Message}
		}
	}
	return status, body
}
