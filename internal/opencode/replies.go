// What a share server is asked for, and the answers, as opencode reads them.

package opencode

import (
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
