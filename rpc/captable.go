// CapTable: the capabilities that travel beside a message.

package rpc

import "capnproto.org/go/capnp/v3"

// CapTable holds the capabilities of one message. An interface pointer inside the message is an index into it, so
// generated accessors for capabilities (which use go-capnp's own table) must not be used: write with Set, read the
// pointer with Struct.Ptr and look it up with Get. Not safe for concurrent Set; Get is.
type CapTable struct{}

// Set writes an interface pointer for r into pointer field ptrIndex of s, and takes a reference of its own. A nil r
// writes a null pointer.
func (t *CapTable) Set(s capnp.Struct, ptrIndex uint16, r *Ref) error {
	panic("rpc: under construction")
}

// Add takes a reference to r and gives the index to write into an interface pointer by hand, as in lists:
// capnp.NewInterface(seg, capnp.CapabilityID(i)).ToPtr().
func (t *CapTable) Add(r *Ref) uint32 { panic("rpc: under construction") }

// Get gives a new reference to the capability behind an interface pointer, for the caller to release; nil for a null
// pointer; a broken reference for a pointer that is no capability or not in the table.
func (t *CapTable) Get(p capnp.Ptr) *Ref { panic("rpc: under construction") }

// Len is the number of capabilities in the table.
func (t *CapTable) Len() int { panic("rpc: under construction") }
