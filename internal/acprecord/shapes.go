package acprecord

// The values that are put, in opencode's shapes.

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/session"
)

type span struct {
	Created int64 `json:"created,omitempty"`
	Updated int64 `json:"updated,omitempty"`
	Start   int64 `json:"start,omitempty"`
	End     int64 `json:"end,omitempty"`
}

type info struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Dir   string `json:"directory,omitempty"`
	Time  span   `json:"time"`
}

type message struct {
	ID      string   `json:"id"`
	Session string   `json:"sessionID"`
	Role    string   `json:"role"`
	Parent  string   `json:"parentID,omitempty"`
	Agent   string   `json:"agent,omitempty"`
	Mode    string   `json:"mode,omitempty"`
	Time    span     `json:"time,omitzero"`
	Tokens  *tokens  `json:"tokens,omitempty"`
	Cost    float64  `json:"cost,omitempty"`
	Finish  string   `json:"finish,omitempty"`
	Error   *failure `json:"error,omitempty"`
}

type tokens struct {
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	Reasoning int64 `json:"reasoning"`
	Cache     cache `json:"cache"`
}

type cache struct {
	Read  int64 `json:"read"`
	Write int64 `json:"write"`
}

type failure struct {
	Name string      `json:"name"`
	Data failureData `json:"data"`
}

type failureData struct {
	Message string `json:"message"`
}

type part struct {
	ID        string     `json:"id"`
	Session   string     `json:"sessionID"`
	Message   string     `json:"messageID"`
	Type      string     `json:"type"`
	Text      *string    `json:"text,omitempty"`
	Synthetic bool       `json:"synthetic,omitempty"`
	Mime      string     `json:"mime,omitempty"`
	Name      string     `json:"filename,omitempty"`
	URL       string     `json:"url,omitempty"`
	Call      string     `json:"callID,omitempty"`
	Tool      string     `json:"tool,omitempty"`
	State     *toolState `json:"state,omitempty"`
	Time      *span      `json:"time,omitempty"`
}

type toolState struct {
	Status      string          `json:"status"`
	Input       json.RawMessage `json:"input"`
	Output      json.RawMessage `json:"output,omitempty"`
	Title       string          `json:"title,omitempty"`
	Metadata    *toolMeta       `json:"metadata,omitempty"`
	Error       string          `json:"error,omitempty"`
	Attachments []part          `json:"attachments,omitempty"`
	Time        span            `json:"time"`
}

type toolMeta struct {
	Kind      string         `json:"kind,omitempty"` // ACP's
	Files     []change       `json:"files,omitempty"`
	Locations []acp.Location `json:"locations,omitempty"`
}

// change is a file's change, as a diff in the protocol has it.
type change struct {
	File   string  `json:"file"`
	Status string  `json:"status,omitempty"`
	Before *string `json:"before,omitempty"`
	After  string  `json:"after"`
}

func partID(n int) string { return fmt.Sprintf("prt_%06d", n) }

func partKey(message string, n int) string { return session.PartKey(message, partID(n)) }

func put(key string, v any) Op { return Op{Method: session.MethodPut, Key: key, Payload: encode(v)} }

// encode marshals a value, which is of types that marshal, and of JSON text that was read from JSON.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("acprecord: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// userPart returns a block of a prompt as a part.
func userPart(sessionID, message string, n int, raw json.RawMessage) part {
	block, err := acp.Read[acp.Block](raw)
	if err != nil {
		text := clip(string(raw), shownBytes)
		block = acp.Block{Type: "text", Text: text}
	}
	return blockPart(sessionID, message, partID(n), block)
}

// blockPart returns a content block as a part. Data that is too long for a part is left out.
func blockPart(sessionID, message, id string, b acp.Block) part {
	p := part{ID: id, Session: sessionID, Message: message, Type: "file", Mime: b.MimeType, Name: b.Name, URL: b.URI}
	switch {
	case b.Type == "text":
		text := clip(b.Text, 2*shownBytes)
		p.Type, p.Text = "text", &text
	case b.Data != "" && len(b.Data) <= 2<<20:
		p.URL = "data:" + b.MimeType + ";base64," + b.Data
	case b.Resource != nil && b.Resource.Blob == nil:
		text := clip(b.Resource.URI+"\n\n"+b.Resource.Text, 2*shownBytes)
		p.Type, p.Text, p.Synthetic = "text", &text, true
	case b.Resource != nil:
		p.Mime, p.URL = b.Resource.MimeType, b.Resource.URI
	}
	return p
}
