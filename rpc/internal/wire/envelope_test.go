// That plain envelopes are written as the generated code would write them.

package wire

import (
	"bytes"
	"testing"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// contentSizes are structs of all kinds: data, pointers, both and neither.
var contentSizes = []capnp.ObjectSize{{}, {DataSize: 8}, {DataSize: 4}, {PointerCount: 1}, {DataSize: 24, PointerCount: 3}, {DataSize: 2000}}

// plainContent fills in a struct of any size: every byte, and a text in every pointer.
func plainContent(s capnp.Struct) error {
	for i := range s.Size().DataSize {
		s.SetUint8(capnp.DataOffset(i), uint8(i+1))
	}
	for i := range s.Size().PointerCount {
		if err := s.SetNewText(i, "pointer"); err != nil {
			return err
		}
	}
	return nil
}

// generated is a message written by the generated code alone, in the order in which the templates have it.
func generated(t *testing.T, sz capnp.ObjectSize, payload func(rpccp.Message) (rpccp.Payload, error)) []byte {
	t.Helper()
	_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	noError(t, err)
	root, err := rpccp.NewRootMessage(seg)
	noError(t, err)
	p, err := payload(root)
	noError(t, err)
	content, err := capnp.NewStruct(seg, sz)
	noError(t, err)
	noError(t, p.SetContent(content.ToPtr()))
	noError(t, plainContent(content))
	return seg.Data()
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plainCall is a call with content.
func plainCall(t testing.TB, iface uint64, method uint16, sz capnp.ObjectSize) *Out {
	t.Helper()
	out := new(Out)
	params, err := out.InitCall(iface, method, sz)
	noError(t, err)
	noError(t, plainContent(params))
	return out
}

// plainResults is a return with content.
func plainResults(t testing.TB, sz capnp.ObjectSize) *Out {
	t.Helper()
	out := new(Out)
	results, err := out.InitResults(sz)
	noError(t, err)
	noError(t, plainContent(results))
	return out
}

func TestWrittenEnvelopes(t *testing.T) {
	t.Parallel()
	for _, sz := range contentSizes {
		out := plainCall(t, 0x0123456789abcdef, 0xfedc, sz)
		out.AddressCall(0x89abcdef, 0x76543210)
		want := generated(t, sz, func(m rpccp.Message) (rpccp.Payload, error) {
			call, err := m.NewCall()
			noError(t, err)
			call.SetQuestionId(0x89abcdef)
			call.SetInterfaceId(0x0123456789abcdef)
			call.SetMethodId(0xfedc)
			target, err := call.NewTarget()
			noError(t, err)
			target.SetImportedCap(0x76543210)
			return call.NewParams()
		})
		if got := out.seg.Data(); !bytes.Equal(got, want) {
			t.Errorf("a call with %v is\n%x, but generated\n%x", sz, got, want)
		}
		out.Reset()
		for _, hint := range []bool{false, true} {
			out := plainResults(t, sz)
			out.AddressReturn(0xfedcba98, hint)
			want := generated(t, sz, func(m rpccp.Message) (rpccp.Payload, error) {
				ret, err := m.NewReturn()
				noError(t, err)
				ret.SetAnswerId(0xfedcba98)
				ret.SetReleaseParamCaps(false)
				ret.SetNoFinishNeeded(hint)
				return ret.NewResults()
			})
			if got := out.seg.Data(); !bytes.Equal(got, want) {
				t.Errorf("a return with %v is\n%x, but generated\n%x", sz, got, want)
			}
			out.Reset()
		}
	}
}
