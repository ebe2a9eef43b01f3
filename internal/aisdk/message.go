package aisdk

// The message that a stream writes: values of a session go in, in any state that they are in, and chunks of the UI
// message stream come out. It knows no connection, no clock and no database.
//
// Whatever moment a stream begins at, a reader who folds its chunks has the same message: what a value has already is
// written at once, and what it gets later when it gets it. A value that is not what was written with more behind it
// cannot be taken back chunk by chunk: then the step is begun anew (reset), which readers understand as well.

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/prompts"
	"github.com/mooring-rpc/mooring/internal/session"
)

// pieceBytes is about how much text a delta has at most.
const pieceBytes = 16 << 10

// message is what a stream has written of its message. The zero value is not usable: newMessage.
type message struct {
	out   []byte // chunks that are not sent yet
	begun bool
	step  string           // id of the session's message whose step is open; "" for none
	parts map[string]*part // by key
	ids   map[string]string
	open  []*part // whose text may grow, in the order in which they began
}

func newMessage() *message { return &message{parts: map[string]*part{}, ids: map[string]string{}} }

// part is what was written of a part.
type part struct {
	message string
	id      string // in chunks
	kind    string // text, reasoning, tool, file, or another type
	cursor  uint64 // of the newest change that is in it

	text   prompts.Prefix // of text and reasoning
	closed bool           // its end was written

	started       bool // of a tool call: it is there,
	input, output uint64
}

// grows reports whether the part's text is written in deltas.
func (p *part) grows() bool { return p.kind == "text" || p.kind == "reasoning" }

// take returns the chunks that are not sent yet.
func (m *message) take() []byte {
	out := m.out
	if m.out = m.out[:0]; cap(out) > 2*pieceBytes {
		m.out = nil
	}
	return out
}

// Pending returns how many bytes of chunks are not sent yet.
func (m *message) Pending() int { return len(m.out) }

// chunk writes a chunk whose JSON text is v's.
func (m *message) chunk(v any) { m.write(httpkit.JSON(v)) }

// write writes a chunk.
func (m *message) write(text []byte) {
	m.out = append(append(append(m.out, "data: "...), text...), "\n\n"...)
}

// chunkHead has the members that most chunks have.
type chunkHead struct {
	Type string `json:"type"`
	ID   string `json:"id,omitempty"`
}

// Begin begins the step of a message of the session, unless it is the one that is open. The first begins the UI message
// too, which has its id.
func (m *message) Begin(id string) {
	if m.step == id {
		return
	}
	if !m.begun {
		m.begun = true
		m.chunk(struct {
			Type      string `json:"type"`
			MessageID string `json:"messageId"`
		}{"start", id})
	}
	m.endStep()
	m.step = id
	m.chunk(chunkHead{Type: "start-step"})
}

// endStep ends the step that is open. A text in it may still grow.
func (m *message) endStep() {
	if m.step != "" {
		m.step = ""
		m.chunk(chunkHead{Type: "finish-step"})
	}
}

// close writes the end of a text.
func (m *message) close(p *part) {
	if !p.closed {
		p.closed = true
		m.chunk(chunkHead{p.kind + "-end", p.id})
	}
}

// Reset has readers forget the step of a message, whose parts are to be put anew. It returns false, and does nothing, if
// that is not the step that is open.
func (m *message) Reset(id string) bool {
	if m.step != id {
		return false
	}
	for key, p := range m.parts {
		if p.message == id {
			delete(m.parts, key)
			delete(m.ids, p.id)
		}
	}
	for _, p := range m.open {
		if p.message != id { // readers forget which texts may grow, of all steps
			m.close(p)
		}
	}
	m.open = nil
	m.chunk(chunkHead{Type: "reset-step"})
	return true
}

// newPart returns the part of a key, which has an id of its own among those of the stream.
func (m *message) newPart(k session.Key, key, kind, id string) *part {
	for _, choice := range []string{id, k.ID, k.Message + "." + k.ID} {
		if id = choice; m.ids[id] == "" && id != "" {
			break
		}
	}
	p := &part{message: k.Message, id: id, kind: kind}
	m.parts[key], m.ids[id] = p, key
	return p
}

// Put takes a part's value as of a cursor. stale says that the step has to be begun anew: the value is not what was written
// with more behind it.
func (m *message) Put(k session.Key, payload []byte, cursor uint64) (stale bool) {
	key := session.PartKey(k.Message, k.ID)
	value := gjson.ParseBytes(payload)
	kind := value.Get("type").String()
	p := m.parts[key]
	switch {
	case p != nil && cursor <= p.cursor:
		return false
	case p != nil && p.kind != kind:
		return true
	case p == nil:
		p = m.newPart(k, key, kind, value.Get("callID").String())
		if p.grows() {
			m.open = append(m.open, p)
			m.chunk(chunkHead{kind + "-start", p.id})
		}
	}
	p.cursor = cursor
	if skipped[kind] {
		return false
	}
	switch kind {
	case "text", "reasoning":
		return m.putText(p, value)
	case "tool":
		m.putTool(p, value)
		return false
	case "file":
		return m.putOnce(p, fileChunk(p.id, value))
	}
	m.putData(p, payload)
	return false
}

// skipped are types of parts that are no part of what the agent says: steps are the session's messages.
var skipped = map[string]bool{"step-start": true, "step-finish": true, "snapshot": true}

// putText writes what a text has gained.
func (m *message) putText(p *part, value gjson.Result) (stale bool) {
	text := value.Get("text").String()
	grown, ok := p.text.Extend(text)
	if !ok || p.closed && grown != "" {
		return true
	}
	m.delta(p, grown)
	if value.Get("time.end").Exists() {
		m.close(p)
	}
	return false
}

// Append takes the payload of an event that appends text to a part, as of its cursor. stale is Put's.
func (m *message) Append(k session.Key, payload []byte, cursor uint64) (stale bool) {
	p := m.parts[session.PartKey(k.Message, k.ID)]
	switch {
	case p == nil:
		return true
	case cursor <= p.cursor || skipped[p.kind]:
		return false
	case !p.grows() || p.closed:
		return true
	}
	p.cursor = cursor
	raw := gjson.GetBytes(payload, "text")
	text := raw.String()
	if gjson.GetBytes(payload, "offset").Uint() != uint64(p.text.Len()) {
		return true
	}
	p.text.Add(text)
	if len(raw.Raw) > pieceBytes || raw.Type != gjson.String {
		m.delta(p, text)
	} else if text != "" {
		m.rawDelta(p, raw.Raw)
	}
	return false
}

// delta writes text of a part, in pieces.
func (m *message) delta(p *part, text string) {
	for piece := range prompts.Pieces(text, pieceBytes) {
		m.rawDelta(p, string(httpkit.JSON(piece)))
	}
}

// rawDelta writes text of a part, as JSON.
func (m *message) rawDelta(p *part, raw string) {
	b := append(m.out, `data: {"type":"`...)
	b = append(append(b, p.kind...), `-delta","id":`...)
	b = append(append(b, httpkit.JSON(p.id)...), `,"delta":`...)
	m.out = append(append(b, raw...), "}\n\n"...)
}

// Remove takes a part's removal. stale is Put's.
func (m *message) Remove(key string, cursor uint64) (stale bool) {
	p := m.parts[key]
	return p != nil && cursor > p.cursor && !skipped[p.kind]
}

// withMember returns the JSON text of an object with one more member, whose value is JSON text. In that, line breaks between
// tokens become blanks: a line break would end a line of the stream.
func withMember(object any, name string, value gjson.Result, absent string) []byte {
	b := httpkit.JSON(object)
	b = append(append(append(b[:len(b)-1], `,"`...), name...), `":`...)
	at := len(b)
	if value.Exists() {
		b = append(b, value.Raw...)
	} else {
		b = append(b, absent...)
	}
	for i := at; i < len(b); i++ {
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return append(b, '}')
}

// putOnce writes a chunk that cannot be changed by another.
func (m *message) putOnce(p *part, chunk any) (stale bool) {
	text := httpkit.JSON(chunk)
	if p.started {
		return p.output != prompts.SumOf(text)
	}
	p.started, p.output = true, prompts.SumOf(text)
	m.write(text)
	return false
}

// putData writes a part of another type as data-TYPE; readers put it in the place of the one with its id.
func (m *message) putData(p *part, payload []byte) {
	sum := prompts.SumOf(payload)
	if p.started && p.output == sum {
		return
	}
	p.started, p.output = true, sum
	m.write(withMember(chunkHead{"data-" + dataName(p.kind), p.id}, "data", gjson.ParseBytes(payload), "null"))
}

// dataName returns the type of a part as the name of a data part.
func dataName(kind string) string {
	name := strings.Map(func(c rune) rune {
		if c < '!' || c > '~' {
			return -1
		}
		return c
	}, kind)
	if name == "" {
		return "part"
	}
	return name
}

// fileChunk returns the chunk of a file: what a browser can load, or else what it is called.
func fileChunk(id string, value gjson.Result) any {
	url, mime, name := value.Get("url").String(), value.Get("mime").String(), value.Get("filename").String()
	if mime == "" {
		mime = "application/octet-stream"
	}
	for _, scheme := range []string{"data:", "https://", "http://"} {
		if strings.HasPrefix(url, scheme) {
			return struct {
				Type  string `json:"type"`
				URL   string `json:"url"`
				Media string `json:"mediaType"`
			}{"file", url, mime}
		}
	}
	title := name
	if title == "" {
		title = id
	}
	return struct {
		Type     string `json:"type"`
		SourceID string `json:"sourceId"`
		Media    string `json:"mediaType"`
		Title    string `json:"title"`
		Filename string `json:"filename,omitempty"`
	}{"source-document", id, mime, title, name}
}

// end ends the message, and the stream.
func (m *message) end(o prompts.Outcome) {
	for _, p := range m.open {
		m.close(p)
	}
	m.endStep()
	switch {
	case o.Aborted != "":
		m.chunk(struct {
			Type   string `json:"type"`
			Reason string `json:"reason"`
		}{"abort", o.Aborted})
	case o.Failed != "":
		m.chunk(struct {
			Type string `json:"type"`
			Text string `json:"errorText"`
		}{"error", o.Failed})
	default:
		m.chunk(struct {
			Type   string `json:"type"`
			Reason string `json:"finishReason"`
		}{"finish", o.Reason})
	}
	m.out = append(m.out, "data: [DONE]\n\n"...)
}
