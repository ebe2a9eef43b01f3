package attach

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/client"
)

func pendingOf(t *testing.T, text string) *pending {
	t.Helper()
	p := &pending{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	bashAsked  = `{"id":"per_1","sessionID":"ses_1","permission":"bash","patterns":["rm -r /"],"metadata":{"command":"rm -r /"},"always":["rm *"],"tool":{"messageID":"msg_1","callID":"call_2"}}`
	editAsked  = `{"id":"per_2","sessionID":"ses_2","permission":"edit","patterns":["a.txt"],"metadata":{"filepath":"/p/a.txt","diff":"+<b>\n"},"always":["*"]}`
	oneAsked   = `{"id":"que_1","sessionID":"ses_1","questions":[{"question":"Which?","header":"Colour","options":[{"label":"Red","description":"a red one"},{"label":"Blue"}]}]}`
	twoAsked   = `{"id":"que_2","sessionID":"ses_1","questions":[{"question":"A?","options":[{"label":"x"}]},{"question":"B?","options":[{"label":"y"}]}]}`
	manyAsked  = `{"id":"que_3","sessionID":"ses_1","questions":[{"question":"A?","multiple":true,"options":[{"label":"x"},{"label":"y"}]}]}`
	toolOfBash = `[{"parts":[{"callID":"call_1","state":{"title":"other"}},{"callID":"call_2","state":{"title":"rm","input":{"command":"rm -r /"}}}]}]`
)

// What people are shown has all that opencode would do, and pages know where to look for it.
func TestWhatIsShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked, own, payload string
		choices             []string
	}{
		{bashAsked, "ses_1", `{"title":"bash rm -r /","command":"rm -r /","tool":{"title":"rm","kind":"bash","input":{"command":"rm -r /"}},"patterns":["rm -r /"],"always":["rm *"],"metadata":{"command":"rm -r /"}}`, []string{"once", "always", "reject"}},
		{editAsked, "ses_1", `{"title":"edit a.txt","diff":[{"file":"/p/a.txt","patch":"+<b>\n"}],"tool":{"kind":"edit"},"patterns":["a.txt"],"always":["*"],"metadata":{"filepath":"/p/a.txt","diff":"+<b>\n"},"session":"ses_2"}`, []string{"once", "always", "reject"}},
		{oneAsked, "ses_1", `{"title":"Colour","text":"Which?","questions":[{"question":"Which?","header":"Colour","options":[{"label":"Red","description":"a red one"},{"label":"Blue"}]}]}`, []string{"1", "2", "reject"}},
		{twoAsked, "ses_1", `{"questions":[{"question":"A?","header":"","options":[{"label":"x"}]},{"question":"B?","header":"","options":[{"label":"y"}]}]}`, nil},
		{manyAsked, "ses_1", `{"text":"A?","questions":[{"question":"A?","header":"","options":[{"label":"x"},{"label":"y"}],"multiple":true}]}`, nil},
	} {
		payload, choices := pendingOf(t, c.asked).show(&messagesOf(t, toolOfBash)[0], c.own)
		var ids []string
		for _, choice := range choices {
			ids = append(ids, choice.ID)
			if len(choice.Label) > maxLabel {
				t.Errorf("a label has %d bytes", len(choice.Label))
			}
		}
		if string(payload) != c.payload || !reflect.DeepEqual(ids, c.choices) {
			t.Errorf("%s:\n%s with %v, want\n%s with %v", c.asked, payload, ids, c.payload, c.choices)
		}
	}
	long := strings.Replace(bashAsked, `["rm *"]`, `["`+strings.Repeat("é", 300)+`"]`, 1)
	if _, choices := pendingOf(t, long).show(nil, "ses_1"); len(choices[1].Label) > maxLabel || !strings.HasSuffix(choices[1].Label, "é…") {
		t.Errorf("a long label is %q", choices[1].Label)
	}
}

// How a request is answered is what opencode is told; what cannot be meant is a refusal.
func TestWhatOpencodeIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ asked, choice, payload, path, body string }{
		{bashAsked, "once", "", "/permission/per_1/reply", `{"reply":"once"}`},
		{bashAsked, "always", `{"text":"fine"}`, "/permission/per_1/reply", `{"reply":"always"}`},
		{bashAsked, "reject", `{"text":"not that"}`, "/permission/per_1/reply", `{"message":"not that","reply":"reject"}`},
		{bashAsked, "", "", "/permission/per_1/reply", `{"reply":"reject"}`},
		{oneAsked, "2", "", "/question/que_1/reply", `{"answers":[["Blue"]]}`},
		{oneAsked, "3", "", "/question/que_1/reject", `null`},
		{oneAsked, "reject", `{"text":"no"}`, "/question/que_1/reject", `null`},
		{oneAsked, "2", `{"answers":[["Green"]]}`, "/question/que_1/reply", `{"answers":[["Green"]]}`},
		{twoAsked, "", `{"answers":[["x"],["y","z"]]}`, "/question/que_2/reply", `{"answers":[["x"],["y","z"]]}`},
		{twoAsked, "", `{"answers":[["x"]]}`, "/question/que_2/reject", `null`},
		{twoAsked, "", `{"text":"both"}`, "/question/que_2/reply", `{"answers":[["both"],["both"]]}`},
		{twoAsked, "", `{"reject":true,"text":"no"}`, "/question/que_2/reject", `null`},
		{manyAsked, "", `"rubbish"`, "/question/que_3/reject", `null`},
	} {
		p := pendingOf(t, c.asked)
		end, body := p.reply(c.choice, json.RawMessage(c.payload))
		if got := string(encode(body)); p.path()+end != c.path || got != c.body {
			t.Errorf("%s by %q %s: %s %s, want %s %s", p.ID, c.choice, c.payload, p.path()+end, got, c.path, c.body)
		}
	}
}

// What was answered in opencode answers the request, if it can be said in its choices.
func TestWhatWasAnsweredInOpencode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked, event string
		replied      replied
		want         client.AnswerOptions
		ok           bool
	}{
		{bashAsked, permissionReplied, replied{Reply: "always"}, client.AnswerOptions{Choice: "always", Shown: "d", Payload: map[string]any{"in": "opencode"}}, true},
		{oneAsked, questionReplied, replied{Answers: [][]string{{"Blue"}}}, client.AnswerOptions{Choice: "2", Payload: map[string]any{"in": "opencode", "answers": [][]string{{"Blue"}}}}, true},
		{oneAsked, questionReplied, replied{Answers: [][]string{{"Green"}}}, client.AnswerOptions{Payload: map[string]any{"in": "opencode", "answers": [][]string{{"Green"}}}}, false},
		{oneAsked, questionRejected, replied{}, client.AnswerOptions{Choice: "reject", Payload: map[string]any{"in": "opencode", "reject": true}}, true},
		{twoAsked, questionReplied, replied{Answers: [][]string{{"x"}, {"y"}}}, client.AnswerOptions{Payload: map[string]any{"in": "opencode", "answers": [][]string{{"x"}, {"y"}}}}, true},
		{twoAsked, questionRejected, replied{}, client.AnswerOptions{Payload: map[string]any{"in": "opencode", "reject": true}}, true},
	} {
		p := pendingOf(t, c.asked)
		p.digest = "d"
		if got, ok := p.answer(c.replied, c.event); ok != c.ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s, %v: %v, %t; want %v, %t", p.ID, c.replied, got, ok, c.want, c.ok)
		}
	}
}

func TestPromptsAsPartsOfOpencodes(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"text":"a"}`: `[{"id":"","type":"text","text":"a"}]`,
		`{"text":"a","content":[{"type":"text","text":"b"},{"type":"image","data":"aGk=","mimeType":"image/png"}]}`: `[{"id":"","type":"text","text":"a"},{"id":"","type":"text","text":"b"},{"id":"","type":"file","url":"data:image/png;base64,aGk=","mime":"image/png"}]`,
		`{"content":[{"type":"resource_link","uri":"file:///p/a.go"}]}`:                                             `[{"id":"","type":"file","url":"file:///p/a.go","mime":"text/plain","filename":"a.go"}]`,
		`{"content":[{"type":"resource","resource":{"uri":"file:///a","text":"b"}}]}`:                               `[{"id":"","type":"text","text":"file:///a:\nb"}]`,
		`{"content":[{"type":"resource","resource":{"uri":"file:///a","blob":"aGk=","mimeType":"image/png"}}]}`:     `[{"id":"","type":"file","url":"data:image/png;base64,aGk=","mime":"image/png","filename":"a"}]`,
		`{}`:                                ``,
		`null`:                              ``,
		`"a"`:                               ``,
		``:                                  ``,
		`{"content":[{"type":"text"}]}`:     ``,
		`{"content":[{"type":"other"}]}`:    ``,
		`{"content":[{"type":"resource"}]}`: ``,
	} {
		list, err := parts([]byte(payload))
		if want == "" {
			if err == nil {
				t.Errorf("%s: taken as %v", payload, list)
			}
		} else if got := string(encode(list)); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", payload, got, err, want)
		}
	}
}
