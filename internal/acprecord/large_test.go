//go:build !race

// Tests of sizes, which the race detector multiplies: make test-slow runs them without it.

package acprecord

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/acp"
)

// TestFloodEnds has an agent that never stops: what is recorded, and what is kept in memory, ends.
func TestFloodEnds(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1)
	big := strings.Repeat("\x00", shownBytes+1)
	for name, next := range map[string]func(i int) *acp.Update{
		"text": func(int) *acp.Update { return chunk(strings.Repeat("x", 10_000)) },
		"tools": func(i int) *acp.Update {
			return &acp.Update{Kind: acp.ToolCallNew, ToolCall: acp.ToolCall{ID: strconv.Itoa(i)}}
		},
		"big": func(i int) *acp.Update {
			return &acp.Update{Kind: acp.ToolCallUpdate, ToolCall: acp.ToolCall{ID: "c", Status: new("completed"), RawOutput: encode(big), RawInput: encode(big)},
				Content: encode([]map[string]any{{"type": "diff", "path": big, "oldText": big, "newText": big}, {"type": "content", "content": map[string]string{"type": "text", "text": big}}})}
		},
		"plan": func(i int) *acp.Update {
			return &acp.Update{Kind: acp.Plan, Entries: encode([]map[string]string{{"content": big, "status": strconv.Itoa(i)}})}
		},
	} {
		r := New(Config{Session: "s", TurnBytes: 4 << 20, TurnText: 2 << 20}, 1)
		r.Prompt(now, "u", "t", nil)
		total := 0
		for i := 0; ; i++ {
			ops, err := r.Update(now, next(i))
			for _, o := range ops {
				if total += len(o.Payload) + len(o.Text); len(o.Payload) > 4<<20 {
					t.Fatalf("%s: a value of %d bytes", name, len(o.Payload))
				}
			}
			if errors.Is(err, ErrFlood) {
				break
			}
			if name == "big" && i == 3 {
				break // what is too long is left out, so it takes long until it is a flood
			}
			if total > 8<<20 || i > 100_000 {
				t.Fatalf("%s: %d bytes after %d updates", name, total, i)
			}
		}
	}
}

// TestLongTextIsWhole says one long text in chunks of many sizes, and joins what was recorded.
func TestLongTextIsWhole(t *testing.T) {
	t.Parallel()
	r := New(Config{Session: "s"}, 1)
	now := time.UnixMilli(1)
	ops := r.Prompt(now, "u", "t", nil)
	var said strings.Builder
	for i := range 300 {
		piece := strings.Repeat("aé€😀", 1+i*i/20)
		said.WriteString(piece)
		more, err := r.Update(now, chunk(piece))
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, more...)
	}
	whole := strings.Repeat("€", 1<<20) // in one chunk
	said.WriteString(whole)
	more, err := r.Update(now, chunk(whole))
	if err != nil {
		t.Fatal(err)
	}
	ops = append(append(ops, more...), r.Result(now, &acp.PromptResult{StopReason: "end_turn"})...)
	parts, order := map[string]string{}, []string(nil)
	for _, o := range ops {
		switch {
		case o.Method == "appendText":
			if o.Offset != len(parts[o.Key]) || len(o.Text) > opText+4 {
				t.Fatalf("%s: an offset of %d, the text has %d bytes", o.Key, o.Offset, len(parts[o.Key]))
			}
			parts[o.Key] += o.Text
		case strings.HasPrefix(o.Key, "part/"):
			var p part
			if err := json.Unmarshal(o.Payload, &p); err != nil {
				t.Fatal(err)
			}
			parts[o.Key], order = *p.Text, append(order, o.Key)
		}
	}
	var got strings.Builder
	for _, key := range order {
		if len(parts[key]) > partText+4 {
			t.Errorf("%s has %d bytes", key, len(parts[key]))
		}
		got.WriteString(parts[key])
	}
	if got.String() != said.String() || len(order) < 4 {
		t.Errorf("%d bytes in %d parts of %d that were said", got.Len(), len(order), said.Len())
	}
}
