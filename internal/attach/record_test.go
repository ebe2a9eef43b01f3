package attach

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/opencode/mirror"
)

// heardBy returns a recorder that has heard events, which are a type and properties each.
func heardBy(t *testing.T, now time.Time, events ...string) *recorder {
	t.Helper()
	m := mirror.New(nil, filepath.Join(t.TempDir(), "keys"), nil)
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	r := newRecorder("ses_1", m)
	for _, text := range events {
		kind, properties, _ := strings.Cut(text, " ")
		if !json.Valid([]byte(properties)) {
			t.Fatalf("not JSON: %s", properties)
		}
		r.hear(event{Type: kind, Properties: json.RawMessage(properties)}, now)
	}
	return r
}

// taken returns what a recorder would put, a line each.
func takenFrom(r *recorder, now time.Time) string {
	var lines []string
	for _, p := range r.take(now) {
		lines = append(lines, strings.TrimSpace(p.Key+" "+string(p.Payload)))
	}
	return strings.Join(lines, "\n")
}

func textPart(rest string) string {
	return `message.part.updated {"part":{"id":"prt_1","messageID":"msg_1","sessionID":"ses_1","type":"text",` + rest + `}}`
}

func delta(part, field, text string) string {
	return fmt.Sprintf(`message.part.delta {"messageID":"msg_1","partID":%q,"field":%q,"delta":%q}`, part, field, text)
}

func TestEventsAreWhatSharesHave(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := heardBy(t, now,
		`session.updated {"info":{"id":"ses_1","title":"A"}}`,
		`session.updated {"info":{"id":"ses_2"}}`, // of another
		`session.diff {"diff":[]}`,
		`message.updated {"info":{"id":"msg_1","sessionID":"ses_1"}}`,
		`message.part.updated {"part":{"id":"prt_2","messageID":"msg_1","type":"tool"}}`,
		`message.part.removed {"messageID":"msg_1","partID":"prt_2"}`,
		`message.updated {"info":{"sessionID":"ses_1"}}`, `message.updated {"info":"x"}`, `message.updated {}`, `message.updated "x"`, `todo.updated {"todos":[]}`,
		`message.updated {"info":{"id":"msg_2","sessionID":"ses_1"}}`,
		`message.part.updated {"part":{"id":"prt_3","messageID":"msg_2","type":"tool"}}`,
		`message.removed {"messageID":"msg_2"}`,
	)
	if at := r.due(); !at.Equal(now.Add(gatherFor)) {
		t.Errorf("due in %s", at.Sub(now))
	}
	const want = `session {"id":"ses_1","title":"A"}
session_diff {"diff":[]}
message/msg_1 {"id":"msg_1","sessionID":"ses_1"}
part/msg_1/prt_2 {"id":"prt_2","messageID":"msg_1","type":"tool"}
part/msg_1/prt_2
message/msg_2 {"id":"msg_2","sessionID":"ses_1"}
part/msg_2/prt_3 {"id":"prt_3","messageID":"msg_2","type":"tool"}
message/msg_2
part/msg_2/prt_3`
	if got := takenFrom(r, now); got != want {
		t.Errorf("put is\n%s\nwant\n%s", got, want)
	}
	if !r.due().IsZero() {
		t.Error("something is due")
	}
}

// Deltas are gathered, ever longer for a part that is ever larger, and end with the whole part.
func TestDeltasAreGathered(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := heardBy(t, now, delta("prt_1", "text", "of a part that is not known"), textPart(`"text":"a <","time":{"start":1}`),
		delta("prt_1", "text", "b"), delta("prt_1", "other", "x"), delta("prt_9", "text", "x"), delta("prt_1", "text", "c"))
	at := now.Add(gatherFor)
	if got := takenFrom(r, at); got != `part/msg_1/prt_1 {"id":"prt_1","messageID":"msg_1","sessionID":"ses_1","type":"text","text":"a <","time":{"start":1}}`+"\n"+
		`part/msg_1/prt_1 {"id":"prt_1","messageID":"msg_1","sessionID":"ses_1","text":"a <bc","time":{"start":1},"type":"text"}` {
		t.Errorf("put is\n%s", got)
	}
	hear := func(text string) {
		kind, properties, _ := strings.Cut(text, " ")
		r.hear(event{Type: kind, Properties: json.RawMessage(properties)}, at)
	}
	hear(delta("prt_1", "text", strings.Repeat("x", growRate)))
	if got := r.due().Sub(at); got != gatherFor {
		t.Errorf("the next is due after %s", got)
	}
	at = r.due()
	takenFrom(r, at)
	hear(delta("prt_1", "text", "y"))
	if got := r.due().Sub(at); got < time.Second || got > 2*time.Second {
		t.Errorf("what is large is due after %s", got)
	}
	if got := takenFrom(r, at); got != "" {
		t.Errorf("put before it is due: %d bytes", len(got))
	}
	hear(delta("prt_1", "text", strings.Repeat("x", maxGrowing)))
	if len(r.growing) != 0 || !r.due().IsZero() {
		t.Error("a part grows without end")
	}
	hear(textPart(`"text":"a","time":{"start":1}`))
	hear(delta("prt_1", "text", "b"))
	hear(textPart(`"text":"whole","time":{"start":1,"end":2}`))
	hear(delta("prt_1", "text", "after its end"))
	if got := takenFrom(r, at.Add(time.Hour)); !strings.HasSuffix(got, `"text":"whole","time":{"start":1,"end":2}}`) || len(r.growing) != 0 {
		t.Errorf("put is\n%s", got)
	}
}
