// The envelope of a plain call and of plain results, which nearly all messages are: what rpc.capnp puts around the parameters of
// a call on a capability that the peer has exported, and around results, when neither holds capabilities. Writing it pointer by
// pointer would cost more than all the rest: so it is written as one piece, laid out once by the generated code. Without it,
// 64 echoes in flight run at 0.77 of the speed (docs/benchmarks.md, "Tricks on trial").

package wire

import (
	"encoding/binary"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// Offsets of fields in the data of their structs, in bytes, as in rpc.capnp.go; tests check them against it.
const (
	callQuestionAt  = 0
	callMethodAt    = 4
	callResultsToAt = 6 // which of the union
	callInterfaceAt = 8
	targetImportAt  = 0
	targetWhichAt   = 4
	returnAnswerAt  = 0
	returnHintsAt   = 4      // a byte of flags:
	keepParamCaps   = 1 << 0 // not releaseParamCaps, which is the default
	noFinishNeeded  = 1 << 1
	returnWhichAt   = 6
)

// template is an envelope with everything filled in that is the same in all of its kind.
type template struct {
	words   []byte // from the root pointer to the beginning of the content
	body    int    // offset of the data of the Call or Return, in bytes
	target  int    // and of a call's MessageTarget
	content int    // of the pointer to the content
}

var (
	callTemplate = template{
		body:    3 * wordBytes,
		target:  9 * wordBytes,
		content: 11 * wordBytes,
		words: encodeMessage(func(m rpccp.Message) error {
			call, err := m.NewCall()
			if err != nil {
				return err
			}
			target, err := call.NewTarget()
			if err != nil {
				return err
			}
			target.SetImportedCap(0)
			_, err = call.NewParams()
			return err
		}),
	}
	returnTemplate = template{
		body:    3 * wordBytes,
		content: 6 * wordBytes,
		words: encodeMessage(func(m rpccp.Message) error {
			ret, err := m.NewReturn()
			if err != nil {
				return err
			}
			ret.SetReleaseParamCaps(false)
			_, err = ret.NewResults()
			return err
		}),
	}
)

// encodeMessage returns the bytes of a message that build fills in.
func encodeMessage(build func(rpccp.Message) error) []byte {
	_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		panic(err)
	}
	m, err := rpccp.NewRootMessage(seg)
	if err == nil {
		err = build(m)
	}
	if err != nil {
		panic(err)
	}
	return append([]byte(nil), seg.Data()...)
}

// InitCall makes m a call, and returns its parameters, a struct of size sz.
func (m *Out) InitCall(iface uint64, method uint16, sz capnp.ObjectSize) (params capnp.Struct, err error) {
	if err := m.initPlain(&callTemplate, sz); err != nil {
		return params, err
	}
	m.putMethod(iface, method)
	return capnp.NewStruct(m.seg, sz)
}

// InitEncodedCall makes m a call whose parameters, a struct of size sz, were encoded before: memory is the struct's, with all
// that it points to, and is not changed.
func (m *Out) InitEncodedCall(iface uint64, method uint16, sz capnp.ObjectSize, memory []byte) error {
	if err := m.initPlain(&callTemplate, sz); err != nil {
		return err
	}
	m.putMethod(iface, method)
	m.tail = memory
	return nil
}

func (m *Out) putMethod(iface uint64, method uint16) {
	b := m.seg.Data()[callTemplate.body:]
	binary.LittleEndian.PutUint64(b[callInterfaceAt:], iface)
	binary.LittleEndian.PutUint16(b[callMethodAt:], method)
}

// InitResults makes m a return, and returns its results, a struct of size sz.
func (m *Out) InitResults(sz capnp.ObjectSize) (capnp.Struct, error) {
	if err := m.initPlain(&returnTemplate, sz); err != nil {
		return capnp.Struct{}, err
	}
	return capnp.NewStruct(m.seg, sz)
}

// initPlain makes m a message with the envelope of content of a size, which is to follow.
func (m *Out) initPlain(t *template, sz capnp.ObjectSize) error {
	seg, err := m.init()
	if err != nil {
		return err
	}
	// The root pointer's word comes by itself before the first struct.
	if _, err := capnp.NewStruct(seg, capnp.ObjectSize{DataSize: capnp.Size(len(t.words) - wordBytes)}); err != nil {
		return err
	}
	m.seg = seg
	b := seg.Data()
	copy(b, t.words)
	sz.DataSize = (sz.DataSize + wordBytes - 1) &^ (wordBytes - 1)
	binary.LittleEndian.PutUint64(b[t.content:], structPointer(t.content, len(t.words), sz))
	return nil
}

// structPointer returns a pointer at one offset of a segment to a struct at another.
func structPointer(at, to int, sz capnp.ObjectSize) uint64 {
	words := (to-at)/wordBytes - 1
	if sz == (capnp.ObjectSize{}) {
		words = -1 // to itself: zero would be null
	}
	return uint64(uint32(words)<<2) | uint64(sz.DataSize/wordBytes)<<32 | uint64(sz.PointerCount)<<48
}

// IsPlain reports whether m was made by InitCall or InitResults: AddressCall or AddressReturn completes it then, if it has no
// capabilities.
func (m *Out) IsPlain() bool { return m.seg != nil }

// AddressCall fills in the rest of a plain call.
func (m *Out) AddressCall(question, target uint32) {
	b := m.seg.Data()
	binary.LittleEndian.PutUint32(b[callTemplate.body+callQuestionAt:], question)
	binary.LittleEndian.PutUint32(b[callTemplate.target+targetImportAt:], target)
}

// AddressReturn fills in the rest of plain results.
func (m *Out) AddressReturn(answer uint32, noFinish bool) {
	b := m.seg.Data()[returnTemplate.body:]
	binary.LittleEndian.PutUint32(b[returnAnswerAt:], answer)
	if noFinish {
		b[returnHintsAt] |= noFinishNeeded
	}
}
