// Package shape has the values of opencode's sessions, as far as those who record other agents in them write them: pages show
// such a session as one of opencode's.
package shape

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Span is when a value was made, changed, begun and ended, in Unix ms; 0 is not known.
type Span struct {
	Created   int64 `json:"created,omitempty"`
	Updated   int64 `json:"updated,omitempty"`
	Completed int64 `json:"completed,omitempty"`
	Start     int64 `json:"start,omitempty"`
	End       int64 `json:"end,omitempty"`
}

// Info is the value of the key session.
type Info struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Dir    string `json:"directory,omitempty"`
	Parent string `json:"parentID,omitempty"`
	Time   Span   `json:"time"`
}

// Message is the value of a message.
type Message struct {
	ID       string   `json:"id"`
	Session  string   `json:"sessionID"`
	Role     string   `json:"role"`
	Parent   string   `json:"parentID,omitempty"`
	Provider string   `json:"providerID,omitempty"`
	Model    string   `json:"modelID,omitempty"`
	Agent    string   `json:"agent,omitempty"`
	Mode     string   `json:"mode,omitempty"`
	Time     Span     `json:"time,omitzero"`
	Tokens   *Tokens  `json:"tokens,omitempty"`
	Cost     float64  `json:"cost,omitempty"`
	Finish   string   `json:"finish,omitempty"`
	Summary  bool     `json:"summary,omitempty"` // it stands for what was before
	Error    *Failure `json:"error,omitempty"`
}

// Tokens are those of a message.
type Tokens struct {
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	Reasoning int64 `json:"reasoning"`
	Cache     Cache `json:"cache"`
}

// Cache are the tokens that were read from and written to a model's cache.
type Cache struct {
	Read  int64 `json:"read"`
	Write int64 `json:"write"`
}

// Failure is why a message failed.
type Failure struct {
	Name string      `json:"name"`
	Data FailureData `json:"data"`
}

// FailureData is what a failure says.
type FailureData struct {
	Message string `json:"message"`
}

// NewFailure returns a failure that says a text.
func NewFailure(name, text string) *Failure {
	return &Failure{Name: name, Data: FailureData{Message: text}}
}

// Part is the value of a message's part.
type Part struct {
	ID        string     `json:"id"`
	Session   string     `json:"sessionID"`
	Message   string     `json:"messageID"`
	Type      string     `json:"type"`
	Text      *string    `json:"text,omitempty"`
	Synthetic bool       `json:"synthetic,omitempty"` // it is the agent's and not its user's
	Auto      bool       `json:"auto,omitempty"`      // of a compaction: nobody asked for it
	Mime      string     `json:"mime,omitempty"`
	Name      string     `json:"filename,omitempty"`
	URL       string     `json:"url,omitempty"`
	Call      string     `json:"callID,omitempty"`
	Tool      string     `json:"tool,omitempty"`
	State     *ToolState `json:"state,omitempty"`
	Time      *Span      `json:"time,omitempty"`
}

// ToolState is how a tool call stands.
type ToolState struct {
	Status      string          `json:"status"` // pending, running, completed or error
	Input       json.RawMessage `json:"input"`
	Output      json.RawMessage `json:"output,omitempty"`
	Title       string          `json:"title,omitempty"`
	Metadata    *ToolMeta       `json:"metadata,omitempty"`
	Error       string          `json:"error,omitempty"`
	Attachments []Part          `json:"attachments,omitempty"`
	Time        Span            `json:"time"`
}

// ToolMeta is what is known of a tool call beside its input and output.
type ToolMeta struct {
	Kind      string          `json:"kind,omitempty"`      // the Agent Client Protocol's
	Files     []Change        `json:"files,omitempty"`     // what it changed
	Locations json.RawMessage `json:"locations,omitempty"` // the protocol's
	Exit      *int64          `json:"exit,omitempty"`      // of a command
	Started   string          `json:"sessionId,omitempty"` // the session that it started
	Todos     []Todo          `json:"todos,omitempty"`     // as they stand after it
}

// Change is a file's change: its text before and after, or a unified diff.
type Change struct {
	File      string  `json:"file"`
	Status    string  `json:"status,omitempty"` // added, modified or deleted
	Patch     string  `json:"patch,omitempty"`
	Before    *string `json:"before,omitempty"`
	After     *string `json:"after,omitempty"`
	Additions int     `json:"additions,omitempty"`
	Deletions int     `json:"deletions,omitempty"`
}

// Todo is an entry of a to-do list.
type Todo struct {
	Content  string `json:"content"`
	Status   string `json:"status"` // pending, in_progress, completed or cancelled
	Priority string `json:"priority,omitempty"`
}

// Encode marshals a value of this package. It panics on one that does not marshal, which a RawMessage that is not JSON is.
func Encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("shape: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
