// Package jsontable recognizes JSON values that people read best as tables: lists of objects that all
// have the same members.
package jsontable

import (
	"slices"

	"github.com/tidwall/gjson"
)

// Columns returns the names of the members of a list's objects, in the order of the first one; nil for
// any other value than a list of at least two objects that have the same members, from 1 to columns,
// each once. Only the first rows of the list are compared. Its time is in proportion to the text.
func Columns(list gjson.Result, rows, columns int) []string {
	if !list.IsArray() {
		return nil
	}
	var names, sorted []string
	n, same := 0, true
	list.ForEach(func(_, row gjson.Result) bool {
		these := members(row, columns)
		inOrder := slices.Sorted(slices.Values(these))
		if n++; n == 1 {
			names, sorted = these, inOrder
		}
		same = len(these) > 0 && slices.Equal(sorted, inOrder)
		return same && n < rows
	})
	if !same || n < 2 {
		return nil
	}
	return names
}

// members returns the names of an object's members; nil if there are more than most, or two with one
// name, or it is no object.
func members(object gjson.Result, most int) (names []string) {
	if !object.IsObject() {
		return nil
	}
	fits := true
	object.ForEach(func(k, _ gjson.Result) bool {
		name := k.String()
		fits = len(names) < most && !slices.Contains(names, name)
		names = append(names, name)
		return fits
	})
	if !fits {
		return nil
	}
	return names
}
