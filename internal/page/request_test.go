package page

import (
	"fmt"
	"html"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
)

// asked returns the entry of a request with a payload.
func asked(id, payload string) *session.Entry {
	return &session.Entry{Key: "request/" + id, Payload: fmt.Appendf(nil, `{"kind":"permission","by":{"actor":"agent","ref":"r"},"digest":"d","payload":%s}`, payload)}
}

// Who answers has seen all of what is asked.
func TestRequestIsShownWhole(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 24) + strings.Repeat("0,", 60_000) + "0" + strings.Repeat("]", 24)
	for _, c := range []struct{ name, payload, want, not string }{
		{"a command", `{"command":"npm test"}`, `<code>npm test</code>`, `class="asked"`},
		{"with another member", `{"command":"npm test","dir":"/"}`, `&#34;dir&#34;: &#34;/&#34;`, ""},
		{"with a sequence for terminals", `{"command":"ls \u001b[; ./1x"}`, html.EscapeString(`"ls \u001b[; ./1x"`), ""},
		{"read from right to left", "{\"command\":\"ls \u202e/ fr- mr\"}", html.EscapeString(`"ls \u202e/ fr- mr"`), ""},
		{"with characters nobody sees", "{\"text\":\"fix it\U000e0041\"}", html.EscapeString(`"fix it\udb40\udc41"`), ""},
		{"deep", `{"x":` + deep + `,"then":"rm -rf /"}`, html.EscapeString(`"then":"rm -rf /"`), ""},
		{"of a tool", `{"tool":{"title":"x","input":{"command":"rm -rf /"}}}`, html.EscapeString(`"command": "rm -rf /"`), ""},
	} {
		got := string(Request(asked("a", c.payload), nil))
		if !strings.Contains(got, c.want) || c.not != "" && strings.Contains(got, c.not) || !strings.Contains(got, " data-whole") {
			t.Errorf("%s: no %s in %.2000s", c.name, c.want, got)
		}
	}
	large := string(Request(asked("a", `{"text":"`+strings.Repeat("x", maxAsked)+`"}`), nil))
	if strings.Contains(large, "data-whole") || strings.Contains(large, "xxxx") || !strings.Contains(large, "is not shown here") {
		t.Errorf("too large to show: %.2000s", large)
	}
}

// Requests are written as they come, and are not kept.
func TestRequestsAreWrittenAtOnce(t *testing.T) {
	t.Parallel()
	var w strings.Builder
	d := Start(&w, Head{})
	for i := range 3 {
		d.Requests([]*session.RequestInfo{{Asked: asked(fmt.Sprint("q", i), `{"text":"x"}`)}})
		if !strings.Contains(w.String(), fmt.Sprintf(`data-request="q%d"`, i)) {
			t.Errorf("request %d is not written", i)
		}
	}
	d.Rest([]*session.EntryInfo{{Entry: &session.Entry{Key: "model/a", Payload: []byte(`{"id":"a"}`)}}})
	got := w.String()
	if strings.Count(got, `<section id="requests"`) != 1 || strings.Index(got, `data-request="q2"`) > strings.Index(got, `<section id="rest"`) {
		t.Errorf("the sections: %s", got)
	}
}
