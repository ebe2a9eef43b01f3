package page

// Values of kinds that the session's users made: the key, who changed it when, and the value as a
// tree, with a table for a list of objects that have the same members.

import (
	"cmp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/jsontable"
	"github.com/mooring-rpc/mooring/internal/session"
)

// own writes a value of a user's own kind, and who works on it; by is its last change.
func own(o *out, e *session.Entry, by session.Change, p fields) {
	restOpen(o, e)
	o.lit(`<details class="card own" open><summary><span class="name">`)
	o.text(oneLine(e.Key, labelBytes))
	o.lit(`</span><span class="what" dir="auto">`)
	o.text(oneLine(cmp.Or(by.Actor, by.Ref), labelBytes))
	o.lit(`</span>`)
	if by.At != 0 {
		o.lit(`<span class="took">`)
		o.time(by.At)
		o.lit(`</span>`)
	}
	o.lit(`</summary><div class="body">`)
	if c := e.Claim; c != nil {
		o.lit(`<p class="claim" dir="auto">Claimed by `)
		o.text(oneLine(strings.TrimSpace(cmp.Or(c.Actor, c.Ref)+" "+c.Worker), labelBytes))
		o.lit(` until `)
		o.time(c.Until)
		o.lit(`</p>`)
	}
	t := tree{o: o, values: treeValues, bytes: shownBytes}
	t.value(p, 0)
	if t.full {
		o.lit(`<p class="clip">Of `)
		o.text(bytesText(len(p.Raw)))
		o.lit(` not all is shown.</p>`)
	}
	o.lit(`</div></details></section>`)
}

// tree writes a JSON value, up to its bounds.
type tree struct {
	o      *out
	values int  // that may still be written
	bytes  int  // of texts that may still be written
	full   bool // a bound is reached, and the rest left out
}

// value writes v at a depth of its tree.
func (t *tree) value(v fields, depth int) {
	if t.values--; t.values < 0 {
		t.full = true
	}
	switch {
	case t.full:
	case !v.IsObject() && !v.IsArray():
		t.scalar(v)
	case v.empty():
		t.o.lit(`<code>`)
		t.o.text(map[bool]string{true: "{}", false: "[]"}[v.IsObject()])
		t.o.lit(`</code>`)
	case depth >= treeDepth:
		t.text("code", indented(v.Raw, t.bytes+1))
	case v.IsObject():
		t.members(v, depth)
	default:
		if columns := jsontable.Columns(v.Result, listItems, tableColumns); columns != nil {
			t.table(v, columns, depth)
			return
		}
		t.items(v, depth)
	}
}

// members writes an object.
func (t *tree) members(v fields, depth int) {
	t.o.lit(`<dl class="tree">`)
	more := v.each(func(name string, v fields) {
		if t.full {
			return
		}
		t.o.lit(`<div><dt dir="auto">`)
		t.o.text(oneLine(name, labelBytes))
		t.o.lit(`</dt><dd>`)
		t.value(v, depth+1)
		t.o.lit(`</dd></div>`)
	})
	t.o.lit(`</dl>`)
	t.more(more, "member")
}

// items writes a list.
func (t *tree) items(v fields, depth int) {
	t.o.lit(`<ul class="tree">`)
	more := v.each(func(_ string, v fields) {
		if t.full {
			return
		}
		t.o.lit(`<li>`)
		t.value(v, depth+1)
		t.o.lit(`</li>`)
	})
	t.o.lit(`</ul>`)
	t.more(more, "item")
}

// table writes a list of objects that have the same members.
func (t *tree) table(v fields, columns []string, depth int) {
	t.o.lit(`<div class="scroll" tabindex="0"><table><thead><tr>`)
	for _, name := range columns {
		t.o.lit(`<th dir="auto">`)
		t.o.text(oneLine(name, labelBytes))
		t.o.lit(`</th>`)
	}
	t.o.lit(`</tr></thead><tbody>`)
	more := v.each(func(_ string, row fields) {
		if t.full {
			return
		}
		t.o.lit(`<tr>`)
		for _, name := range columns {
			t.o.lit(`<td>`)
			t.value(row.at(name), depth+2)
			t.o.lit(`</td>`)
		}
		t.o.lit(`</tr>`)
	})
	t.o.lit(`</tbody></table></div>`)
	t.more(more, "row")
}

// scalar writes a text as it is, and any other value as JSON.
func (t *tree) scalar(v fields) {
	switch {
	case v.Type == gjson.String && v.text() != "":
		t.text("span", v.text())
	case v.Type == gjson.String:
		t.o.lit(`<code>&#34;&#34;</code>`)
	default:
		t.text("code", cmp.Or(v.Raw, "null"))
	}
}

// text writes what may still be written of s, in an element.
func (t *tree) text(element markup, s string) {
	t.full = len(s) > t.bytes
	s = cutBytes(s, t.bytes)
	t.bytes -= len(s)
	t.o.lit(`<`, element, ` class="v" dir="auto">`)
	t.o.text(s)
	t.o.lit(`</`, element, `>`)
}

// more notes how many are left out of a list.
func (t *tree) more(n int, what string) {
	if n > 0 && !t.full {
		t.o.lit(`<p class="clip">and `)
		t.o.text(plural(n, "more "+what))
		t.o.lit(`</p>`)
	}
}
