package transcripts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/shape"
	"github.com/mooring-rpc/mooring/internal/session"
)

// writer records a transcript.
type writer struct {
	rec   *opencode.Recording
	at    int64 // of the line, Unix ms
	puts  []opencode.Put
	info  shape.Info
	shown []byte // the session's value as it was put last

	parts map[string]int   // of each message so far
	tools map[string]*tool // by the program's id of the call
}

// tool is a tool call.
type tool struct {
	part  shape.Part
	name  string          // the program's
	input json.RawMessage // as the program has it
}

func newWriter() *writer {
	return &writer{rec: &opencode.Recording{ByLog: true}, parts: map[string]int{}, tools: map[string]*tool{}}
}

func (w *writer) notice(format string, args ...any) {
	w.rec.Notices = append(w.rec.Notices, fmt.Sprintf(format, args...))
}

// begin names the session.
func (w *writer) begin(external, dir, parent string) {
	w.rec.External, w.rec.Parent, w.rec.Created = external, parent, w.at
	w.info = shape.Info{ID: external, Dir: dir, Parent: parent, Time: shape.Span{Created: w.at}}
}

// title puts the session's value with a title, if it has another.
func (w *writer) title(text string) {
	w.info.Title, w.info.Time.Updated = text, w.at
	plain := w.info
	plain.Time.Updated = 0
	if shown := shape.Encode(plain); !bytes.Equal(shown, w.shown) {
		w.shown = shown
		w.put("session", w.info)
	}
}

// put puts a value of package shape.
func (w *writer) put(key string, v any) {
	w.puts = append(w.puts, opencode.Put{Key: key, Payload: shape.Encode(v)})
}

func (w *writer) message(m *shape.Message) {
	m.Session = w.info.ID
	w.put(session.MessageKey(m.ID), m)
}

// newPart returns the next part of a message, which is to be put.
func (w *writer) newPart(message, kind string) shape.Part {
	w.parts[message]++
	return shape.Part{ID: fmt.Sprintf("prt_%06d", w.parts[message]), Session: w.info.ID, Message: message, Type: kind}
}

func (w *writer) part(p *shape.Part) { w.put(session.PartKey(p.Message, p.ID), p) }

// text adds a part with a text: text or reasoning. An empty one is none.
func (w *writer) text(message, kind, text string, synthetic bool) {
	if text == "" {
		return
	}
	p := w.newPart(message, kind)
	p.Text, p.Synthetic = &text, synthetic
	if kind == "reasoning" {
		p.Time = &shape.Span{Start: w.at, End: w.at}
	}
	w.part(&p)
}

// call adds a part with a tool call that runs. A second call with the same id is another one.
func (w *writer) call(message, id, name string, input json.RawMessage) *tool {
	t := &tool{part: w.newPart(message, "tool"), name: name, input: input}
	t.part.Call, t.part.Tool = id, name
	t.part.State = &shape.ToolState{Status: "running", Input: input, Time: shape.Span{Start: w.at}}
	w.tools[id] = t
	return t
}

// end sets how a call ended, with its output; failed makes that its error.
func (w *writer) end(t *tool, output string, failed bool) {
	s := t.part.State
	s.Status, s.Time.End = "completed", w.at
	s.Output = shape.Encode(output)
	if failed {
		s.Status, s.Error = "error", output
		if output == "" {
			s.Error = "failed"
		}
	}
}

// meta returns a call's metadata, to be filled.
func (t *tool) meta() *shape.ToolMeta {
	if t.part.State.Metadata == nil {
		t.part.State.Metadata = &shape.ToolMeta{}
	}
	return t.part.State.Metadata
}

// commit makes what a line was recorded as a batch.
func (w *writer) commit(line int) error {
	puts := opencode.Last(w.puts)
	w.puts = nil
	if len(puts) > 0 && w.rec.External == "" {
		return fault.Malformed.With("line %d: a message before a line that names the session", line)
	}
	if err := w.rec.Add(line, w.at, puts); err != nil {
		return fault.Malformed.Because(err, "line %d: %s", line, fault.Clip(err.Error()))
	}
	return nil
}

// finish completes the recording: known and unknown are what was left out.
func (w *writer) finish(limits opencode.Limits, known, unknown map[string]int) (*opencode.Recording, error) {
	if w.rec.External == "" || len(w.rec.Batches) == 0 {
		return nil, fault.Malformed.With("the transcript has no message")
	}
	if len(known) > 0 {
		w.notice("left out, as it is not of the conversation: %s", counts(known))
	}
	if len(unknown) > 0 {
		w.notice("left out, as it is not known: %s", counts(unknown))
	}
	if err := w.rec.Close(limits); err != nil {
		return nil, err
	}
	return w.rec, nil
}

// idOf returns a program's id as one that may be in a key: itself, or its digest.
func idOf(id string) string {
	if _, err := session.ParseKey(session.MessageKey(id)); err == nil {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// objectOf returns JSON text of an object as it is, and any other as {"input": …}.
func objectOf(text string) json.RawMessage {
	if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	if text == "" || text == "null" {
		return json.RawMessage("{}")
	}
	return shape.Encode(map[string]string{"input": text})
}

// renamed returns an object with members that have other names. What is not an object stays as it is.
func renamed(object json.RawMessage, names map[string]string) json.RawMessage {
	o := gjson.ParseBytes(object)
	if !o.IsObject() {
		return object
	}
	out := []byte{'{'}
	o.ForEach(func(k, v gjson.Result) bool {
		name := k.Raw
		if to, ok := names[k.Str]; ok {
			name = `"` + to + `"`
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), v.Raw...)
		return true
	})
	return append(out, '}')
}

// countLines returns how many lines a unified diff adds and removes.
func countLines(patch string) (added, removed int) {
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++ "):
			added++
		case strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "--- "):
			removed++
		}
	}
	return added, removed
}

// maxImage is how long a picture may be, in base64, to be recorded: a part has to have room for it.
const maxImage = 3 << 20

// imagePart fills a part with a picture; it reports whether it could.
func imagePart(p *shape.Part, mime, base64 string) bool {
	if !strings.HasPrefix(mime, "image/") || base64 == "" || len(base64) > maxImage {
		return false
	}
	p.Type, p.Mime, p.URL = "file", mime, "data:"+mime+";base64,"+base64
	return true
}
