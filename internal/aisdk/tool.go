package aisdk

// Tool calls: those of an agent, which are called where it runs. Their names are not known beforehand, so they are dynamic.

import (
	"cmp"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/prompts"
)

// toolHead has the members of a tool's chunks.
type toolHead struct {
	Type     string `json:"type"`
	Call     string `json:"toolCallId"`
	Name     string `json:"toolName,omitempty"`
	Dynamic  bool   `json:"dynamic"`
	Executed bool   `json:"providerExecuted"` // not by whoever reads
	Title    string `json:"title,omitempty"`
}

// putTool writes what has changed of a tool call: that it is there, its input once that is known, and its output at its end.
func (m *message) putTool(p *part, value gjson.Result) {
	state := value.Get("state")
	status, input := state.Get("status").String(), state.Get("input")
	head := toolHead{"", p.id, cmp.Or(value.Get("tool").String(), "tool"), true, true, state.Get("title").String()}
	if !p.started {
		p.started = true
		head.Type = "tool-input-start"
		m.chunk(head)
	}
	over := status == "completed" || status == "error"
	known := status != "pending" || input.IsObject() && len(input.Map()) > 0
	head.Type = "tool-input-available"
	given := withMember(head, "input", input, "{}")
	// An input that is put anew takes the call back to where it has no output. In an earlier step readers would not find it.
	if sum := prompts.SumOf(given); known && (sum != p.input || p.output != 0 && !over) && (p.input == 0 || p.message == m.step) {
		p.input, p.output = sum, 0
		m.write(given)
	}
	var taken []byte
	head.Name, head.Title = "", ""
	switch status {
	case "completed":
		head.Type = "tool-output-available"
		taken = withMember(head, "output", state.Get("output"), `""`)
	case "error":
		head.Type = "tool-output-error"
		taken = httpkit.JSON(struct {
			toolHead
			Text string `json:"errorText"`
		}{head, cmp.Or(state.Get("error").String(), "failed")})
	default:
		return
	}
	if sum := prompts.SumOf(taken); sum != p.output {
		p.output = sum
		m.write(taken)
	}
}
