//go:build !race

package seed

// Raced says that the race detector watches, under which a test takes ten times as long.
const Raced = false
