// What a wild peer says: plausible messages about what is alive, and lies.

package rpc

import (
	"encoding/binary"
	"slices"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/table"
)

// message writes the next thing to say; nil if there is nothing.
func (w *wild) message() []byte {
	lie := w.lies > 0 && w.d.n(w.lies) == w.lies-1
	if !w.write(lie) {
		return nil
	}
	frame := w.pen.end()
	w.sent++
	if lie && w.d.n(2) == 1 {
		frame = w.spoil(frame)
	}
	return frame
}

// spoil damages a message.
func (w *wild) spoil(b []byte) []byte {
	words := len(b)/framing.WordBytes - 1
	at := penHeader + framing.WordBytes*w.d.n(words)
	switch w.d.n(8) {
	case 0: // one bit
		b[w.d.n(len(b))] ^= 1 << w.d.n(8)
	case 1: // one byte
		b[at+w.d.n(8)] = byte(w.d.n(256))
	case 2: // one word is another
		copy(b[at:at+framing.WordBytes], b[penHeader+framing.WordBytes*w.d.n(words):])
	case 3: // a pointer somewhere else
		v := binary.LittleEndian.Uint64(b[at:])
		binary.LittleEndian.PutUint64(b[at:], v+uint64(w.d.n(9)-4)<<2)
	case 4: // a size or a count
		b[at+4+w.d.n(4)] += byte(w.d.n(16))
	case 5: // cut short
		words = w.d.n(words)
		b = b[:penHeader+words*framing.WordBytes]
		binary.LittleEndian.PutUint32(b[4:], uint32(words))
	case 6: // a null
		clear(b[at : at+framing.WordBytes])
	case 7: // the header
		b[w.d.n(penHeader)] ^= byte(1 << w.d.n(8))
	}
	return b
}

// pickKey takes one of a map's keys, the same for the same dice.
func pickKey[V any](d *dice, m map[uint32]V, ok func(V) bool) (uint32, bool) {
	ks := make([]uint32, 0, 16)
	for k, v := range m {
		if ok(v) {
			ks = append(ks, k)
		}
	}
	if len(ks) == 0 {
		return 0, false
	}
	slices.Sort(ks)
	return ks[d.n(len(ks))], true
}

func always[V any](V) bool { return true }

// bent is a number that is nearly right.
func (w *wild) bent(id uint32) uint32 {
	switch w.d.n(5) {
	case 0:
		return id + 1
	case 1:
		return id - 1
	case 2:
		return uint32(w.d.n(8))
	case 3:
		return ^uint32(0) - uint32(w.d.n(2))
	}
	return id
}

// write writes one message; false if there is nothing to say.
func (w *wild) write(lie bool) bool {
	d, p, b := w.d, &w.pen, w.b
	num := func(id uint32) uint32 {
		if lie && d.n(2) == 1 {
			return w.bent(id)
		}
		return id
	}
	tag := func(v, n int) uint16 {
		if lie && d.n(4) == 3 {
			return uint16(d.n(n + 2))
		}
		return uint16(v)
	}
	kind := d.n(16)
	if w.client && kind < 8 && len(b.open) > 0 && d.n(2) == 0 {
		kind = 8
	}
	if kind < 6 && b.unfinished() > wildLimits.Answers+20 && !lie {
		kind = 6 // at twice as many as may be unanswered it would be cut off
	}
	switch kind {
	case 0:
		at := p.begin(rpccp.Message_Which_bootstrap, 1, 1)
		p.put32(at, 0, num(w.question()))
	case 1, 2, 3, 4, 5:
		t, ok := w.target()
		if !ok && !lie {
			return false
		}
		at := p.begin(rpccp.Message_Which_call, 3, 3)
		p.put32(at, 0, num(w.question()))
		number := d.n(1000)
		p.put16(at, 4, uint16(number%wildMethods))
		if d.n(8) == 7 {
			p.put16(at, 6, 1) // yourself
			if d.n(2) == 1 {
				number = 3 // answered later
				p.put16(at, 4, 3)
			}
		}
		if lie {
			p.put16(at, 6, tag(0, 3))
			p.put8(at+2, 0, uint8(d.n(8)))
		}
		p.put64(at+1, 0, testInterface)
		t.id = num(t.id)
		t.tag = tag(int(t.tag), 2)
		p.target(at+3, t)
		p.payload(at+4, uint64(number), "hello", uint32(d.n(2)*d.n(2)), w.caps(lie, false))
	case 6, 7:
		id, ok := pickKey(d, b.asked, func(q *wildQuestion) bool { return !q.finished })
		if !ok && !lie {
			return false
		}
		at := p.begin(rpccp.Message_Which_finish, 1, 0)
		p.put32(at, 0, num(id))
		flags := uint8(d.n(4))
		if q := b.asked[id]; q != nil && !w.allHeld(q.exports) && !lie {
			flags |= 1 // keeps the results' capabilities: some are released already
		}
		p.put8(at, 4, flags)
	case 8, 9, 10:
		return w.writeReturn(lie, num, tag)
	case 11:
		id, ok := pickKey(d, b.held, always)
		if !ok && !lie {
			return false
		}
		n := uint32(1)
		if have := int(b.held[id]); have > 1 {
			n += uint32(d.n(have))
		}
		at := p.begin(rpccp.Message_Which_release, 1, 0)
		p.put32(at, 0, num(id))
		p.put32(at, 4, num(n))
	case 12, 13:
		id, ok := pickKey(d, b.hosted, func(e *wildExport) bool { return e.promise })
		if !ok && !lie {
			return false
		}
		if e := b.hosted[id]; e != nil {
			e.promise = false // one resolve each
		}
		at := p.begin(rpccp.Message_Which_resolve, 1, 1)
		p.put32(at, 0, num(id))
		if caps := w.caps(lie, false); len(caps) > 0 && d.n(5) > 0 {
			p.descriptor(p.object(at+1, 1, 1), caps[0])
			p.put16(at, 4, tag(0, 2))
		} else {
			p.exception(at+1, uint16(d.n(4)), "no")
			p.put16(at, 4, tag(1, 2))
		}
	case 14:
		at := p.begin(rpccp.Message_Which_disembargo, 1, 1)
		if len(b.lifts) > 0 {
			p.put32(at, 0, num(b.lifts[0]))
			p.put16(at, 4, tag(1, 3))
		} else if lie {
			t, _ := w.target()
			p.target(at+1, t)
			p.put32(at, 0, uint32(d.n(100)))
			p.put16(at, 4, tag(0, 3))
		} else {
			return false
		}
	case 15:
		return w.writeOdd(lie)
	}
	return true
}

func (w *wild) writeReturn(lie bool, num func(uint32) uint32, tag func(v, n int) uint16) bool {
	d, p, b := w.d, &w.pen, w.b
	any := lie && d.n(4) == 0
	id, ok := pickKey(d, b.open, func(q *wildQuestion) bool { return any || !q.returned })
	if !ok && !lie {
		return false
	}
	q := b.open[id]
	if q == nil {
		q = &wildQuestion{}
	}
	at := p.begin(rpccp.Message_Which_return, 2, 1)
	p.put32(at, 0, num(id))
	flags := uint8(1) // keeps the parameters' capabilities
	if d.n(6) == 5 && w.allHeld(q.exports) || lie && d.n(4) == 3 {
		flags = 0
	}
	if lie {
		flags ^= uint8(d.n(4) &^ 1)
	}
	p.put8(at, 4, flags)
	switch d.n(8) {
	case 0:
		p.put16(at, 6, tag(1, 6))
		p.exception(at+2, uint16(d.n(4)), "the peer's reason")
	case 1:
		p.put16(at, 6, tag(2, 6)) // canceled
	case 2, 3:
		from, ok := pickKey(d, b.asked, func(q *wildQuestion) bool {
			return q.yourself && (lie || !q.finished && !q.taken)
		})
		if ok || lie {
			p.put16(at, 6, tag(4, 6))
			p.put32(at, 8, num(from))
			if q := b.asked[from]; q != nil {
				q.taken = true // once only
			}
			break
		}
		fallthrough
	default:
		p.put16(at, 6, tag(0, 6))
		caps := w.caps(lie, q.finished)
		if q.boot && len(caps) > 0 {
			p.bootCap(at+2, caps[0])
		} else {
			p.payload(at+2, uint64(d.n(256)), "", 0, caps)
		}
	}
	return true
}

// allHeld says whether the peer holds all of these still, so that it may release them with a return.
func (w *wild) allHeld(exports []uint32) bool {
	need := map[uint32]uint32{}
	for _, id := range exports {
		need[id]++
	}
	for id, n := range need {
		if w.b.held[id] < n {
			return false
		}
	}
	return true
}

// writeOdd writes what is seldom said: messages of other levels, unimplemented ones, aborts.
func (w *wild) writeOdd(lie bool) bool {
	d, p, b := w.d, &w.pen, w.b
	switch d.n(4) {
	case 0: // provide, accept, join, thirdPartyAnswer, obsolete ones and what nobody knows
		p.begin(rpccp.Message_Which([]int{10, 11, 12, 14, 7, 9, 15, 16, 65535}[d.n(9)]), 1, 2)
	case 1: // a call or a bootstrap sent back
		id, ok := pickKey(d, b.open, func(q *wildQuestion) bool { return lie || !q.returned && w.allHeld(q.exports) })
		if !ok && !lie {
			return false
		}
		at := p.begin(rpccp.Message_Which_unimplemented, 1, 1)
		which := rpccp.Message_Which_call
		if lie && d.n(2) == 1 {
			which = rpccp.Message_Which(d.n(16))
		}
		p.put16(at, 0, uint16(which))
		p.put32(p.object(at+1, 3, 3), 0, id)
	case 2: // a resolve sent back
		id, ok := pickKey(d, b.held, always)
		if !ok {
			return false
		}
		at := p.begin(rpccp.Message_Which_unimplemented, 1, 1)
		p.put16(at, 0, uint16(rpccp.Message_Which_resolve))
		r := p.object(at+1, 1, 1)
		p.descriptor(p.object(r+1, 1, 1), wildCap{tag: 1, id: id})
	case 3:
		if !lie || d.n(3) > 0 {
			return false
		}
		at := p.begin(rpccp.Message_Which_abort, 1, 3)
		p.put16(at, 4, uint16(d.n(6)))
		p.text(at+1, "goroutine 1 [running]:\n\x00\xff")
	}
	return true
}

// question is a number that is free, low or about where numbers begin to need their finish always.
func (w *wild) question() uint32 {
	for id := []uint32{0, 1, table.IDSetSize - 2}[w.d.n(3)]; ; id++ {
		if w.b.free(id) {
			return id
		}
	}
}

// target is something of the vat's.
func (w *wild) target() (wildTarget, bool) {
	if w.d.n(2) == 0 {
		if id, ok := pickKey(w.d, w.b.held, always); ok {
			return wildTarget{tag: 0, id: id}, true
		}
	}
	id, path, ok := w.answer()
	return wildTarget{tag: 1, id: id, path: path}, ok
}

// answer is a path of a question of the peer's.
func (w *wild) answer() (id uint32, path []uint16, ok bool) {
	id, ok = pickKey(w.d, w.b.asked, func(q *wildQuestion) bool { return !q.finished })
	if q := w.b.asked[id]; q != nil && q.boot && w.d.n(8) > 0 {
		return id, nil, ok
	}
	switch w.d.n(8) {
	case 6:
		path = []uint16{0}
	case 7:
		path = []uint16{1, uint16(w.d.n(3)), 0, 1}[:1+w.d.n(4)]
	default:
		path = []uint16{1}
	}
	return id, path, ok
}

// caps is a table of things to pass. Nothing is counted that the vat will not count: given up says that it is not.
func (w *wild) caps(lie, givenUp bool) []wildCap {
	n := []int{1, 1, 1, 0, 0, 2, 3}[w.d.n(7)]
	if givenUp {
		n = 0
	}
	caps := make([]wildCap, 0, n)
	fresh := map[uint32]bool{} // named in this table as promises or not
	for range n {
		var c wildCap
		switch w.d.n(6) {
		case 0, 1, 2:
			c.tag, c.id = 1, uint32(w.d.n(10))
			e := w.b.hosted[c.id]
			promise, known := fresh[c.id]
			switch {
			case e != nil && e.promise || known && promise:
				c.tag = 2
			case e == nil && !known && w.d.n(2) == 0:
				c.tag = 2
			}
			fresh[c.id] = c.tag == 2
		case 3:
			if id, ok := pickKey(w.d, w.b.held, always); ok {
				c.tag, c.id = 3, id
			}
		case 4:
			if id, path, ok := w.answer(); ok {
				c.tag, c.id, c.path = 4, id, path
			}
		case 5:
			if w.d.n(4) == 0 && w.b.hosted[9] == nil {
				c.tag, c.id = 5, 11
			}
		}
		if lie && w.d.n(3) == 2 {
			c.id = w.bent(c.id)
			c.tag = uint16(w.d.n(8))
		}
		caps = append(caps, c)
	}
	return caps
}
