package page_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/session"
)

// frame is one frame's data, decoded.
type frame struct {
	Event, Key, HTML, Text, Message, Status, Title string
	Offset                                         uint64
}

func framesOf(t *testing.T, e *session.Event) []frame {
	t.Helper()
	var all []frame
	for _, f := range page.Frames(e, session.ByLog.NewOrd) {
		if bytes.ContainsAny(f.Data, "\r\n") {
			t.Fatalf("%s has a line end: %q", f.Event, f.Data)
		}
		got := frame{Event: f.Event}
		if err := json.Unmarshal(f.Data, &got); err != nil {
			t.Fatal(err)
		}
		if got.HTML != "" {
			sound(t, f.Event, []byte(got.HTML))
		}
		all = append(all, got)
	}
	return all
}

// Every method that an event can have, and the frames that it makes: events, keys
// and, after a colon, something that the frame has.
func TestFrames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		event session.Event
		want  []string
	}{
		{"create", session.Event{Method: session.MethodCreate, Key: "ref/x", Payload: []byte(`{"ref":"x"}`)}, nil},
		{"fork", session.Event{Method: session.MethodFork, Payload: []byte(`{"source":"s","entries":[{"key":"message/m","schema_version":1,"payload":"{\"role\":\"user\"}"},{"key":"part/m/p","payload":"{\"type\":\"text\",\"text\":\"hi\"}"}]}`)},
			[]string{"block message/m User", "block part/m/p hi"}},
		{"put of a message", session.Event{Method: session.MethodPut, Key: "message/m", Payload: []byte(`{"role":"assistant"}`)}, []string{"block message/m Assistant"}},
		{"put of a part", session.Event{Method: session.MethodPut, Key: "part/m/p", Payload: []byte("{\"type\":\"text\",\"text\":\"a\\nb\\u2028c\"}")}, []string{"block part/m/p a"}},
		{"put of the diff", session.Event{Method: session.MethodPut, Key: "session_diff", Payload: []byte(`{"diff":[{"file":"f.go","before":"a","after":"b"}]}`)}, []string{"block session_diff f.go"}},
		{"put of a model", session.Event{Method: session.MethodPut, Key: "model/a/b", Payload: []byte(`{"name":"Name"}`)}, []string{"block model/a/b Name"}},
		{"put of the info", session.Event{Method: session.MethodPut, Key: "session", Payload: []byte(`{"title":" A\n title ","directory":"/x"}`)}, []string{"info  /x"}},
		{"put that was purged", session.Event{Method: session.MethodPut, Key: "part/m/p"}, []string{"gone part/m/p "}},
		{"put of an info without a title", session.Event{Method: session.MethodPut, Key: "session", Payload: []byte(`{"directory":"/y"}`)}, []string{"info  /y"}},
		{"remove of the info", session.Event{Method: session.MethodRemove, Key: "session", Payload: []byte(`{}`)}, []string{`info  aria-label="About this session"></section>`}},
		{"purge of the info", session.Event{Method: session.MethodPurge, Key: "session", Payload: []byte(`{"key":"session"}`)}, []string{`info  aria-label="About this session"></section>`}},
		{"remove", session.Event{Method: session.MethodRemove, Key: "part/m/p", Payload: []byte(`{}`)}, []string{"gone part/m/p "}},
		{"purge that may show parts", session.Event{Method: session.MethodPurge, Key: "message/m", Payload: []byte(`{"key":"message/m","left":{"parts":[{"id":"p","ord":[2,0]}]}}`)}, []string{"gone message/m ", "reload  "}},
		{"purge, to a ref of a part", session.Event{Method: session.MethodPurge, Key: "message/m", Payload: []byte(`{"key":"message/m","left":{"hidden":1}}`)}, []string{"gone message/m ", "reload  "}},
		{"purge", session.Event{Method: session.MethodPurge, Key: "message/m", Payload: []byte(`{"key":"message/m"}`)}, []string{"gone message/m "}},
		{"begin", session.Event{Method: session.MethodBegin, Key: "message/m", Payload: []byte(`{"role":"assistant"}`)}, []string{"block message/m Assistant", "turn  writing"}},
		{"appendText", session.Event{Method: session.MethodAppendText, Key: "part/m/p", Payload: []byte(`{"offset":7,"text":"more <b>"}`)}, []string{"text part/m/p more <b>"}},
		{"patch", session.Event{Method: session.MethodPatch, Key: "todo/1", Payload: []byte(`{"a":1}`)}, []string{"changed todo/1 "}},
		{"add", session.Event{Method: session.MethodAdd, Key: "todo/1", Payload: []byte(`{"member":"a","by":1}`)}, []string{"changed todo/1 "}},
		{"claim", session.Event{Method: session.MethodClaim, Key: "todo/1", Payload: []byte(`{"until":1}`)}, []string{"changed todo/1 "}},
		{"release", session.Event{Method: session.MethodRelease, Key: "todo/1", Payload: []byte(`{}`)}, []string{"changed todo/1 "}},
		{"lapse", session.Event{Method: session.MethodLapse, Key: "todo/1", Payload: []byte(`{}`)}, []string{"changed todo/1 "}},
		{"appendText that was purged", session.Event{Method: session.MethodAppendText, Key: "part/m/p"}, nil},
		{"finalize", session.Event{Method: session.MethodFinalize, Key: "message/m", Payload: []byte(`{"status":"failed","entries":[{"key":"message/m","payload":"{\"role\":\"assistant\",\"error\":\"why\"}"}]}`)},
			[]string{"block message/m why", "turn  failed"}},
		{"finalize that was purged", session.Event{Method: session.MethodFinalize, Key: "message/m"}, nil},
		{"interrupted", session.Event{Method: session.MethodInterrupted, Key: "message/m", Payload: []byte(`{"reason":"its lease lapsed"}`)}, []string{"turn  interrupted"}},
		{"resumed", session.Event{Method: session.MethodResumed, Key: "message/m"}, []string{"turn  writing"}},
		{"share", session.Event{Method: session.MethodShare, Key: "ref/x", Payload: []byte(`{}`)}, nil},
		{"revoke", session.Event{Method: session.MethodRevoke, Key: "ref/x", Payload: []byte(`{}`)}, nil},
		{"bumpEpoch", session.Event{Method: session.MethodBumpEpoch, Payload: []byte(`{}`)}, nil},
		{"rotate", session.Event{Method: session.MethodRotate, Key: "ref/x", Payload: []byte(`{}`)}, nil},
		{"revert", session.Event{Method: session.MethodRevert, Payload: []byte(`{"to":"message/m","ord":[1,0]}`)}, []string{"reload  "}},
		{"unrevert", session.Event{Method: session.MethodUnrevert, Payload: []byte(`{"to":"message/m"}`)}, []string{"reload  "}},
		{"what settles a revert", session.Event{Method: session.MethodSettle, Payload: []byte(`{"to":"message/m"}`)}, []string{"reload  "}},
		{"compact", session.Event{Method: session.MethodCompact, Payload: []byte(`{"upto":"message/m","ord":[1,0],"summary":"message/s","place":[2,0]}`)}, []string{"compacted  its summary"}},
		{"compact, of a ref of a part", session.Event{Method: session.MethodCompact, Payload: []byte(`{"hidden":1}`)}, nil},
		{"delete", session.Event{Method: session.MethodDelete, Payload: []byte(`{}`)}, nil},
		{"a method of later", session.Event{Method: "renameEverything", Key: "message/m", Payload: []byte(`{"role":"user"}`)}, nil},
		{"a cursor mark", session.Event{Method: session.MethodPut, Key: "message/m", Hidden: true}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := framesOf(t, &c.event)
			if len(got) != len(c.want) {
				t.Fatalf("%d frames, not %d: %+v", len(got), len(c.want), got)
			}
			for i, f := range got {
				parts := strings.SplitN(c.want[i], " ", 3)
				if f.Event != parts[0] || f.Key != parts[1] || !strings.Contains(f.HTML+f.Text, parts[2]) {
					t.Errorf("frame %d is %+v, not %q", i, f, c.want[i])
				}
				switch f.Event {
				case "text":
					if f.Offset != 7 {
						t.Errorf("offset %d", f.Offset)
					}
				case "turn":
					if f.Message != "m" || f.Status == "" {
						t.Errorf("turn %+v", f)
					}
				case "info":
					want := "Untitled session"
					if c.name == "put of the info" {
						want = "A"
					}
					if f.Title != want {
						t.Errorf("title %q", f.Title)
					}
				}
			}
		})
	}
}

// A message's block has an empty place for its parts and, without a turn, for its
// state: the script keeps what it has of both.
func TestBlockOfMessage(t *testing.T) {
	t.Parallel()
	e := &session.Entry{Key: "message/m", Payload: []byte(`{"role":"assistant"}`)}
	for html, want := range map[string]string{
		string(page.Block(e, session.Change{}, nil)):                                                  `<span class="turn"></span>`,
		string(page.Block(e, session.Change{}, &session.Turn{Message: "m", Status: session.Aborted})): `<span class="turn"><span class="state aborted">aborted</span></span>`,
	} {
		if !strings.Contains(html, want) || !strings.Contains(html, `<div class="parts"></div>`) || !strings.Contains(html, `id="m-m" data-key="message/m"`) {
			t.Errorf("no %s in %s", want, html)
		}
	}
}

// A part that grows shows what is settled as markdown and the rest as it is; what
// it shows is counted in bytes, so that deltas go on from there.
func TestBlockOfGrowingText(t *testing.T) {
	t.Parallel()
	text := "Über **all**.\n\n```go\nx := 1\n\ny"
	payload, err := json.Marshal(map[string]string{"type": "text", "text": text})
	if err != nil {
		t.Fatal(err)
	}
	got := string(page.Block(&session.Entry{Key: "part/m/p", Payload: payload, LastAppend: 4}, session.Change{}, nil))
	size := fmt.Sprintf(`data-len="%d"`, len(text))
	for _, want := range []string{size, "<p>Über <strong>all</strong>.</p>", "<div class=\"tail\">```go\nx := 1\n\ny</div>"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if got := string(page.Block(&session.Entry{Key: "part/m/p", Payload: payload}, session.Change{}, nil)); strings.Contains(got, "tail") || !strings.Contains(got, size) {
		t.Errorf("what is whole: %s", got)
	}
}

// Half a surrogate pair counts as the one character that is shown for it, as it
// does for deltas.
func TestBlockOfTextWithHalfACharacter(t *testing.T) {
	t.Parallel()
	got := string(page.Block(&session.Entry{Key: "part/m/p", Payload: []byte(`{"type":"text","text":"a\ud800\u0041"}`), LastAppend: 4}, session.Change{}, nil))
	if want := `data-len="5"`; !strings.Contains(got, want) || !strings.Contains(got, "a\uFFFDA") {
		t.Errorf("no %s in %s", want, got)
	}
}
