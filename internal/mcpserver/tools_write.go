// The tools that write: messages and values where append is allowed, requests where ask is, refs in files where share is.

package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Waiting for an answer: below a minute, after which proxies and clients commonly give up.
const (
	defaultWait = 30
	maxWait     = 55 // seconds
)

func arg(name string, value any) ledger.Arg {
	return ledger.Arg{Name: name, JSON: httpkit.JSON(value)}
}

func (s *server) addAppendTools() {
	add(s, tool{name: "append_message", title: "Append a message", writes: true,
		description: "Add a message with a text to a session; it becomes the newest. Give an id of your own if you may have to try again: the same id and text again change nothing. To have the session's agent do something, ask is the tool."}, s.appendMessage)
	add(s, tool{name: "put_value", title: "Put a value", writes: true, replaces: true,
		description: "Put a JSON value at a key of a session, KIND or KIND/ID such as plan or todo/1, in place of what is there. expect makes sure that nobody else has changed it: the cursor that read_value shows, or 0 for a key that is not to exist."}, s.putValue)
}

type appendIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Text    string `json:"text" jsonschema:"what the message says"`
	Role    string `json:"role,omitempty" jsonschema:"user or assistant; assistant without"`
	ID      string `json:"id,omitempty" jsonschema:"the message's id, of letters, digits and _.:@+-; a new one without"`
}

type writtenOut struct {
	Session string `json:"session"`
	Message string `json:"message,omitempty" jsonschema:"the message's id"`
	Key     string `json:"key,omitempty"`
	Cursor  uint64 `json:"cursor,omitempty" jsonschema:"of the change"`
	Before  bool   `json:"before,omitempty" jsonschema:"it was there already, by an earlier call"`
	Queued  bool   `json:"queued,omitempty" jsonschema:"it is durable on this machine, and is sent when the server can be reached"`
}

// textPart is the id of the part that has the text of a message that was appended here.
const textPart = "prt_1"

func (s *server) appendMessage(ctx context.Context, in appendIn, _ json.RawMessage) (out writtenOut, err error) {
	role := cmp.Or(in.Role, "assistant")
	if role != "assistant" && role != "user" {
		return out, fault.BadArgument.With("role is user or assistant")
	}
	if in.Text == "" {
		return out, fault.BadArgument.With("text is empty")
	}
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	id := cmp.Or(in.ID, "msg_"+ulid.Make().String())
	out = writtenOut{Session: in.Session, Message: id}
	message, part := session.MessageKey(id), session.PartKey(id, textPart)
	value := map[string]any{"id": id, "role": role, "time": map[string]any{"created": time.Now().UnixMilli()}}
	text := map[string]any{"id": textPart, "messageID": id, "type": "text", "text": in.Text}
	applied, err := o.Apply(ctx,
		Op{session.MethodPut, []ledger.Arg{arg("key", message), arg("payload", value), arg("expect", 0)}},
		Op{session.MethodPut, []ledger.Arg{arg("key", part), arg("payload", text), arg("expect", 0)}})
	if fault.CodeOf(err) == fault.Conflict {
		return s.appendedBefore(ctx, o, out, role, in.Text, err)
	}
	out.Cursor, out.Queued = applied.Cursor, applied.Queued
	return out, err
}

// appendedBefore answers a call whose message is there already: it is the same, or conflict says that it is another.
func (s *server) appendedBefore(ctx context.Context, o Session, out writtenOut, role, text string, conflict error) (writtenOut, error) {
	values, err := o.Get(ctx, session.MessageKey(out.Message), session.PartKey(out.Message, textPart))
	if err != nil || len(values) < 2 || gjson.GetBytes(values[0].Value, "role").String() != role || gjson.GetBytes(values[1].Value, "text").String() != text {
		return out, fault.Conflict.Because(conflict, "the session has another message %s: leave out the id", fault.Clip(out.Message))
	}
	out.Cursor, out.Before = values[0].Cursor, true
	return out, nil
}

type putIn struct {
	Session string  `json:"session" jsonschema:"the session's id"`
	Key     string  `json:"key" jsonschema:"KIND or KIND/ID, of letters, digits and _.:@+-"`
	Value   any     `json:"value" jsonschema:"any JSON"`
	Expect  *uint64 `json:"expect,omitempty" jsonschema:"the cursor of the key's last change; 0: it is not there"`
}

func (s *server) putValue(ctx context.Context, in putIn, raw json.RawMessage) (out writtenOut, err error) {
	switch k, bad := session.ParseKey(in.Key); {
	case bad != nil:
		return out, bad
	case k.Kind != session.KeyOwn:
		return out, fault.BadKey.With("%s is not KIND or KIND/ID of your own, such as todo/1: messages are written with append_message", fault.Clip(in.Key))
	}
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	value := gjson.GetBytes(raw, "value") // byte for byte
	args := []ledger.Arg{arg("key", in.Key), {Name: "payload", JSON: []byte(value.Raw)}}
	if in.Expect != nil {
		args = append(args, arg("expect", *in.Expect))
	}
	applied, err := o.Apply(ctx, Op{session.MethodPut, args})
	return writtenOut{Session: in.Session, Key: in.Key, Cursor: applied.Cursor, Queued: applied.Queued}, err
}

func (s *server) addAskTools() {
	add(s, tool{name: "ask", title: "Ask in a session", writes: true,
		description: "Ask something in a session, and get the request's id. kind prompt: text for the session's agent, which gets it at most once and works on it. kind question: something that people answer, in words or by one of choices. kind stop: ends what the agent does for the message. Then wait_answer waits for the end. Give an id of your own if you may have to try again: the same again changes nothing."}, s.ask)
	add(s, tool{name: "wait_answer", title: "Wait for an answer",
		description: "Wait until a request has ended, at most 55 seconds, and get its state and answer. If it has not ended by then, ended is absent: call again, or look later."}, s.waitAnswer)
}

// askKinds are the kinds of requests that can be asked: a permission is asked for by agents alone.
var askKinds = []string{session.KindPrompt, session.KindQuestion, session.KindStop}

type askIn struct {
	Session string   `json:"session" jsonschema:"the session's id"`
	Kind    string   `json:"kind" jsonschema:"prompt, question or stop"`
	Text    string   `json:"text,omitempty" jsonschema:"what is asked"`
	Choices []Choice `json:"choices,omitempty" jsonschema:"of a question: the answers to choose from, 32 at most"`
	Message string   `json:"message,omitempty" jsonschema:"id of the message that it is about; a stop needs it"`
	Expires int64    `json:"expires_seconds,omitempty" jsonschema:"how long it may be answered, 1 second to 30 days; for ever without"`
	ID      string   `json:"id,omitempty" jsonschema:"the request's id; a new one without"`
}

type askedOut struct {
	Session string `json:"session"`
	Request string `json:"request" jsonschema:"the request's id"`
	Cursor  uint64 `json:"cursor,omitempty"`
	Queued  bool   `json:"queued,omitempty" jsonschema:"it is durable on this machine, and is asked when the server can be reached"`
}

func (s *server) ask(ctx context.Context, in askIn, _ json.RawMessage) (out askedOut, err error) {
	switch {
	case !slices.Contains(askKinds, in.Kind):
		return out, fault.BadArgument.With("kind is %s", listOf(askKinds))
	case in.Text == "" && in.Kind != session.KindStop:
		return out, fault.BadArgument.With("text is empty")
	case in.Expires < 0:
		return out, fault.BadArgument.With("expires_seconds is at least 1")
	}
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	out = askedOut{Session: in.Session, Request: cmp.Or(in.ID, ulid.Make().String())}
	args := []ledger.Arg{arg("request", out.Request), arg("kind", in.Kind)}
	if in.Text != "" {
		args = append(args, arg("payload", map[string]string{"text": in.Text}))
	}
	if in.Message != "" {
		args = append(args, arg("message", in.Message))
	}
	if in.Choices != nil {
		args = append(args, arg("choices", in.Choices))
	}
	if in.Expires > 0 {
		args = append(args, arg("expires_in", in.Expires*1000))
	}
	applied, err := o.Apply(ctx, Op{session.MethodAsk, args})
	out.Cursor, out.Queued = applied.Cursor, applied.Queued
	return out, err
}

type waitIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Request string `json:"request" jsonschema:"the request's id"`
	Seconds int    `json:"seconds,omitempty" jsonschema:"how long to wait, 1 to 55; 30 without"`
}

type waitedOut struct {
	requestOut
	Ended bool `json:"ended,omitempty" jsonschema:"nothing more becomes of it"`
}

// errEnded ends the following of a request.
var errEnded = errors.New("the request has ended")

func (s *server) waitAnswer(ctx context.Context, in waitIn, _ json.RawMessage) (out waitedOut, err error) {
	if in.Seconds < 0 || in.Seconds > maxWait {
		return out, fault.BadArgument.With("seconds is 1 to %d: call again", maxWait)
	}
	keys := []string{session.RequestKey(in.Request), session.RequestStateKey(in.Request)}
	if bad := session.CheckKeys(keys); bad != nil {
		return out, bad
	}
	o, err := s.cfg.Source.Open(ctx, in.Session)
	if err != nil {
		return out, err
	}
	var now Request
	read := false
	wait, cancel := context.WithTimeout(ctx, time.Duration(cmp.Or(in.Seconds, defaultWait))*time.Second)
	defer cancel()
	err = o.Follow(wait, keys, func() (err error) {
		if now, err = readRequest(ctx, o, in.Request); err == nil && now.State.Ended() {
			err = errEnded
		}
		read = err == nil || err == errEnded
		return err
	})
	if err == errEnded || read && wait.Err() != nil && ctx.Err() == nil {
		return waitedOut{showRequest(now), now.State.Ended()}, nil
	}
	if err == nil {
		err = wait.Err()
	}
	return out, err
}

func readRequest(ctx context.Context, o Session, id string) (Request, error) {
	values, err := o.Get(ctx, session.RequestKey(id), session.RequestStateKey(id))
	if err != nil {
		return Request{}, err
	}
	var asked, state []byte
	for _, e := range values {
		if e.Key == session.RequestKey(id) {
			asked = e.Value
		} else {
			state = e.Value
		}
	}
	if asked == nil {
		return Request{}, fault.NotFound.With("the session has no request %s that can be read", fault.Clip(id))
	}
	return ParseRequest(id, asked, state)
}

// ShareOptions are a new ref's.
type ShareOptions struct {
	Session string
	Rights  string // with commas
	File    string
	Label   string
	Expires time.Duration // 0: never
}

func (s *server) addShareTool() {
	add(s, tool{name: "share", title: "Share a session", writes: true,
		description: "Make a ref to a session, with which others can use it, and write it to a new file on the user's machine. The ref itself is never returned: tell the user where the file is. rights is read, append, ask or several of them with commas."}, s.share)
}

type shareIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Rights  string `json:"rights" jsonschema:"read, append, ask, with commas"`
	File    string `json:"file" jsonschema:"path of the new file; nothing may be there"`
	Label   string `json:"label,omitempty" jsonschema:"a name for people"`
	Expires int64  `json:"expires_seconds,omitempty" jsonschema:"how long it lasts; for ever without"`
}

type sharedOut struct {
	Ref    string `json:"ref" jsonschema:"the ref's id, which opens nothing"`
	File   string `json:"file"`
	Queued bool   `json:"queued,omitempty" jsonschema:"the ref works when the server can be reached again"`
}

// shareRights are the rights that a model can hand on.
var shareRights = []string{"read", "append", "ask"}

func (s *server) share(ctx context.Context, in shareIn, _ json.RawMessage) (out sharedOut, err error) {
	for right := range strings.SplitSeq(in.Rights, ",") {
		if !slices.Contains(shareRights, right) {
			return out, fault.BadArgument.With("rights is %s, or several of them with commas", listOf(shareRights))
		}
	}
	if in.File == "" || in.Expires < 0 {
		return out, fault.BadArgument.With("file is the path of a new file, and expires_seconds at least 1")
	}
	out.Ref, out.File, out.Queued, err = s.cfg.Share(ctx, ShareOptions{Session: in.Session, Rights: in.Rights, File: in.File, Label: in.Label, Expires: time.Duration(in.Expires) * time.Second})
	return out, err
}
