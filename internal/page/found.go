package page

// What a search of a session has found: a page of its own, which reads without the script. The
// script of a session's page shows the list beside the log.

import (
	"cmp"
	"io"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/search"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Search is the content of a page of what a search has found.
type Search struct {
	Base    string         // path prefix of the server
	Path    string         // of the session's page, below Base
	Info    *session.Entry // session info or nil
	Query   string
	Found   []*session.Found
	Who     map[string]string // by whom the messages are that these belong to, by their ids: Speaker
	First   string            // path with query of the first page, below Base; "" if this is it
	Next    string            // likewise of the next page; "" for none
	Refused *fault.Error      // why it was not searched; else nil

	Indexing bool // the session's index is still being made: the same is to be asked for again
}

// Speaker returns by whom a message is, in words.
func Speaker(payload []byte) string {
	who, _ := speaker(fields.Read(payload))
	return who
}

// Found writes the page of a search. Each result leads to its place on the session's page.
func Found(w io.Writer, s Search) error {
	var o markup.Out
	title := titleOf(s.Info)
	shell{title: "Search in " + title, base: s.Base, kind: "found"}.open(&o)
	o.Lit(`<header class="bar">`, mark, `<h1 id="title" dir="auto">`)
	o.Text(title)
	o.Lit(`</h1><div class="tools"><a class="button"`)
	o.Attr("href", s.Base+s.Path)
	o.Lit(`>The session</a>`, themeButton, `</div></header><main id="session" class="narrow" tabindex="-1">`)
	searchForm(&o, "get", s.Base+s.Path, s.Query)
	o.Lit(`<div id="found"`)
	if s.Indexing {
		o.Attr("data-indexing", "true")
	}
	o.Lit(`>`)
	s.count(&o)
	o.Lit(`<ol class="results">`)
	for _, f := range s.Found {
		s.result(&o, f)
	}
	o.Lit(`</ol>`)
	pageLinks(&o, s.Base, s.First, s.Next)
	o.Lit(`</div></main>`)
	shellClose(&o)
	_, err := w.Write(o.Bytes())
	return err
}

// count writes how much was found, or why nothing was.
func (s *Search) count(o *markup.Out) {
	if s.Refused != nil {
		o.Lit(`<p class="tally refused" role="alert">It was not searched: `)
		o.Text(markup.OneLine(s.Refused.Message, 4*markup.LabelBytes))
		o.Lit(`</p>`)
		return
	}
	o.Lit(`<p class="tally">`)
	switch n := len(s.Found); {
	case s.Indexing:
		o.Lit(`The session is large, and its index is being made: the search goes on by itself.`)
	case n == 0 && s.Next != "":
		o.Lit(`Nothing yet: the session is large, and More goes on with the search.`)
	case n == 0 && s.First != "":
		o.Lit(`Nothing else is found.`)
	case n == 0:
		o.Lit(`Nothing is found.`)
	default:
		o.Text(markup.Plural(n, "result"))
		if s.Next != "" {
			o.Lit(`, and there may be others`)
		}
	}
	o.Lit(`</p>`)
}

// result writes an entry that was found: what it is, and what the words stand in.
func (s *Search) result(o *markup.Out, f *session.Found) {
	name, what, anchor := s.describe(f)
	o.Lit(`<li`)
	o.Attr("data-key", f.Key)
	o.Lit(`><a`)
	o.Attr("href", s.Base+s.Path+"#"+anchor)
	o.Lit(`><span class="name" dir="auto">`)
	o.Text(markup.OneLine(name, markup.LabelBytes))
	o.Lit(`</span> `)
	if what = markup.OneLine(what, markup.LabelBytes); what != "" {
		o.Lit(`<span class="what" dir="auto">`)
		o.Text(what)
		o.Lit(`</span> `)
	}
	if f.Change.At != 0 {
		o.Lit(`<span class="took">`)
		o.Time(f.Change.At)
		o.Lit(`</span> `)
	}
	o.Lit(`<span class="excerpt" dir="auto">`)
	for i, piece := range f.Excerpt {
		if i%2 == 0 {
			o.Text(piece)
			continue
		}
		o.Lit(`<mark>`)
		o.Text(piece)
		o.Lit(`</mark>`)
	}
	o.Lit(`</span></a></li>`)
}

// describe returns what an entry is, more about that, and the id of its element on the session's page.
func (s *Search) describe(f *session.Found) (name, what, anchor string) {
	k, _ := session.ParseKey(f.Key)
	switch k.Kind {
	case session.KeyMessage:
		return cmp.Or(s.Who[k.Message], "Message"), "", messageID(k.Message)
	case session.KeyPart:
		return cmp.Or(s.Who[k.Message], "Message"), "", partID(k.Message, k.ID)
	case session.KeySession:
		return "Session", "", "title"
	case session.KeyDiff:
		return "Changes", "", restID(f.Key)
	case session.KeyModel:
		return "Model", k.ID, restID(f.Key)
	}
	if what = cmp.Or(f.Change.Actor, f.Change.Ref); f.Place != search.KeyPlace && f.Place != "" {
		what = strings.TrimSuffix(f.Place+" · "+what, " · ")
	}
	return f.Key, what, restID(f.Key)
}

// searchForm writes the form of a search. The method dialog leaves sending it to the script: the words
// get into no address. Without an action it is the page's own address.
func searchForm(o *markup.Out, method markup.HTML, action, query string) {
	o.Lit(`<form class="find" role="search" method="`, method, `"`)
	if action != "" {
		o.Attr("action", action)
	}
	o.Lit(`><label>Search for<input type="search" name="q"`)
	o.Attr("value", query)
	o.Lit(` autocomplete="off" spellcheck="false" required></label><button class="button primary">Search</button></form>`)
}

// find writes the search of a session's page; live is its stream's path.
func find(o *markup.Out, live string) {
	o.Lit(`<section id="find" aria-labelledby="find-title" tabindex="-1"><div class="sheet"><div class="sheet-head"><h2 id="find-title">Search</h2>`,
		`<a class="button shut" href="#session">Close</a></div>`)
	method := markup.HTML("get")
	if strings.HasPrefix(live, "/s/") {
		method = "dialog"
	}
	searchForm(o, method, "", "")
	o.Lit(`<p id="find-state" class="tally" role="status"></p><ol id="found" class="results"></ol>`,
		`<button type="button" id="found-more" class="button script" hidden>More</button></div></section>`)
}
