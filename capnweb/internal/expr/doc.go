// Package expr knows the syntax of Cap'n Web above JSON: the usual messages, the ids, paths and plain values in them, and what each
// expression costs a map. Package capnweb calls it, and decides what an id or a path leads to: this package knows no table, no stub and
// no connection. It touches nothing but its arguments, and its functions may be called from any goroutine; Paths has one user.
//
//	expression   an array with a tag (["date", 0]) that stands for a value that JSON has not; an array itself is written [[…]]
//	id           an entry of a table of either side
//	path         names of properties, one of another's value; array indexes among them
//	step         of a map: about one value that is made
//	violation    what a peer must not send: the connection ends
//
// # Bounds
//
// A value is as large as its text, which the caller bounds; so are a bigint's digits and a path's length. Paths keeps 256 names.
package expr
