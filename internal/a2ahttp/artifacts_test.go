package a2ahttp

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
)

// world is the parts of a message, and what happened to them.
type world struct {
	rnd    *rand.Rand
	cursor uint64
	parts  []*worldPart
	log    []worldEvent
}

type worldPart struct {
	key     session.Key
	kind    string
	text    string
	changed uint64
}

// worldEvent is a change: a part is put or appended to.
type worldEvent struct {
	cursor  uint64
	key     session.Key
	payload []byte
	append  bool
}

func (p *worldPart) value() []byte {
	if p.kind == "file" {
		return httpkit.JSON(map[string]string{"type": "file", "mime": "text/plain", "url": "data:," + strconv.Itoa(len(p.text))})
	}
	return httpkit.JSON(map[string]string{"type": p.kind, "text": p.text})
}

var words = []string{"a", "\n", " ", `"`, "日本", "🙂", `\`, "word ", ""}

// step lets one thing happen.
func (w *world) step() {
	w.cursor++
	if len(w.parts) == 0 || w.rnd.IntN(8) == 0 {
		w.parts = append(w.parts, &worldPart{key: session.Key{Kind: session.KeyPart, Message: "m", ID: fmt.Sprintf("p%d", len(w.parts))}, kind: []string{"text", "text", "reasoning", "file"}[w.rnd.IntN(4)]})
	}
	p, more := w.parts[w.rnd.IntN(len(w.parts))], words[w.rnd.IntN(len(words))]
	e := worldEvent{cursor: w.cursor, key: p.key}
	switch {
	case p.kind == "text" && p.changed != 0 && w.rnd.IntN(3) > 0:
		e.append, e.payload = true, httpkit.JSON(map[string]any{"offset": len(p.text), "text": more})
		p.text += more
	case w.rnd.IntN(6) == 0:
		p.text = more + strconv.Itoa(int(w.cursor))
		e.payload = p.value()
	default:
		p.text += more
		e.payload = p.value()
	}
	p.changed = w.cursor
	w.log = append(w.log, e)
}

// reader is a stream that began at some moment, and all that it was given.
type reader struct {
	a     *artifacts
	given []a2a.Event
	after uint64 // it follows what comes after
}

func (r *reader) read(w *world) {
	for _, p := range w.parts {
		if p.changed != 0 {
			r.a.Put(p.key, p.value(), p.changed)
		}
	}
	r.given = append(r.given, r.a.take()...)
}

func (r *reader) event(w *world, e *worldEvent) {
	if e.cursor <= r.after {
		return
	}
	stale := false
	if e.append {
		stale = r.a.Append(e.key, e.payload, e.cursor)
	} else {
		stale = r.a.Put(e.key, e.payload, e.cursor)
	}
	if stale && r.a.Reset("m") { // they are read as they are by now, which may be later than the event
		r.read(w)
	}
	r.given = append(r.given, r.a.take()...)
}

// Whenever a stream begins, what its reader has in the end is what the session has: nothing lost, nothing twice.
func TestStreamsBegunAtAnyMoment(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
	of := a2a.TaskInfo{TaskID: "t", ContextID: "c"}
	for range 300 {
		w := &world{rnd: rnd}
		readers, handed := []*reader{{a: newArtifacts(of)}}, 0
		deliver := func() {
			for ; handed < len(w.log); handed++ {
				for _, r := range readers {
					r.event(w, &w.log[handed])
				}
			}
		}
		for range 5 + rnd.IntN(80) {
			w.step()
			if rnd.IntN(8) == 0 && len(readers) < 6 {
				r := &reader{a: newArtifacts(of), after: w.cursor}
				if rnd.IntN(3) == 0 {
					w.step() // while it reads: the event of what it has read comes as well
				}
				r.read(w)
				readers = append(readers, r)
			}
			if rnd.IntN(4) > 0 { // events may come later than they happen
				deliver()
			}
		}
		deliver()
		want := map[a2a.ArtifactID]string{}
		for _, p := range w.parts {
			switch {
			case p.changed == 0 || p.kind == "reasoning" || p.kind == "text" && strings.Trim(p.text, " \n") == "":
			case p.kind == "file":
				want[a2a.ArtifactID("m/"+p.key.ID)] = strconv.Itoa(len(p.text))
			default:
				want[a2a.ArtifactID("m/"+p.key.ID)] = strings.TrimRight(p.text, " \n")
			}
		}
		for i, r := range readers {
			got := map[a2a.ArtifactID]string{}
			for _, a := range fold(r.given) {
				text := a.Parts[0].Text() + string(a.Parts[0].Raw())
				if text = strings.TrimRight(text, " \n"); text != "" { // white space at the end may be left out
					got[a.ID] = text
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("reader %d of %d, after %d, has\n%q, the session\n%q", i, len(readers), r.after, got, want)
			}
		}
	}
}

// A long text comes in pieces, between characters.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	a := newArtifacts(a2a.TaskInfo{})
	long := strings.Repeat("日", pieceBytes)
	a.Put(session.Key{Kind: session.KeyPart, Message: "m", ID: "p"}, httpkit.JSON(map[string]string{"type": "text", "text": long}), 1)
	events := a.take()
	for _, e := range events {
		if text := e.(*a2a.TaskArtifactUpdateEvent).Artifact.Parts[0].Text(); len(text) > pieceBytes || strings.Trim(text, "日") != "" {
			t.Errorf("a piece has %d bytes", len(text))
		}
	}
	if all := fold(events); len(events) < 3 || len(all) != 1 || all[0].Parts[0].Text() != long {
		t.Errorf("%d pieces", len(events))
	}
}
