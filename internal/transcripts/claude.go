package transcripts

// Claude Code's transcripts: projects/FOLDER/SESSION.jsonl below its own folder, and those of its agents in
// SESSION/subagents/agent-ID.jsonl.

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/shape"
	"github.com/mooring-rpc/mooring/internal/session"
)

// claude reads the lines of one transcript.
type claude struct {
	w       *writer
	session string // Claude Code's id
	agent   string // the agent's id, of an agent's transcript
	titled  bool   // by Claude Code or its user, not by the first prompt
	asked   string // the last message of the user
	latest  string // the last message of the conversation
	answer  *shape.Message
	tasks   []shape.Todo
	taskIDs []string

	boundary string // the last message before a compaction whose summary has not come
}

func newClaude() *claude { return &claude{w: newWriter()} }

func (c *claude) recorded() *writer { return c.w }

// claudeSkips are the types of lines that have nothing of the conversation that others have not.
var claudeSkips = map[string]bool{
	"queue-operation": true, "attachment": true, "api-request": true, "api-request-blob": true, "api-request-shape": true, "atis-latch": true, "last-prompt": true,
	"tools-used": true, "cost-state": true, "mode": true, "file-history-snapshot": true, "progress": true, "permission-mode": true, "agent-name": true,
}

func (c *claude) line(_ int, line gjson.Result) (leftOut string, ours bool, err error) {
	kind := line.Get("type").Str
	if at := millis(line.Get("timestamp").Str); at != 0 {
		c.w.at = at
	}
	if kind == "user" || kind == "assistant" || kind == "system" {
		c.begin(line)
		if side := line.Get("isSidechain").Bool(); side && c.agent == "" {
			return "line of an agent", true, nil
		}
	}
	switch kind {
	case "user":
		return c.user(line)
	case "assistant":
		return c.assistant(line)
	case "system":
		return c.system(line)
	case "ai-title", "custom-title", "summary":
		c.entitle(line)
		return "", false, nil
	}
	return kind, claudeSkips[kind], nil
}

// begin names the session by the first line of the conversation.
func (c *claude) begin(line gjson.Result) {
	id := line.Get("sessionId").Str
	if c.session != "" || id == "" {
		return
	}
	c.session = id
	if line.Get("isSidechain").Bool() {
		c.agent = line.Get("agentId").Str
	}
	if c.agent == "" {
		c.w.begin(id, line.Get("cwd").Str, "")
		return
	}
	c.w.begin(agentSession(id, c.agent), line.Get("cwd").Str, id)
}

// agentSession returns the id of the session of an agent.
func agentSession(session, agent string) string { return session + ":" + agent }

// entitle takes over a title that Claude Code or its user gave.
func (c *claude) entitle(line gjson.Result) {
	for _, name := range []string{"customTitle", "aiTitle", "title", "summary"} {
		if title := line.Get(name); title.Type == gjson.String && title.Str != "" && c.session != "" {
			c.titled = true
			c.w.title(titleOf(title.Str))
			return
		}
	}
}

// user records what the user says, the results of tools, and what Claude Code says in the user's place.
func (c *claude) user(line gjson.Result) (leftOut string, ours bool, err error) {
	id, content := idOf(line.Get("uuid").Str), line.Get("message.content")
	if line.Get("isCompactSummary").Bool() {
		c.summary(id, content)
		return "", false, nil
	}
	synthetic := line.Get("isMeta").Bool() || line.Get("origin.kind").Exists()
	begun := false
	add := func() string {
		if !begun {
			begun = true
			c.answer, c.asked, c.latest = nil, id, id
			c.w.message(&shape.Message{ID: id, Role: "user", Time: shape.Span{Created: c.w.at}})
		}
		return id
	}
	say := func(text string) {
		own := synthetic || isClaudes(text)
		if !own && !c.titled && c.w.info.Title == "" {
			c.w.title(titleOf(text))
		}
		if text != "" {
			c.w.text(add(), "text", text, own)
		}
	}
	if c.w.shown == nil && content.Type == gjson.String && (synthetic || isClaudes(content.Str)) {
		c.w.title("") // the session's value is the first; its title comes with a prompt
	}
	if content.Type == gjson.String {
		say(content.Str)
		return "", false, nil
	}
	content.ForEach(func(_, b gjson.Result) bool {
		switch b.Get("type").Str {
		case "text":
			say(b.Get("text").Str)
		case "tool_result":
			if !c.result(b, line.Get("toolUseResult")) {
				leftOut, ours = "result of a call that is not in the file", true
			}
		case "image":
			p := shape.Part{}
			if !imagePart(&p, b.Get("source.media_type").Str, b.Get("source.data").Str) {
				leftOut, ours = "picture", true
				break
			}
			n := c.w.newPart(add(), p.Type)
			n.Mime, n.URL = p.Mime, p.URL
			c.w.part(&n)
		default:
			leftOut = "block of a message: " + b.Get("type").Str
		}
		return true
	})
	return leftOut, ours, nil
}

// isClaudes reports whether a user's text is Claude Code's own: the echo of a command, a notice, a reminder.
func isClaudes(text string) bool {
	return beginsWithAny(text, "<command-name>", "<command-message>", "<local-command-", "<bash-", "<task-notification>", "<system-reminder>", "Caveat: The messages below")
}

func beginsWithAny(text string, begins ...string) bool {
	return slices.ContainsFunc(begins, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

// assistant records a block of the model's answer: each is a line of its own, with the whole message's usage.
func (c *claude) assistant(line gjson.Result) (leftOut string, ours bool, err error) {
	m := line.Get("message")
	id := idOf(m.Get("id").Str)
	if m.Get("id").Str == "" {
		id = idOf(line.Get("uuid").Str)
	}
	if c.answer == nil || c.answer.ID != id {
		c.answer = &shape.Message{ID: id, Role: "assistant", Parent: c.asked, Time: shape.Span{Created: c.w.at}}
	}
	a := c.answer
	a.Provider, a.Model, a.Time.Completed = "anthropic", m.Get("model").Str, c.w.at
	if a.Model == "<synthetic>" { // Claude Code's own words
		a.Provider, a.Model = "", ""
	}
	u := m.Get("usage")
	a.Tokens = &shape.Tokens{Input: u.Get("input_tokens").Int(), Output: u.Get("output_tokens").Int(), Reasoning: u.Get("output_tokens_details.thinking_tokens").Int(),
		Cache: shape.Cache{Read: u.Get("cache_read_input_tokens").Int(), Write: u.Get("cache_creation_input_tokens").Int()}}
	a.Tokens.Output -= min(a.Tokens.Reasoning, a.Tokens.Output) // which they are a part of
	switch reason := m.Get("stop_reason").Str; reason {
	case "end_turn", "stop_sequence":
		a.Finish = "stop"
	case "tool_use":
		a.Finish = "tool-calls"
	default:
		a.Finish = reason
	}
	text := strings.Builder{}
	content := m.Get("content")
	content.ForEach(func(_, b gjson.Result) bool { text.WriteString(b.Get("text").Str); return true })
	if line.Get("isApiErrorMessage").Bool() {
		a.Error = shape.NewFailure("APIError", text.String())
	}
	c.latest = id
	c.w.message(a)
	content.ForEach(func(_, b gjson.Result) bool {
		switch kind := b.Get("type").Str; kind {
		case "text":
			if a.Error == nil {
				c.w.text(id, "text", b.Get("text").Str, false)
			}
		case "thinking":
			c.w.text(id, "reasoning", b.Get("thinking").Str, false)
		case "redacted_thinking":
			leftOut, ours = "reasoning that is not readable", true
		case "tool_use", "server_tool_use", "mcp_tool_use":
			c.called(id, b)
		default:
			leftOut = "block of an answer: " + kind
		}
		return true
	})
	return leftOut, ours, nil
}

// system records the beginning of a compaction; all else that Claude Code says of itself is left out.
func (c *claude) system(line gjson.Result) (leftOut string, ours bool, err error) {
	kind := line.Get("subtype").Str
	if kind == "compact_boundary" && c.latest != "" {
		c.boundary = c.latest
		id := idOf(line.Get("uuid").Str)
		c.answer, c.asked, c.latest = nil, id, id
		c.w.message(&shape.Message{ID: id, Role: "user", Time: shape.Span{Created: c.w.at}})
		p := c.w.newPart(id, "compaction")
		p.Auto = line.Get("compactMetadata.trigger").Str == "auto"
		c.w.part(&p)
		return "", false, nil
	}
	return "system: " + kind, true, nil
}

// summary records the summary that stands for what was before a compaction, in an answer's place: the model wrote it.
func (c *claude) summary(id string, content gjson.Result) {
	c.answer, c.latest = nil, id
	c.w.message(&shape.Message{ID: id, Role: "assistant", Parent: c.asked, Summary: true, Finish: "stop", Time: shape.Span{Created: c.w.at, Completed: c.w.at}})
	c.w.text(id, "text", textOf(content), false)
	if c.boundary != "" {
		c.w.rec.Compaction = opencode.Compaction{Upto: session.MessageKey(c.boundary), Summary: session.MessageKey(id)}
		c.boundary = ""
	}
}

// textOf returns the texts of content: a string, or blocks.
func textOf(content gjson.Result) string {
	if !content.IsArray() {
		return content.String()
	}
	var texts []string
	content.ForEach(func(_, b gjson.Result) bool {
		if text := b.Get("text"); text.Type == gjson.String {
			texts = append(texts, text.Str)
		}
		return true
	})
	return strings.Join(texts, "\n")
}
