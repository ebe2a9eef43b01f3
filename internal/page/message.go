package page

// A message: its head, its parts, and a foot for errors and changes.

import (
	"strconv"

	"github.com/mooring-rpc/mooring/internal/session"
)

// messageOpen writes a message up to its parts. The values that the totals sum up are also
// attributes: the script sums them up again when they change.
func messageOpen(o *out, id string, ord session.Ord, p fields, t *session.Turn) {
	who, class := speaker(p)
	o.lit(`<article class="msg `, class, `"`)
	messageAttrs(o, id, ord, p)
	if t == nil && unfinished(p) {
		o.lit(` data-open`) // the script offers to stop it
	}
	used, began, ended := tokensOf(p), p.at("time", "created").millis(), p.at("time", "completed").millis()
	o.lit(`><header class="head"><h2>`)
	o.text(who)
	o.lit(`</h2>`)
	turn(o, t)
	o.lit(`<p class="meta">`)
	if agent := p.at("agent").label(); agent != "" && class != "user" {
		o.element("span", "agent", agent)
	} else if mode := p.at("mode").label(); mode != "" && class != "user" {
		o.element("span", "agent", mode)
	}
	if p.at("summary").Raw == "true" {
		o.lit(`<span class="tag">summary</span>`)
	}
	if class != "user" { // the user addresses the model; the answer names it
		o.element("span", "model", modelName(p))
	}
	o.clock(began)
	o.element("span", "took", spanText(began, ended))
	if used.any() {
		o.lit(`<span class="tokens"`)
		o.attr("title", used.detail())
		o.lit(`>`)
		o.text(countText(used.in + used.out + used.reasoning + used.read + used.write))
		o.lit(` tokens</span>`)
	}
	o.element("span", "cost", costText(p.at("cost").number()))
	if finish := p.at("finish").label(); finish != "" && finish != "stop" && finish != "tool-calls" {
		o.element("span", "tag", finish)
	}
	o.lit(`</p>`)
	o.link(messageID(id), "message")
	o.lit(`</header><div class="parts">`)
}

// messageAttrs writes the attributes of a message besides its class, which is open.
func messageAttrs(o *out, id string, ord session.Ord, p fields) {
	o.attr("id", messageID(id))
	o.attr("data-key", session.MessageKey(id))
	o.ord(ord)
	used, began, ended := tokensOf(p), p.at("time", "created").millis(), p.at("time", "completed").millis()
	for _, sum := range []struct {
		name markup
		n    float64
	}{{"data-in", used.in + used.read}, {"data-out", used.out}, {"data-reasoning", used.reasoning}, {"data-cost", p.at("cost").number()},
		{"data-began", float64(began)}, {"data-ended", float64(ended)}} {
		if sum.n != 0 {
			o.attr(sum.name, plainNumber(sum.n))
		}
	}
}

// ord writes a block's position in the session's order, for the script.
func (o *out) ord(ord session.Ord) {
	if ord != (session.Ord{}) {
		o.attr("data-ord", strconv.FormatUint(ord.At, 10)+"."+strconv.FormatUint(ord.Index, 10))
	}
}

// orphanOpen writes a message of which only parts are known; the first has the position ord.
func orphanOpen(o *out, id string, ord session.Ord) {
	o.lit(`<article class="msg orphan"`)
	o.attr("id", messageID(id))
	o.attr("data-key", session.MessageKey(id))
	o.ord(ord)
	o.lit(`><div class="parts">`)
}

// messageClose writes the content below a message's parts, and its end.
func messageClose(o *out, p fields) {
	o.lit(`</div>`)
	failure, changed := p.at("error"), p.at("summary", "diffs")
	unknown := p.IsObject() && p.at("role").text() == ""
	if !failure.empty() || !changed.empty() || unknown || !p.at("summary", "body").empty() {
		o.lit(`<footer class="foot">`)
		errorBox(o, failure)
		o.element("p", "gist", oneLine(p.at("summary", "body").text(), 4*labelBytes))
		changeSet(o, changed)
		if unknown && !p.empty() {
			rawCard(o, "Message", "", p)
		}
		o.lit(`</footer>`)
	}
	o.lit(`</article>`)
}

// speaker returns a message's author, in words and as a class.
func speaker(p fields) (who string, class markup) {
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
		return oneLine(r, 40), "other"
	}
}

// modelName returns the model that a message names, with its provider; "" for none.
func modelName(p fields) string {
	provider, id := p.at("providerID"), p.at("modelID")
	if id.empty() {
		provider, id = p.at("model", "providerID"), p.at("model", "modelID")
	}
	if id.empty() {
		id = p.at("model", "id")
	}
	if id.empty() && !p.at("model").IsObject() {
		id = p.at("model")
	}
	switch {
	case id.empty():
		return ""
	case provider.empty():
		return id.label()
	}
	return provider.label() + "/" + id.label()
}

// turn writes the state of a turn; an empty element if it has none, which the script reads as
// unchanged.
func turn(o *out, t *session.Turn) {
	o.lit(`<span class="turn">`)
	if t != nil {
		turnState(o, t.Status.String())
	}
	o.lit(`</span>`)
}

// turnState writes a turn's state by its name in the session's events.
func turnState(o *out, status string) {
	switch status {
	case "streaming":
		o.lit(`<span class="state streaming">writing</span>`)
	case "interrupted":
		o.lit(`<span class="state interrupted" title="Its writer was not heard from; it may go on">interrupted</span>`)
	case "failed":
		o.lit(`<span class="state failed">failed</span>`)
	case "aborted":
		o.lit(`<span class="state aborted">aborted</span>`)
	case "completed":
		o.lit(`<span class="state completed">completed</span>`)
	}
}

// errorBox writes an error as messages, steps and tools have them: text, or an object with a name
// and a message at some depth.
func errorBox(o *out, e fields) {
	if e.empty() {
		return
	}
	name, message := "", e.text()
	if e.IsObject() {
		name = e.at("name").label()
		message = ""
		for _, at := range []fields{e.at("data", "message"), e.at("message"), e.at("error"), e.at("data")} {
			if !at.empty() {
				message = at.text()
				break
			}
		}
		if message == "" && name == "" {
			message = indented(cutBytes(e.Raw, shownBytes), shownBytes)
		}
	}
	o.lit(`<div class="error"><strong>`)
	if name == "" {
		name = "Error"
	}
	o.text(name)
	o.lit(`</strong>`)
	if message != "" {
		o.lit(`<pre dir="auto">`)
		o.shown(message)
		o.lit(`</pre>`)
		o.clipped(len(message))
	}
	o.lit(`</div>`)
}

// rawCard writes JSON in a folded card; what is its caption.
func rawCard(o *out, name, what string, p fields) {
	o.lit(`<details class="card raw"><summary><span class="name">`)
	o.text(name)
	o.lit(`</span><span class="what" dir="auto">`)
	if what == "" {
		what = "JSON"
	}
	o.text(what)
	o.lit(`</span></summary><div class="body">`)
	rawJSON(o, p)
	o.lit(`</div></details>`)
}

// rawJSON writes indented JSON.
func rawJSON(o *out, p fields) {
	o.lit(`<pre class="json">`)
	o.text(indented(p.Raw, shownBytes))
	o.lit(`</pre>`)
	o.clipped(len(p.Raw))
}
