// inMsg: a received message, made readable.

package rpc

import (
	"encoding/binary"
	"fmt"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

const wordBytes = framing.WordBytes

// frame returns the bounds of a message's frame.
func (l *Limits) frame() framing.Limits {
	return framing.Limits{MessageBytes: l.MessageBytes, Segments: l.Segments}
}

// splitFrame splits the first framed message off b.
func splitFrame(b []byte, lim *Limits) (one, rest []byte, err error) {
	size, need, err := framing.Size(b, lim.frame())
	if err != nil {
		return nil, nil, err
	}
	if need > len(b) {
		return nil, nil, framing.Error(fmt.Sprintf("truncated: %d bytes of %d", len(b), need))
	}
	return b[:size:size], b[size:], nil
}

// inMsg is a received message. Its memory is its own and is left to the garbage collector, so that values read from it
// never change.
type inMsg struct {
	msg   capnp.Message
	arena capnp.ReadOnlySingleSegment // for the usual single segment
	size  int

	content capnp.Ptr         // the parameters of a call, or the results of a plain return
	plain   capnpfast.Message // the same for reading without the generated code, if the message is plain
}

// parseFrame makes a readable message of one frame, which it keeps.
func parseFrame(b []byte, lim *Limits) (*inMsg, error) {
	in := &inMsg{size: len(b)}
	return in, in.parse(b, lim)
}

// parse sets in to a frame. The previous message of in must not be in use any more.
func (in *inMsg) parse(b []byte, lim *Limits) error {
	size, need, err := framing.Size(b, lim.frame())
	if err != nil {
		return err
	}
	if size != len(b) || need > len(b) {
		return framing.Error("its size is not what its header says")
	}
	in.size = size
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
