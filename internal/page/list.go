package page

// The list of sessions.

import (
	"io"
	"strconv"
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
	var o out
	shell{title: "Sessions", base: l.Base, kind: "sessions"}.open(&o)
	if l.Access {
		plainBar(&o, "Sessions", l.Base+"/sessions/close", l.Base+"/sessions/access")
	} else {
		plainBar(&o, "Sessions", l.Base+"/sessions/close")
	}
	o.lit(`<main id="session" class="narrow" tabindex="-1"><form class="find" method="get"`)
	o.attr("action", l.Base+"/sessions")
	o.lit(` role="search"><label>Search<input type="search" name="q"`)
	o.attr("value", l.Query)
	o.lit(` placeholder="Title or id" autocomplete="off"></label>`)
	choice(&o, "Order", "order", l.Order, [][2]markup{{"changed", "last changed first"}, {"newest", "newest first"}, {"oldest", "oldest first"}, {"title", "by title"}})
	o.lit(`<label class="tick"><input type="checkbox" name="deleted" value="1"`)
	if l.Deleted {
		o.lit(` checked`)
	}
	o.lit(`>Deleted, too</label><button class="button primary">Show</button></form>`)
	o.element("p", "hint remark", l.Note)
	switch {
	case len(l.Rows) == 0 && l.Next != "": // the note explains it
	case len(l.Rows) == 0 && l.Query != "":
		o.lit(`<p class="none">No session matches.</p>`)
	case len(l.Rows) == 0:
		o.lit(`<p class="none">There are no sessions yet.</p>`)
	default:
		o.lit(`<ul class="sessions">`)
		for i := range l.Rows {
			row(&o, l.Base, &l.Rows[i])
		}
		o.lit(`</ul>`)
	}
	pageLinks(&o, l.Base, l.First, l.Next)
	o.lit(`</main>`)
	shellClose(&o)
	_, err := w.Write(o.b)
	return err
}

func row(o *out, base string, r *Row) {
	title := oneLine(r.Title, labelBytes)
	if title == "" {
		title = untitled
	}
	o.lit(`<li><h2 dir="auto">`)
	if r.Link != "" {
		o.lit(`<a`)
		o.attr("href", base+r.Link)
		o.lit(`>`)
		o.text(title)
		o.lit(`</a>`)
	} else {
		o.text(title)
	}
	o.lit(`</h2><p class="meta"><code class="id">`)
	if r.External != "" {
		o.text(oneLine(r.External, labelBytes))
	} else {
		o.text(r.ID)
	}
	o.lit(`</code>`)
	switch {
	case r.Deleted:
		o.lit(`<span class="tag">deleted</span>`)
	case r.Running:
		o.lit(`<span class="state streaming">writing</span>`)
	}
	if r.Public != "" {
		o.lit(`<a class="public"`)
		o.attr("href", base+r.Public)
		o.lit(`>public share</a>`)
	}
	if r.Updated != 0 {
		o.lit(`<span>changed `)
		o.time(r.Updated)
		if by := oneLine(r.By, labelBytes); by != "" {
			o.lit(` by <bdi>`)
			o.text(by)
			o.lit(`</bdi>`)
		}
		o.lit(`</span>`)
	}
	if r.Created != 0 {
		o.lit(`<span>begun `)
		o.time(r.Created)
		o.lit(`</span>`)
	}
	o.lit(`<span>cursor `)
	o.text(strconv.FormatUint(r.Cursor, 10))
	o.lit(`</span>`)
	if r.Bytes > 0 {
		o.element("span", "size", bytesText(int(r.Bytes)))
	}
	o.lit(`</p></li>`)
}

// choice writes a select with constant options.
func choice(o *out, label, name markup, chosen string, options [][2]markup) {
	o.lit(`<label>`, label, `<select name="`, name, `">`)
	for _, opt := range options {
		o.lit(`<option value="`, opt[0], `"`)
		if string(opt[0]) == chosen {
			o.lit(` selected`)
		}
		o.lit(`>`, opt[1], `</option>`)
	}
	o.lit(`</select></label>`)
}

// pageLinks writes the links to a list's first page and its next one; each may be "".
func pageLinks(o *out, base, first, next string) {
	if first != "" || next != "" {
		o.lit(`<nav class="pages" aria-label="Pages">`)
		pageLink(o, base, first, "first", "From the start")
		pageLink(o, base, next, "next", "More")
		o.lit(`</nav>`)
	}
}

func pageLink(o *out, base, to string, rel, text markup) {
	if to == "" {
		return
	}
	o.lit(`<a class="button" rel="`, rel, `"`)
	o.attr("href", base+to)
	o.lit(`>`, text, `</a>`)
}
