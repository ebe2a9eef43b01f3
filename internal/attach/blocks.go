package attach

// Prompts as they are asked, and as opencode takes them.

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
)

// part is one of a prompt's, as opencode takes it.
type part struct {
	ID       string        `json:"id"`
	Type     string        `json:"type"`
	Text     string        `json:"text,omitempty"`
	URL      string        `json:"url,omitempty"`
	Mime     string        `json:"mime,omitempty"`
	Filename string        `json:"filename,omitempty"`
	Metadata *partMetadata `json:"metadata,omitempty"`
}

// partMetadata says in opencode's own history which request a message is.
type partMetadata struct {
	Mooring partOrigin `json:"mooring"`
}

type partOrigin struct {
	Request string `json:"request"`
}

// parts returns a prompt's payload as parts without ids: {"text"}, or {"content"} with blocks of the Agent Client Protocol.
func parts(payload []byte) (list []part, err error) {
	var p struct {
		Text    string  `json:"text"`
		Content []block `json:"content"`
	}
	if err := json.Unmarshal(payload, &p); err != nil || p.Text == "" && len(p.Content) == 0 {
		return nil, errors.New(`a prompt's payload is {"text": TEXT} or {"content": [blocks of the Agent Client Protocol]}`)
	}
	if p.Text != "" {
		list = append(list, part{Type: "text", Text: p.Text})
	}
	for _, b := range p.Content {
		one, err := b.part()
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// block is a content block of the Agent Client Protocol.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MimeType string `json:"mimeType"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Resource struct {
		URI      string `json:"uri"`
		Text     string `json:"text"`
		Blob     string `json:"blob"`
		MimeType string `json:"mimeType"`
	} `json:"resource"`
}

func (b *block) part() (part, error) {
	switch {
	case b.Type == "text" && b.Text != "":
		return part{Type: "text", Text: b.Text}, nil
	case (b.Type == "image" || b.Type == "audio") && b.Data != "" && b.MimeType != "":
		return part{Type: "file", URL: dataURL(b.MimeType, b.Data), Mime: b.MimeType}, nil
	case b.Type == "resource_link" && b.URI != "":
		return part{Type: "file", URL: b.URI, Mime: orText(b.MimeType), Filename: orBase(b.Name, b.URI)}, nil
	case b.Type == "resource" && b.Resource.Text != "":
		return part{Type: "text", Text: fmt.Sprintf("%s:\n%s", b.Resource.URI, b.Resource.Text)}, nil
	case b.Type == "resource" && b.Resource.Blob != "" && b.Resource.MimeType != "":
		return part{Type: "file", URL: dataURL(b.Resource.MimeType, b.Resource.Blob), Mime: b.Resource.MimeType, Filename: orBase("", b.Resource.URI)}, nil
	}
	return part{}, fmt.Errorf("opencode does not take a content block of type %.40q, or it lacks something", b.Type)
}

func dataURL(mime, base64 string) string { return "data:" + mime + ";base64," + base64 }

func orText(mime string) string {
	if mime == "" {
		return "text/plain"
	}
	return mime
}

func orBase(name, uri string) string {
	if name == "" {
		name = path.Base(strings.TrimSuffix(uri, "/"))
	}
	return name
}
