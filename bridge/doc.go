// Package bridge lets Cap'n Web peers call objects of the vat: it turns calls in JavaScript values into calls in Cap'n
// Proto structs and back, by the compiled schema, and knows no schema in particular.
//
// A [Bridge] is compiled once from a schema's interfaces. What a value has to become is then a walk over a plan: no
// schema is looked at any more. A [Conn] is the bridge's part of one connection; it counts what is under way.
// [Conn.Object] is a reference of the vat as an object that a peer may call.
//
//	a call comes (object.go) → its arguments become a params struct (args.go, write.go) → rpc.Ref.Call → the results
//	struct becomes a value (read.go) → the call is answered
//
// # What is what
//
// A struct is an object with the fields' names, a list an array, Text a string, Data a Uint8Array (base64url text is
// taken too), an integer a number or, beyond 2^53, a bigint; both are taken. An enumerant is its name. Fields that are
// left out, undefined or null have their default; a field that the schema does not have, a wrong type and a number out of
// range are TypeErrors that name the field's path. A union is the one field that is set; a member of type Void is set by
// null. A null struct is read as null.
//
// Parameters are positional, in the schema's order, or one object with the parameters' names. The one result of a method
// that has one is given itself, more are given as an object; none is undefined.
//
// A capability becomes an [Object]. One that a peer passes back is recognised, and its very reference is used. A stub of
// anything of the peer's becomes, where the schema says which interface is wanted, an object of the vat that calls it as
// a function: with one object that has the method's name as its one field and the parameters in it, one by itself,
// several as an object. What the function returns answers the call.
//
// [Rules] say where a schema is to look otherwise.
package bridge
