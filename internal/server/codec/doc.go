// Package codec converts the structs of capnp/mooring.capnp to the domain's values, and back.
//
// Package objects calls it for the arguments and results of calls. It touches nothing but the message that it is given:
// no store, no clock, no authority. A struct that cannot be read is Malformed, one that stands for too much TooLarge.
//
// fields.go reads and writes fields with one error for many. batch.go decodes the ops of a batch by the generated code,
// plain.go the usual ones by hand, and encodes acks. refs.go has what is said of refs: credentials, limits, rotations,
// grants, trees, audits. encode.go has events, entries, sessions and the rest of what is shown.
//
//	batch    the ops of one call of apply
//	plain    of a batch: without references, dependencies, hints and live sessions
//	with     the live sessions that come with a batch
//	by hand  with package capnpfast instead of the generated code
//
// # Lock order
//
// The package has no locks; its variables are initialized once.
//
// # Bounds
//
//	one batch           the limit of DecodeBatch, each value counted as if it were written out
//	an op               2000 arguments, 2000 dependencies (maxListLen)
//	sessions with it    MaxWith
//	a text of a list    1024 bytes (maxShortText)
package codec
