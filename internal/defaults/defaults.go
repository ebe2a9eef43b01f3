// Package defaults fills the fields of a Config that its maker has left out.
package defaults

import "cmp"

// Set sets a field that has no value: zero, or less, which is no bound or time.
func Set[T cmp.Ordered](field *T, value T) {
	if *field <= *new(T) {
		*field = value
	}
}
