package aisdk

// What a chat sends: of all its messages the last one, as an agent is prompted.

import (
	"encoding/base64"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
)

// maxMessageID bounds the id of a message that is sent, in bytes.
const maxMessageID = 512

// sentMessage is a message that was sent.
type sentMessage struct {
	id      string
	payload []byte // of the prompt, as JSON
}

// parseSent parses the body of a chat's request. What cannot be carried to an agent is refused.
func parseSent(body gjson.Result) (*sentMessage, *fault.Error) {
	switch trigger := body.Get("trigger"); {
	case !trigger.Exists(), trigger.Str == "submit-message":
	case trigger.Str == "regenerate-message":
		return nil, fault.BadArgument.With("an agent's answer cannot be made again, since what it has done stays done: send another message, or revert the session")
	default:
		return nil, fault.BadArgument.With("trigger is submit-message")
	}
	messages := body.Get("messages")
	if !messages.IsArray() {
		return nil, fault.Malformed.With("messages is an array of messages, the last of them the user's")
	}
	var last gjson.Result
	messages.ForEach(func(_, m gjson.Result) bool {
		last = m
		return true
	})
	id := last.Get("id")
	switch {
	case last.Get("role").Str != "user":
		return nil, fault.BadArgument.With("the last message is not the user's: results and approvals of tools are no messages to an agent, which calls its tools itself")
	case id.Type != gjson.String || id.Str == "" || len(id.Str) > maxMessageID:
		return nil, fault.Malformed.With("the last message has no id, of 1 to %d bytes", maxMessageID)
	}
	blocks, refused := blocksOf(last.Get("parts"))
	if refused != nil {
		return nil, refused
	}
	if len(blocks) == 1 && blocks[0].Type == "text" {
		return &sentMessage{id.Str, httpkit.JSON(map[string]string{"text": blocks[0].Text})}, nil
	}
	return &sentMessage{id.Str, httpkit.JSON(map[string]any{"content": blocks})}, nil
}

// block is a content block of the Agent Client Protocol.
type block struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	Data     string    `json:"data,omitempty"`
	MimeType string    `json:"mimeType,omitempty"`
	URI      string    `json:"uri,omitempty"`
	Name     string    `json:"name,omitempty"`
	Resource *resource `json:"resource,omitempty"`
}

type resource struct {
	URI      string `json:"uri"`
	MimeType string `json:"mimeType,omitempty"`
	Text     string `json:"text,omitempty"`
	Blob     string `json:"blob,omitempty"`
}

// blocksOf returns the parts of a message as content blocks.
func blocksOf(parts gjson.Result) (blocks []block, refused *fault.Error) {
	for _, p := range parts.Array() {
		switch kind := p.Get("type").Str; kind {
		case "text":
			if text := p.Get("text").Str; text != "" {
				blocks = append(blocks, block{Type: "text", Text: text})
			}
		case "file":
			var b block
			b, refused = fileBlock(p.Get("url").Str, p.Get("mediaType").Str, p.Get("filename").Str)
			blocks = append(blocks, b)
		default:
			refused = fault.BadArgument.With("a part of type %q cannot be carried to an agent: send texts and files", fault.Clip(kind))
		}
		if refused != nil {
			return nil, refused
		}
	}
	if len(blocks) == 0 {
		return nil, fault.BadArgument.With("the last message is empty: send a text or a file")
	}
	return blocks, nil
}

// fileBlock returns a file as a content block: a link, or what a data URL has.
func fileBlock(address, media, name string) (block, *fault.Error) {
	if strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://") {
		if name == "" {
			name = address
		}
		return block{Type: "resource_link", URI: address, Name: name, MimeType: media}, nil
	}
	data, ok := dataOf(address)
	if !ok || media == "" {
		return block{}, fault.BadArgument.With("a file cannot be carried to an agent: its url is http:, https: or data:, and it has a mediaType")
	}
	if name == "" {
		name = "file"
	}
	encoded := base64.StdEncoding.EncodeToString(data)
	kind, _, _ := strings.Cut(media, "/")
	switch {
	case kind == "image" || kind == "audio":
		return block{Type: kind, MimeType: media, Data: encoded}, nil
	case kind == "text" && utf8.Valid(data):
		return block{Type: "resource", Resource: &resource{URI: name, MimeType: media, Text: string(data)}}, nil
	}
	return block{Type: "resource", Resource: &resource{URI: name, MimeType: media, Blob: encoded}}, nil
}

// dataOf returns what a data URL has.
func dataOf(address string) ([]byte, bool) {
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
