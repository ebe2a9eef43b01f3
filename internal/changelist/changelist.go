// Package changelist lists what changes while it is listed, a page at a time: the item that was changed last comes first. Those
// that change between two pages come after all others, the earliest change first: none is missed, and some may come twice.
package changelist

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Item is an item of a list.
type Item[T any] struct {
	Cursor uint64 // of its last change; several may have one, as all that a fork has of its source
	ID     string // tells these apart
	Of     T
}

// Token is where a list goes on. The zero value is its beginning.
type Token struct {
	began   uint64 // the log's cursor at the first page
	last    uint64 // the cursor of the last item that was given, and its id; at first, one more than began
	lastID  string
	changed bool // it goes on with those that have changed since it began
}

// Page returns the items of a page, of all that there are as of a cursor, which it sorts, and the token of the next page; "" if
// there is none.
func Page[T any](at Token, cursor uint64, all []Item[T], size int) (page []Item[T], next string) {
	if at.began == 0 {
		at = Token{began: cursor, last: cursor + 1}
	}
	slices.SortFunc(all, func(a, b Item[T]) int { return cmp.Or(cmp.Compare(b.Cursor, a.Cursor), strings.Compare(a.ID, b.ID)) })
	if !at.changed {
		for _, i := range all {
			if i.Cursor <= at.began && (i.Cursor < at.last || i.Cursor == at.last && i.ID > at.lastID) {
				page = append(page, i)
			}
		}
		if len(page) > size {
			page = page[:size]
			last := page[size-1]
			return page, Token{began: at.began, last: last.Cursor, lastID: last.ID}.String()
		}
		at = Token{began: at.began, last: at.began + 1, changed: true}
	}
	slices.SortFunc(all, func(a, b Item[T]) int { return cmp.Or(cmp.Compare(a.Cursor, b.Cursor), strings.Compare(a.ID, b.ID)) })
	for _, i := range all {
		if i.Cursor < at.last || i.Cursor == at.last && i.ID <= at.lastID {
			continue
		}
		if len(page) == size {
			return page, at.String()
		}
		page = append(page, i)
		at.last, at.lastID = i.Cursor, i.ID
	}
	return page, ""
}

// String returns the token's text.
func (at Token) String() string {
	kind := "t"
	if at.changed {
		kind = "c"
	}
	return fmt.Sprintf("%s.%d.%d.%s", kind, at.began, at.last, at.lastID)
}

// Parse parses a token's text; "" is the first page's. ok is false for what is none.
func Parse(text string) (at Token, ok bool) {
	if text == "" {
		return at, true
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 4 || parts[0] != "t" && parts[0] != "c" {
		return Token{}, false
	}
	at.changed, at.lastID = parts[0] == "c", parts[3]
	for i, n := range []*uint64{&at.began, &at.last} {
		var err error
		if *n, err = strconv.ParseUint(parts[i+1], 10, 64); err != nil {
			return Token{}, false
		}
	}
	return at, at.began != 0
}
