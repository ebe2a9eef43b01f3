// Writing values of peers as Cap'n Proto: structs, lists and their contents.

package bridge

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/rpc"
)

// writer writes one message's content.
type writer struct {
	conn      *Conn
	caps      *rpc.CapTable
	bytesLeft int // bytes that may still be written
}

// reserve counts bytes of the message: a short value of a peer may expand to many.
func (w *writer) reserve(bytes int) error {
	if w.bytesLeft -= bytes; w.bytesLeft >= 0 {
		return nil
	}
	if f := w.conn.bridge.cfg.TooLarge; f != nil {
		return f(w.conn.limit)
	}
	return &capnweb.Error{Name: "RangeError", Message: fmt.Sprintf("the arguments take more than %d bytes", w.conn.limit)}
}

// isAbsent reports whether a value is undefined or null.
func isAbsent(v any) bool {
	switch v.(type) {
	case nil, capnweb.Undefined:
		return true
	}
	return false
}

// object writes a value's fields to a struct. s has the plan's size.
func (w *writer) object(p *structPlan, s capnp.Struct, v any) error {
	if p.rule != nil && p.rule.In != nil {
		var err error
		if v, err = p.rule.In(v); err != nil {
			return err
		}
	}
	from, ok := v.(map[string]any)
	if !ok {
		return mismatch("an object", v)
	}
	known, chosen := 0, -1
	for i := range p.fields {
		f := &p.fields[i]
		v, there := from[f.name]
		if !there {
			continue
		}
		known++
		if _, undefined := v.(capnweb.Undefined); undefined || v == nil && (f.tag == noTag || f.typ.kind != kindVoid) {
			continue
		}
		if f.tag != noTag {
			if chosen >= 0 {
				return &typeError{text: fmt.Sprintf("%s and %s: only one of them can be given", p.fields[chosen].name, f.name)}
			}
			chosen = i
			s.SetUint16(p.tagAt, f.tag)
		}
		if err := w.field(f, s, v); err != nil {
			return withPath(f.name, err)
		}
	}
	if known < len(from) {
		return p.unknownFieldError(from)
	}
	return nil
}

// unknownFieldError returns the error for a field that the struct does not have.
func (p *structPlan) unknownFieldError(from map[string]any) error {
	var names []string
	for name := range from {
		if p.field(name) == nil {
			names = append(names, name)
		}
	}
	return withPath(clip(slices.Min(names)), &typeError{text: "there is no such field: there " + p.fieldNames()})
}

func (p *structPlan) fieldNames() string {
	if len(p.fields) == 0 {
		return "are none"
	}
	names := make([]string, len(p.fields))
	for i := range p.fields {
		names[i] = p.fields[i].name
	}
	return "are " + strings.Join(names, ", ")
}

// field writes a field that is present. s is the struct, or that of the field's group.
func (w *writer) field(f *fieldPlan, s capnp.Struct, v any) error {
	if f.rule != nil && f.rule.In != nil {
		var err error
		if v, err = f.rule.In(v); err != nil {
			return err
		}
	}
	switch f.typ.kind {
	case kindVoid:
		if v != nil {
			return f.typ.mismatch(v)
		}
	case kindGroup:
		return w.object(f.typ.of, s, v)
	case kindBool:
		b, ok := v.(bool)
		if !ok {
			return f.typ.mismatch(v)
		}
		s.SetBit(capnp.BitOffset(f.offset), b != (f.mask == 1))
	case kindInt, kindFloat, kindEnum:
		bits, err := f.typ.data(v)
		if err != nil {
			return err
		}
		setBits(s, f.offset, f.typ.bits, bits^f.mask)
	case kindCapability:
		ref, err := w.capability(&f.typ, v)
		if err != nil {
			return err
		}
		defer ref.Release()
		return w.caps.Set(s, uint16(f.offset), ref)
	default:
		ptr, err := w.pointer(&f.typ, s.Segment(), v)
		if err != nil {
			return err
		}
		return s.SetPtr(uint16(f.offset), ptr)
	}
	return nil
}

// data returns a number's bits.
func (t *typePlan) data(v any) (uint64, error) {
	switch t.kind {
	case kindFloat:
		return t.bitsOf(v)
	case kindEnum:
		name, ok := v.(string)
		if !ok {
			return (&typePlan{kind: kindInt, bits: 16}).integer(v) // such as one of a later version
		}
		if i := slices.Index(t.names, name); i >= 0 {
			return uint64(i), nil
		}
		return 0, &typeError{text: "there is no such name: there are " + strings.Join(t.names, ", ")}
	}
	return t.integer(v)
}

func setBits(s capnp.Struct, offset uint32, size uint8, bits uint64) {
	off := capnp.DataOffset(offset / 8)
	switch size {
	case 8:
		s.SetUint8(off, uint8(bits))
	case 16:
		s.SetUint16(off, uint16(bits))
	case 32:
		s.SetUint32(off, uint32(bits))
	case 64:
		s.SetUint64(off, bits)
	}
}

// pointer makes the target of a pointer: a text, data, struct or list.
func (w *writer) pointer(t *typePlan, seg *capnp.Segment, v any) (capnp.Ptr, error) {
	switch t.kind {
	case kindText:
		text, ok := v.(string)
		if !ok {
			return capnp.Ptr{}, t.mismatch(v)
		}
		if err := w.reserve(len(text) + 8); err != nil {
			return capnp.Ptr{}, err
		}
		l, err := capnp.NewText(seg, text)
		return l.ToPtr(), err
	case kindData:
		data, err := bytesOf(t, v)
		if err != nil {
			return capnp.Ptr{}, err
		}
		if err := w.reserve(len(data) + 8); err != nil {
			return capnp.Ptr{}, err
		}
		l, err := capnp.NewData(seg, data)
		return l.ToPtr(), err
	case kindStruct:
		if err := w.reserve(sizeOf(t.of)); err != nil {
			return capnp.Ptr{}, err
		}
		s, err := capnp.NewStruct(seg, t.of.size)
		if err != nil {
			return capnp.Ptr{}, err
		}
		return s.ToPtr(), w.object(t.of, s, v)
	case kindList:
		elems, ok := v.([]any)
		if !ok {
			return capnp.Ptr{}, t.mismatch(v)
		}
		return w.list(t.elem, seg, elems)
	}
	return capnp.Ptr{}, fmt.Errorf("bridge: no pointer to %s", t.describe())
}

func sizeOf(p *structPlan) int { return int(p.size.DataSize) + 8*int(p.size.PointerCount) + 8 }

// bytesOf returns the bytes of Data: a container's, or those of base64url text.
func bytesOf(t *typePlan, v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case capnweb.Bytes:
		return v.Data, nil
	case string:
		data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(v, "="))
		if err != nil {
			return nil, &typeError{text: "not base64url"} // without the text: it may be a secret
		}
		return data, nil
	}
	return nil, t.mismatch(v)
}

func (w *writer) list(elem *typePlan, seg *capnp.Segment, elems []any) (capnp.Ptr, error) {
	n := int32(len(elems))
	switch elem.kind {
	case kindVoid:
		return capnp.NewVoidList(seg, n).ToPtr(), nil
	case kindBool, kindInt, kindFloat, kindEnum:
		return w.numbers(elem, seg, elems)
	case kindStruct:
		if err := w.reserve(8 + len(elems)*(sizeOf(elem.of)-8)); err != nil {
			return capnp.Ptr{}, err
		}
		l, err := capnp.NewCompositeList(seg, elem.of.size, n)
		if err != nil {
			return capnp.Ptr{}, err
		}
		for i, v := range elems {
			if isAbsent(v) {
				continue
			}
			if err := w.object(elem.of, l.Struct(i), v); err != nil {
				return capnp.Ptr{}, withPath(index(i), err)
			}
		}
		return l.ToPtr(), nil
	}
	if err := w.reserve(8 * (len(elems) + 1)); err != nil {
		return capnp.Ptr{}, err
	}
	l, err := capnp.NewPointerList(seg, n)
	if err != nil {
		return capnp.Ptr{}, err
	}
	for i, v := range elems {
		if isAbsent(v) {
			continue
		}
		if err := w.element(elem, seg, l, i, v); err != nil {
			return capnp.Ptr{}, withPath(index(i), err)
		}
	}
	return l.ToPtr(), nil
}

func index(i int) string { return fmt.Sprintf("[%d]", i) }

// element writes an element of a list of pointers.
func (w *writer) element(elem *typePlan, seg *capnp.Segment, l capnp.PointerList, i int, v any) error {
	if elem.kind == kindCapability {
		ref, err := w.capability(elem, v)
		if err != nil {
			return err
		}
		defer ref.Release()
		return l.Set(i, capnp.NewInterface(seg, capnp.CapabilityID(w.caps.Add(ref))).ToPtr())
	}
	ptr, err := w.pointer(elem, seg, v)
	if err != nil {
		return err
	}
	return l.Set(i, ptr)
}

// numbers writes a list of numbers or bools. An omitted one is 0.
func (w *writer) numbers(elem *typePlan, seg *capnp.Segment, elems []any) (capnp.Ptr, error) {
	n := int32(len(elems))
	if err := w.reserve(8 + len(elems)*int(elem.bits)/8); err != nil {
		return capnp.Ptr{}, err
	}
	var to capnp.List
	var bits capnp.BitList
	var err error
	switch elem.bits {
	case 1:
		bits, err = capnp.NewBitList(seg, n)
		to = capnp.List(bits)
	case 8:
		var l capnp.UInt8List
		l, err = capnp.NewUInt8List(seg, n)
		to = capnp.List(l)
	case 16:
		var l capnp.UInt16List
		l, err = capnp.NewUInt16List(seg, n)
		to = capnp.List(l)
	case 32:
		var l capnp.UInt32List
		l, err = capnp.NewUInt32List(seg, n)
		to = capnp.List(l)
	case 64:
		var l capnp.UInt64List
		l, err = capnp.NewUInt64List(seg, n)
		to = capnp.List(l)
	}
	if err != nil {
		return capnp.Ptr{}, err
	}
	for i, v := range elems {
		if isAbsent(v) {
			continue
		}
		if elem.kind == kindBool {
			b, ok := v.(bool)
			if !ok {
				return capnp.Ptr{}, withPath(index(i), elem.mismatch(v))
			}
			bits.Set(i, b)
			continue
		}
		data, err := elem.data(v)
		if err != nil {
			return capnp.Ptr{}, withPath(index(i), err)
		}
		switch elem.bits {
		case 8:
			capnp.UInt8List(to).Set(i, uint8(data))
		case 16:
			capnp.UInt16List(to).Set(i, uint16(data))
		case 32:
			capnp.UInt32List(to).Set(i, uint32(data))
		case 64:
			capnp.UInt64List(to).Set(i, data)
		}
	}
	return to.ToPtr(), nil
}

// capability returns a reference for a value, for the caller to release: that of an Object, or one to a callback.
func (w *writer) capability(t *typePlan, v any) (*rpc.Ref, error) {
	switch v := v.(type) {
	case *Object:
		return v.refAs(t)
	case *capnweb.Stub:
		if o, ok := v.Object().(*Object); ok {
			return o.refAs(t)
		}
		if t.iface == nil {
			return nil, &typeError{text: "not an object of this server"}
		}
		return rpc.NewLocal(newCallback(w.conn, t.iface, stubCaller{v.Dup()})), nil
	case Func:
		if t.iface != nil {
			return rpc.NewLocal(newCallback(w.conn, t.iface, v)), nil
		}
	}
	if t.iface == nil {
		return nil, mismatch("an object of this server", v)
	}
	return nil, mismatch("a function", v)
}

// mismatch is the error for a value of another type. It does not contain the value.
func (t *typePlan) mismatch(v any) error { return mismatch(t.describe(), v) }

func mismatch(what string, v any) error {
	return &typeError{text: "want " + what + ", got " + typeName(v)}
}

// typeName is a value's type in the peer's terms.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case capnweb.Undefined:
		return "undefined"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	case []byte, capnweb.Bytes:
		return "bytes"
	case *capnweb.Stub, *capnweb.Promise, *Object:
		return "a stub"
	case float64:
		if _, _, ok := whole(v); !ok {
			return "a number that is not whole"
		}
		return "a number"
	}
	if _, _, ok := whole(v); ok {
		return "a number"
	}
	return "something else"
}

// clip shortens a name chosen by a peer, for an error.
func clip(name string) string {
	const most = 40
	if len(name) <= most {
		return name
	}
	n := most
	for n > 0 && !utf8.RuneStart(name[n]) {
		n--
	}
	return name[:n] + "..."
}
