package acp

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"path":"a"}}`, `request 7 fs/read_text_file {"path":"a"}`},
		{`{"id":"x-1","method":"m"}`, `request "x-1" m `},
		{` {"method":"session/update","params":{}} ` + "\r", `notification session/update {}`},
		{`{"id":null,"method":"m"}`, `notification m `},
		{`{"id":3,"result":{"a":1}}`, `response 3 {"a":1} <nil>`},
		{`{"id":3,"result":null,"error":{"code":-32000,"message":"log in","data":{"details":"first"}}}`, `response 3  log in: first (error -32000)`},
		{`{"id":"three","result":1}`, `response 0 1 <nil>`},
		{`{"id":-3,"result":1}`, `response 0 1 <nil>`},
		{`{"id":null,"error":{"code":-32700,"message":"no JSON"}}`, `response 0  no JSON (error -32700)`},
		{`{"id":[1],"method":"m"}`, ""},
		{`{"id":{},"method":"m"}`, ""},
		{`{"id":"` + strings.Repeat("x", 1100) + `","method":"m"}`, ""},
		{`{"id":1}`, ""},
		{`{"id":1,"method":5}`, ""},
		{`{"result":1}`, ""},
		{`[{"id":1,"method":"m"}]`, ""},
		{`null`, ""}, {``, ""}, {`npm warn deprecated`, ""}, {`{`, ""}, {"\xff{}", ""},
		{`{"method":"m"} trailing`, ""},
	} {
		m, err := Decode([]byte(c.line))
		got := ""
		switch m.Kind {
		case Request:
			got = "request " + string(m.ID) + " " + m.Method + " " + string(m.Params)
		case Notification:
			got = "notification " + m.Method + " " + string(m.Params)
		case Response:
			text := "<nil>"
			if m.Error != nil {
				text = m.Error.Error()
				m.Result = nil
			}
			got = "response " + string(rune('0'+m.Call)) + " " + string(m.Result) + " " + text
		}
		if got != c.want || (err != nil) != (c.want == "") || err != nil && !errors.Is(err, ErrNoMessage) {
			t.Errorf("%.60s is %q, %v; want %q", c.line, got, err, c.want)
		}
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{string(Call(1, MethodInitialize, InitializeParams{ProtocolVersion: Version, Client: Info{Name: "mooring", Version: "v1"}})),
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false},"clientInfo":{"name":"mooring","version":"v1"}}}`},
		{string(Call(2, MethodNew, SessionParams{Dir: "/a", Servers: []json.RawMessage{}})), `{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/a","mcpServers":[]}}`},
		{string(Call(3, MethodPrompt, PromptParams{ID: "s", Prompt: []json.RawMessage{json.RawMessage("{\"type\":\n\"text\",\"text\":\"<a>\"}")}})), `{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"<a>"}]}}`},
		{string(Notify(MethodCancel, CancelParams{"s"})), `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`},
		{string(Result(json.RawMessage(`"r"`), Selected("once"))), `{"jsonrpc":"2.0","id":"r","result":{"outcome":{"outcome":"selected","optionId":"once"}}}`},
		{string(Result(json.RawMessage(`9`), Cancelled())), `{"jsonrpc":"2.0","id":9,"result":{"outcome":{"outcome":"cancelled"}}}`},
		{string(Refusal(json.RawMessage(`9`), CodeMethodNotFound, "no")), `{"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"no"}}`},
	} {
		if c.got != c.want {
			t.Errorf("%s\nwant %s", c.got, c.want)
		}
	}
}

func TestReadIsLenient(t *testing.T) {
	t.Parallel()
	u, err := Read[UpdateParams](json.RawMessage(`{"sessionId":"s","new":1,"update":{"sessionUpdate":"tool_call_update","toolCallId":"c","title":null,"rawInput":{"b":1.0,"a":[]},"content":[{"type":"diff"}]}}`))
	if err != nil || u.Update.Kind != ToolCallUpdate || u.Update.Title != nil || string(u.Update.RawInput) != `{"b":1.0,"a":[]}` || string(u.Update.Content) != `[{"type":"diff"}]` {
		t.Errorf("%+v, %v", u, err)
	}
	if i, err := Read[Initialized](nil); err != nil || i.CanResume() {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err := Read[Initialized](json.RawMessage(`{"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"resume":{}}}}`)); err != nil || !i.CanResume() || !i.Capabilities.Load {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := Read[PromptResult](json.RawMessage(`[]`)); err == nil {
		t.Error("a list was read as an object")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"options":[]}}`))
	f.Add([]byte(`{"id":3,"result":{"stopReason":"end_turn"}}`))
	f.Add([]byte(`{"method":"session/update","params":{"update":{"sessionUpdate":"plan","entries":[{}]}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Decode(line)
		if (err == nil) != (m.Kind != 0) {
			t.Fatalf("%+v, %v", m, err)
		}
		if m.Kind == Request && !json.Valid(Refusal(m.ID, CodeInternal, m.Method)) {
			t.Fatal("an answer that is no JSON")
		}
		_, _ = Read[UpdateParams](m.Params)
		_, _ = Read[PermissionParams](m.Params)
	})
}
