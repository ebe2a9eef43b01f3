package uimessage

// A session as an array of UIMessages, one a line.

import (
	"io"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/opencode"
)

// own is the member of metadata, providerMetadata and toolMetadata that has what UIMessages have no place for, and foreign that of a
// session's values which has what opencode's shapes have no place for.
const (
	own     = "mooring"
	foreign = "uimessage"
)

// Types of parts that are not named after a part of a session.
const (
	sessionPart = "data-session"
	diffPart    = "data-diff"
	stepPart    = "data-step-start"
)

// emptyPart is what a message has that must have a part and has none: only an assistant's may.
const emptyPart = `{"type":"data-empty","data":{}}`

var roles = []string{"system", "user", "assistant"}

// Export is the array of a session.
type Export struct {
	messages []message
	session  []byte // the part that has what is the session's

	Orphans int // parts without their message
	LeftOut int // values that are neither a message's nor the session's info or diff
}

// message is a message of a session with its parts.
type message struct {
	id    string
	info  []byte
	parts []opencode.Put // Key is the part's id
}

// NewExport returns the export of a session's state, whose entries are in the session's order.
func NewExport(entries []opencode.Put) *Export {
	d := &Export{}
	at := map[string]int{} // of messages
	var info, diff []byte
	for _, e := range entries {
		kind, rest, _ := strings.Cut(e.Key, "/")
		switch kind {
		case "session":
			info = e.Payload
		case "session_diff":
			diff = opencode.Diff(e.Payload)
		case "message":
			at[rest] = len(d.messages)
			d.messages = append(d.messages, message{id: rest, info: e.Payload})
		case "part": // of a message that may come later
		default:
			d.LeftOut++
		}
	}
	for _, e := range entries {
		rest, isPart := strings.CutPrefix(e.Key, "part/")
		if !isPart {
			continue
		}
		mid, pid, _ := strings.Cut(rest, "/")
		if i, found := at[mid]; found {
			d.messages[i].parts = append(d.messages[i].parts, opencode.Put{Key: pid, Payload: e.Payload})
		} else {
			d.Orphans++
		}
	}
	d.session = sessionData(info, diff)
	return d
}

// Messages returns the number of messages. An array without any is none that the AI SDK takes.
func (d *Export) Messages() int { return len(d.messages) }

// sessionData returns the part that has a session's info and diff; nil if there is neither. Info that an import made is left out.
func sessionData(info, diff []byte) []byte {
	if o, ok := parse(info); ok {
		if _, made := o.object(foreign); made {
			info = nil
		}
	}
	if info == nil && diff == nil {
		return nil
	}
	var data, part object
	data.put("info", info)
	data.put("diff", diff)
	part.putText("type", sessionPart)
	part.put("data", data.bytes())
	return part.bytes()
}

// WriteTo writes the array and a line feed.
func (d *Export) WriteTo(w io.Writer) (n int64, err error) {
	write := func(text []byte) {
		if err == nil {
			var more int
			more, err = w.Write(text)
			n += int64(more)
		}
	}
	write([]byte("["))
	for i := range d.messages {
		if i > 0 {
			write([]byte(","))
		}
		write([]byte("\n"))
		var first []byte
		if i == 0 {
			first = d.session
		}
		write(d.messages[i].encode(first))
	}
	if len(d.messages) > 0 {
		write([]byte("\n"))
	}
	write([]byte("]\n"))
	return n, err
}

// encode returns a message as a UIMessage; first is the first of its parts, nil for none.
func (m *message) encode(first []byte) []byte {
	head, of := messageHead(m.id, m.info)
	var parts [][]byte
	if first != nil {
		parts = append(parts, first)
	}
	for _, p := range m.parts {
		parts = append(parts, of.encodePart(p.Key, p.Payload)...)
	}
	if len(parts) == 0 && head.text("role") != "assistant" {
		parts = append(parts, []byte(emptyPart))
	}
	head.put("parts", array(parts...))
	return head.bytes()
}

// context is what the parts of a message depend on.
type context struct {
	session string // sessionID of the message
	ended   bool   // the message is complete
}

// messageHead returns a message as a UIMessage without its parts.
func messageHead(id string, payload []byte) (head object, of context) {
	info, _ := parse(payload)
	of.session = info.text("sessionID")
	if time, ok := info.object("time"); ok {
		of.ended = time.get("completed") != nil
	}
	role := info.get("role")
	known := slices.Contains(roles, info.text("role"))
	if !known {
		role = quote("assistant")
	}
	if made, ok := info.object(foreign); ok {
		theirs := made.get("id")
		if theirs == nil {
			theirs = quote(id)
		}
		head.put("id", theirs)
		head.put("role", role)
		head.put("metadata", made.get("metadata"))
		return append(head, made.without("id", "role", "metadata", "parts")...), of
	}
	rest := info.without("id")
	if known {
		rest = rest.without("role")
	}
	var metadata object
	metadata.put(own, rest.sorted().bytes())
	head.putText("id", id)
	head.put("role", role)
	head.put("metadata", metadata.bytes())
	return head, of
}
