package a2ahttp

// What answers a task: values of a session go in, in any state that they are in, and events of the protocol come out. It knows no
// connection, no clock and no database.
//
// Whatever moment a stream begins at, a reader who folds its events has the same artifacts. A text that is not what was given with
// more behind it is given again as a whole.

import (
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/prompts"
	"github.com/mooring-rpc/mooring/internal/session"
)

// pieceBytes is about how much text an event has at most: clients read lines of some megabytes.
const pieceBytes = 1 << 20

// artifacts implements prompts.Sink.
type artifacts struct {
	of    a2a.TaskInfo
	parts map[string]*artifact // by key
	out   []a2a.Event          // that are not taken yet
	bytes int                  // about how many the values in out have
}

// artifact is what was given of a part.
type artifact struct {
	message string
	id      a2a.ArtifactID
	kind    string // text, file, tool, or another type, which is none
	cursor  uint64 // of the newest change that is in it
	text    prompts.Prefix
	begun   bool
	last    uint64 // of a file, and of a tool's state
}

func newArtifacts(of a2a.TaskInfo) *artifacts {
	return &artifacts{of: of, parts: map[string]*artifact{}}
}

// take returns the events that are not taken yet.
func (a *artifacts) take() []a2a.Event {
	out := a.out
	a.out, a.bytes = nil, 0
	return out
}

// Pending implements prompts.Sink.
func (a *artifacts) Pending() int { return a.bytes }

// Begin implements prompts.Sink.
func (a *artifacts) Begin(string) {}

// Flush implements prompts.Sink.
func (a *artifacts) Flush() error { return nil }

// Reset implements prompts.Sink.
func (a *artifacts) Reset(message string) bool {
	for _, p := range a.parts {
		if p.message == message {
			p.cursor = 0
		}
	}
	return true
}

// Put implements prompts.Sink. A value is never stale: it is the whole.
func (a *artifacts) Put(k session.Key, payload []byte, cursor uint64) bool {
	key := session.PartKey(k.Message, k.ID)
	p := a.parts[key]
	switch {
	case p == nil:
		p = &artifact{message: k.Message, id: a2a.ArtifactID(k.Message + "/" + k.ID)}
		a.parts[key] = p
	case cursor <= p.cursor:
		return false
	}
	p.cursor = cursor
	value := gjson.ParseBytes(payload)
	switch p.kind = value.Get("type").String(); p.kind {
	case "text":
		a.putText(p, value.Get("text").String())
	case "file":
		if file := fileOf(value); file != nil && p.changed(payload) {
			a.give(p, false, file, len(payload))
		}
	case "tool":
		a.putTool(p, value)
	}
	return false
}

// changed reports whether a text is another than at the last call.
func (p *artifact) changed(text []byte) bool {
	sum := prompts.SumOf(text)
	if sum == p.last {
		return false
	}
	p.last = sum
	return true
}

// putText gives what a text has gained, or all of it.
func (a *artifacts) putText(p *artifact, text string) {
	more, ok := p.text.Extend(text)
	if !ok {
		p.text = prompts.Prefix{}
		p.text.Add(text)
		a.give(p, false, a2a.NewTextPart(text), len(text))
		return
	}
	a.giveText(p, more)
}

// giveText gives more of a text, in pieces.
func (a *artifacts) giveText(p *artifact, text string) {
	for piece := range prompts.Pieces(text, pieceBytes) {
		a.give(p, p.begun, a2a.NewTextPart(piece), len(piece))
	}
}

// give gives a part of an artifact: more of it, or all that there is by now.
func (a *artifacts) give(p *artifact, more bool, part *a2a.Part, bytes int) {
	p.begun = true
	a.bytes += bytes
	a.out = append(a.out, &a2a.TaskArtifactUpdateEvent{TaskID: a.of.TaskID, ContextID: a.of.ContextID, Append: more,
		Artifact: &a2a.Artifact{ID: p.id, Parts: a2a.ContentParts{part}}})
}

// Append implements prompts.Sink.
func (a *artifacts) Append(k session.Key, payload []byte, cursor uint64) (stale bool) {
	p := a.parts[session.PartKey(k.Message, k.ID)]
	switch {
	case p == nil:
		return true
	case cursor <= p.cursor || p.kind != "text":
		return false
	}
	p.cursor = cursor
	if gjson.GetBytes(payload, "offset").Uint() != uint64(p.text.Len()) {
		return true
	}
	text := gjson.GetBytes(payload, "text").String()
	p.text.Add(text)
	a.giveText(p, text)
	return false
}

// Remove implements prompts.Sink. An artifact cannot be taken back: it becomes empty.
func (a *artifacts) Remove(key string, cursor uint64) (stale bool) {
	p := a.parts[key]
	if p == nil || cursor <= p.cursor {
		return false
	}
	p.cursor = cursor
	if p.begun {
		p.text = prompts.Prefix{}
		p.last = 0
		a.give(p, false, a2a.NewTextPart(""), 0)
	}
	return false
}

// putTool says what a tool call is about when its state changes: it is progress, and no artifact.
func (a *artifacts) putTool(p *artifact, value gjson.Result) {
	status := value.Get("state.status").String()
	if !p.changed([]byte(status)) {
		return
	}
	said := map[string]any{"tool": value.Get("tool").String(), "status": status}
	if title := value.Get("state.title").String(); title != "" {
		said["title"] = title
	}
	a.out = append(a.out, &a2a.TaskStatusUpdateEvent{TaskID: a.of.TaskID, ContextID: a.of.ContextID, Status: a2a.TaskStatus{State: a2a.TaskStateWorking,
		Message: &a2a.Message{ID: string(p.id) + "_" + status, Role: a2a.MessageRoleAgent, TaskID: a.of.TaskID, ContextID: a.of.ContextID, Parts: a2a.ContentParts{a2a.NewDataPart(said)}}}})
}

// fileOf returns a file as a part; nil for one that clients cannot have.
func fileOf(value gjson.Result) *a2a.Part {
	address := value.Get("url").String()
	var p *a2a.Part
	if data, ok := prompts.DataOf(address); ok {
		p = a2a.NewRawPart(data)
	} else if strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://") {
		p = &a2a.Part{Content: a2a.URL(address)}
	} else {
		return nil
	}
	p.MediaType, p.Filename = value.Get("mime").String(), value.Get("filename").String()
	return p
}

// firstBytes is about how much of its artifacts the task has that a stream begins with.
const firstBytes = 4 * pieceBytes

// split splits the events of artifacts where the first have about firstBytes: the clients' lines are bounded.
func split(events []a2a.Event) (first, rest []a2a.Event) {
	size := 0
	for _, e := range events {
		u, ok := e.(*a2a.TaskArtifactUpdateEvent)
		if !ok {
			continue
		}
		part := u.Artifact.Parts[0]
		if size += len(part.Text()) + len(part.Raw()); size <= firstBytes {
			first = append(first, e)
		} else {
			rest = append(rest, e)
		}
	}
	return first, rest
}

// fold returns the artifacts that events come to, each with one part.
func fold(events []a2a.Event) []*a2a.Artifact {
	var all []*a2a.Artifact
	index := map[a2a.ArtifactID]int{}
	texts := map[a2a.ArtifactID]*strings.Builder{}
	for _, e := range events {
		u, ok := e.(*a2a.TaskArtifactUpdateEvent)
		if !ok {
			continue
		}
		id := u.Artifact.ID
		if i, known := index[id]; known && !u.Append {
			all[i] = u.Artifact
			delete(texts, id)
		} else if !known {
			index[id] = len(all)
			all = append(all, u.Artifact)
		} else {
			b := texts[id]
			if b == nil {
				b = &strings.Builder{}
				b.WriteString(all[i].Parts[0].Text())
				texts[id] = b
			}
			b.WriteString(u.Artifact.Parts[0].Text())
		}
	}
	for id, b := range texts {
		whole := *all[index[id]] // that of an event stays as it is
		whole.Parts = a2a.ContentParts{a2a.NewTextPart(b.String())}
		all[index[id]] = &whole
	}
	return all
}
