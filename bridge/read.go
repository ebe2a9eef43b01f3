// Reading Cap'n Proto as values for peers.

package bridge

import (
	"fmt"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/rpc"
)

// reader reads one message's content.
type reader struct {
	conn      *Conn
	caps      *rpc.CapTable
	unclaimed []*Object // not passed to a peer yet
}

// release releases the objects of a message that is not delivered.
func (r *reader) release() {
	for _, o := range r.unclaimed {
		o.Release()
	}
}

// object reads a struct's fields, without the rule for it.
func (r *reader) object(p *structPlan, s capnp.Struct) (map[string]any, error) {
	to := make(map[string]any, len(p.fields))
	tag := uint16(noTag)
	if p.union {
		tag = s.Uint16(p.tagAt)
	}
	for i := range p.fields {
		f := &p.fields[i]
		if f.tag != noTag && f.tag != tag {
			continue
		}
		v, err := r.field(f, s)
		if err != nil {
			return nil, withPath(f.name, err)
		}
		to[f.name] = v
	}
	return to, nil
}

// value reads a struct with its rule.
func (r *reader) value(p *structPlan, s capnp.Struct) (any, error) {
	to, err := r.object(p, s)
	if err != nil || p.rule == nil || p.rule.Out == nil {
		return to, err
	}
	return p.rule.Out(to)
}

func (r *reader) field(f *fieldPlan, s capnp.Struct) (v any, err error) {
	switch f.typ.kind {
	case kindVoid:
	case kindBool:
		v = s.Bit(capnp.BitOffset(f.offset)) != (f.mask == 1)
	case kindInt, kindFloat, kindEnum:
		v = f.typ.number(bitsAt(s, f.offset, f.typ.bits) ^ f.mask)
	case kindGroup:
		v, err = r.value(f.typ.of, s)
	default:
		var p capnp.Ptr
		if p, err = s.Ptr(uint16(f.offset)); err != nil {
			return nil, err
		}
		if p.IsValid() {
			v, err = r.pointer(&f.typ, p)
		} else {
			v = f.nullValue()
		}
	}
	if err != nil || f.rule == nil || f.rule.Out == nil {
		return v, err
	}
	return f.rule.Out(v)
}

// nullValue returns the value of a null pointer.
func (f *fieldPlan) nullValue() any {
	switch f.typ.kind {
	case kindText:
		return f.text
	case kindData:
		return []byte(f.text)
	case kindList:
		return []any{}
	}
	return nil
}

func bitsAt(s capnp.Struct, offset uint32, size uint8) uint64 {
	off := capnp.DataOffset(offset / 8)
	switch size {
	case 8:
		return uint64(s.Uint8(off))
	case 16:
		return uint64(s.Uint16(off))
	case 32:
		return uint64(s.Uint32(off))
	}
	return s.Uint64(off)
}

// pointer reads the target of a pointer that is not null. Bytes are copied.
func (r *reader) pointer(t *typePlan, p capnp.Ptr) (any, error) {
	switch t.kind {
	case kindText:
		return p.Text(), nil
	case kindData:
		return append([]byte{}, p.Data()...), nil
	case kindStruct:
		return r.value(t.of, p.Struct())
	case kindList:
		return r.list(t.elem, p.List())
	case kindCapability:
		return r.capability(t, p)
	}
	return nil, fmt.Errorf("bridge: no pointer to %s", t.describe())
}

func (r *reader) list(elem *typePlan, l capnp.List) (any, error) {
	to := make([]any, l.Len())
	for i := range to {
		v, err := r.element(elem, l, i)
		if err != nil {
			return nil, withPath(index(i), err)
		}
		to[i] = v
	}
	return to, nil
}

func (r *reader) element(elem *typePlan, l capnp.List, i int) (any, error) {
	switch elem.kind {
	case kindVoid:
		return nil, nil
	case kindBool:
		return capnp.BitList(l).At(i), nil
	case kindInt, kindFloat, kindEnum:
		return elem.number(elementBits(l, elem.bits, i)), nil
	case kindStruct:
		return r.value(elem.of, l.Struct(i))
	}
	p, err := capnp.PointerList(l).At(i)
	if err != nil {
		return nil, err
	}
	if !p.IsValid() {
		return (&fieldPlan{typ: *elem}).nullValue(), nil
	}
	return r.pointer(elem, p)
}

func elementBits(l capnp.List, size uint8, i int) uint64 {
	switch size {
	case 8:
		return uint64(capnp.UInt8List(l).At(i))
	case 16:
		return uint64(capnp.UInt16List(l).At(i))
	case 32:
		return uint64(capnp.UInt32List(l).At(i))
	}
	return capnp.UInt64List(l).At(i)
}

// capability makes an Object of a capability.
func (r *reader) capability(t *typePlan, p capnp.Ptr) (any, error) {
	ref := r.caps.Get(p)
	iface := t.iface
	if iface == nil {
		if f := r.conn.bridge.cfg.TypeOf; f != nil {
			iface = r.conn.bridge.interfaces[f(ref.Object())]
		}
		if iface == nil {
			ref.Release()
			return nil, fmt.Errorf("bridge: a capability of no interface that peers can call")
		}
	}
	o := &Object{conn: r.conn, iface: iface, ref: ref}
	r.unclaimed = append(r.unclaimed, o)
	return o, nil
}
