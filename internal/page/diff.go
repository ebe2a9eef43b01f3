package page

import (
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
)

// Changes of files, as the session's diff, messages and tools have them.

// changeSet writes a list of changes in one folded card.
func changeSet(o *markup.Out, list fields.Value) {
	if list.Empty() {
		return
	}
	files, added, removed := 0, 0.0, 0.0
	list.ForEach(func(_, c gjson.Result) bool {
		files++
		added += fields.Of(c).At("additions").Number()
		removed += fields.Of(c).At("deletions").Number()
		return true
	})
	o.Lit(`<details class="card set"><summary><span class="name">Changed</span><span class="what">`)
	o.Text(markup.Plural(files, "file"))
	o.Lit(`</span>`)
	changeCount(o, added, removed)
	o.Lit(`</summary><div class="body">`)
	changes(o, list)
	o.Lit(`</div></details>`)
}

// changes writes a list of files' changes, each {file, patch} or {file, before, after} with
// counts, as in session_diff and messages' summaries.
func changes(o *markup.Out, list fields.Value) {
	if !list.IsArray() {
		rawCard(o, "Changes", "", list)
		return
	}
	more := list.Each(func(_ string, c fields.Value) {
		o.Lit(`<details class="card change"><summary><span class="name">`)
		o.Text(changeKind(c))
		o.Lit(`</span><span class="what" dir="auto">`)
		name := ""
		for _, v := range []fields.Value{c.At("file"), c.At("relativePath"), c.At("filePath"), c.At("path")} {
			if name == "" {
				name = v.Label()
			}
		}
		if name == "" {
			name = "a file"
		}
		o.Text(name)
		o.Lit(`</span>`)
		changeCount(o, c.At("additions").Number(), c.At("deletions").Number())
		o.Lit(`</summary><div class="body">`)
		changeBody(o, c)
		o.Lit(`</div></details>`)
	})
	if more > 0 {
		o.Lit(`<p class="clip">and `)
		o.Text(markup.Plural(more, "more file"))
		o.Lit(`</p>`)
	}
}

func changeKind(c fields.Value) string {
	kind := c.At("status")
	if kind.Empty() {
		kind = c.At("type")
	}
	switch kind.Text() {
	case "added", "add":
		return "Added"
	case "deleted", "delete", "removed":
		return "Deleted"
	case "", "modified", "update":
		return "Changed"
	}
	return markup.OneLine(kind.Text(), 24)
}

// changeCount writes the numbers of lines added and removed.
func changeCount(o *markup.Out, added, removed float64) {
	if added <= 0 && removed <= 0 {
		return
	}
	o.Lit(`<span class="count"><span class="plus">+`)
	o.Text(markup.CountText(max(added, 0)))
	o.Lit(`</span> <span class="minus">−`)
	o.Text(markup.CountText(max(removed, 0)))
	o.Lit(`</span></span>`)
}

// changeBody writes one file's change.
func changeBody(o *markup.Out, c fields.Value) {
	for _, d := range []fields.Value{c.At("patch"), c.At("diff")} {
		if d.Type.String() == "String" && d.Str != "" {
			markup.Unified(o, d.Text())
			return
		}
	}
	if before, after := c.At("before"), c.At("after"); !before.Empty() || !after.Empty() {
		markup.Compare(o, before.Text(), after.Text())
		return
	}
	if c.IsObject() {
		o.Lit(`<p class="clip">No lines changed.</p>`)
		return
	}
	rawJSON(o, c)
}
