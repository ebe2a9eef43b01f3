// Package convert decides which Go value a received value becomes, and which value a Go value is sent as. Package capnweb calls it,
// for arguments of functions, Call.Scan, Promise.Into and As, and for all that a program sends. It knows the types of that package as
// kinds only (Use). It keeps no value: setters and structs' fields are cached by type, for as long as the program runs.
//
//	setter     sets a variable of one type from a value
//	mismatch   a value is of another kind than the variable takes; it never has the value itself
//	function   a Go function with setters of its arguments; package capnweb calls it
package convert
