package objects

import "capnproto.org/go/capnp/v3"

// structSize returns the size of a struct, in words of data and pointers.
func structSize(data capnp.Size, pointers uint16) capnp.ObjectSize {
	return capnp.ObjectSize{DataSize: data * 8, PointerCount: pointers}
}
