// Package notice says what has happened in a session, for who is not there: that something is asked, that it was answered, that a turn
// is over. A Notice has ids and kinds, never contents, so it may pass through others' hands.
//
// A turn is over by its finalize, or, for sessions that opencode syncs, by the answer of its that is completed.
package notice

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

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

// New returns a notice about a request or a message of a session.
func New(typ, sessionID string, at time.Time, data Data) *Notice {
	data.Session = sessionID
	sum := sha256.Sum256([]byte(typ + "\x00" + sessionID + "\x00" + cmp.Or(data.Request, data.Message)))
	return &Notice{ID: "evt_" + hex.EncodeToString(sum[:16]), Type: typ, At: at.UTC(), Data: data}
}

// Event is an event of a session's log, as far as it matters here.
type Event struct {
	Method, Key string
	Payload     []byte // empty if it was purged
	Hidden      bool
	At          time.Time
}

// OfEvent returns the notice that an event gives cause for; nil if it gives none. read returns the kind and message of a request of the
// session; found is false if the session does not show it.
func OfEvent(sessionID string, e *Event, read func(id string) (kind, message string, found bool, err error)) (*Notice, error) {
	if e.Hidden || len(e.Payload) == 0 {
		return nil, nil
	}
	if id, became, ok := session.RequestOf(e.Key); ok {
		got := gjson.GetManyBytes(e.Payload, "kind", "message", "state")
		switch {
		case !became:
			return New(RequestOpen, sessionID, e.At, Data{Request: id, Kind: got[0].Str, Message: got[1].Str}), nil
		case got[2].Str != string(session.RequestAnswered):
			return nil, nil
		}
		kind, message, found, err := read(id)
		if err != nil || !found {
			return nil, err
		}
		return New(RequestAnswered, sessionID, e.At, Data{Request: id, Kind: kind, Message: message}), nil
	}
	message, ok := strings.CutPrefix(e.Key, session.MessageKey(""))
	if !ok || e.Method != session.MethodFinalize && !completed(e) {
		return nil, nil
	}
	return New(TurnFinished, sessionID, e.At, Data{Message: message}), nil
}

// completed reports whether an event puts an answer of opencode's that is the last of its turn: after one that ended in calls of tools
// another follows.
func completed(e *Event) bool {
	if e.Method != session.MethodPut {
		return false
	}
	got := gjson.GetManyBytes(e.Payload, "role", "time.completed", "finish")
	return got[0].Str == "assistant" && got[1].Num > 0 && got[2].Str != "" && !slices.Contains([]string{"tool-calls", "unknown"}, got[2].Str)
}
