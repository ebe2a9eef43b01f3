package page_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/page/internal/recorded"
	"github.com/mooring-rpc/mooring/internal/session"
)

// anything is any JSON value, of texts that are trouble.
func anything(texts []string) *rapid.Generator[any] {
	text := rapid.OneOf(rapid.SampledFrom(texts), rapid.String(), rapid.SampledFrom([]string{"", "completed", "error", "running", "text", "tool", "user", "\x00\x1b[31m\r\n\u202e", "\u0085\ufffe", strings.Repeat("```\n", 40), strings.Repeat("> ", 40)}))
	leaf := rapid.OneOf(rapid.Map(text, func(s string) any { return s }), rapid.Map(rapid.Float64(), func(f float64) any { return f }), rapid.SampledFrom([]any{nil, true, 0, -1, 1e300, 1e18, json.Number("1e999")}))
	return rapid.OneOf(leaf, rapid.Map(rapid.SliceOfN(leaf, 0, 3), func(v []any) any { return v }), rapid.Map(rapid.MapOfN(text, leaf, 0, 3), func(v map[string]any) any { return v }))
}

// mangled is v with some of its values replaced by anything.
func mangled(r *rapid.T, v any, with *rapid.Generator[any]) any {
	if rapid.IntRange(0, 5).Draw(r, "replace") == 0 {
		return with.Draw(r, "value")
	}
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = mangled(r, v[i], with)
		}
		return all
	case map[string]any:
		all := map[string]any{}
		for name, value := range v {
			if name == "type" && rapid.IntRange(0, 9).Draw(r, "keep the type") > 0 {
				all[name] = value
				continue
			}
			all[name] = mangled(r, value, with)
		}
		return all
	}
	return v
}

// Whatever the payload, with anything in any field: the HTML is sound, and so are
// the frames.
func TestAnyPayload(t *testing.T) {
	t.Parallel()
	kinds, err := recorded.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	keys := kinds.Keys()
	texts := corpus(t)
	rapid.Check(t, func(r *rapid.T) {
		key := rapid.SampledFrom(keys).Draw(r, "key")
		var v any
		if err := json.Unmarshal(kinds.Entries[key].Payload, &v); err != nil {
			r.Fatal(err)
		}
		payload, err := json.Marshal(mangled(r, v, anything(texts)))
		if err != nil {
			r.Skip() // an infinite number
		}
		status := rapid.SampledFrom([]session.TurnStatus{0, session.Streaming, session.Interrupted, session.Completed, session.Failed, session.Aborted, 77}).Draw(r, "status")
		html := page.Block(&session.Entry{Key: key, Payload: payload, LastAppend: rapid.Uint64().Draw(r, "grown")}, session.Change{}, &session.Turn{Status: status})
		if err := unsound(string(html), false); err != nil {
			r.Fatalf("%s %s: %v\n%s", key, payload, err, html)
		}
		if err := reread(html); err != nil {
			r.Fatalf("%s %s: %v\n%s", key, payload, err, html)
		}
		for _, f := range page.Frames(&session.Event{Method: session.MethodPut, Key: key, Payload: payload}, session.ByLog.NewOrd) {
			if !json.Valid(f.Data) || strings.ContainsAny(string(f.Data), "\r\n") {
				r.Fatalf("%s: %q", f.Event, f.Data)
			}
		}
	})
}

// One field of megabytes is clipped, and the page says so; nothing grows out of
// proportion.
func TestHugeFields(t *testing.T) {
	t.Parallel()
	for name, piece := range map[string]string{"words": "word ", "quotes": `"`, "added lines": "+a\n", "links": "[a](", "arrays": "["} {
		text, err := json.Marshal(strings.Repeat(piece, 320<<10)[:320<<10])
		if err != nil {
			t.Fatal(err)
		}
		for key, shape := range map[string]string{
			"part/m/text":      `{"type":"text","text":X}`,
			"part/m/reasoning": `{"type":"reasoning","text":X}`,
			"part/m/bash":      `{"type":"tool","tool":"bash","state":{"status":"completed","input":{"command":X},"output":X,"title":X,"error":X}}`,
			"part/m/edit":      `{"type":"tool","tool":"edit","state":{"status":"completed","input":{"oldString":X,"newString":"x"},"metadata":{"diff":X}}}`,
			"part/m/write":     `{"type":"tool","tool":"write","state":{"status":"completed","input":{"filePath":"a.go","content":X}}}`,
			"part/m/file":      `{"type":"file","filename":X,"url":X,"mime":X}`,
			"part/m/other":     `{"type":X,"value":X}`,
			"message/m":        `{"role":X,"error":{"data":{"message":X}},"modelID":X,"summary":{"body":X,"diffs":[{"file":X,"patch":X}]}}`,
			"session_diff":     `{"diff":[{"file":X,"before":X,"after":"y"}]}`,
			"session":          `{"title":X,"directory":X,"version":X}`,
			"model/m":          `{"name":X}`,
		} {
			html := page.Block(&session.Entry{Key: key, Payload: []byte(strings.ReplaceAll(shape, "X", string(text)))}, session.Change{}, nil)
			if len(html) > 4<<20 {
				t.Errorf("%s of %s has %d bytes", key, name, len(html))
			}
			if err := unsound(string(html), false); err != nil {
				t.Errorf("%s of %s: %v", key, name, err)
			}
			if key == "part/m/text" && !strings.Contains(string(html), "The first 256 KiB of 320 KiB are shown.") {
				t.Errorf("%s of %s does not say that it is clipped", key, name)
			}
		}
	}
}

// Lists are bounded by number.
func TestLongLists(t *testing.T) {
	t.Parallel()
	list := func(item string) string { return "[" + strings.Repeat(item+",", 999) + item + "]" }
	for want, c := range map[string][2]string{
		"and 800 more files": {"session_diff", `{"diff":` + list(`{"file":"f","patch":"@@ -1 +1 @@\n-a\n+b"}`) + `}`},
		"and 800 more":       {"part/m/p", `{"type":"patch","files":` + list(`"f"`) + `}`},
		"1000 files":         {"part/m/p", `{"type":"patch","files":` + list(`"f"`) + `}`},
		"more":               {"part/m/p", `{"type":"tool","tool":"todowrite","state":{"input":{"todos":` + list(`{"content":"c"}`) + `}}}`},
	} {
		if got := words(t, page.Block(&session.Entry{Key: c[0], Payload: []byte(c[1])}, session.Change{}, nil)); !strings.Contains(got, want) {
			t.Errorf("no %q in %.300s", want, got)
		}
	}
	nested := strings.Repeat(`{"a":[`, 5000) + strings.Repeat(`]}`, 5000)
	html := page.Block(&session.Entry{Key: "part/m/p", Payload: []byte(fmt.Sprintf(`{"type":"odd","value":%s}`, nested))}, session.Change{}, nil)
	sound(t, "nested", html)
	if len(html) > 2<<20 {
		t.Errorf("%d bytes of deep JSON", len(html))
	}
}

func FuzzBlock(f *testing.F) {
	kinds, err := recorded.Kinds()
	if err != nil {
		f.Fatal(err)
	}
	for key, e := range kinds.Entries {
		f.Add(key, string(e.Payload), uint8(1), e.LastAppend)
	}
	f.Add("part/m/p", `{"type":"text"`, uint8(9), uint64(1))
	f.Add("odd", `[]`, uint8(0), uint64(0))
	f.Fuzz(func(t *testing.T, key, payload string, status uint8, grown uint64) {
		if _, err := session.ParseKey(key); err != nil {
			key = "part/m/p"
		}
		html := page.Block(&session.Entry{Key: key, Payload: []byte(payload), LastAppend: grown}, session.Change{}, &session.Turn{Status: session.TurnStatus(status)})
		sound(t, key, html)
		for _, method := range []string{session.MethodPut, session.MethodBegin, session.MethodAppendText, session.MethodFinalize, session.MethodFork} {
			for _, frame := range page.Frames(&session.Event{Method: method, Key: key, Payload: []byte(payload)}, session.ByLog.NewOrd) {
				if !json.Valid(frame.Data) {
					t.Fatalf("%s: %q", frame.Event, frame.Data)
				}
			}
		}
	})
}

func FuzzMarkdown(f *testing.F) {
	for _, payload := range corpus(f) {
		f.Add(payload, false)
	}
	for _, text := range []string{"# a\n### b\n- c\n  1. d\n     > e\n\n```go\nfunc f() {\n```\n", "|a|b|\n|-|:-:|\n|c|d|\n", "a\n=\n\n- [x] b\n~~c~~ <d@e.f> www.g.h", "[a]: http://b 'c'\n\n[a] ![a] [d][a]", "```diff\n-a\n+b\n```\n~~~\n"} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, grows bool) {
		payload, err := json.Marshal(map[string]string{"type": "text", "text": text})
		if err != nil {
			t.Fatal(err)
		}
		e := &session.Entry{Key: "part/m/p", Payload: payload}
		if grows {
			e.LastAppend = 1
		}
		html := page.Block(e, session.Change{}, nil)
		sound(t, text, html)
		if err := reread(html); err != nil {
			t.Fatalf("%v\n%s", err, html)
		}
	})
}
