// CapTable: the capabilities that travel with a message; and outMsg, a message of ours with its CapTable.

package rpc

import (
	"slices"
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// CapTable holds the capabilities of one message. An interface pointer inside the message is an index into it, so
// generated accessors for capabilities (which use go-capnp's own table) must not be used: write with Set, read the
// pointer with Struct.Ptr and look it up with Get. Set and Add are for one goroutine at a time; Get is for any.
type CapTable struct {
	refs []*Ref // nil where there is no capability
}

// Set writes an interface pointer for r into pointer field ptrIndex of s, and takes its own reference. A nil r writes a
// null pointer.
func (t *CapTable) Set(s capnp.Struct, ptrIndex uint16, r *Ref) error {
	if ptrIndex >= s.Size().PointerCount {
		return Failedf("pointer field %d is outside of a struct with %d", ptrIndex, s.Size().PointerCount)
	}
	if r == nil {
		return s.SetPtr(ptrIndex, capnp.Ptr{})
	}
	i := t.Add(r)
	return s.SetPtr(ptrIndex, capnp.NewInterface(s.Segment(), capnp.CapabilityID(i)).ToPtr())
}

// Add takes a reference to r and returns the index to write into an interface pointer directly, as in lists:
// capnp.NewInterface(seg, capnp.CapabilityID(i)).ToPtr().
func (t *CapTable) Add(r *Ref) uint32 {
	t.refs = append(t.refs, r.AddRef())
	return uint32(len(t.refs) - 1)
}

// Get returns a new reference to the capability of an interface pointer, for the caller to release; nil for a null
// pointer; a broken reference for a pointer that is no capability or not in the table.
func (t *CapTable) Get(p capnp.Ptr) *Ref {
	if !p.IsValid() {
		return nil
	}
	iface := p.Interface()
	if !iface.IsValid() {
		return NewBroken(Failedf("the pointer is not a capability"))
	}
	i := iface.Capability()
	if t == nil || uint64(i) >= uint64(len(t.refs)) {
		return NewBroken(Failedf("capability %d is not in the message's table", i))
	}
	return t.refs[i].AddRef()
}

// Len returns the number of capabilities in the table.
func (t *CapTable) Len() int {
	if t == nil {
		return 0
	}
	return len(t.refs)
}

// clone returns a table with its own references to the same capabilities, for another message.
func (t *CapTable) clone() CapTable {
	if len(t.refs) == 0 {
		return CapTable{}
	}
	refs := make([]*Ref, len(t.refs))
	for i, r := range t.refs {
		if r != nil {
			refs[i] = r.AddRef()
			refs[i].peerHosted = false
		}
	}
	return CapTable{refs: refs}
}

// release releases all capabilities. No lock may be held. The objects' releases run on c, if it is not nil. The table's
// entries stay, so that a late Get returns a broken reference.
func (t *CapTable) release(c *Conn) {
	for _, r := range t.refs {
		r.releaseOn(c)
	}
}

// capAt returns a new reference to the capability at a path of pointer fields below content. It is never nil: a path to
// nowhere and a null pointer yield broken references.
func capAt(content capnp.Ptr, caps *CapTable, path []uint16) *Ref {
	for _, i := range path {
		s := content.Struct()
		if !s.IsValid() {
			if content.IsValid() {
				return NewBroken(Failedf("a pipelined path leads through something that is no struct"))
			}
			break
		}
		p, err := s.Ptr(i)
		if err != nil {
			return NewBroken(Failedf("a pipelined path cannot be read: %v", err))
		}
		content = p
	}
	r := caps.Get(content)
	if r == nil {
		return NewBroken(errNullCall)
	}
	return r
}

var errNullCall = Failedf("called a null capability")

// outMsg is a message of ours with the capabilities that place has put in. Its owner may free it once, when nothing points into
// it any more; a message that was passed to program code beyond a place function is left to the garbage collector.
type outMsg struct {
	wire.Out
	caps CapTable // taken before the message is freed
}

var outMsgs = sync.Pool{New: func() any { return new(outMsg) }}

func newOutMsg() *outMsg { return outMsgs.Get().(*outMsg) }

// free returns the memory to the pool. Nothing may point into the message any more.
func (m *outMsg) free() {
	m.caps = CapTable{}
	if m.Reset() {
		outMsgs.Put(m)
	}
}

// takeCaps returns the capabilities that place has put in, for the caller to release.
func (m *outMsg) takeCaps() CapTable {
	caps := m.caps
	m.caps = CapTable{}
	return caps
}

// EncodedParams are parameters without capabilities that are encoded once for many calls. They may be used by many goroutines.
type EncodedParams struct {
	size   capnp.ObjectSize
	memory []byte // of the struct, with all that it points to

	mu      sync.Mutex
	derived map[any]any // guarded by mu
}

// Derived returns what derive returns for these parameters, which is called once for each key. It must not call Derived.
func (p *EncodedParams) Derived(key any, derive func() any) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.derived[key]
	if !ok {
		v = derive()
		if p.derived == nil {
			p.derived = make(map[any]any, 1)
		}
		p.derived[key] = v
	}
	return v
}

// EncodeParams encodes parameters: place fills in a struct of size sz, as for Ref.Call. Its error is returned.
func EncodeParams(sz capnp.ObjectSize, place func(params capnp.Struct) error) (*EncodedParams, error) {
	msg, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		return nil, err
	}
	params, err := capnp.NewStruct(seg, sz)
	if err == nil {
		err = place(params)
	}
	switch {
	case err != nil:
		return nil, err
	case msg.NumSegments() != 1 || msg.CapTable().Len() > 0:
		return nil, Failedf("parameters with capabilities, or in several segments, cannot be encoded once")
	}
	return &EncodedParams{size: params.Size(), memory: slices.Clone(seg.Data()[framing.WordBytes:])}, nil // behind the root pointer
}

// newCall returns a message with a call whose parameters place has filled in. If place fails, or panics, the message is
// freed.
func newCall(m Method, sz capnp.ObjectSize, place func(capnp.Struct, *CapTable) error) (*outMsg, error) {
	out := newOutMsg()
	params, err := out.InitCall(m.Interface, m.ID, sz)
	if err != nil {
		return nil, err
	}
	if place == nil {
		return out, nil
	}
	placed := false
	defer func() {
		if !placed {
			caps := out.takeCaps()
			caps.release(nil)
			out.free()
		}
	}()
	if err := place(params, &out.caps); err != nil {
		return nil, err
	}
	placed = true
	return out, nil
}
