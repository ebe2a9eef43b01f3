package page

// The frame of every page: the document's head, the bar at the top, the script.

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// shell is a document around a page's own content.
type shell struct {
	title  string
	base   string
	kind   string // the page's kind, for the script
	live   bool   // it follows a stream, whose address is below its own: it has none that it was opened by in itself
	cursor uint64
	hash   session.Hash
	may    []string // Head.May
	own    string   // Head.Own
}

// open writes a document up to the page's own content.
func (s shell) open(o *markup.Out) {
	o.Lit(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">`,
		`<meta name="robots" content="noindex"><meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark"><title>`)
	o.Text(markup.OneLine(s.title, markup.LabelBytes))
	o.Lit(` · Mooring</title><link rel="icon" type="image/svg+xml"`)
	o.Attr("href", assetPath(s.base, "mark.svg"))
	o.Lit(`><link rel="stylesheet"`)
	o.Attr("href", assetPath(s.base, "page.css"))
	o.Lit(`><script`)
	o.Attr("src", assetPath(s.base, "theme.js"))
	o.Lit(`></script><script type="module"`)
	o.Attr("src", assetPath(s.base, "page.js"))
	o.Lit(`></script></head><body`)
	o.Attr("data-page", s.kind)
	o.Attr("data-base", s.base)
	if s.live {
		o.Lit(` data-live`)
	}
	if s.may != nil {
		o.Attr("data-may", strings.Join(s.may, " "))
		o.Attr("data-own", s.own)
		o.Attr("data-script", assetPath(s.base, "console.js"))
		o.Attr("data-style", assetPath(s.base, "console.css"))
	}
	if s.kind == "session" {
		o.Attr("data-cursor", strconv.FormatUint(s.cursor, 10))
		if s.hash != (session.Hash{}) {
			o.Attr("data-hash", s.hash.String())
		}
	}
	o.Lit(`><a class="skip" href="#session">Skip to the content</a>`)
}

func shellClose(o *markup.Out) { o.Lit(`</body></html>`, "\n") }

// mark is Mooring's logo: a bollard's ring with a line.
const mark markup.HTML = `<svg class="mark" viewBox="0 0 24 24" width="20" height="20" aria-hidden="true"><path d="M12 8.4V21M6 12.5h12M4 14.5c.6 4 3.700 6.500 8 6.500s7.400-2.500 8-6.500" fill="none" stroke="currentColor" stroke-width="1.9" stroke-linecap="round"/><circle cx="12" cy="5.500" r="2.700" fill="none" stroke="currentColor" stroke-width="1.900"/></svg>`

// sessionBar writes the bar of a session's page: title, state, totals and the buttons, which the
// script shows.
func sessionBar(o *markup.Out, h Head) {
	o.Lit(`<header class="bar">`, mark, `<h1 id="title" dir="auto">`)
	o.Text(h.Title)
	o.Lit(`</h1>`)
	o.Lit(`<p id="line"`)
	if h.Over != nil {
		o.Lit(` data-state="over"><span id="state" role="status">`)
		overText(o, h.Over)
		o.Lit(`</span> `)
	} else {
		o.Lit(` data-state="still"><span id="state" role="status">As it was</span> `)
	}
	o.Lit(`<span id="cursor">at cursor `)
	o.Text(strconv.FormatUint(h.Cursor, 10))
	o.Lit(`</span></p><p id="totals"></p><div class="tools">`)
	if h.Live != "" && h.Over == nil {
		o.Lit(`<a class="button to-find" href="#find">Search</a>`)
	}
	if slices.Contains(h.May, "access") {
		o.Lit(`<a class="button"`)
		o.Attr("href", h.Base+strings.TrimSuffix(h.Live, "/live")+"/access")
		o.Lit(`>Access</a>`)
	}
	o.Lit(`<a class="button to-contents" href="#contents">Contents</a>`,
		`<button type="button" class="button script" data-do="fold" aria-pressed="false">Unfold all</button>`,
		themeButton,
		`<button type="button" class="button script icon" data-do="help" aria-label="Keyboard help" title="Keyboard help (?)">?</button>`,
		`</div></header>`)
}

const themeButton markup.HTML = `<button type="button" class="button script icon" data-do="theme" aria-label="Theme: auto" title="Theme: auto">` +
	`<svg viewBox="0 0 20 20" width="16" height="16" aria-hidden="true"><circle cx="10" cy="10" r="7.200" fill="none" stroke="currentColor" stroke-width="1.600"/><path class="half" d="M10 2.800a7.200 7.200 0 0 1 0 14.400z" fill="currentColor"/></svg></button>`

// overText writes why a session has ended.
func overText(o *markup.Out, f *fault.Error) {
	o.Text(overTitle(f.Code))
	if f.Message != "" {
		o.Lit(`: `)
		o.Text(markup.OneLine(f.Message, 4*markup.LabelBytes))
	}
}

// overTitle returns a fault's code in words for readers.
func overTitle(c fault.Code) string {
	switch c {
	case fault.Revoked, fault.StaleEpoch:
		return "Revoked"
	case fault.Expired:
		return "Expired"
	case fault.SessionDeleted:
		return "Deleted"
	case fault.Exhausted:
		return "Used up"
	case fault.NotFound, fault.UnknownRef:
		return "Not found"
	case fault.Overloaded:
		return "Too busy"
	case fault.TooLarge:
		return "Too large"
	case fault.MissingRight, fault.NotAnOwner, fault.Denied:
		return "Not allowed"
	case fault.Unavailable, fault.Draining, fault.NotYetKnown:
		return "Not there yet"
	}
	return "Over"
}

// overlays writes the dialogs of a session's page.
func overlays(o *markup.Out) {
	o.Lit(`<button type="button" id="newer" class="script" hidden>New below</button>`,
		`<dialog id="help" aria-labelledby="help-title"><h2 id="help-title">Keyboard</h2><dl class="keys">`,
		`<div><dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next turn, turn before</dd></div>`,
		`<div><dt><kbd>/</kbd></dt><dd>search</dd></div>`,
		`<div><dt><kbd>t</kbd></dt><dd>contents</dd></div>`,
		`<div><dt><kbd>f</kbd></dt><dd>fold or unfold all</dd></div>`,
		`<div><dt><kbd>c</kbd></dt><dd>copy the link to the turn in view</dd></div>`,
		`<div><dt><kbd>g</kbd> <kbd>G</kbd></dt><dd>to the top, to the end</dd></div>`,
		`<div><dt><kbd>d</kbd></dt><dd>theme</dd></div>`,
		`<div><dt><kbd>?</kbd></dt><dd>this help</dd></div></dl>`,
		`<form method="dialog"><button class="button">Close</button></form></dialog>`,
		`<p id="notice" class="notice" role="status" aria-live="polite"></p>`)
}
