// What is asked, as content blocks of the Agent Client Protocol (https://agentclientprotocol.com).

package prompts

import (
	"encoding/base64"
	"maps"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
)

// Block is a content block of the Agent Client Protocol.
type Block struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	Data     string    `json:"data,omitempty"`
	MimeType string    `json:"mimeType,omitempty"`
	URI      string    `json:"uri,omitempty"`
	Name     string    `json:"name,omitempty"`
	Resource *Resource `json:"resource,omitempty"`
}

// Resource is what a Block has embedded.
type Resource struct {
	URI      string `json:"uri"`
	MimeType string `json:"mimeType,omitempty"`
	Text     string `json:"text,omitempty"`
	Blob     string `json:"blob,omitempty"`
}

// Payload returns the payload of a prompt, with further members for whoever asks it: agents do not look at those.
func Payload(blocks []Block, more map[string]any) []byte {
	p := map[string]any{"content": blocks}
	if len(blocks) == 1 && blocks[0].Type == "text" {
		p = map[string]any{"text": blocks[0].Text}
	}
	maps.Copy(p, more)
	return httpkit.JSON(p)
}

// FileBlock returns a file as a content block: a link, or what a data URL has.
func FileBlock(address, media, name string) (Block, *fault.Error) {
	if strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://") {
		if name == "" {
			name = address
		}
		return Block{Type: "resource_link", URI: address, Name: name, MimeType: media}, nil
	}
	data, ok := DataOf(address)
	if !ok || media == "" {
		return Block{}, fault.BadArgument.With("a file cannot be carried to an agent: its url is http:, https: or data:, and it has a mediaType")
	}
	return DataBlock(data, media, name), nil
}

// DataBlock returns what a file has as a content block.
func DataBlock(data []byte, media, name string) Block {
	if name == "" {
		name = "file"
	}
	encoded := base64.StdEncoding.EncodeToString(data)
	kind, _, _ := strings.Cut(media, "/")
	switch {
	case kind == "image" || kind == "audio":
		return Block{Type: kind, MimeType: media, Data: encoded}
	case kind == "text" && utf8.Valid(data):
		return Block{Type: "resource", Resource: &Resource{URI: name, MimeType: media, Text: string(data)}}
	}
	return Block{Type: "resource", Resource: &Resource{URI: name, MimeType: media, Blob: encoded}}
}

// DataOf returns what a data URL has.
func DataOf(address string) ([]byte, bool) {
	rest, ok := strings.CutPrefix(address, "data:")
	head, text, found := strings.Cut(rest, ",")
	if !ok || !found {
		return nil, false
	}
	if strings.HasSuffix(head, ";base64") {
		data, err := base64.StdEncoding.DecodeString(text)
		return data, err == nil
	}
	plain, err := url.PathUnescape(text)
	return []byte(plain), err == nil
}
