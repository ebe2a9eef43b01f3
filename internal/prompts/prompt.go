// A prompt, and which messages of the session answer it.
//
//	turn_REQUEST   the answer of an agent that mooring run runs
//	parentID       is user_REQUEST, or a message with a part that names the request (metadata.mooring.request), as
//	               mooring attach has opencode keep it: each of these messages answers
//	neither        of another agent: a message of an assistant without a parentID, recorded since the prompt was claimed
//
// When the prompt has ended, the message that its answer names is one if no other is.

package prompts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Prompt is what is known of a prompt, and of the messages that answer it.
type Prompt struct {
	ID       string
	Asked    int64 // Unix ms
	State    session.RequestState
	At       int64        // Unix ms, of the state; 0 for an open one
	Reason   string       // why it ended so
	Answer   gjson.Result // of one that was answered
	Messages []string     // that answer it, in their order

	at     fanout.Position // of the log, when it was read
	since  uint64          // cursor of the claim, or else of the question
	order  session.Order   // of the session
	parent string          // of its messages, if it is known
	others map[string]bool // messages that do not answer it
}

// StateOf reads what became of a request from its value; nil is one that is open.
func StateOf(e *session.Entry) session.RequestState {
	if e == nil {
		return session.RequestOpen
	}
	return session.RequestState(gjson.GetBytes(e.Payload, "state").Str)
}

// AskedUnder returns the id of the ref that a request was asked under, from the value of what was asked.
func AskedUnder(asked []byte) string { return gjson.GetBytes(asked, "by.ref").Str }

// became takes the value of the request's state.
func (p *Prompt) became(payload []byte) {
	v := gjson.ParseBytes(payload)
	p.State, p.At, p.Reason, p.Answer = session.RequestState(v.Get("state").Str), v.Get("at").Int(), v.Get("reason").Str, v.Get("payload")
	if claim := v.Get("claim").Uint(); claim != 0 {
		p.since = claim
	}
}

// Outcome is how a prompt ended.
type Outcome struct {
	Reason  string // of an answer: stop, length, content-filter or other
	Aborted string // why it was stopped; "" if it was not
	Failed  string // why it failed; "" if it did not
}

// Outcome returns how the prompt ended.
func (p *Prompt) Outcome() Outcome {
	switch p.State {
	case session.RequestWithdrawn:
		return Outcome{Aborted: orText(p.Reason, "the prompt was withdrawn")}
	case session.RequestExpired:
		return Outcome{Failed: "no agent has taken the prompt in time"}
	case session.RequestUnknown:
		return Outcome{Failed: orText(p.Reason, "nobody knows whether the agent has got the prompt")}
	}
	return OutcomeOf(p.Answer)
}

// OutcomeOf returns how a prompt ended that has this answer.
func OutcomeOf(answer gjson.Result) Outcome {
	why, failed := answer.Get("stopReason").String(), answer.Get("error").String()
	switch {
	case why == "cancelled":
		return Outcome{Aborted: "stopped"}
	case failed != "":
		return Outcome{Failed: failed}
	case why == "max_tokens":
		return Outcome{Reason: "length"}
	case why == "refusal":
		return Outcome{Reason: "content-filter"}
	case why == "" || why == "end_turn":
		return Outcome{Reason: "stop"}
	}
	return Outcome{Reason: "other"}
}

func orText(text, or string) string {
	if text == "" {
		return or
	}
	return text
}

// clockSkew is by how much the clock of who records a session in the order of its times may be behind the database's, in ms.
const clockSkew = 10 * 60 * 1000

// begins returns the place in the session's order after which the messages are that answer the prompt.
func (p *Prompt) begins() uint64 {
	if p.order == session.ByTime {
		return uint64(max(p.Asked-clockSkew, 0))
	}
	return p.since
}

func role(payload []byte) string { return gjson.GetBytes(payload, "role").String() }

// named takes a part of a message that does not answer: it may name the request.
func (p *Prompt) named(message string, payload []byte) {
	if gjson.GetBytes(payload, "metadata.mooring.request").Str == p.ID {
		p.parent = message
	}
}

// answers reports whether a message answers the prompt, by its value and, if that does not say, by where in the session it is.
func (p *Prompt) answers(id string, payload []byte, at *session.Entry) bool {
	if id == "turn_"+p.ID {
		return true
	}
	parent := gjson.GetBytes(payload, "parentID").String()
	switch {
	case role(payload) != "assistant":
		return false
	case parent != "":
		return parent == "user_"+p.ID || parent == p.parent
	case strings.HasPrefix(id, "unasked_") || at == nil:
		return false
	}
	return p.State != session.RequestOpen && at.Ord.At > p.begins()
}

// Owns reports whether a message answers the prompt.
func (p *Prompt) Owns(id string) bool { return slices.Contains(p.Messages, id) }

// Read reads the prompt, and which messages answer it so far. It returns the value of what was asked; nil if there is no such
// request that the ref shows.
func (f *Follower) Read(ctx context.Context) (asked []byte, err error) {
	if asked, err = f.ReadRequest(ctx); err != nil || f.State == session.RequestOpen {
		return asked, err
	}
	return asked, f.find(ctx)
}

// ReadRequest is Read without the messages, for which a session's are looked through.
func (f *Follower) ReadRequest(ctx context.Context) (asked []byte, err error) {
	f.Prompt = Prompt{ID: f.ID, State: session.RequestOpen, others: map[string]bool{}}
	for keys := []string{session.RequestKey(f.ID), session.RequestStateKey(f.ID)}; len(keys) > 0; {
		page, next, err := f.live.GetKeys(ctx, keys)
		if err != nil {
			return nil, err
		}
		if keys = keys[next:]; f.at.Cursor == 0 {
			f.at, f.order = fanout.Position{Cursor: page.Row.Cursor, Hash: page.Row.Head}, page.Row.Order
		}
		for _, e := range page.Entries {
			if e.Key == session.RequestKey(f.ID) {
				asked, f.Asked, f.since = e.Payload, gjson.GetBytes(e.Payload, "at").Int(), max(f.since, e.Cursor)
			} else {
				f.became(e.Payload)
			}
		}
	}
	return asked, nil
}

// find finds the messages that answer the prompt.
func (f *Follower) find(ctx context.Context) error {
	if is, err := f.isMessage(ctx, "turn_"+f.ID); err != nil || is != "" {
		f.Messages = append(f.Messages, "turn_"+f.ID)
		return err
	}
	if err := f.list(ctx); err != nil {
		return err
	}
	if named := f.Answer.Get("message").Str; named != "" && len(f.Messages) == 0 {
		is, err := f.isMessage(ctx, named)
		if err != nil {
			return err
		}
		if is == "assistant" {
			f.Messages = append(f.Messages, named)
		}
	}
	return nil
}

// isMessage returns the role of a message; "" if there is none.
func (f *Follower) isMessage(ctx context.Context, id string) (string, error) {
	page, _, err := f.live.GetKeys(ctx, []string{session.MessageKey(id)})
	if err != nil || len(page.Entries) == 0 {
		return "", err
	}
	return orText(role(page.Entries[0].Payload), "none"), nil
}

// list finds the messages that answer the prompt among those that are recorded since.
func (f *Follower) list(ctx context.Context) error {
	query := session.KeyQuery{Prefix: "message/", Order: session.ByPut, Values: true, Limit: session.MaxListKeys, MaxBytes: partsBytes, After: fmt.Sprintf("%d.0.message/0", f.begins())}
	for {
		page, err := f.live.ListKeys(ctx, query)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			k, refused := session.ParseKey(e.Key)
			if refused != nil {
				continue
			}
			if role(e.Payload) == "user" {
				if err := f.findName(ctx, k.Message); err != nil {
					return err
				}
			}
			if f.answers(k.Message, e.Payload, e.Entry) {
				f.Messages = append(f.Messages, k.Message)
			}
		}
		if !page.More {
			return nil
		}
		query.After = page.Next
	}
}

// findName looks at the parts of a user's message for the request's id.
func (f *Follower) findName(ctx context.Context, message string) error {
	if f.parent != "" {
		return nil
	}
	page, err := f.live.ListKeys(ctx, session.KeyQuery{Prefix: session.PartKey(message, ""), Order: session.ByPut, Values: true, Limit: 1})
	if err != nil {
		return err
	}
	for _, e := range page.Entries {
		f.named(message, e.Payload)
	}
	return nil
}

// maxOthers is how many messages that do not answer the prompt are remembered.
const maxOthers = 1000

// seen takes the event of a message's value, and reports whether it begins to answer the prompt.
func (f *Follower) seen(ctx context.Context, id string, e *session.Event) (mine bool, err error) {
	if f.Owns(id) || f.others[id] || e.Payload == nil {
		return false, nil
	}
	var at *session.Entry
	if role(e.Payload) == "assistant" && !gjson.GetBytes(e.Payload, "parentID").Exists() && f.State == session.RequestClaimed {
		page, _, err := f.live.GetKeys(ctx, []string{session.MessageKey(id)})
		if err != nil {
			return false, err
		}
		for _, found := range page.Entries {
			at = found.Entry
		}
	}
	if !f.answers(id, e.Payload, at) {
		if role(e.Payload) == "assistant" && len(f.others) < maxOthers {
			f.others[id] = true // it stays another's
		}
		return false, nil
	}
	f.Messages = append(f.Messages, id)
	return true, nil
}
