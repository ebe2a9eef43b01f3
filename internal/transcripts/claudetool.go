package transcripts

// Claude Code's tools.

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/opencode/shape"
)

// claudeTools is how opencode names the tools that both have.
var claudeTools = map[string]string{
	"Bash": "bash", "Read": "read", "Write": "write", "Edit": "edit", "MultiEdit": "edit", "Grep": "grep", "Glob": "glob", "LS": "list", "WebFetch": "webfetch",
	"WebSearch": "websearch", "Agent": "task", "Task": "task", "TodoWrite": "todowrite", "TaskCreate": "todowrite", "TaskUpdate": "todowrite",
}

// claudeInputs is how opencode names their arguments.
var claudeInputs = map[string]string{"file_path": "filePath", "old_string": "oldString", "new_string": "newString", "replace_all": "replaceAll"}

// called records a call.
func (c *claude) called(message string, b gjson.Result) {
	name := b.Get("name").Str
	input := objectOf(b.Get("input").Raw)
	t := c.w.call(message, b.Get("id").Str, name, input)
	if known, ok := claudeTools[name]; ok {
		t.part.Tool, t.part.State.Input = known, renamed(input, claudeInputs)
	}
	if name == "TaskCreate" || name == "TaskUpdate" {
		t.part.State.Title = gjson.GetBytes(input, "subject").Str
	}
	c.w.part(&t.part)
}

// result records a call's result; of is what Claude Code knows of it beside the model. It reports whether the call is known.
func (c *claude) result(b, of gjson.Result) bool {
	t := c.w.tools[b.Get("tool_use_id").Str]
	if t == nil {
		return false
	}
	failed := b.Get("is_error").Bool()
	output := textOf(b.Get("content"))
	output = strings.TrimSuffix(strings.TrimPrefix(output, "<tool_use_error>"), "</tool_use_error>")
	switch t.name {
	case "Bash":
		if rest, ok := strings.CutPrefix(output, "Exit code "); ok && failed { // it ran, and says that it failed
			code, shown, _ := strings.Cut(rest, "\n")
			if n, err := strconv.ParseInt(code, 10, 64); err == nil {
				t.meta().Exit, output, failed = &n, shown, false
			}
		}
	case "Write", "Edit", "MultiEdit", "NotebookEdit":
		if change := claudeChange(of); change.Patch != "" && !failed {
			t.part.Tool, t.meta().Files = "edit", []shape.Change{change}
		}
	case "Agent", "Task":
		if agent := of.Get("agentId").Str; agent != "" {
			t.meta().Started = agentSession(c.session, agent)
		}
		if text := textOf(of.Get("content")); of.Get("content").IsArray() && text != "" {
			output = text // without what Claude Code adds for the model
		}
	case "TaskCreate", "TaskUpdate":
		if !failed {
			c.task(t, of)
			t.meta().Todos = append([]shape.Todo(nil), c.tasks...)
		}
	}
	c.w.end(t, output, failed)
	b.Get("content").ForEach(func(_, block gjson.Result) bool {
		p := shape.Part{Session: c.w.info.ID, Message: t.part.Message}
		if block.Get("type").Str == "image" && len(t.part.State.Attachments) < 1 && imagePart(&p, block.Get("source.media_type").Str, block.Get("source.data").Str) {
			t.part.State.Attachments = append(t.part.State.Attachments, p)
		}
		return true
	})
	c.w.part(&t.part)
	return true
}

// task keeps the list of tasks, which Claude Code changes one by one.
func (c *claude) task(t *tool, of gjson.Result) {
	in := gjson.ParseBytes(t.input)
	if t.name == "TaskCreate" {
		c.tasks = append(c.tasks, shape.Todo{Content: in.Get("subject").Str, Status: "pending"})
		c.taskIDs = append(c.taskIDs, of.Get("task.id").String())
		return
	}
	id := in.Get("taskId").String()
	for i := range c.tasks {
		if c.taskIDs[i] != id {
			continue
		}
		if subject := in.Get("subject").Str; subject != "" {
			c.tasks[i].Content = subject
		}
		switch status := in.Get("status").Str; status {
		case "":
		case "deleted":
			c.tasks[i].Status = "cancelled"
		default:
			c.tasks[i].Status = status
		}
		t.part.State.Title = c.tasks[i].Content
	}
}

// claudeChange returns a change of a file as a unified diff; it has no patch if there is none.
func claudeChange(of gjson.Result) shape.Change {
	out := shape.Change{File: of.Get("filePath").Str, Status: "modified"}
	var b strings.Builder
	of.Get("structuredPatch").ForEach(func(_, h gjson.Result) bool {
		fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@\n", h.Get("oldStart").Int(), h.Get("oldLines").Int(), h.Get("newStart").Int(), h.Get("newLines").Int())
		h.Get("lines").ForEach(func(_, line gjson.Result) bool {
			b.WriteString(line.Str)
			b.WriteByte('\n')
			return true
		})
		return true
	})
	out.Patch = b.String()
	out.Additions, out.Deletions = countLines(out.Patch)
	return out
}
