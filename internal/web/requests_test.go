//go:build unix

package web

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// What is asked on a page is asked once, its card is bound to what it shows, and what has ended is no part of a page that
// is loaded later.
func TestRequestsOnAPage(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.said()
		b, at := r.opened(t, m.owner)
		prompt := action("ask", "kind", "prompt", "text", "run <b>the tests</b>")
		b.acts(at, prompt, http.StatusOK)
		b.acts(at, prompt, http.StatusOK)
		m.do(op(session.MethodAsk, arg("request", `"per"`), arg("kind", `"permission"`), arg("payload", `{"command":"rm -rf <x>"}`), arg("choices", `[{"id":"once","label":"Allow <once>"},{"id":"no"}]`)))
		got := b.get(at).body
		for _, want := range []string{`run &lt;b&gt;the tests&lt;/b&gt;`, `data-request="per" data-kind="permission" data-state="open" data-digest="`, `rm -rf &lt;x&gt;`, `<li data-choice="once" dir="auto">Allow &lt;once&gt;</li>`, `id="composer"`} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in %s", want, got)
			}
		}
		if n := strings.Count(got, `class="extra request"`); n != 2 {
			t.Errorf("%d cards", n)
		}
		_, rest, _ := strings.Cut(got, `data-request="per"`)
		_, rest, _ = strings.Cut(rest, `data-digest="`)
		digest, _, _ := strings.Cut(rest, `"`)
		if refused := b.acts(at, action("answer", "request", "per", "choice", "once", "shown", strings.Repeat("0", 64)), http.StatusConflict); refused.Code != "conflict" {
			t.Errorf("bound to something else: %+v", refused)
		}
		answer := action("answer", "request", "per", "choice", "once", "shown", digest)
		b.acts(at, answer, http.StatusOK)
		b.acts(at, answer, http.StatusOK)
		if refused := b.acts(at, action("answer", "request", "per", "choice", "no", "shown", digest), http.StatusConflict); refused.Code != "conflict" {
			t.Errorf("answered otherwise: %+v", refused)
		}
		card := b.get(at + "/block?key=request/per")
		if card.StatusCode != http.StatusOK || !strings.Contains(card.body, `data-state="answered"`) || !strings.Contains(card.body, `<li data-choice="once" class="chosen"`) || !strings.Contains(card.body, "Answered by owner") {
			t.Errorf("the card: %d %s", card.StatusCode, card.body)
		}
		if got := b.get(at + "/block?key=request/per/state"); got.body != card.body {
			t.Errorf("by its state's key: %s", got.body)
		}
		_, rest, _ = strings.Cut(prompt, `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		if whose := `data-under="` + m.owner.ID + `"`; !strings.Contains(got, whose) || !strings.Contains(got, ` data-own="`+m.owner.ID+`"`) {
			t.Errorf("it does not say whose it is: %s", got)
		}
		back := action("withdraw", "request", id)
		b.acts(at, back, http.StatusOK)
		b.acts(at, back, http.StatusOK) // the answer was lost
		if got := b.get(at + "/block?key=request/" + id); !strings.Contains(got.body, `data-state="withdrawn"`) {
			t.Errorf("withdrawn: %s", got.body)
		}
		b.acts(at, action("withdraw", "request", "per"), http.StatusConflict) // it is answered
		b.acts(at, action("withdraw", "request", "none"), http.StatusNotFound)
		b.acts(at, action("ask", "kind", "prompt", "text", "another"), http.StatusOK)
		if got := b.get(at + "/block?key=request/none"); got.StatusCode != http.StatusNotFound {
			t.Errorf("none: %d", got.StatusCode)
		}
		if got := b.get(at).body; strings.Contains(got, `data-request="per"`) || strings.Count(got, `class="extra request"`) != 1 {
			t.Errorf("loaded later: %s", got)
		}
	})
}

// A page has the form, and buttons, for what its ref may; to who may only read there is nothing of it, and the server
// refuses what is sent all the same.
func TestWhoMayAskOnAPage(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.said()
	m.do(op(session.MethodAsk, arg("request", `"q"`), arg("kind", `"question"`)))
	for may, mint := range map[string]capability.MintRequest{
		"fork":                     {},
		"fork ask-prompt ask-stop": {Rights: capability.Read | capability.Ask},
		"fork ask-stop answer-permission answer-own": {Rights: capability.Read | capability.Ask | capability.Answer, AskKinds: []string{"stop"}, AnswerKinds: []string{"permission", "own"}},
		"fork answer": {Rights: capability.Read | capability.Answer},
	} {
		b, at := r.opened(t, m.share(mint))
		got := b.get(at).body
		if !strings.Contains(got, ` data-may="`+may+`"`) || !strings.Contains(got, `data-request="q"`) {
			t.Errorf("not %q", may)
		}
		if form := strings.Contains(got, `id="composer"`); form != strings.Contains(may, "ask-") {
			t.Errorf("%s: a form: %v", may, form)
		}
		for kind, flag := range map[string]string{"prompt": "ask-prompt", "stop": "ask-stop"} {
			want := fault.MissingRight.HTTPStatus()
			if strings.Contains(may, flag) {
				want = http.StatusOK
			}
			b.acts(at, action("ask", "kind", kind, "message", "msg_1"), want)
		}
	}
}
