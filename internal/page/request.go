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

	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// maxAsked is the size of a request up to which all of it is shown: a larger one is not answered on a page.
const maxAsked = 256 << 10

// Request returns the HTML of a request's card: asked is what was asked, state what became of it, nil if nothing did.
func Request(asked, state *session.Entry) []byte {
	var o markup.Out
	request(&o, asked, state)
	return o.Bytes()
}

func request(o *markup.Out, asked, state *session.Entry) {
	id, _, _ := session.RequestOf(asked.Key)
	p := fields.Read(asked.Payload)
	var s fields.Value
	if state != nil {
		s = fields.Read(state.Payload)
	}
	now := cmp.Or(s.At("state").Text(), string(session.RequestOpen))
	o.Lit(`<section class="extra request"`)
	o.Attr("id", restID(asked.Key))
	o.Attr("data-key", asked.Key)
	o.Attr("data-request", id)
	o.Attr("data-kind", p.At("kind").Text())
	o.Attr("data-state", now)
	o.Attr("data-digest", p.At("digest").Text())
	o.Attr("data-under", p.At("by", "ref").Text())
	whole := len(asked.Payload) <= maxAsked
	if whole {
		o.Lit(` data-whole`)
	}
	o.Lit(`><div class="card"><h3><span class="name">`)
	o.Text(requestName(p.At("kind").Label()))
	o.Lit(`</span><span class="what" dir="auto">`)
	o.Text(markup.OneLine(cmp.Or(p.At("by", "actor").Text(), "unknown"), markup.LabelBytes))
	o.Lit(`</span>`)
	if at := p.At("at").Millis(); at != 0 {
		o.Lit(`<span class="took">`)
		o.Time(at)
		o.Lit(`</span>`)
	}
	o.Lit(`</h3><div class="body">`)
	if whole {
		askedFor(o, p.At("payload"))
	} else {
		o.Lit(`<p class="clip">It has `)
		o.Text(markup.BytesText(len(asked.Payload)))
		o.Lit(` and is not shown here: mooring session requests has it.</p>`)
	}
	if m := p.At("message").Text(); m != "" {
		o.Lit(`<p class="note">About <a`)
		o.Attr("href", "#"+messageID(markup.CutBytes(m, 200)))
		o.Lit(`>this answer</a></p>`)
	}
	choices(o, p, s)
	became(o, now, p, s)
	o.Lit(`<p class="note under">Asked under <code>`)
	o.Text(markup.OneLine(p.At("by", "ref").Text(), markup.LabelBytes))
	o.Lit(`</code></p></div></div></section>`)
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
func askedFor(o *markup.Out, p fields.Value) {
	if p.Empty() {
		return
	}
	plain, same := false, true
	for _, name := range []string{"text", "title"} {
		if text := p.At(name); text.Type == gjson.String {
			o.Lit(`<p class="said" dir="auto">`)
			o.Text(text.Text())
			o.Lit(`</p>`)
			plain, same = true, same && seen(text.Text())
		}
	}
	if command := p.At("command"); command.Type == gjson.String {
		o.Lit(`<pre class="command" dir="ltr"><code>`)
		o.Text(command.Text())
		o.Lit(`</code></pre>`)
		plain, same = true, same && seen(command.Text())
	}
	if diff := p.At("diff"); !diff.Empty() {
		changes(o, diff)
	}
	members := 0
	p.ForEach(func(_, _ gjson.Result) bool { members++; return true })
	if plain && same && members == 1 {
		return
	}
	text := fields.Indented(p.Raw, 4*maxAsked)
	if len(text) > 4*maxAsked-utf8.UTFMax { // it may be cut: nesting makes much of little
		text = p.Raw
	}
	o.Lit(`<pre class="asked" dir="ltr" tabindex="0"><code>`)
	o.Text(escapeUnseen(text))
	o.Lit(`</code></pre>`)
}

// seen reports whether all characters of a text are seen on a page.
func seen(s string) bool { return markup.Clean(s) == s && !strings.ContainsFunc(s, unseen) }

// unseen reports whether a character is not seen on a page as it is.
func unseen(r rune) bool {
	return r == 0x7f || r > 0x7f && (markup.Unwanted(r) || unicode.Is(unicode.Cf, r))
}

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
func choices(o *markup.Out, p, s fields.Value) {
	list := p.At("choices")
	if !list.IsArray() {
		return
	}
	o.Lit(`<ul class="choices">`)
	chosen := s.At("choice").Text()
	list.ForEach(func(_, v gjson.Result) bool {
		c := fields.Of(v)
		id := c.At("id").Text()
		o.Lit(`<li`)
		o.Attr("data-choice", id)
		if id == chosen && chosen != "" {
			o.Lit(` class="chosen"`)
		}
		o.Lit(` dir="auto">`)
		o.Text(markup.OneLine(cmp.Or(c.At("label").Text(), id), markup.LabelBytes))
		o.Lit(`</li>`)
		return true
	})
	o.Lit(`</ul>`)
}

// became writes what became of a request.
func became(o *markup.Out, now string, p, s fields.Value) {
	o.Lit(`<p class="became" dir="auto">`)
	by := markup.OneLine(cmp.Or(s.At("by", "actor").Text(), s.At("by", "ref").Text()), markup.LabelBytes)
	switch session.RequestState(now) {
	case session.RequestOpen:
		o.Lit(`Open`)
		if until := p.At("expires_at").Millis(); until != 0 {
			o.Lit(` until `)
			o.Time(until)
		}
	case session.RequestClaimed:
		o.Lit(`Being worked on by `)
		o.Text(by)
	case session.RequestAnswered:
		o.Lit(`Answered by `)
		o.Text(by)
	case session.RequestWithdrawn:
		o.Lit(`Withdrawn`)
		if by != "" {
			o.Lit(` by `)
			o.Text(by)
		}
	case session.RequestExpired:
		o.Lit(`Expired`)
	default:
		o.Lit(`Unknown: it was handed over, and nobody knows what came of it`)
	}
	if at := s.At("at").Millis(); at != 0 {
		o.Lit(`, `)
		o.Time(at)
	}
	o.Lit(`</p>`)
	if reason := s.At("reason").Text(); reason != "" {
		o.Lit(`<p class="note" dir="auto">`)
		o.Text(markup.OneLine(reason, markup.LabelBytes))
		o.Lit(`</p>`)
	}
	if answer := s.At("payload"); answer.Exists() {
		if text := answer.At("text"); text.Type == gjson.String {
			answer = text
		}
		o.Lit(`<p class="said" dir="auto">`)
		o.Shown(answer.Text())
		o.Lit(`</p>`)
	}
}

// composer writes the form by which the page asks, if its ref may; the script shows it.
func composer(o *markup.Out, may []string) {
	prompts, stops := slices.Contains(may, "ask-prompt"), slices.Contains(may, "ask-stop")
	if !prompts && !stops {
		return
	}
	o.Lit(`<form id="composer" class="script" aria-label="Ask the agent">`)
	if prompts {
		o.Lit(`<label for="prompt">Prompt</label><textarea id="prompt" name="prompt" rows="2" maxlength="60000" dir="auto" placeholder="What the agent is to do next"></textarea>`)
	}
	o.Lit(`<ul id="queued" aria-label="Waiting to be sent" aria-live="polite"></ul><p class="refused" role="alert"></p><div class="does">`)
	if stops {
		o.Lit(`<button type="button" class="button danger" data-ask="stop" hidden>Stop</button>`)
	}
	if prompts {
		o.Lit(`<button class="button primary">Send</button>`)
	}
	o.Lit(`</div></form>`)
}
