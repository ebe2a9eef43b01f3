package page

// Requests: who asks, under which ref, what in full, and what became of it. The script makes buttons of the choices
// where the page's ref may answer, and one to withdraw what was asked under it; the answer is bound to what the card
// shows.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/session"
)

// maxAsked is the size of a request up to which all of it is shown: a larger one is not answered on a page.
const maxAsked = 256 << 10

// Request returns the HTML of a request's card: asked is what was asked, state what became of it, nil if nothing did.
func Request(asked, state *session.Entry) []byte {
	var o out
	request(&o, asked, state)
	return o.b
}

func request(o *out, asked, state *session.Entry) {
	id, _, _ := session.RequestOf(asked.Key)
	p := read(asked.Payload)
	var s fields
	if state != nil {
		s = read(state.Payload)
	}
	now := cmp.Or(s.at("state").text(), string(session.RequestOpen))
	o.lit(`<section class="extra request"`)
	o.attr("id", restID(asked.Key))
	o.attr("data-key", asked.Key)
	o.attr("data-request", id)
	o.attr("data-kind", p.at("kind").text())
	o.attr("data-state", now)
	o.attr("data-digest", p.at("digest").text())
	o.attr("data-under", p.at("by", "ref").text())
	whole := len(asked.Payload) <= maxAsked
	if whole {
		o.lit(` data-whole`)
	}
	o.lit(`><div class="card"><h3><span class="name">`)
	o.text(requestName(p.at("kind").label()))
	o.lit(`</span><span class="what" dir="auto">`)
	o.text(oneLine(cmp.Or(p.at("by", "actor").text(), "unknown"), labelBytes))
	o.lit(`</span>`)
	if at := p.at("at").millis(); at != 0 {
		o.lit(`<span class="took">`)
		o.time(at)
		o.lit(`</span>`)
	}
	o.lit(`</h3><div class="body">`)
	if whole {
		askedFor(o, p.at("payload"))
	} else {
		o.lit(`<p class="clip">It has `)
		o.text(bytesText(len(asked.Payload)))
		o.lit(` and is not shown here: mooring session requests has it.</p>`)
	}
	if m := p.at("message").text(); m != "" {
		o.lit(`<p class="note">About <a`)
		o.attr("href", "#"+messageID(cutBytes(m, 200)))
		o.lit(`>this answer</a></p>`)
	}
	choices(o, p, s)
	became(o, now, p, s)
	o.lit(`<p class="note under">Asked under <code>`)
	o.text(oneLine(p.at("by", "ref").text(), labelBytes))
	o.lit(`</code></p></div></div></section>`)
}

// requestName returns what a kind of requests is called.
func requestName(kind string) string {
	switch kind {
	case session.KindPrompt:
		return "Prompt"
	case session.KindStop:
		return "Stop"
	case session.KindPermission:
		return "Permission"
	case session.KindQuestion:
		return "Question"
	}
	return kind
}

// askedFor writes all of what is asked: a text, a command and a diff as such, and the JSON of what has more members, or has
// characters that cannot be seen as they are. Who answers has seen what the digest is of.
func askedFor(o *out, p fields) {
	if p.empty() {
		return
	}
	plain, same := false, true
	for _, name := range []string{"text", "title"} {
		if text := p.at(name); text.Type == gjson.String {
			o.lit(`<p class="said" dir="auto">`)
			o.text(text.text())
			o.lit(`</p>`)
			plain, same = true, same && seen(text.text())
		}
	}
	if command := p.at("command"); command.Type == gjson.String {
		o.lit(`<pre class="command" dir="ltr"><code>`)
		o.text(command.text())
		o.lit(`</code></pre>`)
		plain, same = true, same && seen(command.text())
	}
	if diff := p.at("diff"); !diff.empty() {
		changes(o, diff)
	}
	members := 0
	p.ForEach(func(_, _ result) bool { members++; return true })
	if plain && same && members == 1 {
		return
	}
	text := indented(p.Raw, 4*maxAsked)
	if len(text) > 4*maxAsked-utf8.UTFMax { // it may be cut: nesting makes much of little
		text = p.Raw
	}
	o.lit(`<pre class="asked" dir="ltr" tabindex="0"><code>`)
	o.text(escapeUnseen(text))
	o.lit(`</code></pre>`)
}

// seen reports whether all characters of a text are seen on a page.
func seen(s string) bool { return clean(s) == s && !strings.ContainsFunc(s, unseen) }

// unseen reports whether a character is not seen on a page as it is.
func unseen(r rune) bool { return r == 0x7f || r > 0x7f && (unwanted(r) || unicode.Is(unicode.Cf, r)) }

// escapeUnseen returns a JSON text with escapes for the characters that are not seen.
func escapeUnseen(text string) string {
	if !strings.ContainsFunc(text, unseen) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unseen(r) {
			for _, u := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// choices writes the answers that a request offers, and which was chosen.
func choices(o *out, p, s fields) {
	list := p.at("choices")
	if !list.IsArray() {
		return
	}
	o.lit(`<ul class="choices">`)
	chosen := s.at("choice").text()
	list.ForEach(func(_, v result) bool {
		c := value(v)
		id := c.at("id").text()
		o.lit(`<li`)
		o.attr("data-choice", id)
		if id == chosen && chosen != "" {
			o.lit(` class="chosen"`)
		}
		o.lit(` dir="auto">`)
		o.text(oneLine(cmp.Or(c.at("label").text(), id), labelBytes))
		o.lit(`</li>`)
		return true
	})
	o.lit(`</ul>`)
}

// became writes what became of a request.
func became(o *out, now string, p, s fields) {
	o.lit(`<p class="became" dir="auto">`)
	by := oneLine(cmp.Or(s.at("by", "actor").text(), s.at("by", "ref").text()), labelBytes)
	switch session.RequestState(now) {
	case session.RequestOpen:
		o.lit(`Open`)
		if until := p.at("expires_at").millis(); until != 0 {
			o.lit(` until `)
			o.time(until)
		}
	case session.RequestClaimed:
		o.lit(`Being worked on by `)
		o.text(by)
	case session.RequestAnswered:
		o.lit(`Answered by `)
		o.text(by)
	case session.RequestWithdrawn:
		o.lit(`Withdrawn`)
		if by != "" {
			o.lit(` by `)
			o.text(by)
		}
	case session.RequestExpired:
		o.lit(`Expired`)
	default:
		o.lit(`Unknown: it was handed over, and nobody knows what came of it`)
	}
	if at := s.at("at").millis(); at != 0 {
		o.lit(`, `)
		o.time(at)
	}
	o.lit(`</p>`)
	if reason := s.at("reason").text(); reason != "" {
		o.lit(`<p class="note" dir="auto">`)
		o.text(oneLine(reason, labelBytes))
		o.lit(`</p>`)
	}
	if answer := s.at("payload"); answer.Exists() {
		if text := answer.at("text"); text.Type == gjson.String {
			answer = text
		}
		o.lit(`<p class="said" dir="auto">`)
		o.shown(answer.text())
		o.lit(`</p>`)
	}
}

// composer writes the form by which the page asks, if its ref may; the script shows it.
func composer(o *out, may []string) {
	prompts, stops := slices.Contains(may, "ask-prompt"), slices.Contains(may, "ask-stop")
	if !prompts && !stops {
		return
	}
	o.lit(`<form id="composer" class="script" aria-label="Ask the agent">`)
	if prompts {
		o.lit(`<label for="prompt">Prompt</label><textarea id="prompt" name="prompt" rows="2" maxlength="60000" dir="auto" placeholder="What the agent is to do next"></textarea>`)
	}
	o.lit(`<ul id="queued" aria-label="Waiting to be sent" aria-live="polite"></ul><p class="refused" role="alert"></p><div class="does">`)
	if stops {
		o.lit(`<button type="button" class="button danger" data-ask="stop" hidden>Stop</button>`)
	}
	if prompts {
		o.lit(`<button class="button primary">Send</button>`)
	}
	o.lit(`</div></form>`)
}
