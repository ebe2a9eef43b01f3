package transcripts

// Codex's tools.

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/opencode/shape"
)

// called records a call.
func (c *codex) called(p gjson.Result, input json.RawMessage) {
	name := p.Get("name").Str
	if space := p.Get("namespace").Str; space != "" {
		name = space + "." + name
	}
	if p.Get("type").Str == "local_shell_call" {
		name = "local_shell"
	}
	t := c.w.call(c.answering(), p.Get("call_id").Str, name, input)
	s, in := t.part.State, gjson.ParseBytes(input)
	switch name {
	case "exec_command", "shell_command", "shell", "local_shell":
		t.part.Tool, s.Input = "bash", renamed(input, map[string]string{"cmd": "command"})
		if command := in.Get("command"); command.IsArray() {
			s.Input = replaced(input, "command", shellCommand(command))
		}
	case "apply_patch":
		s.Input = renamed(input, map[string]string{"input": "patchText"})
	case "update_plan":
		t.part.Tool, s.Input = "todowrite", planInput(in)
		s.Title = "Plan"
	}
	c.w.part(&t.part)
}

// shellCommand returns the command of an argument vector: that which a shell is given, or all of it.
func shellCommand(argv gjson.Result) string {
	var words []string
	argv.ForEach(func(_, w gjson.Result) bool { words = append(words, w.String()); return true })
	if len(words) == 3 && slices.Contains([]string{"-c", "-lc"}, words[1]) {
		return words[2]
	}
	return strings.Join(words, " ")
}

// replaced returns an object with another text for a member.
func replaced(object json.RawMessage, name, text string) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil {
		return object
	}
	all[name] = shape.Encode(text)
	return shape.Encode(all)
}

// planInput returns a plan as opencode's list of things to do.
func planInput(in gjson.Result) json.RawMessage {
	out := struct {
		Explanation string       `json:"explanation,omitempty"`
		Todos       []shape.Todo `json:"todos"`
	}{Explanation: in.Get("explanation").Str, Todos: []shape.Todo{}}
	in.Get("plan").ForEach(func(_, step gjson.Result) bool {
		out.Todos = append(out.Todos, shape.Todo{Content: step.Get("step").Str, Status: step.Get("status").Str})
		return true
	})
	return shape.Encode(out)
}

// result records a call's result as the model was given it, unless an event had more. It reports whether the call is known.
func (c *codex) result(p gjson.Result) bool {
	t := c.w.tools[p.Get("call_id").Str]
	if t == nil {
		return false
	}
	if t.part.State.Time.End != 0 { // from an event
		return true
	}
	output := textOf(p.Get("output"))
	failed := strings.HasPrefix(output, "unsupported ") || strings.HasPrefix(output, t.name+" verification failed")
	if o := gjson.Parse(output); strings.HasPrefix(output, "{") && gjson.Valid(output) && o.Get("output").Type == gjson.String {
		output = o.Get("output").Str
		if exit := o.Get("metadata.exit_code"); exit.Exists() {
			n := exit.Int()
			t.meta().Exit = &n
		}
	}
	if code, ok := exitOf(output); ok {
		t.meta().Exit = &code
	}
	c.w.end(t, output, failed)
	c.w.part(&t.part)
	return true
}

// exitOf returns the exit code that a result for the model begins with.
func exitOf(output string) (code int64, ok bool) {
	head, _, _ := strings.Cut(output, "Output:\n")
	for line := range strings.Lines(head) {
		for _, begin := range []string{"Exit code: ", "Process exited with code "} {
			if text, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), begin); found {
				n, err := strconv.ParseInt(text, 10, 64)
				return n, err == nil
			}
		}
	}
	return 0, false
}

// ran records how a command ended, with its whole output.
func (c *codex) ran(t *tool, item gjson.Result) {
	if exit := item.Get("exit_code"); exit.Type == gjson.Number {
		n := exit.Int()
		t.meta().Exit = &n
	}
	status := item.Get("status").Str
	c.w.end(t, item.Get("aggregated_output").Str, status == "declined" || status == "failed" && t.part.State.Metadata == nil)
	c.w.part(&t.part)
}

// changed records the files that a patch changed.
func (c *codex) changed(t *tool, item gjson.Result) {
	failed := item.Get("status").Str != "completed"
	item.Get("changes").ForEach(func(file, of gjson.Result) bool {
		change := shape.Change{File: file.Str}
		text := of.Get("content").Str
		switch of.Get("type").Str {
		case "add":
			change.Status, change.After = "added", &text
			change.Additions = len(slices.Collect(strings.Lines(text)))
		case "delete":
			change.Status, change.Before = "deleted", &text
			change.Deletions = len(slices.Collect(strings.Lines(text)))
		default:
			change.Status, change.Patch = "modified", of.Get("unified_diff").Str
			change.Additions, change.Deletions = countLines(change.Patch)
			if to := of.Get("move_path").Str; to != "" {
				change.File += " → " + to
			}
		}
		if !failed {
			t.meta().Files = append(t.meta().Files, change)
		}
		return true
	})
	output := item.Get("stdout").Str
	if failed && item.Get("stderr").Str != "" {
		output = item.Get("stderr").Str
	}
	c.w.end(t, output, failed)
	c.w.part(&t.part)
}

// searched records a search of the web, which the model's provider ran.
func (c *codex) searched(p gjson.Result) {
	input := objectOf(p.Get("action").Raw)
	t := c.w.call(c.answering(), p.Get("id").Str, "web_search", input)
	t.part.Tool = "websearch"
	t.part.State.Title = p.Get("action.query").Str
	c.w.end(t, "", p.Get("status").Str == "failed")
	c.w.part(&t.part)
}
