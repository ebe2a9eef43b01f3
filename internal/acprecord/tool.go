package acprecord

// Tool calls and plans.

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/session"
)

// tool is what is known of a tool call. It stays known when its turn is over: it may still end.
type tool struct {
	turn, id string // of its part
	call     string
	begun    int64
	ended    int64
	title    string
	kind     string
	status   string
	where    []acp.Location
	input    json.RawMessage // cut
	whole    json.RawMessage // the input, for permissions, until the call is over
	output   json.RawMessage // cut
	files    []change
	pictures []part
	dirty    bool
	closed   bool // it has ended long ago, and its values are not kept: nothing more is taken
	size     int  // of its part when it was last put
}

// toolCall records what an update says of a tool call.
func (r *Recorder) toolCall(ms int64, u acp.ToolCall, content json.RawMessage) []Op {
	if u.ID == "" {
		return nil
	}
	t, ops := r.tools[u.ID], []Op(nil)
	if t == nil {
		if len(r.tools) > maxTools {
			return nil // the turn is ended for it
		}
		ops = append(r.need(ms), r.settle(ms)...)
		t = &tool{turn: r.turn.id, id: r.nextPart(), call: clip(u.ID, 200), begun: ms, kind: "other", status: "pending"}
		r.tools[u.ID] = t
	}
	if t.closed {
		return nil
	}
	first := t.size == 0
	if r.turn != nil {
		r.turn.bytes += len(u.RawInput)
	}
	t.take(r.cfg.Session, u, content)
	over := t.status == "completed" || t.status == "error"
	if over && t.ended == 0 {
		t.ended = ms
		r.keep(t)
	} else if !over {
		t.ended = 0
	}
	if first || over || r.turn == nil || t.turn != r.turn.id {
		ops = append(ops, t.put(r.cfg.Session))
		return ops
	}
	if !t.dirty {
		t.dirty = true
		r.turn.dirty = append(r.turn.dirty, t)
	}
	if t.size > slowBytes {
		r.wait(ms, slowGather)
	} else {
		r.wait(ms, r.cfg.Gather)
	}
	return ops
}

// keep keeps the values of a tool call that has ended, and those of maxKept others.
func (r *Recorder) keep(t *tool) {
	if r.over = append(r.over, t); len(r.over) > maxKept {
		if old := r.over[0]; old.ended != 0 {
			*old = tool{turn: old.turn, id: old.id, closed: true}
		}
		r.over = r.over[1:]
	}
}

// flushTools records the tool calls that have changed.
func (r *Recorder) flushTools() (ops []Op) {
	if r.turn != nil {
		for _, t := range r.turn.dirty {
			if t.dirty {
				ops = append(ops, t.put(r.cfg.Session))
			}
		}
		r.turn.dirty = nil
	}
	return ops
}

// take takes over what an update says.
func (t *tool) take(sessionID string, u acp.ToolCall, content json.RawMessage) {
	if u.Title != nil {
		t.title = clip(*u.Title, 2000)
	}
	if u.Tool != nil {
		t.kind = clip(*u.Tool, 40)
	}
	if u.Status != nil {
		switch *u.Status {
		case "in_progress":
			t.status = "running"
		case "failed":
			t.status = "error"
		case "pending", "completed":
			t.status = *u.Status
		}
	}
	if u.Locations != nil {
		t.where = u.Locations[:min(len(u.Locations), maxFiles)]
	}
	if present(u.RawInput) {
		t.input, t.whole = cutJSON(u.RawInput), u.RawInput
	}
	if t.status == "completed" || t.status == "error" {
		t.whole = nil
	}
	texts := t.content(sessionID, content)
	switch {
	case texts != "":
		t.output = encode(clip(texts, shownBytes))
	case present(u.RawOutput):
		t.output = outputOf(u.RawOutput)
	}
}

// content takes over a tool call's content, and returns its text.
func (t *tool) content(sessionID string, raw json.RawMessage) string {
	list, err := acp.Read[[]acp.ToolContent](raw)
	if err != nil || len(list) == 0 {
		return ""
	}
	var text strings.Builder
	left := fileBytes
	t.files, t.pictures = nil, nil
	for _, c := range list {
		switch c.Type {
		case "diff":
			if len(t.files) < maxFiles {
				t.files = append(t.files, changeOf(c, &left))
			}
		case "content":
			block, err := acp.Read[acp.Block](c.Content)
			switch {
			case err != nil:
			case block.Type == "text":
				text.WriteString(block.Text)
			case block.Resource != nil && block.Resource.Blob == nil:
				text.WriteString(block.Resource.Text)
			case len(t.pictures) < 4 && len(block.Data) <= shownBytes:
				p := blockPart(sessionID, t.turn, "", block)
				t.pictures = append(t.pictures, p)
			}
		}
	}
	return strings.ToValidUTF8(text.String(), "\uFFFD")
}

// changeOf returns a diff as a change, with texts of at most left bytes, which it takes from that.
func changeOf(c acp.ToolContent, left *int) change {
	cut := func(s string) string {
		s = clip(s, *left)
		*left = max(*left-len(s), 0)
		return s
	}
	after := cut(c.New)
	out := change{File: clip(c.Path, 2000), After: &after}
	if c.Old == nil {
		out.Status = "added"
		return out
	}
	before := cut(*c.Old)
	out.Before = &before
	return out
}

// outputOf returns a raw output: the text of {"output": text, …}, or any JSON.
func outputOf(raw json.RawMessage) json.RawMessage {
	var o struct {
		Output *string `json:"output"`
		Error  *string `json:"error"`
	}
	if json.Unmarshal(raw, &o) == nil {
		for _, text := range []*string{o.Output, o.Error} {
			if text != nil {
				return encode(clip(*text, shownBytes))
			}
		}
	}
	return cutJSON(raw)
}

// cutJSON returns JSON text as it is, or the beginning of a long one as a string.
func cutJSON(raw json.RawMessage) json.RawMessage {
	if len(raw) <= shownBytes {
		return raw
	}
	return encode(clip(strings.ToValidUTF8(string(raw), "\uFFFD"), shownBytes))
}

// toolNames is how a page knows the kinds of tools of the protocol.
var toolNames = map[string]string{"execute": "bash", "fetch": "webfetch"}

// put returns the op that puts the call's part.
func (t *tool) put(sessionID string) Op {
	t.dirty = false
	s := toolState{Status: t.status, Input: t.input, Output: t.output, Title: t.title, Attachments: t.pictures, Time: span{Start: t.begun, End: t.ended}}
	if s.Input == nil {
		s.Input = json.RawMessage("{}")
	}
	s.Metadata = &toolMeta{Kind: t.kind, Files: t.files}
	if len(t.where) > 0 {
		s.Metadata.Locations = encode(t.where)
	}
	name := t.kind
	switch n := toolNames[t.kind]; {
	case len(t.files) > 0:
		name = "edit" // a page shows its diffs
	case n == "bash" && !hasText(t.input, "command"):
	case n != "":
		name = n
	}
	if t.status == "error" {
		s.Error = "failed"
		if text := ""; json.Unmarshal(t.output, &text) == nil && text != "" {
			s.Error = clip(text, 2000)
		}
	}
	p := part{ID: t.id, Session: sessionID, Message: t.turn, Type: "tool", Call: t.call, Tool: name, State: &s}
	op := put(session.PartKey(t.turn, t.id), p)
	if len(op.Payload) > maxPayload { // of characters that take much to write down
		s.Input, s.Output, s.Attachments, s.Metadata = json.RawMessage("{}"), encode("too long to be recorded"), nil, nil
		op = put(session.PartKey(t.turn, t.id), p)
	}
	t.size = len(op.Payload)
	return op
}

// hasText reports whether an object has a text of a name.
func hasText(object json.RawMessage, name string) bool {
	var all map[string]json.RawMessage
	return json.Unmarshal(object, &all) == nil && len(all[name]) > 0 && all[name][0] == '"'
}

// plan records the agent's plan: one part of the turn, which always has the newest.
func (r *Recorder) plan(ms int64, entries json.RawMessage) []Op {
	list, err := acp.Read[[]todo](entries)
	if err != nil {
		return nil
	}
	ops := r.need(ms)
	if r.turn.plan == "" {
		ops = append(ops, r.settle(ms)...)
		r.turn.plan = r.nextPart()
	}
	left := shownBytes
	list = slices.Clip(list[:min(len(list), 500)])
	for i := range list {
		list[i] = todo{Content: clip(list[i].Content, max(left, 0)), Status: clip(list[i].Status, 40), Priority: clip(list[i].Priority, 40)}
		left -= len(list[i].Content)
	}
	input := encode(map[string]any{"todos": list})
	return append(ops, put(session.PartKey(r.turn.id, r.turn.plan), part{ID: r.turn.plan, Session: r.cfg.Session, Message: r.turn.id, Type: "tool", Call: "plan", Tool: "todowrite",
		State: &toolState{Status: "completed", Input: input, Title: "Plan", Time: span{Start: ms, End: ms}}}))
}

// present reports whether a member is there: null is not.
func present(text json.RawMessage) bool { return len(text) > 0 && string(text) != "null" }

// Shown returns what a permission is asked for, as people are shown it: what is known of the tool call, and what the question
// says of it. Nothing is cut: the answer is bound to all of it.
func (r *Recorder) Shown(raw json.RawMessage) json.RawMessage {
	type asks struct {
		Title     string            `json:"title,omitempty"`
		Kind      string            `json:"kind,omitempty"`
		Input     json.RawMessage   `json:"input,omitempty"`
		Locations []acp.Location    `json:"locations,omitempty"`
		Content   []json.RawMessage `json:"content,omitempty"`
	}
	u, err := acp.Read[struct {
		acp.ToolCall
		Content json.RawMessage `json:"content"`
	}](raw)
	if err != nil {
		return encode(map[string]json.RawMessage{"tool": raw})
	}
	var a asks
	if t := r.tools[u.ID]; t != nil {
		a = asks{Title: t.title, Kind: t.kind, Locations: t.where, Input: t.whole}
	}
	if u.Title != nil {
		a.Title = *u.Title
	}
	if u.Tool != nil {
		a.Kind = *u.Tool
	}
	if present(u.RawInput) {
		a.Input = u.RawInput
	}
	if u.Locations != nil {
		a.Locations = u.Locations
	}
	shown := struct {
		Tool asks   `json:"tool"`
		Diff []diff `json:"diff,omitempty"`
	}{Tool: a}
	list, err := acp.Read[[]json.RawMessage](u.Content)
	if err != nil {
		list = []json.RawMessage{u.Content}
	}
	for _, raw := range list {
		if c, err := acp.Read[acp.ToolContent](raw); err == nil && c.Type == "diff" {
			shown.Diff = append(shown.Diff, diff{c.Path, c.Old, c.New})
			continue
		}
		shown.Tool.Content = append(shown.Tool.Content, raw)
	}
	return encode(shown)
}

// diff is a change that a permission is asked for.
type diff struct {
	Path string  `json:"path"`
	Old  *string `json:"old"` // null: it is a new file
	New  string  `json:"new"`
}
