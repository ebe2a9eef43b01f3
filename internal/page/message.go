package page

// A message: its head, its parts, and a foot for errors and changes.

import (
	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// messageOpen writes a message up to its parts. The values that the totals sum up are also
// attributes: the script sums them up again when they change.
func messageOpen(o *markup.Out, id string, ord session.Ord, p fields.Value, t *session.Turn) {
	who, class := speaker(p)
	o.Lit(`<article class="msg `, class, `"`)
	messageAttrs(o, id, ord, p)
	if t == nil && unfinished(p) {
		o.Lit(` data-open`) // the script offers to stop it
	}
	used, began, ended := tokensOf(p), p.At("time", "created").Millis(), p.At("time", "completed").Millis()
	o.Lit(`><header class="head"><h2>`)
	o.Text(who)
	o.Lit(`</h2>`)
	turn(o, t)
	o.Lit(`<p class="meta">`)
	if agent := p.At("agent").Label(); agent != "" && class != "user" {
		o.Element("span", "agent", agent)
	} else if mode := p.At("mode").Label(); mode != "" && class != "user" {
		o.Element("span", "agent", mode)
	}
	if p.At("summary").Raw == "true" {
		o.Lit(`<span class="tag">summary</span>`)
	}
	if class != "user" { // the user addresses the model; the answer names it
		o.Element("span", "model", modelName(p))
	}
	o.Clock(began)
	o.Element("span", "took", markup.SpanText(began, ended))
	if used.any() {
		o.Lit(`<span class="tokens"`)
		o.Attr("title", used.detail())
		o.Lit(`>`)
		o.Text(markup.CountText(used.in + used.out + used.reasoning + used.read + used.write))
		o.Lit(` tokens</span>`)
	}
	o.Element("span", "cost", markup.CostText(p.At("cost").Number()))
	if finish := p.At("finish").Label(); finish != "" && finish != "stop" && finish != "tool-calls" {
		o.Element("span", "tag", finish)
	}
	o.Lit(`</p>`)
	o.Link(messageID(id), "message")
	o.Lit(`</header><div class="parts">`)
}

// messageAttrs writes the attributes of a message besides its class, which is open.
func messageAttrs(o *markup.Out, id string, ord session.Ord, p fields.Value) {
	o.Attr("id", messageID(id))
	o.Attr("data-key", session.MessageKey(id))
	ordAttr(o, ord)
	used, began, ended := tokensOf(p), p.At("time", "created").Millis(), p.At("time", "completed").Millis()
	for _, sum := range []struct {
		name markup.HTML
		n    float64
	}{{"data-in", used.in + used.read}, {"data-out", used.out}, {"data-reasoning", used.reasoning}, {"data-cost", p.At("cost").Number()},
		{"data-began", float64(began)}, {"data-ended", float64(ended)}} {
		if sum.n != 0 {
			o.Attr(sum.name, markup.PlainNumber(sum.n))
		}
	}
}

// ordAttr writes a block's position in the session's order, for the script.
func ordAttr(o *markup.Out, ord session.Ord) {
	if ord != (session.Ord{}) {
		position(o, "data-ord", ord)
	}
}

// orphanOpen writes a message of which only parts are known; the first has the position ord.
func orphanOpen(o *markup.Out, id string, ord session.Ord) {
	o.Lit(`<article class="msg orphan"`)
	o.Attr("id", messageID(id))
	o.Attr("data-key", session.MessageKey(id))
	ordAttr(o, ord)
	o.Lit(`><div class="parts">`)
}

// messageClose writes the content below a message's parts, and its end.
func messageClose(o *markup.Out, p fields.Value) {
	o.Lit(`</div>`)
	failure, changed := p.At("error"), p.At("summary", "diffs")
	unknown := p.IsObject() && p.At("role").Text() == ""
	if !failure.Empty() || !changed.Empty() || unknown || !p.At("summary", "body").Empty() {
		o.Lit(`<footer class="foot">`)
		errorBox(o, failure)
		o.Element("p", "gist", markup.OneLine(p.At("summary", "body").Text(), 4*markup.LabelBytes))
		changeSet(o, changed)
		if unknown && !p.Empty() {
			rawCard(o, "Message", "", p)
		}
		o.Lit(`</footer>`)
	}
	o.Lit(`</article>`)
}

// speaker returns a message's author, in words and as a class.
func speaker(p fields.Value) (who string, class markup.HTML) {
	switch r := role(p); r {
	case "user":
		return "User", "user"
	case "assistant":
		return "Assistant", "assistant"
	case "system":
		return "System", "system"
	case "":
		return "Message", "other"
	default:
		return markup.OneLine(r, 40), "other"
	}
}

// modelName returns the model that a message names, with its provider; "" for none.
func modelName(p fields.Value) string {
	provider, id := p.At("providerID"), p.At("modelID")
	if id.Empty() {
		provider, id = p.At("model", "providerID"), p.At("model", "modelID")
	}
	if id.Empty() {
		id = p.At("model", "id")
	}
	if id.Empty() && !p.At("model").IsObject() {
		id = p.At("model")
	}
	switch {
	case id.Empty():
		return ""
	case provider.Empty():
		return id.Label()
	}
	return provider.Label() + "/" + id.Label()
}

// turn writes the state of a turn; an empty element if it has none, which the script reads as
// unchanged.
func turn(o *markup.Out, t *session.Turn) {
	o.Lit(`<span class="turn">`)
	if t != nil {
		turnState(o, t.Status.String())
	}
	o.Lit(`</span>`)
}

// turnState writes a turn's state by its name in the session's events.
func turnState(o *markup.Out, status string) {
	switch status {
	case "streaming":
		o.Lit(`<span class="state streaming">writing</span>`)
	case "interrupted":
		o.Lit(`<span class="state interrupted" title="Its writer was not heard from; it may go on">interrupted</span>`)
	case "failed":
		o.Lit(`<span class="state failed">failed</span>`)
	case "aborted":
		o.Lit(`<span class="state aborted">aborted</span>`)
	case "completed":
		o.Lit(`<span class="state completed">completed</span>`)
	}
}

// errorBox writes an error as messages, steps and tools have them: text, or an object with a name
// and a message at some depth.
func errorBox(o *markup.Out, e fields.Value) {
	if e.Empty() {
		return
	}
	name, message := "", e.Text()
	if e.IsObject() {
		name = e.At("name").Label()
		message = ""
		for _, at := range []fields.Value{e.At("data", "message"), e.At("message"), e.At("error"), e.At("data")} {
			if !at.Empty() {
				message = at.Text()
				break
			}
		}
		if message == "" && name == "" {
			message = fields.Indented(markup.CutBytes(e.Raw, markup.ShownBytes), markup.ShownBytes)
		}
	}
	o.Lit(`<div class="error"><strong>`)
	if name == "" {
		name = "Error"
	}
	o.Text(name)
	o.Lit(`</strong>`)
	if message != "" {
		o.Lit(`<pre dir="auto">`)
		o.Shown(message)
		o.Lit(`</pre>`)
		o.Clipped(len(message))
	}
	o.Lit(`</div>`)
}

// rawCard writes JSON in a folded card; what is its caption.
func rawCard(o *markup.Out, name, what string, p fields.Value) {
	o.Lit(`<details class="card raw"><summary><span class="name">`)
	o.Text(name)
	o.Lit(`</span><span class="what" dir="auto">`)
	if what == "" {
		what = "JSON"
	}
	o.Text(what)
	o.Lit(`</span></summary><div class="body">`)
	rawJSON(o, p)
	o.Lit(`</div></details>`)
}

// rawJSON writes indented JSON.
func rawJSON(o *markup.Out, p fields.Value) {
	o.Lit(`<pre class="json">`)
	o.Text(fields.Indented(p.Raw, markup.ShownBytes))
	o.Lit(`</pre>`)
	o.Clipped(len(p.Raw))
}

// role returns a message's role.
func role(p fields.Value) string { return p.At("role").Text() }

// tokens are the token counts of a message or step.
type tokens struct{ in, out, reasoning, read, write float64 }

func tokensOf(p fields.Value) tokens {
	t := p.At("tokens")
	return tokens{t.At("input").Number(), t.At("output").Number(), t.At("reasoning").Number(),
		t.At("cache", "read").Number(), t.At("cache", "write").Number()}
}

func (t tokens) any() bool { return t != tokens{} }

// detail formats the token counts.
func (t tokens) detail() string {
	s := markup.CountText(t.in) + " in, " + markup.CountText(t.out) + " out"
	for _, more := range []struct {
		n    float64
		what string
	}{{t.reasoning, " reasoning"}, {t.read, " read from cache"}, {t.write, " written to cache"}} {
		if more.n != 0 {
			s += ", " + markup.CountText(more.n) + more.what
		}
	}
	return s
}

// unfinished reports whether a message is an unfinished answer.
func unfinished(p fields.Value) bool {
	return role(p) == "assistant" && p.At("time", "completed").Millis() == 0 && p.At("error").Empty()
}
