package acprecord

// The way back: what was recorded, as the updates by which an agent would repeat it.

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Replay turns the values of a session into updates, one value at a time, in the session's order. The zero one is ready.
type Replay struct {
	users map[string]bool // messages of users
}

// Value returns the updates that repeat a value: nil for what is no message's part.
func (r *Replay) Value(key string, value []byte) []json.RawMessage {
	if id, ok := strings.CutPrefix(key, session.MessageKey("")); ok {
		var m struct{ Role string }
		if json.Unmarshal(value, &m) == nil && m.Role == "user" {
			if r.users == nil {
				r.users = map[string]bool{}
			}
			r.users[id] = true
		}
		return nil
	}
	id, ok := strings.CutPrefix(key, "part/")
	if !ok {
		return nil
	}
	message, _, _ := strings.Cut(id, "/")
	var p recorded
	if json.Unmarshal(value, &p) != nil {
		return nil
	}
	chunk := func(kind string, block any) []json.RawMessage {
		return []json.RawMessage{encode(map[string]any{"sessionUpdate": kind, "content": block})}
	}
	said := acp.AgentChunk
	if r.users[message] {
		said = acp.UserChunk
	}
	switch {
	case p.Type == "text" && p.Text != nil && *p.Text != "":
		return chunk(said, textBlock(*p.Text))
	case p.Type == "reasoning" && p.Text != nil && *p.Text != "":
		return chunk(acp.ThoughtChunk, textBlock(*p.Text))
	case p.Type == "file":
		return chunk(said, fileBlock(&p))
	case p.Type == "tool" && p.State != nil:
		if entries := planOf(&p); entries != nil {
			return []json.RawMessage{encode(map[string]any{"sessionUpdate": acp.Plan, "entries": entries})}
		}
		return []json.RawMessage{toolUpdate(message, &p)}
	}
	return nil
}

// recorded is a part as it may have been recorded, by another program, too.
type recorded struct {
	ID       string
	Type     string
	Text     *string
	Filename string
	URL      string
	Tool     string
	State    *struct {
		Status, Title           string
		Input, Output, Metadata json.RawMessage
	}
}

func textBlock(text string) any { return map[string]string{"type": "text", "text": text} }

// fileBlock returns a part of another kind than text as a content block.
func fileBlock(p *recorded) any {
	mime, data, ok := strings.Cut(strings.TrimPrefix(p.URL, "data:"), ";base64,")
	kind, _, _ := strings.Cut(mime, "/")
	if _, err := base64.StdEncoding.DecodeString(data); ok && err == nil && (kind == "image" || kind == "audio") {
		return map[string]string{"type": kind, "mimeType": mime, "data": data}
	}
	name := p.Filename
	if name == "" {
		name = "file"
	}
	if strings.HasPrefix(p.URL, "data:") || p.URL == "" {
		return textBlock("[" + name + "]")
	}
	return map[string]string{"type": "resource_link", "uri": p.URL, "name": name}
}

// planOf returns the entries of a plan; nil if a tool call is none.
func planOf(p *recorded) []map[string]string {
	var input struct {
		Todos []struct{ Content, Status, Priority string } `json:"todos"`
	}
	if p.Tool != "todowrite" || json.Unmarshal(p.State.Input, &input) != nil || len(input.Todos) == 0 {
		return nil
	}
	entries := make([]map[string]string, 0, len(input.Todos))
	for _, t := range input.Todos {
		if t.Priority == "" {
			t.Priority = "medium"
		}
		entries = append(entries, map[string]string{"content": t.Content, "status": t.Status, "priority": t.Priority})
	}
	return entries
}

// toolKinds are the protocol's kinds of tools, by the names that a page knows.
var toolKinds = map[string]string{"bash": "execute", "webfetch": "fetch", "edit": "edit", "write": "edit", "read": "read", "grep": "search", "glob": "search"}

// statuses are the protocol's, by those that are recorded.
var statuses = map[string]string{"pending": "pending", "running": "in_progress", "completed": "completed", "error": "failed"}

// toolUpdate returns a tool call with all that is known of it. Its id is that of the part: agents count their calls anew.
func toolUpdate(message string, p *recorded) json.RawMessage {
	s := p.State
	u := map[string]any{"sessionUpdate": acp.ToolCallNew, "toolCallId": message + "/" + p.ID, "title": p.Tool, "kind": "other", "status": "completed"}
	if s.Title != "" {
		u["title"] = s.Title
	}
	if kind := toolKinds[p.Tool]; kind != "" {
		u["kind"] = kind
	}
	if status := statuses[s.Status]; status != "" {
		u["status"] = status
	}
	if len(s.Input) > 0 {
		u["rawInput"] = s.Input
	}
	content := []any{}
	var m toolMeta
	_ = json.Unmarshal(s.Metadata, &m) // another's may be anything
	if m.Kind != "" {
		u["kind"] = m.Kind
	}
	if len(m.Locations) > 0 {
		u["locations"] = m.Locations
	}
	for _, f := range m.Files {
		content = append(content, map[string]any{"type": "diff", "path": f.File, "oldText": f.Before, "newText": f.After})
	}
	if text := ""; json.Unmarshal(s.Output, &text) == nil && text != "" {
		content = append(content, map[string]any{"type": "content", "content": textBlock(text)})
	}
	u["content"] = content
	return encode(u)
}
