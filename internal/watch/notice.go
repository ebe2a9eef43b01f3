package watch

// Notices, and the events that give cause for them.

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/session"
)

// The types of notices.
const (
	RequestOpen     = "request.open"
	RequestAnswered = "request.answered"
	TurnFinished    = "turn.finished"
)

// Types are all types of notices.
func Types() []string { return []string{RequestOpen, RequestAnswered, TurnFinished} }

// Notice is one thing that has happened. Its JSON has the members of a payload of Standard Webhooks, and its id.
type Notice struct {
	ID   string    `json:"id"` // made of what it is about: the same when it is delivered again
	Type string    `json:"type"`
	At   time.Time `json:"timestamp"`
	Data Data      `json:"data"`
}

// Data is what a notice is about.
type Data struct {
	Session string `json:"session"`
	Request string `json:"request,omitempty"`
	Kind    string `json:"kind,omitempty"` // of the request
	Message string `json:"message,omitempty"`
}

// String describes the notice, for people.
func (n *Notice) String() string {
	return n.Type + " of " + cmp.Or(n.Data.Request, n.Data.Message) + " in " + n.Data.Session
}

func newNotice(typ, sessionID string, at time.Time, data Data) *Notice {
	data.Session = sessionID
	sum := sha256.Sum256([]byte(typ + "\x00" + sessionID + "\x00" + cmp.Or(data.Request, data.Message)))
	return &Notice{ID: "evt_" + hex.EncodeToString(sum[:16]), Type: typ, At: at.UTC(), Data: data}
}

// ofRequest returns the notice about a request.
func ofRequest(typ, sessionID string, r *client.Request, at time.Time) *Notice {
	return newNotice(typ, sessionID, at, Data{Request: r.ID, Kind: r.Kind, Message: r.Message})
}

// ofEvent returns the notice that an event gives cause for; nil if it gives none. read returns a request of the session, nil if the session
// does not show it.
func ofEvent(ctx context.Context, sessionID string, e *client.Event, read func(ctx context.Context, id string) (*client.Request, error)) (*Notice, error) {
	if e.Hidden || len(e.Payload) == 0 { // or it is purged
		return nil, nil
	}
	if id, became, ok := session.RequestOf(e.Key); ok {
		got := gjson.GetManyBytes(e.Payload, "kind", "message", "state")
		switch {
		case !became:
			return newNotice(RequestOpen, sessionID, e.At, Data{Request: id, Kind: got[0].Str, Message: got[1].Str}), nil
		case got[2].Str != string(client.RequestAnswered):
			return nil, nil
		}
		r, err := read(ctx, id)
		if err != nil || r == nil {
			return nil, err
		}
		return ofRequest(RequestAnswered, sessionID, r, e.At), nil
	}
	message, ok := strings.CutPrefix(e.Key, session.MessageKey(""))
	if !ok || e.Method != session.MethodFinalize && !completed(e) {
		return nil, nil
	}
	return newNotice(TurnFinished, sessionID, e.At, Data{Message: message}), nil
}

// completed reports whether an event puts an answer of opencode's that is the last of its turn: after one that ended in calls of tools
// another follows.
func completed(e *client.Event) bool {
	if e.Method != session.MethodPut {
		return false
	}
	got := gjson.GetManyBytes(e.Payload, "role", "time.completed", "finish")
	return got[0].Str == "assistant" && got[1].Num > 0 && got[2].Str != "" && !slices.Contains([]string{"tool-calls", "unknown"}, got[2].Str)
}
