// Frames, as far as needed to split a stream of bytes into them.

package wsock

import "encoding/binary"

// header is a frame's header.
type header struct {
	first  byte // FIN, reserved bits and the opcode
	masked bool
	key    uint32 // if masked, its first byte lowest
	size   int    // of the header
	length uint64 // of the payload
}

const maxHeader = 14

// message reports whether the frame is a valid unfragmented message of at most this many bytes.
func (h *header) message(masked bool, most int) bool {
	const fin, text, binary = 0x80, 0x1, 0x2
	return (h.first == fin|text || h.first == fin|binary) && h.masked == masked && h.length <= uint64(most)
}

// control reports whether the frame is a valid ping or pong.
func (h *header) control(masked bool) bool {
	const fin = 0x80
	return (h.first == fin|opcodePing || h.first == fin|opcodePong) && h.masked == masked && h.length <= maxControl
}

// parseHeader reads a header; false if b does not contain all of it.
func parseHeader(b []byte) (h header, ok bool) {
	if len(b) < 2 {
		return h, false
	}
	h = header{first: b[0], masked: b[1]&0x80 != 0, size: 2, length: uint64(b[1] & 0x7f)}
	switch h.length {
	case 126:
		h.size = 4
	case 127:
		h.size = 10
	}
	key := h.size
	if h.masked {
		h.size += 4
	}
	if len(b) < h.size {
		return h, false
	}
	switch key {
	case 4:
		h.length = uint64(binary.BigEndian.Uint16(b[2:]))
	case 10:
		h.length = binary.BigEndian.Uint64(b[2:])
	}
	if h.masked {
		h.key = binary.LittleEndian.Uint32(b[key:])
	}
	return h, true
}

// frameTracker follows the frames of a stream of bytes, in pieces of any size.
type frameTracker struct {
	head [maxHeader]byte // of the present frame, as far as it has arrived
	n    int
	skip uint64 // bytes of its payload still to come
}

// atBoundary reports whether no frame has begun.
func (f *frameTracker) atBoundary() bool { return f.n == 0 && f.skip == 0 }

// consume returns how many of the next bytes belong to the present frame, or the next one if none has begun, and skips them.
func (f *frameTracker) consume(p []byte) (n int) {
	for f.skip == 0 && n < len(p) {
		f.head[f.n] = p[n]
		f.n++
		n++
		h, ok := parseHeader(f.head[:f.n])
		if !ok {
			continue
		}
		f.n, f.skip = 0, h.length
		if h.length == 0 {
			return n
		}
	}
	k := int(min(f.skip, uint64(len(p)-n)))
	f.skip -= uint64(k)
	return n + k
}
