// The tools that read values, what a search finds, and requests.

package mcpserver

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

type listKeysIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Prefix  string `json:"prefix,omitempty" jsonschema:"only the keys below it; ends in /"`
	After   string `json:"after,omitempty" jsonschema:"next of the previous page"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many, 1 to 200; 50 without"`
}

type keyOut struct {
	Key   string `json:"key"`
	Bytes uint64 `json:"bytes" jsonschema:"length of the value"`
	By    string `json:"by,omitempty"`
	At    string `json:"at,omitempty"`
}

type keysOut struct {
	Keys []keyOut `json:"keys"`
	Next string   `json:"next,omitempty" jsonschema:"after of the next page; absent at the end"`
}

func (s *server) listKeys(ctx context.Context, in listKeysIn, _ json.RawMessage) (out keysOut, err error) {
	out.Keys = []keyOut{}
	n, err := limit(in.Limit, defaultKeys, mostKeys)
	if err != nil {
		return out, err
	}
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	entries, next, err := o.Keys(ctx, session.KeyQuery{Prefix: in.Prefix, After: in.After, Limit: n})
	for _, e := range entries {
		out.Keys = append(out.Keys, keyOut{e.Key, e.Bytes, e.Actor, showTime(e.At)})
	}
	out.Next = next
	return out, err
}

type readValueIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Key     string `json:"key" jsonschema:"as list_keys shows it"`
	Offset  int    `json:"offset,omitempty" jsonschema:"next of the previous page"`
}

type valueOut struct {
	Session string `json:"session"`
	Key     string `json:"key"`
	Cursor  uint64 `json:"cursor" jsonschema:"of its last change; put_value takes it as expect"`
	By      string `json:"by,omitempty"`
	At      string `json:"at,omitempty"`
	Bytes   int    `json:"bytes" jsonschema:"length of the whole value"`
	Value   string `json:"value" jsonschema:"JSON text, or a piece of it"`
	Next    int    `json:"next,omitempty" jsonschema:"offset of the next piece; absent at the end"`
}

func (s *server) readValue(ctx context.Context, in readValueIn, _ json.RawMessage) (out valueOut, err error) {
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	values, err := o.Get(ctx, in.Key)
	if err != nil {
		return out, err
	}
	if len(values) == 0 {
		return out, fault.NotFound.With("%s has no value that can be read: list_keys lists the keys", fault.Clip(in.Key))
	}
	e := values[0]
	if in.Offset < 0 || in.Offset > len(e.Value) {
		return out, fault.BadArgument.With("offset is the next of the previous piece; the value has %d bytes", len(e.Value))
	}
	out = valueOut{Session: in.Session, Key: e.Key, Cursor: e.Cursor, By: e.Actor, At: showTime(e.At), Bytes: len(e.Value)}
	text := string(e.Value[in.Offset:])
	shown, all := cut(text, pageBytes)
	if out.Value = shown; !all {
		out.Next = in.Offset + len(shown)
	}
	return out, nil
}

type searchIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Query   string `json:"query" jsonschema:"words, all of which are to be found"`
	After   string `json:"after,omitempty" jsonschema:"next of the previous page"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many, 1 to 50; 10 without"`
}

type matchOut struct {
	Key     string `json:"key" jsonschema:"read_value has the whole value"`
	Message string `json:"message,omitempty" jsonschema:"the message that it is or belongs to: read_message has all of it"`
	By      string `json:"by,omitempty"`
	At      string `json:"at,omitempty"`
	Excerpt string `json:"excerpt"`
}

type foundOut struct {
	Matches []matchOut `json:"matches"`
	Next    string     `json:"next,omitempty" jsonschema:"after of the next page, which may have more even if this one is empty; absent at the end"`
	Partial bool       `json:"partial,omitempty" jsonschema:"the session is being indexed, so some may be missing: search again in a moment"`
}

func (s *server) searchSession(ctx context.Context, in searchIn, _ json.RawMessage) (out foundOut, err error) {
	out.Matches = []matchOut{}
	n, err := limit(in.Limit, defaultMatches, mostMatches)
	if err != nil {
		return out, err
	}
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	found, err := o.Search(ctx, session.SearchQuery{Text: in.Query, After: in.After, Limit: n})
	for _, m := range found.Matches {
		shown := matchOut{Key: m.Key, By: m.Actor, At: showTime(m.At), Excerpt: line(strings.Join(m.Excerpt, ""), 3*titleBytes)}
		if k, bad := session.ParseKey(m.Key); bad == nil {
			shown.Message = k.Message
		}
		out.Matches = append(out.Matches, shown)
	}
	out.Next, out.Partial = found.Next, found.Indexing
	return out, err
}

type listRequestsIn struct {
	Session string   `json:"session" jsonschema:"the session's id"`
	Kinds   []string `json:"kinds,omitempty" jsonschema:"only these: prompt, stop, permission, question, or others of its users"`
	After   uint64   `json:"after,omitempty" jsonschema:"next of the previous page"`
}

type requestOut struct {
	Request  string   `json:"request" jsonschema:"the request's id"`
	Kind     string   `json:"kind"`
	State    string   `json:"state" jsonschema:"open, claimed (someone works on it), answered, withdrawn, expired or unknown"`
	Text     string   `json:"text,omitempty" jsonschema:"what is asked; its beginning if that is long"`
	Choices  []Choice `json:"choices,omitempty"`
	Message  string   `json:"message,omitempty" jsonschema:"the message that it is about"`
	AskedBy  string   `json:"asked_by,omitempty"`
	Asked    string   `json:"asked,omitempty" jsonschema:"when"`
	Expires  string   `json:"expires,omitempty"`
	Choice   string   `json:"choice,omitempty" jsonschema:"what the answer has chosen"`
	Answer   string   `json:"answer,omitempty"`
	Answered string   `json:"by,omitempty" jsonschema:"who answered or ended it"`
	Reason   string   `json:"reason,omitempty"`
}

func showRequest(r Request) requestOut {
	return requestOut{Request: r.ID, Kind: r.Kind, State: string(r.State), Text: line(payloadText(r.Payload), outlineBytes), Choices: r.Choices, Message: r.Message,
		AskedBy: r.AskedBy, Asked: showTime(r.Asked), Expires: showTime(r.Expires), Choice: r.Choice, Answer: clip(payloadText(r.Answer)), Answered: r.By, Reason: line(r.Reason, titleBytes)}
}

// clip returns the text of an answer, which is a page at most.
func clip(text string) string {
	text, all := cut(text, pageBytes)
	if !all {
		text += "… (cut: read_value of request/ID/state has all of it)"
	}
	return text
}

type requestsOut struct {
	Requests []requestOut `json:"requests"`
	Next     uint64       `json:"next,omitempty" jsonschema:"after of the next page; absent at the end"`
}

func (s *server) listRequests(ctx context.Context, in listRequestsIn, _ json.RawMessage) (out requestsOut, err error) {
	out.Requests = []requestOut{}
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	list, more, err := o.Requests(ctx, in.Kinds, in.After)
	size := 0
	for i, r := range list {
		shown := showRequest(r)
		if size += jsonLen(shown.Text) + 2*titleBytes; size > pageBytes && i > 0 {
			more = true
			break
		}
		out.Requests = append(out.Requests, shown)
		out.Next = r.Place
	}
	if !more {
		out.Next = 0
	}
	return out, err
}
