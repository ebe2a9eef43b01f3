package uimessage

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/ledger"
)

// values are JSON texts of all kinds, many of them what one of the members of a part is.
var values = rapid.SampledFrom([]string{
	`"a"`, `""`, `"text"`, `"done"`, `"p1"`, `"\u00e9\n"`, `null`, `true`, `1`, `1.50`, `-0`, `[]`, `[{"file":"a"}]`, `{}`, `{"a":{"b":1}}`, `{"b":1,"a":[2]}`, `{"id":"p2"}`, `{"mooring":{"id":"p1"}}`,
	`{"mooring":{"id":"p2","type":"x","state":{"status":"odd"}}}`, `{"uimessage":{}}`, `{"start":1}`, `{"start":1,"end":2}`, `{"files":[{"file":"a"}]}`, `{"filediff":{"file":"a"},"x":1}`, `"data:,a"`, `"https://a.b/"`,
	`{"info":{"id":"ses_2"},"diff":{}}`, `{"toolCallId":"a","files":[{}]}`,
})

// someOf draws an object with some of the members, each with any value or one of its own.
func someOf(t *rapid.T, label string, members map[string][]string) object {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	var o object
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 5, func(s string) string { return s }).Draw(t, label) {
		value := values.Draw(t, name)
		if own := members[name]; len(own) > 0 && rapid.IntRange(0, 9).Draw(t, "usual") > 0 {
			value = rapid.SampledFrom(own).Draw(t, name)
		}
		o.put(name, []byte(value))
	}
	return o
}

// anySession draws the state of a session, with messages and parts that are more or less what opencode's are.
func anySession(t *rapid.T) (puts []opencode.Put) {
	if rapid.Bool().Draw(t, "info") {
		puts = append(puts, opencode.Put{Key: "session", Payload: append(object{{"id", []byte(`"ses_1"`)}}, someOf(t, "session", map[string][]string{"title": nil, "time": nil, "uimessage": nil})...).bytes()})
	}
	for m := range rapid.IntRange(1, 3).Draw(t, "messages") {
		message := fmt.Sprintf("m%d", m)
		info := append(object{{"id", quote(message)}}, someOf(t, "message", map[string][]string{
			"role": {`"user"`, `"assistant"`, `"system"`}, "sessionID": {`"ses_1"`}, "time": {`{"created":1}`, `{"created":1,"completed":2}`}, "uimessage": {`{}`, `{"metadata":1}`}, "mooring": nil, "x": nil,
		})...)
		puts = append(puts, opencode.Put{Key: "message/" + message, Payload: info.bytes()})
		for p := range rapid.IntRange(0, 4).Draw(t, "parts") {
			id := fmt.Sprintf("p%d", p)
			part := object{{"id", quote(id)}, {"messageID", quote(message)}}
			rest := someOf(t, "part", map[string][]string{
				"sessionID": {`"ses_1"`, `"ses_2"`}, "text": {`"Hi"`}, "mime": {`"a/b"`}, "url": {`"data:,a"`}, "filename": {`"f"`}, "metadata": nil, "time": nil, "callID": {`"c"`}, "tool": {`"read"`}, "ignored": {`true`}, "diff": nil, "x": nil,
			})
			kind := rapid.SampledFrom([]string{"text", "reasoning", "file", "tool", "step-start", "step-finish", "patch", "diff", "data-x", "empty", "session"}).Draw(t, "type")
			part.put("type", quote(kind))
			if kind == "tool" {
				rest = append(rest.without("state", "tool"), member{"tool", []byte(`"read"`)}, member{"state", someOf(t, "state", map[string][]string{
					"status": {`"pending"`, `"running"`, `"completed"`, `"error"`}, "input": nil, "output": nil, "error": {`"no"`}, "title": {`"T"`}, "raw": {`"{"`}, "metadata": nil, "time": nil,
				}).bytes()})
			}
			puts = append(puts, opencode.Put{Key: "part/" + message + "/" + id, Payload: append(part, rest...).bytes()})
		}
	}
	return puts
}

// anyPart draws a part of a UIMessage.
func anyPart(t *rapid.T) []byte {
	kind := rapid.SampledFrom([]string{"text", "reasoning", "file", "source-url", "custom", "step-start", "dynamic-tool", "tool-x", "data-patch", "data-step-start", "data-diff", "data-empty", "data-session", "tool", "x"}).Draw(t, "type")
	o := object{{"type", quote(kind)}}
	for _, name := range texts[kind] {
		o.putText(name, "a")
	}
	if kind == "tool-x" {
		o.putText("toolCallId", "a")
	}
	if isTool(kind) {
		states := make([]string, 0, len(toolStatus))
		for state := range toolStatus {
			states = append(states, state)
		}
		slices.Sort(states)
		o = o.without("state")
		o.putText("state", rapid.SampledFrom(states).Draw(t, "state"))
		o.putText("errorText", "no")
	}
	rest := someOf(t, "part", map[string][]string{
		"id": {`"p1"`}, "data": nil, "providerMetadata": nil, "toolMetadata": nil, "callProviderMetadata": nil, "input": nil, "output": nil, "rawInput": nil, "title": nil, "filename": nil, "approval": nil, "x": nil,
	})
	return append(o, rest...).bytes()
}

// Whatever an array has, exporting what was imported gives an equal one, and for what was exported the same bytes.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := exported(t, anySession(t))
		checkRoundTrip(t, text, true)
		// The same with what others have made of it.
		list, _ := elements(text)
		for i, text := range list {
			u, _ := parse(text)
			parts, _ := elements(u.get("parts"))
			for range rapid.IntRange(0, 2).Draw(t, "more parts") {
				parts = slices.Insert(parts, rapid.IntRange(0, len(parts)).Draw(t, "at"), anyPart(t))
			}
			if len(parts) > 1 && rapid.Bool().Draw(t, "less") {
				at := rapid.IntRange(0, len(parts)-1).Draw(t, "at")
				parts = slices.Delete(parts, at, at+1)
			}
			more := someOf(t, "message", map[string][]string{"id": {`"m1"`, `"\u0000"`, `"m 1"`}, "metadata": nil, "x": nil})
			for _, m := range more {
				u = append(u.without(m.name), m)
			}
			if !isString(u.get("id")) {
				u = append(u.without("id"), member{"id", []byte(`""`)})
			}
			list[i] = append(u.without("parts"), member{"parts", array(parts...)}).bytes()
		}
		if changed := array(list...); usable(changed) {
			checkRoundTrip(t, changed, false)
		}
	})
}

// usable reports whether an array can be read: what was drawn may lack what a part has to have.
func usable(array []byte) bool {
	_, err := Read(bytes.NewReader(array), Options{Limits: limits})
	return err == nil
}

// checkRoundTrip checks what comes of an array that can be read.
func checkRoundTrip(t failing, array []byte, bytesToo bool) {
	write := func(array []byte) []byte {
		rec, err := Read(bytes.NewReader(array), Options{Limits: limits})
		if err != nil {
			t.Fatalf("%v in %s", err, array)
		}
		keys := map[string]bool{}
		for _, p := range putsOf(rec) {
			if keys[p.Key] || !ledger.IsJSON(p.Payload) || !strings.HasPrefix(string(p.Payload), "{") {
				t.Fatalf("%s has %s, of %s", p.Key, p.Payload, array)
			}
			keys[p.Key] = true
		}
		var b bytes.Buffer
		_, _ = NewExport(putsOf(rec)).WriteTo(&b)
		return b.Bytes()
	}
	one := write(array)
	if !equal(compact(one), compact(array)) || bytesToo && !bytes.Equal(one, array) {
		t.Fatalf("exported\n%s\nof\n%s", one, array)
	}
	if two := write(one); !bytes.Equal(two, one) {
		t.Fatalf("exported again\n%s\nof\n%s", two, one)
	}
}
