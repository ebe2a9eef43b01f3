// Package framing decides where one Cap'n Proto message ends and the next begins, in standard stream framing. Package rpc and its
// transports call it. The header is parsed here, so that the number of segments and the size are checked before anything is
// allocated for them. It touches nothing but its arguments.
package framing

import (
	"encoding/binary"
	"fmt"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// WordBytes is the size of a word.
const WordBytes = capnpfast.Bytes

// Limits bounds a message that is received.
type Limits struct{ MessageBytes, Segments int }

// The limits that are counted when a message is beyond them.
const (
	LimitMessageBytes peerconn.Limit = "message_bytes"
	LimitSegments     peerconn.Limit = "segments"
)

// Error says that the end of a message cannot be determined: the connection cannot go on.
type Error string

func (e Error) Error() string { return "malformed message: " + string(e) }

// Size returns the length of the framed message at the start of b, header included. need is how many bytes are needed
// to determine it: if it is above len(b), size is not known yet and 0.
func Size(b []byte, lim Limits) (size, need int, err error) {
	if len(b) < WordBytes {
		return 0, WordBytes, nil
	}
	last := binary.LittleEndian.Uint32(b)
	if uint64(last)+1 > uint64(lim.Segments) {
		err := Error(fmt.Sprintf("%d segments, the limit is %d", uint64(last)+1, lim.Segments))
		return 0, 0, peerconn.OverLimit(LimitSegments, err)
	}
	header := HeaderSize(int(last) + 1)
	if len(b) < header {
		return 0, header, nil
	}
	total := uint64(header)
	for i := 0; i <= int(last); i++ {
		total += uint64(binary.LittleEndian.Uint32(b[4+4*i:])) * WordBytes
	}
	if total > uint64(lim.MessageBytes) {
		return 0, 0, peerconn.OverLimit(LimitMessageBytes, Error(fmt.Sprintf("%d bytes, the limit is %d", total, lim.MessageBytes)))
	}
	return int(total), int(total), nil
}

// Split splits the first framed message off b.
func Split(b []byte, lim Limits) (one, rest []byte, err error) {
	size, need, err := Size(b, lim)
	if err != nil {
		return nil, nil, err
	}
	if need > len(b) {
		return nil, nil, Error(fmt.Sprintf("truncated: %d bytes of %d", len(b), need))
	}
	return b[:size:size], b[size:], nil
}

// HeaderSize returns the size of the segment table for n segments, in bytes.
func HeaderSize(n int) int { return (4 + 4*n + 7) &^ 7 }

// MessageSize returns the size of a message with framing, in bytes.
func MessageSize(m *capnp.Message) int {
	n := int(m.NumSegments())
	size := HeaderSize(n)
	for i := range n {
		if seg, err := m.Segment(capnp.SegmentID(i)); err == nil {
			size += len(seg.Data())
		}
	}
	return size
}

// Append appends a message in stream framing.
func Append(b []byte, m *capnp.Message) ([]byte, error) {
	n := int(m.NumSegments())
	start := len(b)
	b = append(b, make([]byte, HeaderSize(n))...)
	binary.LittleEndian.PutUint32(b[start:], uint32(n-1))
	for i := range n {
		seg, err := m.Segment(capnp.SegmentID(i))
		if err != nil {
			return b[:start], err
		}
		data := seg.Data()
		if len(data)%WordBytes != 0 {
			return b[:start], Error("a segment is not a whole number of words")
		}
		binary.LittleEndian.PutUint32(b[start+4+4*i:], uint32(len(data)/WordBytes))
		b = append(b, data...)
	}
	return b, nil
}

// AppendSegment appends a message whose one segment is in two parts, of whole words.
func AppendSegment(b, first, rest []byte) []byte {
	var header [WordBytes]byte
	binary.LittleEndian.PutUint32(header[4:], uint32((len(first)+len(rest))/WordBytes))
	return append(append(append(b, header[:]...), first...), rest...)
}

// TrustedSize is Size for messages we framed ourselves.
func TrustedSize(b []byte) int {
	n := int(binary.LittleEndian.Uint32(b)) + 1
	size := HeaderSize(n)
	for i := range n {
		size += int(binary.LittleEndian.Uint32(b[4+4*i:])) * WordBytes
	}
	return size
}
