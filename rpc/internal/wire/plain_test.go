// That plain messages, read by hand, say what the generated code reads in them.

package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// readGenerated reads a plain message as handle does with all others: every pointer once. It is not plain if something
// cannot be read or is none of the few things that a plain one may say.
func readGenerated(t *testing.T, in *In) Plain {
	t.Helper()
	root, err := in.Root()
	noError(t, err)
	m := Plain{Which: root.Which()}
	var payload rpccp.Payload
	switch m.Which {
	case rpccp.Message_Which_call:
		call, err := root.Call()
		noError(t, err)
		target, err := call.Target()
		noError(t, err)
		if !target.IsValid() || target.Which() != rpccp.MessageTarget_Which_importedCap ||
			call.SendResultsTo().Which() != rpccp.Call_sendResultsTo_Which_caller {
			t.Fatalf("a call is targeted at %v, its results at %v", target.Which(), call.SendResultsTo().Which())
		}
		m.ID, m.Target = call.QuestionId(), target.ImportedCap()
		m.Interface, m.Method = call.InterfaceId(), call.MethodId()
		payload, err = call.Params()
		noError(t, err)
	case rpccp.Message_Which_return:
		ret, err := root.Return()
		noError(t, err)
		if ret.Which() != rpccp.Return_Which_results {
			t.Fatalf("a return is %v", ret.Which())
		}
		m.ID, m.ReleaseParams, m.NoFinish = ret.AnswerId(), ret.ReleaseParamCaps(), ret.NoFinishNeeded()
		payload, err = ret.Results()
		noError(t, err)
	default:
		t.Fatalf("a message is %v", m.Which)
	}
	if payload.HasCapTable() {
		t.Fatal("there are capabilities")
	}
	in.Content, err = payload.Content()
	noError(t, err)
	return m
}

// checkPlain holds one frame, if it is read by hand, to what the generated code reads in it.
func checkPlain(t *testing.T, frame []byte, lim *Limits) bool {
	t.Helper()
	was := bytes.Clone(frame)
	got, ok := ReadPlain(frame, lim)
	if !ok {
		return false
	}
	byHand, err := parseFrame(frame, lim)
	if err != nil { // it is too large: handle parses first
		return false
	}
	noError(t, byHand.ReadContent(frame, &got))
	if !bytes.Equal(frame, was) {
		t.Fatalf("the frame was\n%x and is\n%x", was, frame)
	}
	generated, err := parseFrame(was, lim)
	noError(t, err)
	want := readGenerated(t, generated)
	got.content, got.root, got.cost = 0, capnpfast.Region{}, 0
	if got != want {
		t.Fatalf("read by hand\n%+v, by the generated code\n%+v", got, want)
	}
	checkRead(t, byHand, lim)
	byHand.PlainContent = capnpfast.Message{}
	// The pointers, what may be read still and how deep, and all of the messages around them.
	if !reflect.DeepEqual(byHand, generated) {
		t.Fatalf("read by hand\n%+v, by the generated code\n%+v", byHand, generated)
	}
	return true
}

// checkRead holds the content as it is for readers by hand to the content as the generated code has it.
func checkRead(t *testing.T, in *In, lim *Limits) {
	t.Helper()
	if got, want := in.PlainContent.IsValid(), lim.Nesting-plainDepth > capnpfast.MaxDepth; got != want {
		t.Fatalf("with a nesting of %d, to be read by hand is %v", lim.Nesting, got)
	}
	if !in.PlainContent.IsValid() {
		return
	}
	byHand, s := in.PlainContent.Root(), in.Content.Struct()
	if sz := s.Size(); byHand.Data*wordBytes != int(sz.DataSize) || byHand.Pointers != int(sz.PointerCount) {
		t.Fatalf("by hand the content is %+v, by the generated code %v", byHand.Region, sz)
	}
	for i := range byHand.Data * wordBytes {
		if byHand.Uint8(i) != s.Uint8(capnp.DataOffset(i)) {
			t.Fatalf("byte %d of the content is %d by hand, and %d", i, byHand.Uint8(i), s.Uint8(capnp.DataOffset(i)))
		}
	}
	for i := range byHand.Pointers {
		if byHand.Null(i) == s.HasPtr(uint16(i)) {
			t.Fatalf("pointer %d of the content is null by hand: %v", i, byHand.Null(i))
		}
	}
}

// plainFrames are messages that must be plain.
func plainFrames(t testing.TB) (frames [][]byte) {
	t.Helper()
	for _, sz := range contentSizes {
		call, results := plainCall(t, 1<<60, 1<<15, sz), plainResults(t, sz)
		call.AddressCall(3, 4)
		results.AddressReturn(5, true)
		frames = append(frames, frameOf(t, call), frameOf(t, results))
	}
	return frames
}

func frameOf(t testing.TB, out *Out) []byte {
	t.Helper()
	frame, err := out.Append(nil)
	noError(t, err)
	return frame
}

func parseFrame(frame []byte, lim *Limits) (*In, error) {
	in := new(In)
	return in, in.Parse(frame, lim)
}

// limits are those of a connection of package rpc.
func limits(nesting, traversal int) *Limits {
	return &Limits{Limits: framing.Limits{MessageBytes: 8 << 20, Segments: 64}, Nesting: nesting, Traversal: traversal}
}

// wider is a plain call whose structs have fields that we do not know.
func wider(t testing.TB) []byte {
	msg, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	add := func(data capnp.Size, pointers uint16) capnp.Struct {
		s, e := capnp.NewStruct(seg, capnp.ObjectSize{DataSize: 8 * data, PointerCount: pointers})
		if err == nil {
			err = e
		}
		return s
	}
	set := func(s capnp.Struct, i uint16, to capnp.Struct) {
		if e := s.SetPtr(i, to.ToPtr()); err == nil {
			err = e
		}
	}
	content, payload, target := add(2, 2), add(1, 3), add(3, 2)
	call, root := add(5, 6), add(2, 2)
	set(payload, 0, content)
	set(call, 0, target)
	set(call, 1, payload)
	set(root, 0, call)
	root.SetUint16(0, uint16(rpccp.Message_Which_call))
	call.SetUint32(0, 77)
	target.SetUint32(0, 88)
	if e := msg.SetRoot(root.ToPtr()); err == nil {
		err = e
	}
	frame, e := framing.Append(nil, msg)
	if err != nil || e != nil {
		t.Fatal(err, e)
	}
	return frame
}

func TestPlainMessages(t *testing.T) {
	t.Parallel()
	lim := limits(64, 64<<20)
	for _, frame := range append(plainFrames(t), wider(t)) {
		if !checkPlain(t, frame, lim) {
			t.Errorf("not plain:\n%x", frame)
		}
		for cut := range len(frame) { // no length may make it read beyond
			if _, ok := ReadPlain(frame[:cut:cut], lim); ok {
				t.Errorf("%d bytes of %d are plain", cut, len(frame))
			}
		}
	}
}

// Who has read the envelope may read as much less of the content, and as deep, as if the generated code had read it.
func TestPlainAtLimits(t *testing.T) {
	t.Parallel()
	for _, frame := range append(plainFrames(t), wider(t)) {
		for n := 1; n <= 8; n++ {
			lim := limits(n, 64<<20)
			if got := checkPlain(t, frame, lim); got != (n > plainDepth) {
				t.Errorf("with a nesting of %d, plain is %v", n, got)
			}
		}
		plain := 0
		for n := 1; n <= len(frame)+8; n++ {
			lim := limits(64, n)
			if checkPlain(t, frame, lim) {
				plain++
			}
		}
		if plain == 0 || plain > len(frame) {
			t.Errorf("of %d limits %d are enough", len(frame)+8, plain)
		}
	}
}

// Words of plain messages are overwritten with such as matter in messages: pointers above all.
func TestPlainMutated(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	frames := append(plainFrames(t), wider(t))
	plain, rounds := 0, 100_000
	if testing.Short() {
		rounds /= 10
	}
	for range rounds {
		frame := bytes.Clone(frames[r.IntN(len(frames))])
		for range 1 + r.IntN(3) {
			at := 8 * r.IntN(min(len(frame)/8, 20))
			word := binary.LittleEndian.Uint64(frame[at:])
			switch r.IntN(5) {
			case 0:
				word ^= 1 << r.IntN(64)
			case 1: // another place
				word = word&^(1<<32-4) | uint64(uint32(r.IntN(24)-12)<<2)
			case 2: // another struct
				word = uint64(uint32(r.IntN(24)-12)<<2) | uint64(r.IntN(4))<<32 | uint64(r.IntN(4))<<48
			case 3:
				word = r.Uint64()
			case 4:
				word = 0
			}
			binary.LittleEndian.PutUint64(frame[at:], word)
		}
		lim := limits(1+r.IntN(70), 1+r.IntN(3000))
		if checkPlain(t, frame, lim) {
			plain++
		}
	}
	if plain < rounds/20 {
		t.Errorf("of %d messages only %d were plain", rounds, plain)
	}
}
