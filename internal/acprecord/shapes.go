package acprecord

// The values that are put, in opencode's shapes.

import (
	"encoding/json"
	"fmt"

	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/opencode/shape"
	"github.com/mooring-rpc/mooring/internal/session"
)

type (
	span      = shape.Span
	info      = shape.Info
	message   = shape.Message
	tokens    = shape.Tokens
	cache     = shape.Cache
	failure   = shape.Failure
	part      = shape.Part
	toolState = shape.ToolState
	toolMeta  = shape.ToolMeta
	change    = shape.Change
	todo      = shape.Todo
)

func newFailure(name, text string) *failure { return shape.NewFailure(name, text) }

func partID(n int) string { return fmt.Sprintf("prt_%06d", n) }

func partKey(message string, n int) string { return session.PartKey(message, partID(n)) }

func put(key string, v any) Op { return Op{Method: session.MethodPut, Key: key, Payload: encode(v)} }

// encode marshals a value, which is of types that marshal, and of JSON text that was read from JSON.
func encode(v any) json.RawMessage { return shape.Encode(v) }

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
