package attach

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func messagesOf(t *testing.T, text string) (list []message) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestWhatIsDoneWithAPrompt(t *testing.T) {
	t.Parallel()
	list := messagesOf(t, `[
		{"info":{"id":"done","time":{"completed":1},"finish":"stop"}},
		{"info":{"id":"failed","error":{"name":"APIError"}}},
		{"info":{"id":"going"}},
		{"info":{"id":"cut","time":{"completed":1},"finish":"tool-calls"},"parts":[{"type":"tool","state":{"status":"completed"}}]},
		{"info":{"id":"refused","time":{"completed":1},"finish":"tool-calls"},"parts":[{"type":"tool","state":{"status":"error"}}]}]`)
	done, failedOne, going, cut, refused := &list[0], &list[1], &list[2], &list[3], &list[4]
	const long = time.Hour
	for _, c := range []struct {
		what  string
		stage stage
		view  view
		want  verdict
	}{
		{"never sent, or sent by an earlier process in vain", handing, view{}, send},
		{"sent, and not there yet", handing, view{posts: 1}, wait},
		{"sent, and not there for long", handing, view{posts: 1, since: long}, send},
		{"sent often, and never there", handing, view{posts: maxSends, since: long}, removed},
		{"opencode works on something else, since it was sent", handing, view{posts: 1, since: long, busy: true}, wait},
		{"opencode was started again before it began", handed, view{there: true}, send},
		{"it is about to begin", handed, view{there: true, posts: 1}, wait},
		{"it does not begin", handed, view{there: true, posts: 1, since: long}, send},
		{"it never begins", handed, view{there: true, posts: maxSends, since: long}, ignored},
		{"it failed before it began", handed, view{there: true, posts: 1, failure: "no such model"}, failed},
		{"an error of before it was sent", handed, view{there: true, failure: "no such model"}, send},
		{"removed in opencode", handed, view{}, removed},
		{"removed while opencode works on something else", handed, view{busy: true}, removed},
		{"being answered", handed, view{there: true, busy: true, last: going}, wait},
		{"between two steps", handed, view{there: true, busy: true, last: cut}, wait},
		{"answered", handed, view{there: true, last: done}, answered},
		{"answered, and the next is", handed, view{there: true, last: done, busy: true, passed: true}, answered},
		{"answered with an error", handed, view{there: true, last: failedOne}, answered},
		{"answered after a tool was refused", handed, view{there: true, last: refused}, answered},
		{"not written to its end yet", handed, view{there: true, last: going}, wait},
		{"killed while it answered", handed, view{there: true, last: going, since: long}, interrupted},
		{"killed between two steps", handed, view{there: true, last: cut, since: long}, interrupted},
		{"it went on meanwhile", handed, view{there: true, last: cut}, wait},
	} {
		if got := decide(c.stage, c.view); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

func TestWhatOpencodeShowsOfAPrompt(t *testing.T) {
	t.Parallel()
	list := messagesOf(t, `[
		{"info":{"id":"u0","role":"user"}}, {"info":{"id":"a0","role":"assistant","parentID":"u0"}},
		{"info":{"id":"u1","role":"user"}}, {"info":{"id":"u2","role":"user"}},
		{"info":{"id":"a2","role":"assistant","parentID":"u2"}}, {"info":{"id":"a2b","role":"assistant","parentID":"u2"}},
		{"info":{"id":"u3","role":"user"}}, {"info":{"id":"a3","role":"assistant","parentID":"u3"}},
		{"info":{"id":"u4","role":"user"}}]`)
	for id, want := range map[string]struct {
		there, passed bool
		last          string
	}{
		"u0": {true, true, "a0"}, "u1": {true, false, "a3"}, "u2": {true, true, "a2b"}, "u3": {true, false, "a3"}, "u4": {true, false, ""}, "none": {},
	} {
		v, last := look(list, id), ""
		if v.last != nil {
			last = v.last.Info.ID
		}
		if v.there != want.there || v.passed != want.passed || last != want.last {
			t.Errorf("%s: there %t, passed %t, answered by %q; want %v", id, v.there, v.passed, last, want)
		}
	}
	if v := look(list[1:2], "u0"); !v.there {
		t.Error("what is answered is there, also before the messages that are looked at")
	}
	for id, want := range map[string]bool{"u4": true, "a3": false, "u3": false, "none": false} {
		if isRunning(list, id) != want {
			t.Errorf("%s runs: %t", id, !want)
		}
	}
	if !isRunning(list[:6], "a2") || !isRunning(list[:6], "u2") || isRunning(list[:6], "a0") {
		t.Error("the turn of the last user's message is the one that runs")
	}
}

func TestHowAPromptIsAnswered(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]any{
		`{"info":{"id":"a","finish":"stop"},"parts":[{"type":"reasoning","text":"no"},{"type":"text","text":"One"},{"type":"text","text":"not said","synthetic":true},{"type":"text","text":"Two"}]}`: {"message": "a", "stopReason": "end_turn", "text": "One\n\nTwo"},
		`{"info":{"id":"a","error":{"name":"MessageAbortedError","data":{"message":"Aborted"}}}}`:                                                                                                     {"message": "a", "stopReason": "cancelled"},
		`{"info":{"id":"a","error":{"name":"APIError","data":{"message":"429: slow down\n    at x"}}}}`:                                                                                               {"message": "a", "error": "429: slow down"},
		`{"info":{"id":"a","error":{"name":"APIError"}}}`:                                                                                                                                             {"message": "a", "error": "APIError"},
		`{"info":{"id":"a","finish":"length"}}`:                                                                                                                                                       {"message": "a", "stopReason": "max_tokens"},
		`{"info":{"id":"a","finish":"content-filter"}}`:                                                                                                                                               {"message": "a", "stopReason": "refusal"},
	} {
		m := messagesOf(t, "["+text+"]")[0]
		if got := m.answer(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// An id is in opencode's form, and comes after the last, whatever the clocks say.
func TestIDs(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1795986253333)
	id := newID("msg", now, "")
	if id[:16] != "msg_2291f6615000" || len(id) != len("msg_2291f6615001RSZcQdiBmk3fXs") || newID("msg", now, "") == id {
		t.Errorf("%s", id)
	}
	for last, want := range map[string]string{
		"msg_2291f6615fffRSZcQdiBmk3fXs": "msg_2291f6616000",
		"msg_2291f7000001RSZcQdiBmk3fXs": "msg_2291f7000002",
		"msg_1000000000000SZcQdiBmk3fXs": "msg_2291f6615000",
		"msg_other":                      "msg_2291f6615000",
	} {
		if id := newID("msg", now, last); id[:16] != want {
			t.Errorf("after %s: %s, want %s…", last, id, want)
		}
	}
}
