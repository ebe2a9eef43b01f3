package aisdk

// A prompt, and which messages of the session answer it.
//
//	turn_REQUEST   the answer of an agent that mooring run runs
//	parentID       is user_REQUEST, or a message with a part that names the request (metadata.mooring.request), as
//	               mooring attach has opencode keep it: each of these messages is a step
//	neither        of another agent: a message of an assistant without a parentID, recorded since the prompt was claimed
//
// When the prompt has ended, the message that its answer names is one if no other is.

import (
	"context"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// prompt is what is known of a prompt.
type prompt struct {
	id       string
	at       fanout.Position // of the log, when it was read
	asked    int64           // Unix ms
	since    uint64          // cursor of the claim, or else of the question
	order    session.Order   // of the session
	state    session.RequestState
	reason   string        // why it ended so
	answer   gjson.Result  // of one that was answered
	parent   string        // of its messages, if it is known
	messages []turnMessage // that answer it, in their order
	others   map[string]bool
}

// turnMessage is a message of the session that answers a prompt.
type turnMessage struct{ id string }

// requestState is what became of a request.
type requestState struct {
	state  session.RequestState
	claim  uint64
	reason string
	answer gjson.Result
}

// stateOf reads what became of a request from its value; nil is one that is open.
func stateOf(e *session.Entry) requestState {
	if e == nil {
		return requestState{state: session.RequestOpen}
	}
	return parseState(e.Payload)
}

func parseState(payload []byte) requestState {
	v := gjson.ParseBytes(payload)
	return requestState{session.RequestState(v.Get("state").Str), v.Get("claim").Uint(), v.Get("reason").Str, v.Get("payload")}
}

// askedUnder returns the id of the ref that a request was asked under.
func askedUnder(r *session.RequestInfo) string { return gjson.GetBytes(r.Asked.Payload, "by.ref").Str }

// became takes the value of the request's state.
func (p *prompt) became(payload []byte) {
	of := parseState(payload)
	p.state, p.reason, p.answer = of.state, of.reason, of.answer
	if of.claim != 0 {
		p.since = of.claim
	}
}

// outcome returns how the message ends.
func (p *prompt) outcome() outcome {
	switch p.state {
	case session.RequestWithdrawn:
		return outcome{aborted: orText(p.reason, "the prompt was withdrawn")}
	case session.RequestExpired:
		return outcome{failed: "no agent has taken the prompt in time"}
	case session.RequestUnknown:
		return outcome{failed: orText(p.reason, "nobody knows whether the agent has got the prompt")}
	}
	why, failed := p.answer.Get("stopReason").String(), p.answer.Get("error").String()
	switch {
	case why == "cancelled":
		return outcome{aborted: "stopped"}
	case failed != "":
		return outcome{failed: failed}
	case why == "max_tokens":
		return outcome{reason: "length"}
	case why == "refusal":
		return outcome{reason: "content-filter"}
	case why == "" || why == "end_turn":
		return outcome{reason: "stop"}
	}
	return outcome{reason: "other"}
}

func orText(text, or string) string {
	if text == "" {
		return or
	}
	return text
}

// read reads the prompt, and which messages answer it so far.
func (s *stream) read(ctx context.Context) error {
	p := &s.prompt
	p.state, p.others = session.RequestOpen, map[string]bool{}
	for keys := []string{session.RequestKey(p.id), session.RequestStateKey(p.id)}; len(keys) > 0; {
		page, next, err := s.live.GetKeys(ctx, keys)
		if err != nil {
			return err
		}
		if keys = keys[next:]; p.at.Cursor == 0 {
			p.at, p.order = fanout.Position{Cursor: page.Row.Cursor, Hash: page.Row.Head}, page.Row.Order
		}
		for _, e := range page.Entries {
			if e.Key == session.RequestKey(p.id) {
				p.asked = gjson.GetBytes(e.Payload, "at").Int()
				p.since = max(p.since, e.Cursor)
			} else {
				p.became(e.Payload)
			}
		}
	}
	if p.state == session.RequestOpen {
		return nil
	}
	if page, _, err := s.live.GetKeys(ctx, []string{session.MessageKey("turn_" + p.id)}); err != nil || len(page.Entries) > 0 {
		p.add("turn_" + p.id)
		return err
	}
	if err := s.list(ctx); err != nil {
		return err
	}
	if named := p.answer.Get("message").Str; named != "" && len(p.messages) == 0 {
		page, _, err := s.live.GetKeys(ctx, []string{session.MessageKey(named)})
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			if role(e.Payload) == "assistant" {
				p.add(named)
			}
		}
	}
	return nil
}

// clockSkew is by how much the clock of who records a session in the order of its times may be behind the database's, in ms.
const clockSkew = 10 * 60 * 1000

// begins returns the place in the session's order after which the messages are that answer the prompt.
func (p *prompt) begins() uint64 {
	if p.order == session.ByTime {
		return uint64(max(p.asked-clockSkew, 0))
	}
	return p.since
}

// list finds the messages that answer the prompt among those that are recorded since.
func (s *stream) list(ctx context.Context) error {
	query := session.KeyQuery{Prefix: "message/", Order: session.ByPut, Values: true, Limit: session.MaxListKeys, MaxBytes: partsBytes, After: fmt.Sprintf("%d.0.message/0", s.begins())}
	for {
		page, err := s.live.ListKeys(ctx, query)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			k, refused := session.ParseKey(e.Key)
			if refused != nil {
				continue
			}
			if role(e.Payload) == "user" {
				if err := s.findName(ctx, k.Message); err != nil {
					return err
				}
			}
			if s.answers(k.Message, e.Payload, e.Entry) {
				s.add(k.Message)
			}
		}
		if !page.More {
			return nil
		}
		query.After = page.Next
	}
}

func role(payload []byte) string { return gjson.GetBytes(payload, "role").String() }

// findName looks at the parts of a user's message for the request's id.
func (s *stream) findName(ctx context.Context, message string) error {
	if s.parent != "" {
		return nil
	}
	page, err := s.live.ListKeys(ctx, session.KeyQuery{Prefix: session.PartKey(message, ""), Order: session.ByPut, Values: true, Limit: 1})
	if err != nil {
		return err
	}
	for _, e := range page.Entries {
		s.named(message, e.Payload)
	}
	return nil
}

// named takes a part of a message that is not the stream's: it may name the request.
func (p *prompt) named(message string, payload []byte) {
	if gjson.GetBytes(payload, "metadata.mooring.request").Str == p.id {
		p.parent = message
	}
}

// answers reports whether a message answers the prompt, by its value and, if that does not say, by where in the session it is.
func (p *prompt) answers(id string, payload []byte, at *session.Entry) bool {
	if id == "turn_"+p.id {
		return true
	}
	parent := gjson.GetBytes(payload, "parentID").String()
	switch {
	case role(payload) != "assistant":
		return false
	case parent != "":
		return parent == "user_"+p.id || parent == p.parent
	case strings.HasPrefix(id, "unasked_") || at == nil:
		return false
	}
	return p.state != session.RequestOpen && at.Ord.At > p.begins()
}

// add adds a message that answers the prompt.
func (p *prompt) add(id string) { p.messages = append(p.messages, turnMessage{id}) }

// owns reports whether a message answers the prompt.
func (p *prompt) owns(id string) bool {
	for _, m := range p.messages {
		if m.id == id {
			return true
		}
	}
	return false
}

// seen takes the event of a message's value, and reports whether it begins to answer the prompt.
func (p *prompt) seen(ctx context.Context, live *objects.Capability, id string, e *session.Event) (mine bool, err error) {
	if p.owns(id) || p.others[id] || e.Payload == nil {
		return false, nil
	}
	var at *session.Entry
	if role(e.Payload) == "assistant" && !gjson.GetBytes(e.Payload, "parentID").Exists() && p.state == session.RequestClaimed {
		page, _, err := live.GetKeys(ctx, []string{session.MessageKey(id)})
		if err != nil {
			return false, err
		}
		for _, found := range page.Entries {
			at = found.Entry
		}
	}
	if !p.answers(id, e.Payload, at) {
		if role(e.Payload) == "assistant" && len(p.others) < maxOthers {
			p.others[id] = true // it stays another's
		}
		return false, nil
	}
	p.add(id)
	return true, nil
}

// maxOthers is how many messages that do not answer the prompt are remembered.
const maxOthers = 1000
