// The opencode export of a folded session: info, then the messages with their parts, in the
// session's order, and, if there are any, the values of own kinds by key, up to where it is compacted and the session's
// children, in members that opencode does not know. Values are byte for byte as they were put, but for ids that they lack; only the
// object around them is formatted.

package opencode

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// exportMessage is one message with its parts.
type exportMessage struct {
	id    string
	info  []byte
	parts []Put // Key is the part's id
}

// Export is the export document of a session.
type Export struct {
	info     []byte
	messages []exportMessage
	state    []Put
	children []exportChild

	said      Compaction // what opencode's own messages say
	compacted Compaction // up to where the session is compacted, if they do not say it
	Orphans   int        // parts without their message
	Origin    Origin     // what the session was forked from
	Changed   []Change   // of values of own kinds, by key; an import ignores it
}

// Change is who changed a value last.
type Change struct {
	Key    string `json:"-"`
	Cursor uint64 `json:"cursor"`
	At     int64  `json:"at"` // Unix ms
	Ref    string `json:"ref"`
	Actor  string `json:"actor,omitempty"`
}

// exportChild is a child of the session, and the key of what started it.
type exportChild struct {
	part string
	doc  *Export
}

// AddChild adds the export of a child, with the key of the message or part that started it, "" if none is
// named.
func (d *Export) AddChild(part string, child *Export) {
	d.children = append(d.children, exportChild{part, child})
}

// SetCompacted sets up to where the session is compacted.
func (d *Export) SetCompacted(c Compaction) {
	if c != d.said {
		d.compacted = c
	}
}

// NewExport returns an export of a session's state, whose entries are in the session's order.
// name is the id of a session that has no info.
func NewExport(entries []Put, name string) *Export {
	doc := &Export{said: lastCompaction(session.ByTime, []Batch{{Puts: entries}})}
	byID := map[string]*exportMessage{}
	var order []string
	var schemas []Put
	message := func(id string) *exportMessage {
		m := byID[id]
		if m == nil {
			m = &exportMessage{id: id}
			byID[id] = m
		}
		return m
	}
	for _, e := range entries {
		kind, rest, _ := strings.Cut(e.Key, "/")
		switch kind {
		case "session":
			doc.info = e.Payload
		case "message":
			message(rest).info = withID(e.Payload, "id", rest)
			order = append(order, rest)
		case "part":
			mid, pid, _ := strings.Cut(rest, "/")
			m := message(mid)
			m.parts = append(m.parts, Put{Key: pid, Payload: withID(withID(e.Payload, "messageID", mid), "id", pid)})
		default:
			if k, err := session.ParseKey(e.Key); err == nil && k.Kind == session.KeyOwn {
				doc.state = append(doc.state, e)
			} else if err == nil && k.Own() {
				schemas = append(schemas, e)
			}
		}
	}
	// An import puts them last, so that a value from before its schema does not break it.
	doc.state = append(doc.state, schemas...)
	if doc.info == nil {
		doc.info = []byte("{}")
	}
	if id, ok := text(doc.info, "id"); id == "" || !ok {
		doc.info = withID(doc.info, "id", name)
	}
	for _, m := range byID {
		if m.info == nil {
			doc.Orphans += len(m.parts)
		}
	}
	for _, id := range order {
		doc.messages = append(doc.messages, *byID[id])
	}
	return doc
}

// withID returns an object with a member that is an id: in a document that is what its key says, whether or not the program
// that put the value repeated it there.
func withID(object []byte, name, id string) []byte {
	value, _ := json.Marshal(id) // a string always marshals
	from, to, found := ledger.MemberAt(object, name)
	switch {
	case found && ledger.Unquote(object[from:to]) == id:
		return object
	case found:
		return slices.Concat(object[:from], value, object[to:])
	}
	from = bytes.IndexByte(object, '{') + 1
	if rest := bytes.TrimLeft(object[from:], " \t\r\n"); len(rest) > 0 && rest[0] != '}' {
		value = append(value, ',')
	}
	return slices.Concat(object[:from], []byte(`"`+name+`":`), value, object[from:])
}

// WriteTo writes the document and a line feed.
func (d *Export) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	b.WriteString("{\n  ")
	d.write(&b)
	b.WriteByte('\n')
	return b.WriteTo(w)
}

// write writes the document from behind its first brace on.
func (d *Export) write(b *bytes.Buffer) {
	b.WriteString("\"info\": ")
	b.Write(d.info)
	b.WriteString(",\n  \"messages\": [")
	for i, m := range d.messages {
		separate(b, i, "\n    ")
		b.WriteString("{\n      \"info\": ")
		b.Write(m.info)
		b.WriteString(",\n      \"parts\": [")
		for j, p := range m.parts {
			separate(b, j, "\n        ")
			b.Write(p.Payload)
		}
		if len(m.parts) > 0 {
			b.WriteString("\n      ")
		}
		b.WriteString("]\n    }")
	}
	if len(d.messages) > 0 {
		b.WriteString("\n  ")
	}
	b.WriteString("]")
	for i, p := range d.state {
		if i == 0 {
			b.WriteString(",\n  \"state\": {")
		}
		separate(b, i, "\n    ")
		b.WriteString(`"` + p.Key + `": `) // a key has no character that JSON escapes
		b.Write(p.Payload)
	}
	if len(d.state) > 0 {
		b.WriteString("\n  }")
	}
	for i, c := range d.Changed {
		if i == 0 {
			b.WriteString(",\n  \"changed\": {")
		}
		separate(b, i, "\n    ")
		text, _ := json.Marshal(c) // strings and numbers always marshal
		b.WriteString(`"` + c.Key + `": `)
		b.Write(text)
	}
	if len(d.Changed) > 0 {
		b.WriteString("\n  }")
	}
	if c := d.compacted; c != (Compaction{}) {
		b.WriteString(",\n  \"compacted\": {\"upto\": \"" + c.Upto + "\", \"summary\": \"" + c.Summary + "\"}")
	}
	if o := d.Origin; o != (Origin{}) {
		b.WriteString(",\n  \"origin\": {\"session\": \"" + o.Session + "\", \"cursor\": " + strconv.FormatUint(o.Cursor, 10)) // ids have no character that JSON escapes
		if o.Message != "" {
			b.WriteString(", \"message\": \"" + o.Message + "\"")
		}
		b.WriteString("}")
	}
	for i, c := range d.children {
		if i == 0 {
			b.WriteString(",\n  \"children\": [")
		}
		separate(b, i, "\n{")
		if c.part != "" {
			b.WriteString(`"part": "` + c.part + `", `)
		}
		c.doc.write(b)
	}
	if len(d.children) > 0 {
		b.WriteString("]")
	}
	b.WriteString("\n}")
}

func separate(b *bytes.Buffer, i int, layout string) {
	if i > 0 {
		b.WriteByte(',')
	}
	b.WriteString(layout)
}
