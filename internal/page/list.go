package page

// The list of sessions.

import (
	"io"
	"strconv"

	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
)

// List is the content of the page that lists sessions.
type List struct {
	Base  string // path prefix of the server
	Rows  []Row
	Query string // the search text
	Order string // "changed", "newest", "oldest" or "title"
	First string // path with query of the first page, below Base; "" if this is it
	Next  string // likewise of the next page; "" for none
	Note  string // a remark above the rows; "" for none

	Deleted bool // deleted sessions are included
	Access  bool // the ref may see who has access, or share
}

// Row is a session in the list.
type Row struct {
	Title    string
	ID       string
	External string // opencode's id; "" for none
	Created  int64  // Unix ms
	Updated  int64  // Unix ms
	Cursor   uint64
	Deleted  bool
	Link     string // path of its page below Base; "" for none
	Public   string // path of its public share's page, where that is another; "" for none
	Bytes    int64  // stored in it
	Running  bool   // a turn is being written
	By       string // whose its last event is; "" if it is not known
}

// Sessions writes the list of sessions, with a form for search and order: GET of the page itself
// with q, order and deleted.
func Sessions(w io.Writer, l List) error {
	var o markup.Out
	shell{title: "Sessions", base: l.Base, kind: "sessions"}.open(&o)
	if l.Access {
		plainBar(&o, "Sessions", l.Base+"/sessions/close", l.Base+"/sessions/access")
	} else {
		plainBar(&o, "Sessions", l.Base+"/sessions/close")
	}
	o.Lit(`<main id="session" class="narrow" tabindex="-1"><form class="find" method="get"`)
	o.Attr("action", l.Base+"/sessions")
	o.Lit(` role="search"><label>Search<input type="search" name="q"`)
	o.Attr("value", l.Query)
	o.Lit(` placeholder="Title or id" autocomplete="off"></label>`)
	choice(&o, "Order", "order", l.Order, [][2]markup.HTML{{"changed", "last changed first"}, {"newest", "newest first"}, {"oldest", "oldest first"}, {"title", "by title"}})
	o.Lit(`<label class="tick"><input type="checkbox" name="deleted" value="1"`)
	if l.Deleted {
		o.Lit(` checked`)
	}
	o.Lit(`>Deleted, too</label><button class="button primary">Show</button></form>`)
	o.Element("p", "hint remark", l.Note)
	switch {
	case len(l.Rows) == 0 && l.Next != "": // the note explains it
	case len(l.Rows) == 0 && l.Query != "":
		o.Lit(`<p class="none">No session matches.</p>`)
	case len(l.Rows) == 0:
		o.Lit(`<p class="none">There are no sessions yet.</p>`)
	default:
		o.Lit(`<ul class="sessions">`)
		for i := range l.Rows {
			row(&o, l.Base, &l.Rows[i])
		}
		o.Lit(`</ul>`)
	}
	pageLinks(&o, l.Base, l.First, l.Next)
	o.Lit(`</main>`)
	shellClose(&o)
	_, err := w.Write(o.Bytes())
	return err
}

func row(o *markup.Out, base string, r *Row) {
	title := markup.OneLine(r.Title, markup.LabelBytes)
	if title == "" {
		title = untitled
	}
	o.Lit(`<li><h2 dir="auto">`)
	if r.Link != "" {
		o.Lit(`<a`)
		o.Attr("href", base+r.Link)
		o.Lit(`>`)
		o.Text(title)
		o.Lit(`</a>`)
	} else {
		o.Text(title)
	}
	o.Lit(`</h2><p class="meta"><code class="id">`)
	if r.External != "" {
		o.Text(markup.OneLine(r.External, markup.LabelBytes))
	} else {
		o.Text(r.ID)
	}
	o.Lit(`</code>`)
	switch {
	case r.Deleted:
		o.Lit(`<span class="tag">deleted</span>`)
	case r.Running:
		o.Lit(`<span class="state streaming">writing</span>`)
	}
	if r.Public != "" {
		o.Lit(`<a class="public"`)
		o.Attr("href", base+r.Public)
		o.Lit(`>public share</a>`)
	}
	if r.Updated != 0 {
		o.Lit(`<span>changed `)
		o.Time(r.Updated)
		if by := markup.OneLine(r.By, markup.LabelBytes); by != "" {
			o.Lit(` by <bdi>`)
			o.Text(by)
			o.Lit(`</bdi>`)
		}
		o.Lit(`</span>`)
	}
	if r.Created != 0 {
		o.Lit(`<span>begun `)
		o.Time(r.Created)
		o.Lit(`</span>`)
	}
	o.Lit(`<span>cursor `)
	o.Text(strconv.FormatUint(r.Cursor, 10))
	o.Lit(`</span>`)
	if r.Bytes > 0 {
		o.Element("span", "size", markup.BytesText(int(r.Bytes)))
	}
	o.Lit(`</p></li>`)
}

// choice writes a select with constant options.
func choice(o *markup.Out, label, name markup.HTML, chosen string, options [][2]markup.HTML) {
	o.Lit(`<label>`, label, `<select name="`, name, `">`)
	for _, opt := range options {
		o.Lit(`<option value="`, opt[0], `"`)
		if string(opt[0]) == chosen {
			o.Lit(` selected`)
		}
		o.Lit(`>`, opt[1], `</option>`)
	}
	o.Lit(`</select></label>`)
}

// pageLinks writes the links to a list's first page and its next one; each may be "".
func pageLinks(o *markup.Out, base, first, next string) {
	if first != "" || next != "" {
		o.Lit(`<nav class="pages" aria-label="Pages">`)
		pageLink(o, base, first, "first", "From the start")
		pageLink(o, base, next, "next", "More")
		o.Lit(`</nav>`)
	}
}

func pageLink(o *markup.Out, base, to string, rel, text markup.HTML) {
	if to == "" {
		return
	}
	o.Lit(`<a class="button" rel="`, rel, `"`)
	o.Attr("href", base+to)
	o.Lit(`>`, text, `</a>`)
}
