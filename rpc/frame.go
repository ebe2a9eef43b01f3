// Framing: where one Cap'n Proto message ends and the next begins. We parse the header ourselves, so that the number
// of segments and the size are checked before anything is allocated for them.

package rpc

import (
	"encoding/binary"
	"fmt"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
)

const wordBytes = capnpfast.Bytes

// frameError says that the end of a message cannot be determined: the connection cannot go on.
type frameError string

func (e frameError) Error() string { return "malformed message: " + string(e) }

// frameSize returns the length of the framed message at the start of b, header included. need is how many bytes are needed
// to determine it: if it is above len(b), size is not known yet and 0.
func frameSize(b []byte, lim *Limits) (size, need int, err error) {
	if len(b) < wordBytes {
		return 0, wordBytes, nil
	}
	last := binary.LittleEndian.Uint32(b)
	if uint64(last)+1 > uint64(lim.Segments) {
		err := frameError(fmt.Sprintf("%d segments, the limit is %d", uint64(last)+1, lim.Segments))
		return 0, 0, limitError{LimitSegments, err}
	}
	header := headerSize(int(last) + 1)
	if len(b) < header {
		return 0, header, nil
	}
	total := uint64(header)
	for i := 0; i <= int(last); i++ {
		total += uint64(binary.LittleEndian.Uint32(b[4+4*i:])) * wordBytes
	}
	if total > uint64(lim.MessageBytes) {
		return 0, 0, limitError{LimitMessageBytes, frameError(fmt.Sprintf("%d bytes, the limit is %d", total, lim.MessageBytes))}
	}
	return int(total), int(total), nil
}

// headerSize returns the size of the segment table for n segments, in bytes.
func headerSize(n int) int { return (4 + 4*n + 7) &^ 7 }

// splitFrame splits the first framed message off b.
func splitFrame(b []byte, lim *Limits) (frame, rest []byte, err error) {
	size, need, err := frameSize(b, lim)
	if err != nil {
		return nil, nil, err
	}
	if need > len(b) {
		return nil, nil, frameError(fmt.Sprintf("truncated: %d bytes of %d", len(b), need))
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
func parseFrame(frame []byte, lim *Limits) (*inMsg, error) {
	in := &inMsg{size: len(frame)}
	return in, in.parse(frame, lim)
}

// parse sets in to a frame. The previous message of in must not be in use any more.
func (in *inMsg) parse(frame []byte, lim *Limits) error {
	size, need, err := frameSize(frame, lim)
	if err != nil {
		return err
	}
	if size != len(frame) || need > len(frame) {
		return frameError("its size is not what its header says")
	}
	in.size = size
	n := int(binary.LittleEndian.Uint32(frame)) + 1
	in.msg.TraverseLimit = uint64(lim.Traversal)
	in.msg.DepthLimit = uint(lim.Nesting)
	body := frame[headerSize(n):]
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
			end := int(binary.LittleEndian.Uint32(frame[4+4*i:])) * wordBytes
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
		return frameError(err.Error())
	}
	return nil
}

// messageSize returns the size of a message with framing, in bytes.
func messageSize(m *capnp.Message) int {
	n := int(m.NumSegments())
	size := headerSize(n)
	for i := range n {
		if seg, err := m.Segment(capnp.SegmentID(i)); err == nil {
			size += len(seg.Data())
		}
	}
	return size
}

// appendFrame appends a message in stream framing.
func appendFrame(b []byte, m *capnp.Message) ([]byte, error) {
	n := int(m.NumSegments())
	start := len(b)
	b = append(b, make([]byte, headerSize(n))...)
	binary.LittleEndian.PutUint32(b[start:], uint32(n-1))
	for i := range n {
		seg, err := m.Segment(capnp.SegmentID(i))
		if err != nil {
			return b[:start], err
		}
		data := seg.Data()
		if len(data)%wordBytes != 0 {
			return b[:start], frameError("a segment is not a whole number of words")
		}
		binary.LittleEndian.PutUint32(b[start+4+4*i:], uint32(len(data)/wordBytes))
		b = append(b, data...)
	}
	return b, nil
}

// trustedFrameSize is frameSize for messages we framed ourselves.
func trustedFrameSize(b []byte) int {
	n := int(binary.LittleEndian.Uint32(b)) + 1
	size := headerSize(n)
	for i := range n {
		size += int(binary.LittleEndian.Uint32(b[4+4*i:])) * wordBytes
	}
	return size
}
