package a2ahttp

// Tasks and their messages, made of requests. Nothing here knows a connection, a clock or a database.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/prompts"
	"github.com/mooring-rpc/mooring/internal/session"
)

// maxMessageID bounds the id of a message that is sent, in bytes.
const maxMessageID = 512

const sumDomain = "mooring a2a v1"

// prefixOf begins the ids of all tasks of a ref.
func prefixOf(ref string) string { return "a2a_" + prompts.Sum(sumDomain, "ref", ref)[:16] + "_" }

// taskID returns the id of the task of a message that is sent under a ref: the same for the same, and for nothing else.
func taskID(ref, message string) string {
	return prefixOf(ref) + prompts.Sum(sumDomain, "message", ref, message)
}

// stopID returns the id of the request to stop the turn of a message.
func stopID(ref, message string) string {
	return "a2a_stop_" + prompts.Sum(sumDomain, "stop", ref, message)
}

// isSubscription reports whether a path of HTTP+JSON names what follows a task.
func isSubscription(path string) bool { return strings.HasSuffix(path, ":subscribe") }

// sentMember is what a prompt's payload has, beside what an agent is given, to make the message again.
const sentMember = "a2a"

type sent struct {
	Message    string         `json:"messageId"`
	Metadata   map[string]any `json:"metadata,omitempty"`
	Extensions []string       `json:"extensions,omitempty"`
	References []a2a.TaskID   `json:"referenceTaskIds,omitempty"`
}

// payloadOf returns a message that is sent as the payload of a prompt.
func payloadOf(m *a2a.Message) ([]byte, error) {
	var blocks []prompts.Block
	for i, p := range m.Parts {
		if p == nil {
			return nil, refusal(a2a.ErrInvalidParams, fmt.Sprintf("part %d of the message is null", i))
		}
		switch v := p.Content.(type) {
		case a2a.Text:
			if v != "" {
				blocks = append(blocks, prompts.Block{Type: "text", Text: string(v)})
			}
		case a2a.Raw:
			if len(v) == 0 {
				return nil, refusal(a2a.ErrInvalidParams, fmt.Sprintf("part %d of the message is an empty file", i))
			}
			media := p.MediaType
			if media == "" {
				media = "application/octet-stream"
			}
			blocks = append(blocks, prompts.DataBlock(v, media, p.Filename))
		case a2a.URL:
			b, refused := prompts.FileBlock(string(v), p.MediaType, p.Filename)
			if refused != nil {
				return nil, refusal(a2a.ErrUnsupportedContentType, refused.Message)
			}
			blocks = append(blocks, b)
		case a2a.Data:
			value := httpkit.JSON(v.Value)
			name := p.Filename
			if name == "" {
				name = "data.json"
			}
			blocks = append(blocks, prompts.Block{Type: "resource", Resource: &prompts.Resource{URI: name, MimeType: "application/json", Text: string(value)}})
		}
	}
	if len(blocks) == 0 {
		return nil, refusal(a2a.ErrInvalidParams, "the message is empty: send a text, a file or data")
	}
	return prompts.Payload(blocks, map[string]any{sentMember: sent{m.ID, m.Metadata, m.Extensions, m.ReferenceTasks}}), nil
}

// messageOf returns the message that a request was asked by.
func messageOf(of a2a.TaskInfo, payload gjson.Result) *a2a.Message {
	var s sent
	_ = json.Unmarshal([]byte(payload.Get(sentMember).Raw), &s) // it is this package's own, unless somebody made its id up
	m := &a2a.Message{ID: s.Message, Role: a2a.MessageRoleUser, TaskID: of.TaskID, ContextID: of.ContextID, Metadata: s.Metadata, Extensions: s.Extensions, ReferenceTasks: s.References, Parts: a2a.ContentParts{}}
	if text := payload.Get("text"); text.Exists() {
		m.Parts = append(m.Parts, a2a.NewTextPart(text.String()))
	}
	for _, raw := range payload.Get("content").Array() {
		var b prompts.Block
		if json.Unmarshal([]byte(raw.Raw), &b) == nil {
			m.Parts = append(m.Parts, partOf(b))
		}
	}
	return m
}

// partOf returns a content block as a part.
func partOf(b prompts.Block) *a2a.Part {
	switch {
	case b.Type == "text":
		return a2a.NewTextPart(b.Text)
	case b.Type == "resource_link":
		p := a2a.NewFileURLPart(a2a.URL(b.URI), b.MimeType)
		if b.Name != b.URI {
			p.Filename = b.Name
		}
		return p
	case b.Resource == nil:
		data, _ := base64.StdEncoding.DecodeString(b.Data)
		p := a2a.NewRawPart(data)
		p.MediaType = b.MimeType
		return p
	}
	r := b.Resource
	var p *a2a.Part
	switch {
	case r.Text != "" && r.MimeType == "application/json": // files of this type are in Blob
		p = a2a.NewDataPart(gjson.Parse(r.Text).Value())
	case r.Text != "":
		p = a2a.NewRawPart([]byte(r.Text))
	default:
		data, _ := base64.StdEncoding.DecodeString(r.Blob)
		p = a2a.NewRawPart(data)
	}
	if p.MediaType = r.MimeType; r.URI != "file" && r.URI != "data.json" {
		p.Filename = r.URI
	}
	return p
}

// statusOf returns the status of a task.
func statusOf(of a2a.TaskInfo, p *prompts.Prompt) a2a.TaskStatus {
	at := p.At
	if at == 0 {
		at = p.Asked
	}
	when := time.UnixMilli(at).UTC()
	s := a2a.TaskStatus{Timestamp: &when}
	switch p.State {
	case session.RequestOpen:
		s.State = a2a.TaskStateSubmitted
		return s
	case session.RequestClaimed:
		s.State = a2a.TaskStateWorking
		return s
	}
	why := ""
	switch o := p.Outcome(); {
	case o.Aborted != "":
		s.State, why = a2a.TaskStateCanceled, o.Aborted
	case o.Failed != "":
		s.State, why = a2a.TaskStateFailed, o.Failed
	case o.Reason == "content-filter":
		s.State, why = a2a.TaskStateRejected, "the agent refused"
	default:
		s.State = a2a.TaskStateCompleted
		if o.Reason != "stop" {
			why = "the agent ended before it was done: " + p.Answer.Get("stopReason").String()
		}
	}
	if why != "" {
		s.Message = &a2a.Message{ID: string(of.TaskID) + "_end", Role: a2a.MessageRoleAgent, TaskID: of.TaskID, ContextID: of.ContextID, Parts: a2a.ContentParts{a2a.NewTextPart(why)}}
	}
	return s
}

// statusEvent returns the event of a task's status.
func statusEvent(of a2a.TaskInfo, p *prompts.Prompt) *a2a.TaskStatusUpdateEvent {
	return &a2a.TaskStatusUpdateEvent{TaskID: of.TaskID, ContextID: of.ContextID, Status: statusOf(of, p)}
}
