package acp

// The parameters and results of the methods, as far as Mooring uses them.

import (
	"encoding/json"
	"fmt"
)

// Version is the version of the protocol.
const Version = 1

// Methods of agents.
const (
	MethodInitialize   = "initialize"
	MethodAuthenticate = "authenticate"
	MethodNew          = "session/new"
	MethodLoad         = "session/load"
	MethodResume       = "session/resume"
	MethodFork         = "session/fork"
	MethodList         = "session/list"
	MethodClose        = "session/close"
	MethodSetMode      = "session/set_mode"
	MethodPrompt       = "session/prompt"
	MethodCancel       = "session/cancel" // a notification
)

// Methods of clients.
const (
	MethodUpdate     = "session/update" // a notification
	MethodPermission = "session/request_permission"
	MethodReadFile   = "fs/read_text_file"
	MethodWriteFile  = "fs/write_text_file"
	TerminalMethods  = "terminal/" // what the names of those of terminals begin with
)

// MethodCancelCall is a notification of either side, that it does not want the answer to a call any more.
const MethodCancelCall = "$/cancel_request"

// CancelCallParams name the call, by its id.
type CancelCallParams struct {
	ID json.RawMessage `json:"requestId"`
}

// InitializeParams says who the client is. It declares no capability: files and terminals are the agent's own.
type InitializeParams struct {
	ProtocolVersion int          `json:"protocolVersion"`
	Capabilities    capabilities `json:"clientCapabilities"`
	Client          Info         `json:"clientInfo"`
}

type capabilities struct {
	FS struct {
		Read  bool `json:"readTextFile"`
		Write bool `json:"writeTextFile"`
	} `json:"fs"`
	Terminal bool `json:"terminal"`
}

// Info names a program.
type Info struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
}

// Initialized is what an agent says of itself.
type Initialized struct {
	ProtocolVersion int  `json:"protocolVersion"`
	Agent           Info `json:"agentInfo"`
	Capabilities    struct {
		Load    bool `json:"loadSession"`
		Session struct {
			Resume json.RawMessage `json:"resume"` // an object where it can
		} `json:"sessionCapabilities"`
		Prompt struct {
			Image    bool `json:"image"`
			Audio    bool `json:"audio"`
			Embedded bool `json:"embeddedContext"`
		} `json:"promptCapabilities"`
	} `json:"agentCapabilities"`
}

// CanResume reports whether the agent knows session/resume: going on with a session that it does not repeat.
func (i *Initialized) CanResume() bool { return present(i.Capabilities.Session.Resume) }

// SessionParams are those of session/new, and with an ID those of session/load and session/resume.
type SessionParams struct {
	ID      string            `json:"sessionId,omitempty"`
	Dir     string            `json:"cwd"`
	Servers []json.RawMessage `json:"mcpServers"` // not nil: the protocol wants a list
}

// SessionResult is the answer to session/new, session/load and session/resume.
type SessionResult struct {
	ID    string `json:"sessionId"` // of session/new
	Modes struct {
		Current   string `json:"currentModeId"`
		Available []Mode `json:"availableModes"`
	} `json:"modes"`
}

// Mode is a way in which an agent can work.
type Mode struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// PromptParams are a prompt. MessageID, a UUID, is for agents that keep it (the protocol has it as unstable).
type PromptParams struct {
	ID        string            `json:"sessionId"`
	MessageID string            `json:"messageId,omitempty"`
	Prompt    []json.RawMessage `json:"prompt"` // content blocks
}

// PromptResult is how a prompt's turn ended.
type PromptResult struct {
	StopReason string `json:"stopReason"`
	Usage      *Usage `json:"usage"`
}

// The reasons for which a turn ends.
const (
	StopEndTurn   = "end_turn"
	StopCancelled = "cancelled"
)

// Usage is the tokens of a turn.
type Usage struct {
	Input      int64 `json:"inputTokens"`
	Output     int64 `json:"outputTokens"`
	Thought    int64 `json:"thoughtTokens"`
	CacheRead  int64 `json:"cachedReadTokens"`
	CacheWrite int64 `json:"cachedWriteTokens"`
}

// Stopped returns the answer to a prompt whose turn has ended for a reason.
func Stopped(reason string) json.RawMessage {
	return encodeValue(map[string]string{"stopReason": reason})
}

// CancelParams name the session whose turn is to end.
type CancelParams struct {
	ID string `json:"sessionId"`
}

// UpdateParams are an update of a session.
type UpdateParams struct {
	ID     string `json:"sessionId"`
	Update Update `json:"update"`
}

// Update is an update of any kind; which members it has depends on the kind.
type Update struct {
	Kind      string          `json:"sessionUpdate"`
	MessageID string          `json:"messageId"`
	Content   json.RawMessage `json:"content"` // of a chunk: a Block; of a tool call: a list of ToolContent
	ToolCall
	Entries  json.RawMessage `json:"entries"`           // of a plan
	Commands json.RawMessage `json:"availableCommands"` // that a user may give
	Mode     string          `json:"currentModeId"`
	Options  json.RawMessage `json:"configOptions"`
	Used     json.Number     `json:"used"` // tokens of the context
	Size     json.Number     `json:"size"`
	Cost     *Cost           `json:"cost"`
}

// The kinds of updates.
const (
	UserChunk      = "user_message_chunk"
	AgentChunk     = "agent_message_chunk"
	ThoughtChunk   = "agent_thought_chunk"
	ToolCallNew    = "tool_call"
	ToolCallUpdate = "tool_call_update"
	Plan           = "plan"
	CommandsUpdate = "available_commands_update"
	ModeUpdate     = "current_mode_update"
	OptionsUpdate  = "config_option_update"
	InfoUpdate     = "session_info_update"
	UsageUpdate    = "usage_update"
)

// UserUpdate returns the params of an update that shows a block of what a user said.
func UserUpdate(session, message string, block json.RawMessage, meta any) json.RawMessage {
	return encodeValue(map[string]any{"sessionId": session, "update": map[string]any{"sessionUpdate": UserChunk, "messageId": message, "content": block, "_meta": meta}})
}

// Cost is what the session has cost so far.
type Cost struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
}

// ToolCall is what an update or a permission says of a tool call; what it does not say stays as it was.
type ToolCall struct {
	ID        string          `json:"toolCallId"`
	Title     *string         `json:"title"` // of a session, too
	Tool      *string         `json:"kind"`
	Status    *string         `json:"status"`
	Locations []Location      `json:"locations"`
	RawInput  json.RawMessage `json:"rawInput"`
	RawOutput json.RawMessage `json:"rawOutput"`
}

// Location is a file that a tool call is about.
type Location struct {
	Path string `json:"path"`
	Line *int   `json:"line,omitempty"`
}

// ToolContent is an element of a tool call's content.
type ToolContent struct {
	Type    string          `json:"type"` // content, diff or terminal
	Content json.RawMessage `json:"content"`
	Path    string          `json:"path"`
	Old     *string         `json:"oldText"`
	New     string          `json:"newText"`
}

// Block is a content block.
type Block struct {
	Type     string  `json:"type"` // text, image, audio, resource_link or resource
	Text     string  `json:"text"`
	Data     string  `json:"data"` // base64
	MimeType string  `json:"mimeType"`
	URI      string  `json:"uri"`
	Name     string  `json:"name"`
	Resource *Block  `json:"resource"` // of a resource: URI, MimeType, and Text or Blob
	Blob     *string `json:"blob"`
}

// PermissionParams are an agent's question whether it may do something.
type PermissionParams struct {
	ID   string          `json:"sessionId"`
	Tool json.RawMessage `json:"toolCall"` // a ToolCall with its content
	Opts []Option        `json:"options"`
}

// Option is an answer that can be given.
type Option struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"` // allow_once, allow_always, reject_once or reject_always
}

// Selected returns the answer to a PermissionParams that chooses an option.
func Selected(option string) any {
	return outcome{outcomeOf{"selected", option}}
}

// Cancelled returns the answer to a PermissionParams whose turn is over.
func Cancelled() any { return outcome{outcomeOf{Outcome: "cancelled"}} }

type outcome struct {
	Outcome outcomeOf `json:"outcome"`
}

type outcomeOf struct {
	Outcome string `json:"outcome"`
	Option  string `json:"optionId,omitempty"`
}

// Read decodes the params or the result of a method.
func Read[T any](text json.RawMessage) (v T, err error) {
	if !present(text) {
		return v, nil
	}
	if err = json.Unmarshal(text, &v); err != nil {
		err = fmt.Errorf("not as the protocol has it: %w", err)
	}
	return v, err
}

// Answered is how a PermissionParams was answered.
type Answered struct {
	Outcome struct {
		Outcome string `json:"outcome"` // selected or cancelled
		Option  string `json:"optionId"`
	} `json:"outcome"`
}

// present reports whether a member is there: null is not.
func present(text json.RawMessage) bool { return len(text) > 0 && string(text) != "null" }
