// Package fields reads JSON values of which any field may be missing or of any type: the payloads of a session.
//
// Package page calls it for all that it shows of a payload. It touches nothing but the value that it is given, and
// nothing makes it fail: what is missing is empty, what is of another type is text. Its functions may be called
// concurrently, a Value by one goroutine at a time.
//
//	value  a JSON value, which is parsed as far as it is read
//	label  a value's text as one short line
//
// # Lock order
//
// The package has no locks.
//
// # Bounds
//
//	an object  1000 members are read by name (namesMax), 200 are listed (ListItems)
//	a list     200 items (ListItems)
//	JSON text  the limit of Indented, and 24 levels of indentation (jsonDepth)
package fields
