// In: a received message, made readable.

package wire

import (
	"encoding/binary"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

const wordBytes = framing.WordBytes

// Limits bounds the reading of a message.
type Limits struct {
	framing.Limits
	Nesting   int // how deep pointers may nest
	Traversal int // how many bytes may be read, repeated reads counted
}

// In is a received message. Its memory is its own and is left to the garbage collector, so that values read from it never
// change.
type In struct {
	msg   capnp.Message
	arena capnp.ReadOnlySingleSegment // for the usual single segment
	Size  int                         // of the frame, in bytes

	Content      capnp.Ptr         // the parameters of a call, or the results of a plain return
	PlainContent capnpfast.Message // the same for reading without the generated code, if the message is plain
}

// Parse sets in to a frame, which it keeps. The previous message of in must not be in use any more.
func (in *In) Parse(b []byte, lim *Limits) error {
	size, need, err := framing.Size(b, lim.Limits)
	if err != nil {
		return err
	}
	if size != len(b) || need > len(b) {
		return framing.Error("its size is not what its header says")
	}
	in.Size = size
	n := int(binary.LittleEndian.Uint32(b)) + 1
	in.msg.TraverseLimit = uint64(lim.Traversal)
	in.msg.DepthLimit = uint(lim.Nesting)
	body := b[framing.HeaderSize(n):]
	fresh := in.msg.Arena == nil // else in is reused, and all state of the previous message must be reset
	if !fresh {
		in.msg.Reset(nil) // releases the previous arena, which may be the one we fill now
	}
	if n == 1 && fresh {
		in.arena.ReplaceData(body)
		in.msg.Arena = &in.arena
		_, err = in.msg.Segment(0) // binds it
	} else if n == 1 {
		in.arena = capnp.ReadOnlySingleSegment{}
		in.arena.ReplaceData(body)
		_, err = in.msg.Reset(&in.arena)
	} else {
		segs := make([][]byte, n)
		for i := range segs {
			end := int(binary.LittleEndian.Uint32(b[4+4*i:])) * wordBytes
			segs[i], body = body[:end:end], body[end:]
		}
		_, err = in.msg.Reset(capnp.MultiSegment(segs))
		for i := range segs { // bind every segment now: reading is then free of writes, and safe in any goroutine
			if err == nil {
				_, err = in.msg.Segment(capnp.SegmentID(i))
			}
		}
	}
	if err != nil {
		return framing.Error(err.Error())
	}
	return nil
}

// Root returns the message as the generated code reads it.
func (in *In) Root() (rpccp.Message, error) {
	m, err := rpccp.ReadRootMessage(&in.msg)
	if err != nil {
		return m, framing.Error(err.Error())
	}
	if !m.IsValid() {
		return m, framing.Error("it has no root")
	}
	return m, nil
}

// IsCallOrReturn reports from a frame's bytes whether it is a Call or a Return. It reports true for frames it cannot decide,
// as those of several segments.
func IsCallOrReturn(frame []byte) bool {
	const header, unknown = 2 * wordBytes, true // the segment table of one segment, and the root pointer
	if len(frame) < header || binary.LittleEndian.Uint32(frame) != 0 {
		return unknown
	}
	root := binary.LittleEndian.Uint64(frame[wordBytes:])
	at := header + int64(int32(uint32(root))>>2)*wordBytes
	if root&3 != 0 || root>>32&0xffff == 0 || at < header || at+wordBytes > int64(len(frame)) {
		return unknown
	}
	which := rpccp.Message_Which(binary.LittleEndian.Uint16(frame[at:]))
	return which == rpccp.Message_Which_call || which == rpccp.Message_Which_return
}

// PipelinedOn returns the question on whose results a message is a call. ok is false for all other messages, and those that
// cannot be read, which handling them will report. The message is not kept.
func PipelinedOn(frame []byte, lim *Limits) (question uint32, ok bool) {
	var in In
	if in.Parse(frame, lim) != nil {
		return 0, false
	}
	m, err := in.Root()
	if err != nil || m.Which() != rpccp.Message_Which_call {
		return 0, false
	}
	call, err := m.Call()
	if err != nil {
		return 0, false
	}
	target, err := call.Target()
	if err != nil || target.Which() != rpccp.MessageTarget_Which_promisedAnswer {
		return 0, false
	}
	on, err := target.PromisedAnswer()
	return on.QuestionId(), err == nil
}
