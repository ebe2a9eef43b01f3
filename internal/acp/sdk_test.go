package acp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"

	sdk "github.com/coder/acp-go-sdk"
)

// sdkAgent is an agent made with the protocol's Go SDK.
type sdkAgent struct {
	sdk.Agent // panics where a method is called that the test does not expect
	conn      *sdk.AgentSideConnection
	cancelled chan struct{}

	mu  sync.Mutex
	saw []string
}

func (a *sdkAgent) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.saw = append(a.saw, fmt.Sprintf(format, args...))
}

func (a *sdkAgent) Initialize(_ context.Context, p sdk.InitializeRequest) (sdk.InitializeResponse, error) {
	a.note("initialize %d %s fs:%v,%v terminal:%v", p.ProtocolVersion, p.ClientInfo.Name, p.ClientCapabilities.Fs.ReadTextFile, p.ClientCapabilities.Fs.WriteTextFile, p.ClientCapabilities.Terminal)
	return sdk.InitializeResponse{ProtocolVersion: sdk.ProtocolVersionNumber, AgentInfo: &sdk.Implementation{Name: "sdk", Version: "0.13.0"},
		AgentCapabilities: sdk.AgentCapabilities{LoadSession: true, SessionCapabilities: sdk.SessionCapabilities{Resume: &sdk.SessionResumeCapabilities{}}}}, nil
}

func (a *sdkAgent) NewSession(_ context.Context, p sdk.NewSessionRequest) (sdk.NewSessionResponse, error) {
	a.note("new %s %d", p.Cwd, len(p.McpServers))
	return sdk.NewSessionResponse{SessionId: "s1", Modes: &sdk.SessionModeState{CurrentModeId: "ask", AvailableModes: []sdk.SessionMode{{Id: "ask", Name: "Ask"}}}}, nil
}

func (a *sdkAgent) LoadSession(_ context.Context, p sdk.LoadSessionRequest) (sdk.LoadSessionResponse, error) {
	a.note("load %s %s", p.SessionId, p.Cwd)
	return sdk.LoadSessionResponse{}, nil
}

func (a *sdkAgent) ResumeSession(_ context.Context, p sdk.ResumeSessionRequest) (sdk.ResumeSessionResponse, error) {
	a.note("resume %s", p.SessionId)
	return sdk.ResumeSessionResponse{}, nil
}

func (a *sdkAgent) Prompt(ctx context.Context, p sdk.PromptRequest) (sdk.PromptResponse, error) {
	a.note("prompt %s %s %q", p.SessionId, *p.MessageId, p.Prompt[0].Text.Text)
	say := func(u sdk.SessionUpdate) {
		if err := a.conn.SessionUpdate(ctx, sdk.SessionNotification{SessionId: p.SessionId, Update: u}); err != nil {
			a.note("update: %v", err)
		}
	}
	say(sdk.UpdateAgentThoughtText("hm"))
	say(sdk.StartToolCall("c1", "Edit a.txt", sdk.WithStartKind(sdk.ToolKindEdit), sdk.WithStartRawInput(map[string]any{"path": "a.txt"})))
	answer, err := a.conn.RequestPermission(ctx, sdk.RequestPermissionRequest{SessionId: p.SessionId, ToolCall: sdk.ToolCallUpdate{ToolCallId: "c1", Content: []sdk.ToolCallContent{sdk.ToolDiffContent("a.txt", "new", "old")}},
		Options: []sdk.PermissionOption{{OptionId: "yes", Name: "Yes", Kind: sdk.PermissionOptionKindAllowOnce}}})
	if err != nil {
		return sdk.PromptResponse{}, err
	}
	a.note("permission %s", answer.Outcome.Selected.OptionId)
	if _, err := a.conn.ReadTextFile(ctx, sdk.ReadTextFileRequest{SessionId: p.SessionId, Path: "/a.txt"}); err != nil {
		a.note("read: %d", err.(*sdk.RequestError).Code)
	}
	<-a.cancelled
	return sdk.PromptResponse{StopReason: sdk.StopReasonCancelled, Usage: &sdk.Usage{InputTokens: 5}}, nil
}

func (a *sdkAgent) Cancel(_ context.Context, p sdk.CancelNotification) error {
	a.note("cancel %s", p.SessionId)
	close(a.cancelled)
	return nil
}

// TestAgentOfTheSDK tells a story to an agent of the SDK, and reads its side of it.
func TestAgentOfTheSDK(t *testing.T) {
	t.Parallel()
	fromUs, toAgent := io.Pipe()
	fromAgent, toUs := io.Pipe()
	a := &sdkAgent{cancelled: make(chan struct{})}
	a.conn = sdk.NewAgentSideConnection(a, toUs, fromUs)
	a.conn.SetLogger(slog.New(slog.DiscardHandler))
	lines := bufio.NewScanner(fromAgent)
	send := func(line []byte) {
		t.Helper()
		if _, err := toAgent.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	next := func() Message {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("the agent has ended: ", lines.Err())
		}
		m, err := Decode(lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	result := func(call uint64) json.RawMessage {
		t.Helper()
		m := next()
		if m.Kind != Response || m.Call != call || m.Error != nil {
			t.Fatalf("call %d: %+v", call, m)
		}
		return m.Result
	}
	send(Call(1, MethodInitialize, InitializeParams{ProtocolVersion: Version, Client: Info{Name: "mooring", Version: "v1"}}))
	if i, err := Read[Initialized](result(1)); err != nil || i.ProtocolVersion != Version || i.Agent.Name != "sdk" || !i.Capabilities.Load || !i.CanResume() {
		t.Errorf("%+v, %v", i, err)
	}
	servers := []json.RawMessage{}
	send(Call(2, MethodNew, SessionParams{Dir: "/work", Servers: servers}))
	if s, err := Read[SessionResult](result(2)); err != nil || s.ID != "s1" || s.Modes.Current != "ask" || !slices.Equal(s.Modes.Available, []Mode{{ID: "ask", Name: "Ask"}}) {
		t.Errorf("%+v, %v", s, err)
	}
	send(Call(3, MethodLoad, SessionParams{ID: "s1", Dir: "/work", Servers: servers}))
	result(3)
	send(Call(4, MethodResume, SessionParams{ID: "s1", Dir: "/work", Servers: servers}))
	result(4)
	block := json.RawMessage(`{"type":"text","text":"go"}`)
	send(Call(5, MethodPrompt, PromptParams{ID: "s1", MessageID: "6ba7b810-9dad-11d1-80b4-00c04fd430c8", Prompt: []json.RawMessage{block}}))
	for _, want := range []string{ThoughtChunk, ToolCallNew} {
		m := next()
		if u, err := Read[UpdateParams](m.Params); err != nil || m.Method != MethodUpdate || u.ID != "s1" || u.Update.Kind != want {
			t.Errorf("%+v, %v", u, err)
		}
	}
	m := next()
	ask, err := Read[PermissionParams](m.Params)
	if err != nil || m.Method != MethodPermission || len(ask.Opts) != 1 || ask.Opts[0] != (Option{"yes", "Yes", "allow_once"}) {
		t.Errorf("%+v, %v", ask, err)
	}
	send(Result(m.ID, Selected(ask.Opts[0].ID)))
	m = next()
	send(Refusal(m.ID, CodeMethodNotFound, m.Method+" is not there"))
	send(Notify(MethodCancel, CancelParams{"s1"}))
	if r, err := Read[PromptResult](result(5)); err != nil || r.StopReason != StopCancelled || r.Usage.Input != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	_ = toAgent.Close()
	<-a.conn.Done()
	a.mu.Lock()
	defer a.mu.Unlock()
	want := []string{"initialize 1 mooring fs:false,false terminal:false", "new /work 0", "load s1 /work", "resume s1",
		`prompt s1 6ba7b810-9dad-11d1-80b4-00c04fd430c8 "go"`, "permission yes", "read: -32601", "cancel s1"}
	slices.Sort(a.saw)
	slices.Sort(want)
	if !slices.Equal(a.saw, want) {
		t.Errorf("it saw %q", a.saw)
	}
}
