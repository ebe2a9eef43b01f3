// The tools that read, and those of them that read sessions and messages; the others are in tools_values.go.

package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Numbers of a page: the one that is taken where a call names none, and the largest.
const (
	defaultSessions, mostSessions = 20, 50
	defaultMessages, mostMessages = 10, 50
	defaultKeys, mostKeys         = 50, 200
	defaultMatches, mostMatches   = 10, 50
)

// Bounds of what is read for a page, which is far more than what it shows.
const (
	maxMessages  = 50_000   // that are counted for an outline
	outlineParts = 32       // of one message in an outline
	readBytes    = 64 << 10 // of values at once, where a Source bounds them
)

func (s *server) addReadTools() {
	add(s, tool{name: "list_sessions", title: "List sessions",
		description: "List the sessions that can be read, last changed first: id, title, and when each last changed. Use the id in session for all other tools. search finds a part of the title or id."}, s.listSessions)
	add(s, tool{name: "read_session", title: "Read a session",
		description: "Read the messages of a session, oldest first and the newest last, each with its role and the beginning of its text. Without before and after these are the newest. before gives those before a message: use earlier from the last result; after gives those after one: use later, or the id of the last message that you have seen, to get what is new. A message with cut has more text: read_message."}, s.readSession)
	add(s, tool{name: "read_message", title: "Read a message",
		description: "Read one message whole: the text of all its parts, with reasoning and the input and output of tools, about 8 KB at a time. If there is a next, call again with it in after."}, s.readMessage)
	add(s, tool{name: "list_keys", title: "List keys",
		description: "List the keys of a session's values, by key: todo lists, plans and the like (KIND or KIND/ID), besides message/ID and part/MESSAGE/ID. prefix, which ends in /, lists what is below it, as todo/."}, s.listKeys)
	add(s, tool{name: "read_value", title: "Read a value",
		description: "Read the value of a key as JSON text, about 8 KB at a time, and who wrote it. If there is a next, call again with it in offset."}, s.readValue)
	add(s, tool{name: "search_session", title: "Search a session",
		description: "Find the messages and values of one session that have all of some words, the newest first, each with an excerpt. Words in double quotes are found one after the other. To find a session by its title use list_sessions."}, s.searchSession)
	add(s, tool{name: "list_requests", title: "List requests",
		description: "List what is asked in a session and not answered yet: prompts for its agent, questions and permissions for people. Only people and the session's agent answer; no tool here does."}, s.listRequests)
}

type listSessionsIn struct {
	Search string `json:"search,omitempty" jsonschema:"a part of the title or id"`
	After  string `json:"after,omitempty" jsonschema:"next of the previous page"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many, 1 to 50; 20 without"`
}

type sessionOut struct {
	Session  string `json:"session" jsonschema:"the session's id"`
	Title    string `json:"title,omitempty"`
	External string `json:"external,omitempty" jsonschema:"the id that another program knows it by"`
	Parent   string `json:"parent,omitempty" jsonschema:"the session whose child it is"`
	Cursor   uint64 `json:"cursor,omitempty" jsonschema:"number of its last event: it has changed if this has"`
	Updated  string `json:"updated,omitempty" jsonschema:"when it last changed"`
}

type sessionsOut struct {
	Sessions []sessionOut `json:"sessions"`
	Next     string       `json:"next,omitempty" jsonschema:"after of the next page; absent at the end"`
}

// titleBytes is how much of a title, or of another short text of one line, is shown.
const titleBytes = 200

func showInfo(i Info) sessionOut {
	return sessionOut{Session: i.ID, Title: line(i.Title, titleBytes), External: i.External, Parent: i.Parent, Cursor: i.Cursor, Updated: showTime(i.Updated)}
}

func showTime(t time.Time) string {
	if t.IsZero() || t.UnixMilli() == 0 {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// line returns a text on one line, and cuts it.
func line(text string, limit int) string {
	text, all := cut(strings.Join(strings.Fields(text), " "), limit)
	if !all {
		text += "…"
	}
	return text
}

// limit returns how many a page has.
func limit(asked, standard, most int) (int, error) {
	if asked < 0 || asked > most {
		return 0, fault.BadArgument.With("limit is 1 to %d", most)
	}
	return cmp.Or(asked, standard), nil
}

func (s *server) listSessions(ctx context.Context, in listSessionsIn, _ json.RawMessage) (out sessionsOut, err error) {
	out.Sessions = []sessionOut{}
	n, err := limit(in.Limit, defaultSessions, mostSessions)
	if err != nil {
		return out, err
	}
	list, next, err := s.cfg.Source.List(ctx, in.Search, in.After, n)
	for _, i := range list {
		out.Sessions = append(out.Sessions, showInfo(i))
	}
	out.Next = next
	return out, err
}

type readSessionIn struct {
	Session string `json:"session" jsonschema:"the session's id, as list_sessions shows it"`
	Before  string `json:"before,omitempty" jsonschema:"id of a message: those before it"`
	After   string `json:"after,omitempty" jsonschema:"id of a message: those after it"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many messages at most, 1 to 50; 10 without"`
}

type messageOut struct {
	Message string `json:"message" jsonschema:"the message's id"`
	Role    string `json:"role,omitempty"`
	By      string `json:"by,omitempty" jsonschema:"who wrote it last"`
	At      string `json:"at,omitempty" jsonschema:"when"`
	Text    string `json:"text"`
	Cut     bool   `json:"cut,omitempty" jsonschema:"there is more: read_message"`
}

type outlineOut struct {
	Session  sessionOut   `json:"session"`
	Messages []messageOut `json:"messages" jsonschema:"oldest first"`
	Earlier  string       `json:"earlier,omitempty" jsonschema:"before of the page before this one; absent if this begins with the first message"`
	Later    string       `json:"later,omitempty" jsonschema:"after of the page after this one; absent if this ends with the newest message"`
}

func (s *server) readSession(ctx context.Context, in readSessionIn, _ json.RawMessage) (out outlineOut, err error) {
	n, err := limit(in.Limit, defaultMessages, mostMessages)
	if err != nil {
		return out, err
	}
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	return outline(ctx, o, in.Before, in.After, n)
}

// outline returns a page of a session's messages: the n before a message, after one, or the last ones.
func outline(ctx context.Context, o Session, before, after string, n int) (out outlineOut, err error) {
	out.Messages = []messageOut{}
	if before != "" && after != "" {
		return out, fault.BadArgument.With("give before or after, not both")
	}
	info, err := o.Describe(ctx)
	if err != nil {
		return out, err
	}
	out.Session = showInfo(info)
	ids, earlier, later, err := messagesAt(ctx, o, before, after, n)
	if err != nil || len(ids) == 0 {
		return out, err
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = session.MessageKey(id)
	}
	values, err := o.Get(ctx, keys...)
	if err != nil {
		return out, err
	}
	if after == "" { // if not all fit in, the newest of them do
		slices.Reverse(values)
	}
	size := 0
	for i, e := range values {
		m, err := outlineMessage(ctx, o, e)
		if err != nil {
			return out, err
		}
		if size += jsonLen(m.Text) + titleBytes; size > pageBytes && i > 0 {
			if after == "" {
				earlier = true
			} else {
				later = true
			}
			break
		}
		out.Messages = append(out.Messages, m)
	}
	if after == "" {
		slices.Reverse(out.Messages)
	}
	if len(out.Messages) > 0 {
		if earlier {
			out.Earlier = out.Messages[0].Message
		}
		if later {
			out.Later = out.Messages[len(out.Messages)-1].Message
		}
	}
	return out, nil
}

// messagesAt returns the ids of n messages in the session's order, and whether there are others before and after them.
func messagesAt(ctx context.Context, o Session, before, after string, n int) (ids []string, earlier, later bool, err error) {
	found := before == "" && after == ""
	counted := 0
	q := session.KeyQuery{Prefix: session.MessageKey(""), Order: session.ByPut, Limit: session.MaxListKeys}
	for {
		entries, next, err := o.Keys(ctx, q)
		if err != nil {
			return nil, false, false, err
		}
		for _, e := range entries {
			id := strings.TrimPrefix(e.Key, session.MessageKey(""))
			switch {
			case before != "" && id == before:
				return ids, earlier, true, nil
			case after != "" && !found:
				found = id == after
				earlier = true
				continue
			case after != "" && len(ids) == n:
				return ids, earlier, true, nil
			case len(ids) == n:
				ids, earlier = append(ids[:0], ids[1:]...), true
			}
			ids = append(ids, id)
		}
		if counted += len(entries); counted > maxMessages {
			return nil, false, false, fault.TooLarge.With("the session has more than %d messages, too many to read in order: find what you need with search_session, and read it with read_message", maxMessages)
		}
		if q.After = next; next == "" {
			break
		}
	}
	if !found {
		return nil, false, false, fault.NotFound.With("the session has no message %s that can be read", fault.Clip(before+after))
	}
	return ids, earlier, false, nil
}

// outlineMessage returns a message with the beginning of its text, which is that of its first parts.
func outlineMessage(ctx context.Context, o Session, e Entry) (m messageOut, err error) {
	m = messageOut{Message: strings.TrimPrefix(e.Key, session.MessageKey("")), Role: gjson.GetBytes(e.Value, "role").String(), By: e.Actor, At: showTime(e.At)}
	parts, next, err := o.Keys(ctx, session.KeyQuery{Prefix: session.PartKey(m.Message, ""), Order: session.ByPut, Limit: outlineParts, Values: true, MaxBytes: readBytes})
	if err != nil {
		return m, err
	}
	texts := make([]string, 0, 1+len(parts))
	if text := messageText(e.Value); text != "" {
		texts = append(texts, text)
	}
	for _, p := range parts {
		if text := strings.TrimSpace(partText(p.Value, false)); text != "" {
			texts = append(texts, text)
		}
		m.Cut = m.Cut || strings.HasPrefix(partText(p.Value, true), "[") // reasoning, and what went into a tool
	}
	text, all := cut(strings.Join(texts, "\n"), outlineBytes)
	m.Text, m.Cut = text, m.Cut || !all || next != ""
	return m, nil
}

type readMessageIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Message string `json:"message" jsonschema:"the message's id"`
	After   string `json:"after,omitempty" jsonschema:"next of the previous page"`
}

type partOut struct {
	Part string `json:"part,omitempty" jsonschema:"the part's id; its value is that of the key part/MESSAGE/ID"`
	Type string `json:"type,omitempty"`
	Text string `json:"text"`
}

type wholeOut struct {
	Session string    `json:"session"`
	Message string    `json:"message"`
	Role    string    `json:"role,omitempty"`
	By      string    `json:"by,omitempty"`
	At      string    `json:"at,omitempty"`
	Parts   []partOut `json:"parts"`
	Next    string    `json:"next,omitempty" jsonschema:"after of the next page; absent at the end"`
}

func (s *server) readMessage(ctx context.Context, in readMessageIn, _ json.RawMessage) (out wholeOut, err error) {
	out = wholeOut{Session: in.Session, Message: in.Message, Parts: []partOut{}}
	from, offset := "", 0 // the part and where in its text the page begins
	if in.After != "" {
		at := strings.LastIndexByte(in.After, '/')
		if at >= 0 {
			from = in.After[:at]
			offset, err = strconv.Atoi(in.After[at+1:])
		}
		if at < 0 || err != nil || offset < 0 {
			return out, fault.BadArgument.With("after is the next of the previous page of this message")
		}
	}
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	values, err := o.Get(ctx, session.MessageKey(in.Message))
	if err != nil {
		return out, err
	}
	if len(values) == 0 {
		return out, fault.NotFound.With("the session has no message %s that can be read", fault.Clip(in.Message))
	}
	message := values[0]
	out.Role, out.By, out.At = gjson.GetBytes(message.Value, "role").String(), message.Actor, showTime(message.At)
	room := pageBytes
	// put adds a part's text from the offset on, and reports whether all of it has found room.
	put := func(id, kind, text string) bool {
		if offset > 0 {
			text = text[min(offset, len(text)):]
		}
		if strings.TrimSpace(text) == "" {
			offset = 0
			return true
		}
		if room < titleBytes {
			out.Next = id + "/" + strconv.Itoa(offset)
			return false
		}
		shown, all := cut(text, room)
		out.Parts = append(out.Parts, partOut{id, kind, shown})
		room -= jsonLen(shown) + titleBytes/2
		if !all {
			out.Next = id + "/" + strconv.Itoa(offset+len(shown))
		}
		offset = 0
		return all
	}
	if from == "" && !put("", "", messageText(message.Value)) {
		return out, nil
	}
	found := from == ""
	q := session.KeyQuery{Prefix: session.PartKey(in.Message, ""), Order: session.ByPut, Limit: session.MaxListKeys}
	for {
		parts, next, err := o.Keys(ctx, q)
		if err != nil {
			return out, err
		}
		for _, p := range parts {
			id := strings.TrimPrefix(p.Key, q.Prefix)
			if found = found || id == from; !found {
				continue
			}
			values, err := o.Get(ctx, p.Key)
			if err != nil {
				return out, err
			}
			for _, e := range values { // none if it was removed
				if !put(id, gjson.GetBytes(e.Value, "type").String(), partText(e.Value, true)) {
					return out, nil
				}
			}
		}
		if q.After = next; next == "" {
			break
		}
	}
	if !found {
		return out, fault.NotFound.With("the part where the page would begin is not there any more: read the message from the start")
	}
	return out, nil
}
