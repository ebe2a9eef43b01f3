package acprecord

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/session"
)

// TestReplayRepeatsWhatWasRecorded records a turn, and repeats it from the values.
func TestReplayRepeatsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1)
	r := New(Config{Session: "ses_1"}, 0)
	ops := r.Prompt(now, "u", "t", []json.RawMessage{json.RawMessage(`{"type":"text","text":"<do>"}`), json.RawMessage(`{"type":"image","mimeType":"image/png","data":"AAAA"}`),
		json.RawMessage(`{"type":"resource_link","uri":"file:///x","name":"x"}`)})
	for _, u := range []string{
		`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}`, `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"one"}}`,
		`{"sessionUpdate":"tool_call","toolCallId":"c","title":"Edit","kind":"edit","status":"completed","rawInput":{"a":1},"locations":[{"path":"/f"}],
		  "content":[{"type":"diff","path":"/f","oldText":"old","newText":"new"},{"type":"content","content":{"type":"text","text":"done"}}]}`,
		`{"sessionUpdate":"tool_call","toolCallId":"d","title":"Run","kind":"execute","status":"failed","rawInput":{"command":"x"}}`,
		`{"sessionUpdate":"plan","entries":[{"content":"first","status":"pending","priority":"high"}]}`,
	} {
		var update acp.Update
		if err := json.Unmarshal([]byte(u), &update); err != nil {
			t.Fatal(err)
		}
		more, err := r.Update(now, &update)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, more...)
	}
	ops = append(ops, r.Result(now, &acp.PromptResult{StopReason: acp.StopEndTurn})...)
	var got []string
	var replay Replay
	for _, o := range ops {
		if o.Method == session.MethodPut {
			for _, u := range replay.Value(o.Key, o.Payload) {
				got = append(got, string(u))
			}
		}
	}
	want := []string{
		`{"content":{"text":"<do>","type":"text"},"sessionUpdate":"user_message_chunk"}`,
		`{"content":{"data":"AAAA","mimeType":"image/png","type":"image"},"sessionUpdate":"user_message_chunk"}`,
		`{"content":{"name":"x","type":"resource_link","uri":"file:///x"},"sessionUpdate":"user_message_chunk"}`,
		`{"content":{"text":"hm","type":"text"},"sessionUpdate":"agent_thought_chunk"}`,
		`{"content":{"text":"one","type":"text"},"sessionUpdate":"agent_message_chunk"}`,
		`{"content":[{"newText":"new","oldText":"old","path":"/f","type":"diff"},{"content":{"text":"done","type":"text"},"type":"content"}],"kind":"edit","locations":[{"path":"/f"}],"rawInput":{"a":1},"sessionUpdate":"tool_call","status":"completed","title":"Edit","toolCallId":"t/prt_000003"}`,
		`{"content":[],"kind":"execute","rawInput":{"command":"x"},"sessionUpdate":"tool_call","status":"failed","title":"Run","toolCallId":"t/prt_000004"}`,
		`{"entries":[{"content":"first","priority":"high","status":"pending"}],"sessionUpdate":"plan"}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for key, value := range map[string]string{"part/x/y": `{"type":"tool","state":"odd"}`, "part/x/z": `[]`, "message/x": `null`, "agent": `{}`, "part/x/f": `{"type":"file","url":"data:x/y;base64,%%"}`} {
		if got := replay.Value(key, []byte(value)); len(got) > 1 {
			t.Errorf("%s %s is repeated as %s", key, value, got)
		}
	}
}
