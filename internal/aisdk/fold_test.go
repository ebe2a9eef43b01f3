package aisdk

// What a reader makes of chunks: the rules of processUIMessageStream of the package ai. The real one reads the same streams in
// e2e/aisdk.

import (
	"encoding/json"
	"testing"
)

type folded struct {
	id    string
	parts []map[string]any
	end   string // type of the last chunk
}

// fold returns the message that a reader has after chunks. A chunk that the reader would refuse fails the test.
func fold(t testing.TB, list []string) *folded {
	t.Helper()
	f := &folded{}
	open := map[string]map[string]any{} // texts that grow, by kind and id
	step := func() int {
		for i := len(f.parts) - 1; i >= 0; i-- {
			if f.parts[i]["type"] == "step-start" {
				return i + 1
			}
		}
		return 0
	}
	find := func(from int, name string, id any) map[string]any {
		for _, p := range f.parts[from:] {
			if p[name] == id {
				return p
			}
		}
		return nil
	}
	for _, text := range list {
		if text == "[DONE]" {
			continue
		}
		var c map[string]any
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		kind, _ := c["type"].(string)
		id, _ := c["id"].(string)
		f.end = kind
		switch kind {
		case "start":
			*f = folded{id: c["messageId"].(string)}
			clear(open)
		case "start-step":
			f.parts = append(f.parts, map[string]any{"type": "step-start"})
		case "reset-step":
			f.parts = f.parts[:step()]
			clear(open)
		case "finish-step", "finish", "abort", "error":
		case "text-start", "reasoning-start":
			of := kind[:len(kind)-len("-start")]
			p := map[string]any{"type": of, "text": "", "state": "streaming"}
			if of == "reasoning" {
				p["id"] = id
			}
			open[of+id] = p
			f.parts = append(f.parts, p)
		case "text-delta", "reasoning-delta":
			p := open[kind[:len(kind)-len("-delta")]+id]
			if p == nil {
				t.Fatalf("%s, and no start", text)
			}
			p["text"] = p["text"].(string) + c["delta"].(string)
		case "text-end", "reasoning-end":
			of := kind[:len(kind)-len("-end")]
			if open[of+id] == nil {
				t.Fatalf("%s, and no start", text)
			}
			open[of+id]["state"] = "done"
			delete(open, of+id)
		case "tool-input-start", "tool-input-available":
			p := find(step(), "toolCallId", c["toolCallId"])
			if p == nil {
				p = map[string]any{"type": "dynamic-tool", "toolCallId": c["toolCallId"]}
				f.parts = append(f.parts, p)
			}
			p["state"], p["toolName"], p["input"] = kind, c["toolName"], c["input"]
			delete(p, "output")
			if title, is := c["title"]; is {
				p["title"] = title
			}
		case "tool-output-available", "tool-output-error":
			p := find(0, "toolCallId", c["toolCallId"])
			if p == nil {
				t.Fatalf("%s, and no call", text)
			}
			p["state"], p["output"] = kind, c["output"]
			if kind == "tool-output-error" {
				p["output"] = c["errorText"]
			}
		case "file", "source-document":
			f.parts = append(f.parts, c)
		default:
			if p := find(0, "id", c["id"]); p != nil && p["type"] == kind {
				p["data"] = c["data"]
			} else {
				f.parts = append(f.parts, c)
			}
		}
	}
	return f
}
