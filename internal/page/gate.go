package page

// Pages without a session: forms for a secret, and failures. And the address of a page that opens with a ref's secret.

import (
	"io"
	"net/url"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
)

// plainBar writes the bar of a page without a session. closes is the path that signs out; "" for
// none; access are paths of pages of who has access.
func plainBar(o *markup.Out, title markup.HTML, closes string, access ...string) {
	o.Lit(`<header class="bar">`, mark, `<h1 id="title">`, title, `</h1><div class="tools">`)
	for _, path := range access {
		o.Lit(`<a class="button"`)
		o.Attr("href", path)
		o.Lit(`>Access</a>`)
	}
	if closes != "" {
		o.Lit(`<button type="button" class="button script" data-do="close"`)
		o.Attr("data-close", closes)
		o.Lit(`>Sign out</button>`)
	}
	o.Lit(themeButton, `</div></header>`)
}

// Unlock writes the page of /s/ID for a visitor without a token: its script sends the secret,
// which is in the fragment and never sent by the browser, to ID/open below /s/, and replaces this
// page by the one it gets for the token. id is the ref's.
func Unlock(w io.Writer, base, id string) error {
	var o markup.Out
	s := shell{title: "Open a session", base: base, kind: "unlock"}
	s.open(&o)
	plainBar(&o, "Open a session", "")
	o.Lit(`<main id="session" class="gate" tabindex="-1"><div class="panel" id="gate"`)
	o.Attr("data-open", base+"/s/"+url.PathEscape(id)+"/open")
	o.Lit(`><p id="state" role="status" aria-live="polite">Opening the session&hellip;</p>`,
		`<p class="hint">The link's secret is the part after its # sign. This page exchanges it for a token, which this tab keeps for some hours, and removes it from the address.</p>`,
		`<button type="button" class="button primary" data-do="again" hidden>Try again</button>`, needsScript, `</div></main>`)
	shellClose(&o)
	_, err := w.Write(o.Bytes())
	return err
}

const needsScript markup.HTML = `<noscript><p class="error">This takes JavaScript: a fragment is never sent to a server, so a script has to hand the secret over.</p></noscript>`

// SignIn is Unlock for /sessions: its script sends a ref, from the fragment or the form, to
// /sessions/open.
func SignIn(w io.Writer, base string) error {
	var o markup.Out
	s := shell{title: "Sessions", base: base, kind: "signin"}
	s.open(&o)
	plainBar(&o, "Sessions", "")
	o.Lit(`<main id="session" class="gate" tabindex="-1"><form class="panel" id="gate"`)
	o.Attr("data-open", base+"/sessions/open")
	o.Lit(`><p>Show the sessions that a ref lets you see: the owner's, or any with the right to list.</p>`,
		`<label>Ref<input type="password" id="ref" autocomplete="off" spellcheck="false" placeholder="mooring://host/id#secret" required></label>`,
		`<button class="button primary">Show the sessions</button><p id="state" role="status" aria-live="polite"></p>`,
		`<p class="hint">It is exchanged for a token, which this tab keeps for some hours, and kept nowhere itself.</p>`, needsScript, `</form></main>`)
	shellClose(&o)
	_, err := w.Write(o.Bytes())
	return err
}

// Failure writes the page of an HTTP error status; f is the reason.
func Failure(w io.Writer, base string, status int, f *fault.Error) error {
	var o markup.Out
	title := overTitle(f.Code)
	if title == "Over" {
		title = "It did not work"
	}
	s := shell{title: title, base: base, kind: "failure"}
	s.open(&o)
	plainBar(&o, "Mooring", "")
	o.Lit(`<main id="session" class="gate" tabindex="-1"><div class="panel failure"><p class="code">`)
	o.Text(itoa(status))
	o.Lit(`</p><h2>`)
	o.Text(title)
	o.Lit(`</h2>`)
	o.Element("p", "why", markup.OneLine(f.Message, 1000))
	o.Lit(`<p class="hint"><code>`)
	o.Text(f.Code.String())
	o.Lit(`</code></p></div></main>`)
	shellClose(&o)
	_, err := w.Write(o.Bytes())
	return err
}

// RefPath returns the path of the page that shows what a ref allows to see, with the ref's secret in its
// fragment, which browsers do not send.
func RefPath(ref capability.Ref) string {
	if capability.IsSpace(ref.Target()) {
		return "/sessions#" + ref.ID + "#" + ref.Secret.RevealText()
	}
	return "/s/" + ref.ID + "#" + ref.Secret.RevealText()
}
