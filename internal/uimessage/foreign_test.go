package uimessage

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
)

// Each kind of part that a program with the AI SDK may make: what it is in the session, and that it is exported as it was.
func TestForeignParts(t *testing.T) {
	t.Parallel()
	tool := func(state, rest string) string {
		return `{"type":"dynamic-tool","toolName":"weather","toolCallId":"c1","state":"` + state + `"` + rest + `}`
	}
	shows := func(state, made string) string {
		return `"type":"tool","callID":"c1","tool":"weather","state":` + state + `,"uimessage":` + made
	}
	for name, c := range map[string]struct{ part, want string }{
		"text":                   {`{"type":"text","text":"Hi","state":"done","providerMetadata":{"a":{"b":1}}}`, `"type":"text","text":"Hi","uimessage":{"state":"done","providerMetadata":{"a":{"b":1}}}`},
		"citations":              {`{"type":"text","text":"Hi","citations":[{"source":{}}]}`, `"type":"text","text":"Hi","uimessage":{"citations":[{"source":{}}]}`},
		"reasoning":              {`{"type":"reasoning","text":"Hm","id":"r"}`, `"type":"reasoning","text":"Hm","uimessage":{"id":"r"}`},
		"file":                   {`{"type":"file","mediaType":"image","filename":"f","url":"u","providerReference":{"a":"b"}}`, `"type":"file","mime":"image","filename":"f","url":"u","uimessage":{"providerReference":{"a":"b"}}`},
		"file with another name": {`{"type":"file","mediaType":"image","url":"u","filename":5}`, `"type":"file","mime":"image","url":"u","uimessage":{"filename":5}`},
		"reasoning-file":         {`{"type":"reasoning-file","mediaType":"a/b","url":"u"}`, `"type":"reasoning-file","uimessage":{"type":"reasoning-file","mediaType":"a/b","url":"u"}`},
		"source-url":             {`{"type":"source-url","sourceId":"s","url":"u","title":"T"}`, `"type":"source-url","title":"T","uimessage":{"type":"source-url","sourceId":"s","url":"u","title":"T"}`},
		"source-document":        {`{"type":"source-document","sourceId":"s","mediaType":"m","title":"T"}`, `"type":"source-document","title":"T","uimessage":{"type":"source-document","sourceId":"s","mediaType":"m","title":"T"}`},
		"custom":                 {`{"type":"custom","kind":"k"}`, `"type":"custom","uimessage":{"type":"custom","kind":"k"}`},
		"steering-message":       {`{"type":"steering-message","id":"s","parts":[]}`, `"type":"steering-message","uimessage":{"type":"steering-message","id":"s","parts":[]}`},
		"step-start":             {`{"type":"step-start"}`, `"type":"step-start","uimessage":{}`},
		"data":                   {`{"type":"data-patch","id":"1","data":{"a":[]}}`, `"type":"data-patch","uimessage":{"type":"data-patch","id":"1","data":{"a":[]}}`},
		"of a type to come":      {`{"type":"hologram","x":[1.50]}`, `"type":"hologram","uimessage":{"type":"hologram","x":[1.50]}`},
		"named as a session's":   {`{"type":"tool","x":1}`, `"type":"ui-tool","uimessage":{"type":"tool","x":1}`},
		"input-streaming":        {tool("input-streaming", `,"rawInput":"{","inputEncoding":"json"`), shows(`{"status":"pending"}`, `{"state":"input-streaming","rawInput":"{","inputEncoding":"json"}`)},
		"input-available":        {tool("input-available", `,"input":{"a":1},"providerExecuted":true`), shows(`{"status":"running","input":{"a":1}}`, `{"state":"input-available","providerExecuted":true}`)},
		"approval-requested":     {tool("approval-requested", `,"input":1,"approval":{"id":"x"}`), shows(`{"status":"pending","input":1}`, `{"state":"approval-requested","approval":{"id":"x"}}`)},
		"approval-responded":     {tool("approval-responded", `,"input":1,"approval":{"id":"x","approved":true}`), shows(`{"status":"running","input":1}`, `{"state":"approval-responded","approval":{"id":"x","approved":true}}`)},
		"output-available":       {tool("output-available", `,"input":1,"output":null,"preliminary":true`), shows(`{"status":"completed","input":1,"output":null}`, `{"state":"output-available","preliminary":true}`)},
		"without an output":      {tool("output-available", `,"input":1`), shows(`{"status":"completed","input":1}`, `{"state":"output-available"}`)},
		"output-error":           {tool("output-error", `,"errorText":"no","rawInput":"x"`), shows(`{"status":"error","error":"no"}`, `{"state":"output-error","rawInput":"x"}`)},
		"output-denied":          {tool("output-denied", `,"input":1,"approval":{"id":"x","approved":false,"reason":"not now"}`), shows(`{"status":"error","input":1,"error":"not now"}`, `{"state":"output-denied","approval":{"id":"x","approved":false,"reason":"not now"}}`)},
		"denied without a word":  {tool("output-denied", `,"approval":{"id":"x","approved":false}`), shows(`{"status":"error","error":"denied"}`, `{"state":"output-denied","approval":{"id":"x","approved":false}}`)},
		"static tool": {`{"type":"tool-weather","toolCallId":"c1","title":"W","state":"output-available","input":{},"output":{"t":21}}`,
			shows(`{"status":"completed","input":{},"title":"W","output":{"t":21}}`, `{"type":"tool-weather","state":"output-available"}`)},
		"exported, and changed since": {`{"type":"text","text":"Hi","more":1,"providerMetadata":{"mooring":{"id":"p1"}}}`, `"type":"text","text":"Hi","uimessage":{"more":1,"providerMetadata":{"mooring":{"id":"p1"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			array := "[\n" + `{"id":"m1","role":"assistant","parts":[` + c.part + "]}\n]\n"
			rec := read(t, []byte(array))
			puts := putsOf(rec)
			last := puts[len(puts)-1]
			id := "prt_000001"
			if strings.HasPrefix(name, "exported") {
				id = "p1"
			}
			if want := fmt.Sprintf(`{"id":%q,"sessionID":%q,"messageID":"m1",%s}`, id, rec.External, c.want); string(last.Payload) != want || last.Key != "part/m1/"+id {
				t.Errorf("%s is\n%s\nwant\n%s", last.Key, last.Payload, want)
			}
			if again := exported(t, puts); string(again) != array {
				t.Errorf("exported\n%s\nof\n%s", again, array)
			}
		})
	}
}

// What an agent does with an imported tool's part is exported, too.
func TestForeignToolThatGoesOn(t *testing.T) {
	t.Parallel()
	puts := putsOf(read(t, []byte(`[{"id":"m1","role":"assistant","parts":[{"type":"tool-weather","toolCallId":"c1","state":"input-available","input":{}}]}]`)))
	last := &puts[len(puts)-1]
	last.Payload = bytes.Replace(last.Payload, []byte(`"status":"running"`), []byte(`"status":"completed","output":"sun"`), 1)
	if got := exported(t, puts); !strings.Contains(string(got), `{"type":"tool-weather","toolCallId":"c1","state":"output-available","input":{},"output":"sun"}`) {
		t.Errorf("%s", got)
	}
}

// Messages of other programs: any id, metadata of any kind, and what nobody knows.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	array := `[
{"id":"","role":"system","parts":[{"type":"text","text":"Be brief."}]},
{"id":"a b/ü","role":"user","metadata":{"createdAt":1795203728054},"parts":[{"type":"text","text":"  Hello\n there  "}]},
{"id":"","role":"assistant","metadata":{"createdAt":"2026-11-20T17:02:08.054Z","mooring":1},"parts":[]},
{"id":"ok","role":"assistant","metadata":null,"createdAt":"x","parts":[{"type":"step-start"},{"type":"text","text":"Hi"}]},
{"id":"ok","role":"assistant","metadata":[1],"parts":[]}
]
`
	rec := read(t, []byte(array))
	puts := putsOf(rec)
	if got := exported(t, puts); string(got) != array {
		t.Errorf("exported\n%s", got)
	}
	if !strings.HasPrefix(rec.External, "ui_") || !rec.ByLog || len(rec.Batches) != 6 || rec.Batches[5].Line != 6 {
		t.Errorf("%+v", rec)
	}
	var text strings.Builder
	keys := map[string]bool{}
	for _, p := range puts {
		keys[p.Key] = true
		text.Write(p.Payload)
	}
	if len(keys) != len(puts) || len(puts) != 10 || !keys["message/ok"] || !keys["part/ok/prt_000002"] {
		t.Errorf("%v", keys)
	}
	for _, want := range []string{`"title":"Hello there"`, `"role":"user","time":{"created":1795203728054}`, `"role":"assistant","time":{"created":1795194128054}`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in %s", want, &text)
		}
	}
	// One that has grown begins with the same batches, so that an import goes on.
	grown := read(t, []byte(strings.Replace(array, "\n]\n", `,`+"\n"+`{"id":"more","role":"user","parts":[{"type":"text","text":"And?"}]}]`, 1)))
	if grown.External != rec.External || len(grown.Batches) != 7 || grown.Batches[5].Chain != rec.Batches[5].Chain {
		t.Errorf("grown: %+v", grown)
	}
	named, err := Read(strings.NewReader(array), Options{Limits: limits, External: "mine"})
	if err != nil || named.External != "mine" || !strings.Contains(string(putsOf(named)[0].Payload), `"id":"mine"`) {
		t.Errorf("named: %+v, %v", named, err)
	}
}

// A chat that goes on from an export: what was exported comes back as it was, beside what is new.
func TestChatThatGoesOn(t *testing.T) {
	t.Parallel()
	puts := []opencode.Put{
		{Key: "session", Payload: []byte(`{"id":"ses_1","title":"T"}`)},
		{Key: "message/m1", Payload: []byte(`{"id":"m1","sessionID":"ses_1","role":"user","time":{"created":5}}`)},
		{Key: "part/m1/prt_000002", Payload: []byte(`{"id":"prt_000002","sessionID":"ses_1","messageID":"m1","type":"text","text":"S"}`)},
	}
	array := exported(t, puts)
	array = bytes.Replace(array, []byte("]}\n]"), []byte(`,{"type":"data-note","data":1}]},`+"\n"+`{"id":"m2","role":"assistant","parts":[{"type":"text","text":"T"}]}`+"\n]"), 1)
	rec := read(t, array)
	got := putsOf(rec)
	if rec.External != "ses_1" || len(got) != 6 || got[3].Key != "part/m1/prt_000003" || !strings.Contains(string(got[4].Payload), `"sessionID":"ses_1"`) {
		t.Errorf("%s: %s", rec.External, got)
	}
	same(t, puts, got[:3])
	if again := exported(t, got); !bytes.Equal(again, array) {
		t.Errorf("exported\n%s\nof\n%s", again, array)
	}
}

func TestBadArrays(t *testing.T) {
	t.Parallel()
	message := func(rest string) string { return `[{"id":"1","role":"assistant","parts":[]},{"id":"2",` + rest + `}]` }
	part := func(text string) string {
		return message(`"role":"user","parts":[{"type":"text","text":""},` + text + `]`)
	}
	for array, want := range map[string]string{
		``: "ends too early", `{}`: "not an array of UIMessages", `[]`: "an array without messages", "[\n{\"id\":\n": "line 3: it ends too early", "[\n\n{]": "line 3: invalid character",
		`[5]`: "message 1: it has no id", `[{"role":"user","parts":[]}]`: "message 1: it has no id (a text)", message(`"parts":[]`): "message 2: its role is not",
		message(`"role":"tool","parts":[]`): "message 2: its role is not system, user or assistant", message(`"role":"user","content":"Hi"`): "message 2: it has content and no parts",
		message(`"role":"user"`): "message 2: it has no parts (an array)", message(`"role":"user","parts":{}`): "message 2: it has no parts", message(`"role":"user","parts":[]`): "message 2: it has no part, and",
		part(`5`): "message 2: part 2: it is not an object with a type", part(`{"text":""}`): "message 2: part 2: it is not", part(`{"type":"text"}`): "message 2: part 2: text without its text",
		part(`{"type":"file","mediaType":"x"}`): "part 2: file without its url", part(`{"type":"source-url","url":"x"}`): "source-url without its sourceId",
		part(`{"type":"tool-x","state":"output-available"}`): "tool-x without its toolCallId", part(`{"type":"dynamic-tool","toolCallId":"c","state":"input-available"}`): "dynamic-tool without its toolName",
		part(`{"type":"tool-x","toolCallId":"c","state":"result"}`): `tool-x has the state "result"`, part(`{"type":"tool-x","toolCallId":"c","state":"output-error"}`): "without its errorText",
		message("\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"text\":\"\xff\"}]"): "message 2: it is not UTF-8",
	} {
		_, err := Read(strings.NewReader(array), Options{Limits: limits})
		if err == nil || !errors.Is(err, fault.Malformed) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", array, err, want)
		}
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	array := `[{"id":"1","role":"user","parts":[{"type":"text","text":"Hi"},{"type":"file","mediaType":"a/b","url":"data:,` + strings.Repeat("x", 500) + `"}]}]`
	small := limits
	small.Payload = 400
	if _, err := Read(strings.NewReader(array), Options{Limits: small}); !errors.Is(err, fault.TooLarge) || !strings.Contains(err.Error(), "message 1: part 2: it has 6") {
		t.Errorf("%v", err)
	}
	small.SkipTooLarge = true
	rec, err := Read(strings.NewReader(array), Options{Limits: small})
	if err != nil || len(putsOf(rec)) != 3 || len(rec.Notices) != 1 || !strings.HasPrefix(rec.Notices[0], "message 1: left out part/1/prt_000002, which has 6") {
		t.Errorf("%+v, %v", rec, err)
	}
}

func TestRecognises(t *testing.T) {
	t.Parallel()
	for _, yes := range []string{`[{"id":"1"`, " \n[\r\n\t{ \"role\" : \"user\"}]", `[{"metadata":{"type":"data"},"parts":[`, `[{"x":"}","id":"`} {
		if !Recognises([]byte(yes)) {
			t.Errorf("%s is none", yes)
		}
	}
	for _, no := range []string{``, `[`, `[]`, `{"id":"1"}`, `[{"type":"session","data":{"id":"x"}}]`, `[{"data":{},"type":"message"}`, `[{}]`, `[5]`, `[{"x":1}]`, `[{"i`, `{"info":{},"messages":[]}`, `[{"metadata":{"id":"`} {
		if Recognises([]byte(no)) {
			t.Errorf("%s is one", no)
		}
	}
}
