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
	Cursor uint64 // of its last change
	Of     T
}

// Token is where a list goes on. The zero value is its beginning.
type Token struct {
	began   uint64 // the log's cursor at the first page
	last    uint64 // the cursor of the last item that was given; at first, one more than began
	changed bool   // it goes on with those that have changed since it began
}

// Page returns the items of a page, of all that there are as of a cursor, which it sorts, and the token of the next page; "" if
// there is none.
func Page[T any](at Token, cursor uint64, all []Item[T], size int) (page []Item[T], next string) {
	if at.began == 0 {
		at = Token{began: cursor, last: cursor + 1}
	}
	slices.SortFunc(all, func(a, b Item[T]) int { return cmp.Compare(b.Cursor, a.Cursor) })
	if !at.changed {
		for _, i := range all {
			if i.Cursor < at.last {
				page = append(page, i)
			}
		}
		if len(page) > size {
			page = page[:size]
			return page, Token{began: at.began, last: page[size-1].Cursor}.String()
		}
		at.changed, at.last = true, at.began
	}
	slices.Reverse(all)
	for _, i := range all {
		if i.Cursor <= at.last {
			continue
		}
		if len(page) == size {
			return page, at.String()
		}
		page, at.last = append(page, i), i.Cursor
	}
	return page, ""
}

// String returns the token's text.
func (at Token) String() string {
	kind := "t"
	if at.changed {
		kind = "c"
	}
	return fmt.Sprintf("%s.%d.%d", kind, at.began, at.last)
}

// Parse parses a token's text; "" is the first page's. ok is false for what is none.
func Parse(text string) (at Token, ok bool) {
	if text == "" {
		return at, true
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 || parts[0] != "t" && parts[0] != "c" {
		return Token{}, false
	}
	at.changed = parts[0] == "c"
	for i, n := range []*uint64{&at.began, &at.last} {
		var err error
		if *n, err = strconv.ParseUint(parts[i+1], 10, 64); err != nil {
			return Token{}, false
		}
	}
	return at, at.began != 0
}
