// Package jsschema says how JavaScript sees the schema, where that differs from package bridge's defaults: rights and
// codes by name, refusals as errors, refs as text, a whole state at once (docs/javascript.md).
//
// Package node makes the connections of Cap'n Web with its Bridge, and redacts what ends them. It touches no store, and
// decides nothing: the calls arrive at package objects as those of the other wire do.
//
//	rule     how one struct, field or method is shown
//	refusal  a fault in a result of the schema, which JavaScript gets as an error
//
// # Lock order
//
// The package has no locks; the bridge is compiled once, and a state is gathered by one call.
//
// # Bounds
//
//	a state returned at once  8 MiB (maxGatherBytes)
package jsschema
