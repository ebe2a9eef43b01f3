//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
)

// sdkEditor is an editor made with the protocol's Go SDK.
type sdkEditor struct {
	sdk.Client // panics where a method is called that the test does not expect

	mu  sync.Mutex
	saw []string
}

func (e *sdkEditor) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.saw = append(e.saw, fmt.Sprintf(format, args...))
}

func (e *sdkEditor) SessionUpdate(_ context.Context, n sdk.SessionNotification) error {
	switch u := n.Update; {
	case u.AgentMessageChunk != nil:
		e.note("says %s", u.AgentMessageChunk.Content.Text.Text)
	case u.UserMessageChunk != nil:
		e.note("asked %s by %v", u.UserMessageChunk.Content.Text.Text, u.UserMessageChunk.Meta["mooring"])
	case u.ToolCall != nil:
		e.note("calls %s", u.ToolCall.Title)
	}
	return nil
}

func (e *sdkEditor) RequestPermission(ctx context.Context, p sdk.RequestPermissionRequest) (sdk.RequestPermissionResponse, error) {
	if p.Options[0].OptionId != "once" {
		e.note("odd options")
	}
	if p.ToolCall.ToolCallId == "call_2" {
		<-ctx.Done() // somebody else answers
		e.note("taken back")
		return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeCancelled()}, nil
	}
	return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeSelected("once")}, nil
}

func (e *sdkEditor) ReadTextFile(_ context.Context, p sdk.ReadTextFileRequest) (sdk.ReadTextFileResponse, error) {
	return sdk.ReadTextFileResponse{Content: "text of " + p.Path}, nil
}

func (e *sdkEditor) texts() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.saw)
}

// TestEditorOfTheSDK has the protocol's Go SDK as the editor.
func TestEditorOfTheSDK(t *testing.T) {
	t.Parallel()
	g := newCLI(t, "").edits(acpagent.Script{Load: true})
	var ed sdkEditor
	conn := sdk.NewClientSideConnection(&ed, g.in, g.out)
	ctx := t.Context()
	began, err := conn.Initialize(ctx, sdk.InitializeRequest{ProtocolVersion: sdk.ProtocolVersionNumber, ClientCapabilities: sdk.ClientCapabilities{Fs: sdk.FileSystemCapabilities{ReadTextFile: true}}})
	if err != nil || !began.AgentCapabilities.LoadSession || !began.AgentCapabilities.PromptCapabilities.Image || began.AgentInfo.Name != "tester" {
		t.Fatalf("%+v: %v: %s", began, err, g.err.String())
	}
	opened, err := conn.NewSession(ctx, sdk.NewSessionRequest{Cwd: g.dir, McpServers: []sdk.McpServer{}})
	if err != nil {
		t.Fatal(err)
	}
	g.session = string(opened.SessionId)
	prompt := func(text string) sdk.StopReason {
		t.Helper()
		done, err := conn.Prompt(ctx, sdk.PromptRequest{SessionId: opened.SessionId, Prompt: []sdk.ContentBlock{sdk.TextBlock(text)}})
		if err != nil {
			t.Error(err)
		}
		return done.StopReason
	}
	if got := prompt("say:hello ask:here read:/x"); got != sdk.StopReasonEndTurn {
		t.Errorf("it stopped for %s", got)
	}
	id := g.ask("say:other")
	g.until("prompt", "answered", id)
	ended := make(chan sdk.StopReason, 1)
	go func() { ended <- prompt("ask:elsewhere") }()
	g.ok("session", "answer", g.session, g.until("permission", "open", "")["request"].(string), "no")
	<-ended
	if _, err := conn.SetSessionMode(ctx, sdk.SetSessionModeRequest{SessionId: opened.SessionId, ModeId: "plan"}); err != nil {
		t.Error(err)
	}
	stopped := make(chan sdk.StopReason, 1)
	go func() { stopped <- prompt("say:w wait") }()
	if !g.soon(func() bool { return slices.Contains(ed.texts(), "says w") }) {
		t.Fatal(ed.texts())
	}
	if err := conn.Cancel(ctx, sdk.CancelNotification{SessionId: opened.SessionId}); err != nil {
		t.Error(err)
	}
	if got := <-stopped; got != sdk.StopReasonCancelled {
		t.Errorf("it stopped for %s", got)
	}
	want := []string{"says hello", "calls here", "says [here:selected:once]", "says [{\"jsonrpc\":\"2.0\",\"id\":\"r1\",\"result\":{\"content\":\"text of /x\"}}]",
		"asked say:other by map[actor:owner request:" + id + "]", "says other", "calls elsewhere", "taken back", "says [elsewhere:selected:no]", "says w"}
	got := ed.texts()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the editor saw %q, want %q", got, want)
	}
	if _, err := conn.LoadSession(ctx, sdk.LoadSessionRequest{SessionId: "ses_01M8MK02RDB0SWBAT004N0XC4W", Cwd: g.dir, McpServers: []sdk.McpServer{}}); err == nil || !strings.Contains(err.Error(), "-32002") {
		t.Errorf("a session that nobody knows: %v", err)
	}
	if code := g.leaves(); code != cli.ExitOK {
		t.Errorf("mooring acp ended with %d: %s", code, g.err.String())
	}
}
