package attach

// Recording: opencode's events become changes of the session, gathered for a moment, since an answer that streams comes word by word.

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/mirror"
	"github.com/mooring-rpc/mooring/internal/session"
)

const (
	gatherFor   = 100 * time.Millisecond
	gatherBytes = 256 << 10
	growRate    = 1 << 20 // bytes a second that a part which grows is put anew with, at most
	maxGrowing  = 2 << 20 // bytes of a part's text that is put while it grows
)

// recorder has what was heard and is not put yet.
type recorder struct {
	id      string // opencode's session
	mirror  *mirror.Mirror
	changes []opencode.Put // in order; without a payload: removals
	bytes   int
	since   time.Time           // of the first change
	growing map[string]*growing // by key of the part
}

// growing is a part whose text comes in deltas: opencode itself has it only at its end.
type growing struct {
	part map[string]json.RawMessage
	text strings.Builder
	more bool // than was put
	next time.Time
}

func newRecorder(id string, m *mirror.Mirror) *recorder {
	return &recorder{id: id, mirror: m, growing: map[string]*growing{}}
}

// hear takes an event of the session. What cannot be read is nothing that opencode's shares would have.
func (r *recorder) hear(e event, now time.Time) {
	var p struct {
		Info      json.RawMessage `json:"info"`
		Part      json.RawMessage `json:"part"`
		Diff      json.RawMessage `json:"diff"`
		MessageID string          `json:"messageID"`
		PartID    string          `json:"partID"`
		Field     string          `json:"field"`
		Delta     string          `json:"delta"`
	}
	if json.Unmarshal(e.Properties, &p) != nil {
		return
	}
	switch e.Type {
	case "session.created", "session.updated":
		r.item("session", p.Info, now)
	case "session.diff":
		r.item("session_diff", p.Diff, now)
	case "message.updated":
		r.item("message", p.Info, now)
	case "message.part.updated":
		if key := r.item("part", p.Part, now); key != "" {
			delete(r.growing, key)
			if isGrowing(p.Part) {
				g := &growing{}
				if json.Unmarshal(p.Part, &g.part) == nil {
					var text string
					_ = json.Unmarshal(g.part["text"], &text) // "" is where it begins
					g.text.WriteString(text)
					r.growing[key] = g
				}
			}
		}
	case "message.part.delta":
		key := session.PartKey(p.MessageID, p.PartID)
		g := r.growing[key]
		switch {
		case g == nil || p.Field != "text":
		case g.text.Len()+len(p.Delta) > maxGrowing: // it comes whole at its end
			delete(r.growing, key)
		default:
			if g.text.WriteString(p.Delta); !g.more {
				g.more, g.next = true, later(g.next, now.Add(gatherFor))
			}
		}
	case "message.removed":
		r.remove(session.MessageKey(p.MessageID), now)
		prefix := session.PartKey(p.MessageID, "")
		for _, key := range r.mirror.Keys(prefix) {
			r.remove(key, now)
		}
		for _, c := range r.changes {
			if c.Payload != nil && strings.HasPrefix(c.Key, prefix) {
				r.remove(c.Key, now)
			}
		}
	case "message.part.removed":
		r.remove(session.PartKey(p.MessageID, p.PartID), now)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// isGrowing reports whether a part's text may come in deltas.
func isGrowing(part []byte) bool {
	var p struct {
		Type string `json:"type"`
		Time struct {
			End int64 `json:"end"`
		} `json:"time"`
	}
	return json.Unmarshal(part, &p) == nil && (p.Type == "text" || p.Type == "reasoning") && p.Time.End == 0
}

// item notes an item as opencode's shares have them, and returns the key of its last put; "" if there is none.
func (r *recorder) item(kind string, data []byte, now time.Time) (key string) {
	reader := opencode.Reader{Session: r.id}
	if len(data) == 0 || reader.Item(kind, data) != nil {
		return ""
	}
	for _, p := range reader.Puts {
		r.change(p, now)
		key = p.Key
	}
	return key
}

func (r *recorder) remove(key string, now time.Time) {
	delete(r.growing, key)
	r.change(opencode.Put{Key: key}, now)
}

func (r *recorder) change(p opencode.Put, now time.Time) {
	if len(r.changes) == 0 {
		r.since = now
	}
	r.changes = append(r.changes, p)
	r.bytes += len(p.Payload)
}

// due returns when flush is to be called; the zero time if there is nothing to put.
func (r *recorder) due() (at time.Time) {
	if len(r.changes) > 0 {
		if at = r.since.Add(gatherFor); r.bytes > gatherBytes {
			at = r.since
		}
	}
	for _, g := range r.growing {
		if g.more && (at.IsZero() || g.next.Before(at)) {
			at = g.next
		}
	}
	return at
}

// flush puts what was heard, and what is due of what grows.
func (r *recorder) flush(ctx context.Context, now time.Time) error {
	return r.mirror.Apply(ctx, r.take(now))
}

// take returns the changes that flush puts.
func (r *recorder) take(now time.Time) []opencode.Put {
	for key, g := range r.growing {
		if !g.more || now.Before(g.next) {
			continue
		}
		g.part["text"] = encode(g.text.String())
		r.change(opencode.Put{Key: key, Payload: encode(g.part)}, now)
		g.more, g.next = false, now.Add(max(gatherFor, time.Duration(g.text.Len())*time.Second/growRate))
	}
	changes := r.changes
	r.changes, r.bytes = nil, 0
	return changes
}

// encode returns a value as JSON text, as JavaScript writes it.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // of a value that was decoded from JSON
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}
