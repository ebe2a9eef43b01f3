package transcripts

// Codex's rollouts: sessions/YYYY/MM/DD/rollout-….jsonl below its own folder. What the model is sent and says are items
// (response_item); what Codex did for it are events (event_msg), of which those are read that know more than the items.

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/opencode/shape"
)

// codex reads the lines of one rollout.
type codex struct {
	w      *writer
	model  string
	source string // of the model

	turn   string // Codex's id; "" before the first
	pieces int    // messages of the turn so far: what the user says meanwhile parts it
	asked  string // the last message of the user
	answer *shape.Message
}

func newCodex() *codex { return &codex{w: newWriter()} }

func (c *codex) recorded() *writer { return c.w }

// codexSkips are the types of lines and events that have nothing of the conversation that others have not.
var codexSkips = map[string]bool{
	"world_state": true, "token_count": true, "thread_settings_applied": true, "agent_message": true, "user_message": true, "agent_reasoning": true,
	"item_completed: UserMessage": true, "item_completed: AgentMessage": true, "item_completed: Reasoning": true, "item_started": true, "thread_name_updated": true,
}

func (c *codex) line(_ int, line gjson.Result) (leftOut string, ours bool, err error) {
	if at := millis(line.Get("timestamp").Str); at != 0 {
		c.w.at = at
	}
	kind, p := line.Get("type").Str, line.Get("payload")
	switch kind {
	case "session_meta":
		c.begin(p)
		return "", false, nil
	case "turn_context":
		c.model = p.Get("model").Str
		c.beginTurn(p.Get("turn_id").Str)
		return "", false, nil
	case "response_item":
		return c.item(p)
	case "event_msg":
		return c.event(p)
	case "token_usage_record":
		c.used(p.Get("turn_token_usage"))
		return "", false, nil
	}
	return kind, codexSkips[kind], nil
}

// begin names the session. A rollout that was forked has those of the ones before as well, behind its own.
func (c *codex) begin(p gjson.Result) {
	if id := p.Get("id").Str; c.w.rec.External == "" && id != "" {
		c.source = p.Get("model_provider").Str
		c.w.begin(id, p.Get("cwd").Str, "")
	}
}

func (c *codex) beginTurn(id string) {
	if id != "" && id != c.turn {
		c.turn, c.pieces, c.answer = id, 0, nil
	}
}

// answering returns the id of the message that the turn's next part belongs to.
func (c *codex) answering() string {
	if c.answer == nil {
		c.pieces++
		id := idOf("turn_" + c.turn)
		if c.pieces > 1 {
			id = fmt.Sprintf("%s_%d", id, c.pieces)
		}
		c.answer = &shape.Message{ID: id, Role: "assistant", Parent: c.asked, Provider: c.source, Model: c.model, Time: shape.Span{Created: c.w.at}}
		c.w.message(c.answer)
	}
	return c.answer.ID
}

// used puts what the turn has used so far.
func (c *codex) used(u gjson.Result) {
	if c.answer == nil {
		return
	}
	cached, reasoning := u.Get("cached_input_tokens").Int(), u.Get("reasoning_output_tokens").Int()
	c.answer.Tokens = &shape.Tokens{Input: max(u.Get("input_tokens").Int()-cached, 0), Output: max(u.Get("output_tokens").Int()-reasoning, 0), Reasoning: reasoning,
		Cache: shape.Cache{Read: cached, Write: u.Get("cache_write_input_tokens").Int()}}
	c.w.message(c.answer)
}

// item records an item of the model's.
func (c *codex) item(p gjson.Result) (leftOut string, ours bool, err error) {
	switch kind := p.Get("type").Str; kind {
	case "message":
		return c.message(p)
	case "reasoning":
		text := textOf(p.Get("summary"))
		if content := p.Get("content"); content.IsArray() && textOf(content) != "" {
			text = textOf(content)
		}
		if text == "" {
			return "reasoning that is not readable", true, nil
		}
		c.w.text(c.answering(), "reasoning", text, false)
	case "function_call":
		c.called(p, objectOf(p.Get("arguments").String()))
	case "custom_tool_call":
		c.called(p, objectOf(p.Get("input").String()))
	case "local_shell_call":
		c.called(p, objectOf(p.Get("action").Raw))
	case "function_call_output", "custom_tool_call_output":
		if !c.result(p) {
			return "result of a call that is not in the file", true, nil
		}
	case "web_search_call":
		c.searched(p)
	default:
		return kind, false, nil
	}
	return "", false, nil
}

// message records what was said: by the model, by the user, or by Codex in the user's place.
func (c *codex) message(p gjson.Result) (leftOut string, ours bool, err error) {
	switch p.Get("role").Str {
	case "assistant":
		c.w.text(c.answering(), "text", textOf(p.Get("content")), false)
		return "", false, nil
	case "user":
	default:
		return "message of the role " + p.Get("role").Str, true, nil
	}
	id := idOf(p.Get("id").Str)
	if p.Get("id").Str == "" {
		id = fmt.Sprintf("user_%d", c.w.at)
	}
	kinds := p.Get("internal_chat_message_metadata_passthrough.content_item_kinds").Array()
	begun := false
	add := func() string {
		if !begun {
			begun = true
			c.answer, c.asked = nil, id
			c.w.message(&shape.Message{ID: id, Role: "user", Time: shape.Span{Created: c.w.at}})
		}
		return id
	}
	i := 0
	p.Get("content").ForEach(func(_, b gjson.Result) bool {
		own := i < len(kinds) && !strings.HasPrefix(kinds[i].Str, "user.")
		i++
		switch b.Get("type").Str {
		case "input_text":
			text := b.Get("text").Str
			if own = own || isCodexs(text); !own && c.w.info.Title == "" {
				c.w.title(titleOf(text))
			} else if c.w.shown == nil {
				c.w.title("")
			}
			if text != "" {
				c.w.text(add(), "text", text, own)
			}
		case "input_image":
			mime, data, _ := strings.Cut(strings.TrimPrefix(b.Get("image_url").Str, "data:"), ";base64,")
			picture := shape.Part{}
			if !imagePart(&picture, mime, data) {
				leftOut, ours = "picture", true
				break
			}
			n := c.w.newPart(add(), picture.Type)
			n.Mime, n.URL = picture.Mime, picture.URL
			c.w.part(&n)
		default:
			leftOut = "content of a message: " + b.Get("type").Str
		}
		return true
	})
	return leftOut, ours, nil
}

// isCodexs reports whether a user's text is Codex's own.
func isCodexs(text string) bool {
	return beginsWithAny(text, "<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<subagent_notification>", "<skill>")
}

// event records what the items do not have.
func (c *codex) event(p gjson.Result) (leftOut string, ours bool, err error) {
	switch kind := p.Get("type").Str; kind {
	case "task_started":
		c.beginTurn(p.Get("turn_id").Str)
	case "task_complete":
		c.endTurn("stop", nil)
	case "turn_aborted":
		c.endTurn("", shape.NewFailure("MessageAbortedError", p.Get("reason").Str))
	case "error", "stream_error":
		c.answering()
		c.answer.Error = shape.NewFailure("Error", p.Get("message").Str)
		c.w.message(c.answer)
	case "item_completed":
		item := p.Get("item")
		switch t := c.w.tools[item.Get("id").Str]; {
		case t != nil && item.Get("type").Str == "CommandExecution":
			c.ran(t, item)
		case t != nil && item.Get("type").Str == "FileChange":
			c.changed(t, item)
		default:
			kind += ": " + item.Get("type").Str
			return kind, codexSkips[kind], nil
		}
	default:
		return kind, codexSkips[kind], nil
	}
	return "", false, nil
}

// endTurn puts the turn's message as it ended.
func (c *codex) endTurn(finish string, failure *shape.Failure) {
	if c.answer == nil {
		return
	}
	c.answer.Time.Completed = c.w.at
	if c.answer.Error == nil {
		c.answer.Finish, c.answer.Error = finish, failure
	}
	c.w.message(c.answer)
}
