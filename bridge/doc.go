// Package bridge lets Cap'n Web peers call objects of the vat: it converts calls with JavaScript values to calls with Cap'n
// Proto structs and back, by the compiled schema, and knows no schema in particular.
//
//	plan       a compiled type, field, struct, interface or method of the schema
//	rule       a conversion that replaces the schema's (Rules)
//	callback   an object of the vat that calls a function of the peer
//	ordered    of an interface: its calls keep their order also where one waits for promises in its arguments
//
// A [Bridge] is compiled once from a schema's interfaces. Converting a value then only walks a plan: the schema is not read
// any more. A [Conn] is the bridge's part of one connection; it counts calls in flight. [Conn.Object] wraps a reference of
// the vat as an object that a peer may call.
//
//	a call arrives (object.go) → its arguments become a params struct (args.go, write.go) → rpc.Ref.Call → the results
//	struct becomes a value (read.go) → the call is answered
//
// # Mapping
//
// A struct is an object with the fields' names, a list an array, Text a string, Data a Uint8Array (base64url text is
// accepted too), an integer a number or, beyond 2^53, a bigint; both are accepted. An enumerant is its name. Fields that are
// omitted, undefined or null have their default; a field that the schema does not have, a wrong type and a number out of
// range are TypeErrors that name the field's path. A union is the one field that is set; a member of type Void is set by
// null. A null struct is read as null.
//
// Parameters are positional, in the schema's order, or one object with the parameters' names. A method's only result is
// returned by itself, several as an object; none is undefined.
//
// A capability becomes an [Object]. When a peer passes one back, the reference in it is used. Any other stub of the peer's
// becomes, where the schema names an interface, an object of the vat that calls it as a function: with one object that has
// the method's name as its only field and the parameters in it, a single one by itself, several as an object. The function's
// return value answers the call.
//
// [Rules] define where the schema's mapping is replaced.
//
// # Lock order
//
//	Conn.mu alone: nothing is called under it
//
// # Bounds
//
// Conn's maxBytes bounds the params of a call as a Cap'n Proto message. Calls in flight and callbacks are bounded by the
// limits of packages capnweb and rpc.
package bridge
