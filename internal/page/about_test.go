package page

import (
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
)

// Of a share that is at work and silent the page says so from a lease on, and what it
// lacks; of any other session neither.
func TestShares(t *testing.T) {
	t.Parallel()
	entry := func(key, payload string) *session.Entry {
		return &session.Entry{Key: key, Payload: []byte(payload)}
	}
	user := entry("message/a", `{"role":"user"}`)
	open := entry("message/b", `{"role":"assistant","time":{"created":1}}`)
	done := entry("message/b", `{"role":"assistant","time":{"created":1,"completed":2}}`)
	failed := entry("message/b", `{"role":"assistant","time":{"created":1},"error":{"name":"x"}}`)
	running := entry("part/b/p", `{"type":"tool","state":{"status":"running"}}`)
	ended := entry("part/b/p", `{"type":"tool","state":{"status":"completed"}}`)
	silent, lively := &Share{Changed: 1_700_000_000_000, Silence: time.Minute, Lease: time.Second}, &Share{Silence: time.Second, Lease: time.Minute}
	for _, c := range []struct {
		what    string
		share   *Share
		entries []*session.Entry
		want    string // of the note's tag; "" for none
	}{
		{"no share", nil, []*session.Entry{open, running}, ""},
		{"an answer without an end", silent, []*session.Entry{user, open}, "60000 1000 shown"},
		{"a tool without an end", silent, []*session.Entry{user, done, running}, "60000 1000 shown"},
		{"all has ended", silent, []*session.Entry{user, done, ended}, "60000 1000 hidden"},
		{"it failed", silent, []*session.Entry{user, failed, ended}, "60000 1000 hidden"},
		{"an older answer without an end", silent, []*session.Entry{open, user}, "60000 1000 hidden"},
		{"not silent for long", lively, []*session.Entry{user, open, running}, "1000 60000 hidden"},
		{"nothing yet", silent, nil, "60000 1000 hidden"},
	} {
		var b strings.Builder
		d := Start(&b, Head{ID: "x", Share: c.share})
		for _, e := range c.entries {
			if strings.HasPrefix(e.Key, "part/") {
				d.Part(e)
			} else {
				d.Message(e, nil)
			}
		}
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
		_, tag, there := strings.Cut(b.String(), `id="silent"`)
		tag, rest, _ := strings.Cut(tag, ">")
		got := ""
		if there {
			attr := func(name string) string {
				_, v, _ := strings.Cut(tag, name+`="`)
				v, _, _ = strings.Cut(v, `"`)
				return v
			}
			got = attr("data-silence") + " " + attr("data-lease") + " shown"
			if strings.HasSuffix(tag, " hidden") {
				got = strings.TrimSuffix(got, "shown") + "hidden"
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		if c.share == silent && !strings.Contains(rest, "14 Nov 2023") {
			t.Errorf("%s: it does not say since when: %.200s", c.what, rest)
		}
	}
	var b strings.Builder
	if err := Start(&b, Head{ID: "x", Share: &Share{Lacks: []Lack{{"part/m/<b>", "it is <large>"}, {"", "a body was"}}}}).End(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"This share is incomplete", "<code>part/m/&lt;b&gt;</code>: it is &lt;large&gt;", "<li>a body was</li>"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is not in %s", want, b.String())
		}
	}
}
