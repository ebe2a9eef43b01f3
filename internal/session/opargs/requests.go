package opargs

// ask, answer and withdraw.

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Ask makes a request.
type Ask struct {
	ID, Kind, Message string
	Payload           []byte
	Choices           []byte   // JSON, nil for none
	ChoiceIDs         []string // of choices
	ExpiresIn         int64    // milliseconds; 0 never
}

func decodeAsk(r *Decoder) Op {
	o := &Ask{ID: r.id("request", required), Kind: r.text("kind", required), Message: r.id("message", optional)}
	if o.Payload = bytes.TrimSpace(r.raw("payload", optional)); o.Payload == nil {
		o.Payload = []byte("{}")
	}
	o.Choices, o.ChoiceIDs = r.choices("choices")
	expires, set := r.number("expires_in", optional)
	o.ExpiresIn = int64(expires)
	switch {
	case r.err != nil:
	case !r.unresolved("kind") && !capability.IsKind(o.Kind):
		r.fail(fault.BadArgument.With("kind is %q: use prompt, stop, permission, question or one of your own, of a to z, digits, _ and - (the first a letter)", fault.Clip(o.Kind)))
	case o.Kind == session.KindStop && !r.has("message"):
		r.fail(fault.BadArgument.With("a stop names the turn that it stops: message is the id of its message"))
	case set && (o.ExpiresIn < minExpiry || o.ExpiresIn > maxExpiry):
		r.fail(fault.BadArgument.With("expires_in is from %d to %d milliseconds", minExpiry, int64(maxExpiry)))
	}
	return o
}

// Answer ends a request by an answer, or as unknown.
type Answer struct {
	Request, Choice, Shown, Reason string
	Payload                        []byte // nil for none
	Claim                          Condition
	Unknown                        bool
}

func decodeAnswer(r *Decoder) Op {
	o := &Answer{Request: r.id("request", required), Choice: r.text("choice", optional), Shown: r.text("shown", optional), Reason: r.text("reason", optional), Payload: r.raw("payload", optional)}
	o.Claim.Cursor, o.Claim.Set = r.number("claim", optional)
	switch state := session.RequestState(r.text("state", optional)); state {
	case "", session.RequestAnswered:
		if r.has("reason") {
			r.fail(fault.BadArgument.With("reason says why a request ends as unknown: an answer's own words are its payload"))
		}
	case session.RequestUnknown:
		if o.Unknown = true; r.has("choice") || r.has("payload") || r.has("shown") {
			r.fail(fault.BadArgument.With("what ends as unknown has no answer: leave choice, payload and shown out"))
		}
	default:
		r.fail(fault.BadArgument.With("state is %q: leave it out, or say unknown for what was handed over and may have been done", fault.Clip(string(state))))
	}
	return o
}

// Withdraw ends a request that nobody has answered.
type Withdraw struct{ Request, Reason string }

func decodeWithdraw(r *Decoder) Op {
	return &Withdraw{Request: r.id("request", required), Reason: r.text("reason", optional)}
}

// Bounds of a request's choices and of its expiry, in milliseconds.
const (
	maxChoices     = 32
	maxChoiceBytes = 64
	minExpiry      = 1000
	maxExpiry      = 30 * 24 * 3600 * 1000
)

// choices decodes a request's list of choices, {"id", …} each, and returns it as it is, with the ids.
func (r *Decoder) choices(name string) (text []byte, ids []string) {
	if text = bytes.TrimSpace(r.raw(name, optional)); text == nil {
		return nil, nil
	}
	list, ok := gjson.ParseBytes(text), false
	if list.IsArray() {
		ok = true
		list.ForEach(func(_, e gjson.Result) bool {
			id := e.Get("id")
			ok = e.IsObject() && id.Type == gjson.String && id.Str != "" && len(id.Str) <= maxChoiceBytes && !strings.ContainsFunc(id.Str, Unprintable) && !slices.Contains(ids, id.Str) && len(ids) < maxChoices
			ids = append(ids, id.Str)
			return ok
		})
	}
	if !ok || len(ids) == 0 {
		r.fail(fault.BadArgument.With(`%s is not a list of 1 to %d {"id", …}, each id once and of at most %d bytes`, name, maxChoices, maxChoiceBytes))
		return nil, nil
	}
	return text, ids
}
