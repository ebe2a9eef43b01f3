package decide

// The payloads of the events of requests.

import (
	"bytes"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
)

// requestPayload is what was asked. Payload and Choices are in it byte for byte (marshal).
type requestPayload struct {
	Kind    string    `json:"kind"`
	Message string    `json:"message,omitempty"`
	Digest  string    `json:"digest"`
	Expires int64     `json:"expires_at,omitempty"` // Unix ms
	By      requestBy `json:"by"`
	At      int64     `json:"at"` // Unix ms
}

// requestBy is who did something.
type requestBy struct {
	Ref   string `json:"ref"`
	Actor string `json:"actor"`
}

// statePayload is what became of a request. An answer's payload is in it byte for byte.
type statePayload struct {
	State  session.RequestState `json:"state"`
	Claim  uint64               `json:"claim,omitempty"`  // cursor of the claim
	Outbox string               `json:"outbox,omitempty"` // of the claimer
	Worker string               `json:"worker,omitempty"`
	Until  int64                `json:"until,omitempty"` // of the claim's lease, Unix ms
	Choice string               `json:"choice,omitempty"`
	Reason string               `json:"reason,omitempty"`
	By     *requestBy           `json:"by,omitempty"` // nil: it happened by itself
	At     int64                `json:"at"`           // Unix ms
}

// withRaw returns v's JSON object with further members, whose values are JSON text and stay as they are; nil ones
// are left out.
func withRaw(v any, members ...any) []byte {
	text := rawjson.Encode(v)
	text = text[:len(text)-1]
	for i := 0; i < len(members); i += 2 {
		if raw := members[i+1].([]byte); raw != nil {
			text = append(append(append(text, `,"`...), members[i].(string)+`":`...), bytes.TrimSpace(raw)...)
		}
	}
	return append(text, '}')
}

// mayAnswer reports whether a ref answers, and claims, requests of a kind.
func mayAnswer(g *capability.Grant, kind string) bool {
	return g.Rights.Has(capability.Answer) && capability.AllowsKind(g.AnswerKinds, kind)
}

// Bounds of requests: of those open or claimed, MaxRefRequests of a ref that is not an owner's with its
// descendants and MaxSessionRequests of a session.
const (
	MaxRefRequests     = 32
	MaxSessionRequests = 256
)
