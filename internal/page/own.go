package page

// Values of kinds that the session's users made: the key, who changed it when, and the value as a
// tree, with a table for a list of objects that have the same members.

import (
	"cmp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/jsontable"
	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Bounds of one value that is shown as a tree.
const (
	treeDepth    = 8    // from which it is shown as JSON text
	treeValues   = 4000 // values of one tree
	tableColumns = 12   // members of objects that are shown as a table
)

// own writes a value of a user's own kind, and who works on it; by is its last change.
func own(o *markup.Out, e *session.Entry, by session.Change, p fields.Value) {
	restOpen(o, e)
	o.Lit(`<details class="card own" open><summary><span class="name">`)
	o.Text(markup.OneLine(e.Key, markup.LabelBytes))
	o.Lit(`</span><span class="what" dir="auto">`)
	o.Text(markup.OneLine(cmp.Or(by.Actor, by.Ref), markup.LabelBytes))
	o.Lit(`</span>`)
	if by.At != 0 {
		o.Lit(`<span class="took">`)
		o.Time(by.At)
		o.Lit(`</span>`)
	}
	o.Lit(`</summary><div class="body">`)
	if c := e.Claim; c != nil {
		o.Lit(`<p class="claim" dir="auto">Claimed by `)
		o.Text(markup.OneLine(strings.TrimSpace(cmp.Or(c.Actor, c.Ref)+" "+c.Worker), markup.LabelBytes))
		o.Lit(` until `)
		o.Time(c.Until)
		o.Lit(`</p>`)
	}
	t := tree{o: o, values: treeValues, bytes: markup.ShownBytes}
	t.value(p, 0)
	if t.full {
		o.Lit(`<p class="clip">Of `)
		o.Text(markup.BytesText(len(p.Raw)))
		o.Lit(` not all is shown.</p>`)
	}
	o.Lit(`</div></details></section>`)
}

// tree writes a JSON value, up to its bounds.
type tree struct {
	o      *markup.Out
	values int  // that may still be written
	bytes  int  // of texts that may still be written
	full   bool // a bound is reached, and the rest left out
}

// value writes v at a depth of its tree.
func (t *tree) value(v fields.Value, depth int) {
	if t.values--; t.values < 0 {
		t.full = true
	}
	switch {
	case t.full:
	case !v.IsObject() && !v.IsArray():
		t.scalar(v)
	case v.Empty():
		t.o.Lit(`<code>`)
		t.o.Text(map[bool]string{true: "{}", false: "[]"}[v.IsObject()])
		t.o.Lit(`</code>`)
	case depth >= treeDepth:
		t.text("code", fields.Indented(v.Raw, t.bytes+1))
	case v.IsObject():
		t.members(v, depth)
	default:
		if columns := jsontable.Columns(v.Result, fields.ListItems, tableColumns); columns != nil {
			t.table(v, columns, depth)
			return
		}
		t.items(v, depth)
	}
}

// members writes an object.
func (t *tree) members(v fields.Value, depth int) {
	t.o.Lit(`<dl class="tree">`)
	more := v.Each(func(name string, v fields.Value) {
		if t.full {
			return
		}
		t.o.Lit(`<div><dt dir="auto">`)
		t.o.Text(markup.OneLine(name, markup.LabelBytes))
		t.o.Lit(`</dt><dd>`)
		t.value(v, depth+1)
		t.o.Lit(`</dd></div>`)
	})
	t.o.Lit(`</dl>`)
	t.more(more, "member")
}

// items writes a list.
func (t *tree) items(v fields.Value, depth int) {
	t.o.Lit(`<ul class="tree">`)
	more := v.Each(func(_ string, v fields.Value) {
		if t.full {
			return
		}
		t.o.Lit(`<li>`)
		t.value(v, depth+1)
		t.o.Lit(`</li>`)
	})
	t.o.Lit(`</ul>`)
	t.more(more, "item")
}

// table writes a list of objects that have the same members.
func (t *tree) table(v fields.Value, columns []string, depth int) {
	t.o.Lit(`<div class="scroll" tabindex="0"><table><thead><tr>`)
	for _, name := range columns {
		t.o.Lit(`<th dir="auto">`)
		t.o.Text(markup.OneLine(name, markup.LabelBytes))
		t.o.Lit(`</th>`)
	}
	t.o.Lit(`</tr></thead><tbody>`)
	more := v.Each(func(_ string, row fields.Value) {
		if t.full {
			return
		}
		t.o.Lit(`<tr>`)
		for _, name := range columns {
			t.o.Lit(`<td>`)
			t.value(row.At(name), depth+2)
			t.o.Lit(`</td>`)
		}
		t.o.Lit(`</tr>`)
	})
	t.o.Lit(`</tbody></table></div>`)
	t.more(more, "row")
}

// scalar writes a text as it is, and any other value as JSON.
func (t *tree) scalar(v fields.Value) {
	switch {
	case v.Type == gjson.String && v.Text() != "":
		t.text("span", v.Text())
	case v.Type == gjson.String:
		t.o.Lit(`<code>&#34;&#34;</code>`)
	default:
		t.text("code", cmp.Or(v.Raw, "null"))
	}
}

// text writes what may still be written of s, in an element.
func (t *tree) text(element markup.HTML, s string) {
	t.full = len(s) > t.bytes
	s = markup.CutBytes(s, t.bytes)
	t.bytes -= len(s)
	t.o.Lit(`<`, element, ` class="v" dir="auto">`)
	t.o.Text(s)
	t.o.Lit(`</`, element, `>`)
}

// more notes how many are left out of a list.
func (t *tree) more(n int, what string) {
	if n > 0 && !t.full {
		t.o.Lit(`<p class="clip">and `)
		t.o.Text(markup.Plural(n, "more "+what))
		t.o.Lit(`</p>`)
	}
}
