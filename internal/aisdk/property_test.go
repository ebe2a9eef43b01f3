package aisdk

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/prompts"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
)

// world is a session's messages with their parts, and what happened to them.
type world struct {
	rnd      *rand.Rand
	cursor   uint64
	messages []string
	parts    []*worldPart
	log      []worldEvent
}

type worldPart struct {
	key     session.Key
	kind    string
	text    string
	status  string
	changed uint64
}

// worldEvent is a change: a message begins, or a part is put, appended to, or is gone.
type worldEvent struct {
	cursor  uint64
	begin   string
	key     session.Key
	payload []byte
	append  bool
}

// value returns a part's payload.
func (p *worldPart) value() []byte {
	if p.kind != "tool" {
		return httpkit.JSON(map[string]any{"type": p.kind, "text": p.text})
	}
	state := map[string]any{"status": p.status, "input": map[string]string{"command": p.text}}
	if p.status == "completed" {
		state["output"] = "ran " + p.text
	}
	return httpkit.JSON(map[string]any{"type": "tool", "tool": "bash", "callID": "call_" + p.key.Message + p.key.ID, "state": state})
}

var words = []string{"a", "\n", " ", `"`, "日本", "🙂", `\`, "word ", "\t"}

func (w *world) words() string {
	var b strings.Builder
	for range w.rnd.IntN(5) {
		b.WriteString(words[w.rnd.IntN(len(words))])
	}
	return b.String()
}

func (w *world) put(p *worldPart) {
	p.changed = w.cursor
	w.log = append(w.log, worldEvent{cursor: w.cursor, key: p.key, payload: p.value()})
}

// step lets one thing happen.
func (w *world) step() {
	w.cursor++
	if len(w.messages) == 0 || w.rnd.IntN(12) == 0 && len(w.messages) < 3 {
		id := fmt.Sprintf("m%d", len(w.messages))
		w.messages = append(w.messages, id)
		w.log = append(w.log, worldEvent{cursor: w.cursor, begin: id})
		return
	}
	now := w.messages[len(w.messages)-1]
	if len(w.parts) == 0 || w.parts[len(w.parts)-1].key.Message != now || w.rnd.IntN(6) == 0 {
		p := &worldPart{key: session.Key{Kind: session.KeyPart, Message: now, ID: fmt.Sprintf("p%d", len(w.parts))}, kind: []string{"text", "reasoning", "tool", "note"}[w.rnd.IntN(4)], text: w.words(), status: "pending"}
		w.parts = append(w.parts, p)
		w.put(p)
		return
	}
	p := w.parts[w.rnd.IntN(len(w.parts))]
	if p.key.Message != now && p.kind != "tool" { // once its step is over
		return
	}
	switch {
	case p.kind == "tool":
		if p.key.Message == now {
			p.text += w.words()
		}
		p.status = []string{"running", "completed"}[w.rnd.IntN(2)]
		if p.key.Message != now {
			p.status = "completed"
		}
		w.put(p)
	case p.kind == "note":
		p.text = w.words()
		w.put(p)
	case w.rnd.IntN(12) == 0: // another text
		p.text = fmt.Sprintf("!%d!%s", w.cursor, w.words())
		w.put(p)
	case w.rnd.IntN(3) == 0:
		p.text += w.words()
		w.put(p)
	default:
		more := w.words()
		w.log = append(w.log, worldEvent{cursor: w.cursor, key: p.key, append: true,
			payload: []byte(`{"offset":` + strconv.Itoa(len(p.text)) + `,"text":` + string(httpkit.JSON(more)) + `}`)})
		p.text, p.changed = p.text+more, w.cursor
	}
}

// reader is a stream that began at some moment.
type reader struct {
	m     *message
	out   []byte
	after uint64 // it follows what comes after
}

func (r *reader) event(w *world, e *worldEvent) {
	switch {
	case e.cursor <= r.after:
	case e.begin != "":
		r.m.Begin(e.begin)
	default:
		stale := false
		if e.append {
			stale = r.m.Append(e.key, e.payload, e.cursor)
		} else {
			stale = r.m.Put(e.key, e.payload, e.cursor)
		}
		if stale && r.m.Reset(e.key.Message) { // its parts are read as they are by now, which may be later than the event
			r.parts(w, e.key.Message)
		}
	}
	r.out = append(r.out, r.m.take()...)
}

func (r *reader) parts(w *world, message string) {
	for _, p := range w.parts {
		if p.key.Message == message {
			r.m.Put(p.key, p.value(), p.changed)
		}
	}
}

// join begins a stream now.
func (w *world) join() *reader {
	r := &reader{m: newMessage(), after: w.cursor}
	for _, id := range w.messages {
		r.m.Begin(id)
		r.parts(w, id)
		if w.rnd.IntN(3) == 0 {
			w.step() // between two pages: what is read later has it already, and the event comes as well
		}
	}
	r.out = append(r.out, r.m.take()...)
	return r
}

// Whenever a stream begins, what its reader has in the end is what the session has: nothing lost, nothing twice, in the
// order in which it was first said.
func TestStreamsBegunAtAnyMoment(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 300 {
		w := &world{rnd: rnd}
		readers := []*reader{{m: newMessage()}}
		sent := 0
		for range 10 + rnd.IntN(120) {
			w.step()
			if rnd.IntN(10) == 0 && len(readers) < 6 {
				readers = append(readers, w.join())
			}
			if rnd.IntN(4) == 0 { // events come later than they happen
				continue
			}
			for ; sent < len(w.log); sent++ {
				for _, r := range readers {
					r.event(w, &w.log[sent])
				}
			}
		}
		for ; sent < len(w.log); sent++ {
			for _, r := range readers {
				r.event(w, &w.log[sent])
			}
		}
		want := w.texts()
		var first *folded
		for i, r := range readers {
			r.m.end(prompts.Outcome{Reason: "stop"})
			f := fold(t, chunks(t, append(r.out, r.m.take()...)))
			if got := f.texts(); !slices.Equal(got, want) {
				t.Fatalf("reader %d of %d, after %d, has\n%q, the session\n%q\n%s", i, len(readers), r.after, got, want, r.out)
			}
			if first == nil {
				first = f
			}
			if !reflect.DeepEqual(first, f) {
				t.Fatalf("reader %d has\n%v, the first\n%v", i, f, first)
			}
		}
	}
}

// texts returns what a message says, a text for each part.
func (w *world) texts() (list []string) {
	for _, id := range w.messages {
		for _, p := range w.parts {
			if p.key.Message == id {
				list = append(list, p.text)
			}
		}
	}
	return list
}

func (f *folded) texts() (list []string) {
	for _, p := range f.parts {
		switch p["type"] {
		case "step-start":
		case "text", "reasoning":
			list = append(list, p["text"].(string))
		case "dynamic-tool":
			command, _ := p["input"].(map[string]any)
			text, _ := command["command"].(string)
			list = append(list, text)
		default:
			data, _ := p["data"].(map[string]any)
			list = append(list, data["text"].(string))
		}
	}
	return list
}
