package aisdk

// What a chat sends: of all its messages the last one, as an agent is prompted.

import (
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/prompts"
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
	return &sentMessage{id.Str, prompts.Payload(blocks, nil)}, nil
}

// blocksOf returns the parts of a message as content blocks.
func blocksOf(parts gjson.Result) (blocks []prompts.Block, refused *fault.Error) {
	for _, p := range parts.Array() {
		switch kind := p.Get("type").Str; kind {
		case "text":
			if text := p.Get("text").Str; text != "" {
				blocks = append(blocks, prompts.Block{Type: "text", Text: text})
			}
		case "file":
			var b prompts.Block
			b, refused = prompts.FileBlock(p.Get("url").Str, p.Get("mediaType").Str, p.Get("filename").Str)
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
