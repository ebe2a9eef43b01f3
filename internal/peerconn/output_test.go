package peerconn

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
)

// TestOutputKeepsMessagesInOrder: whatever their sizes, all come out once, in order, in chunks that are no larger than need be; and
// memory that is free for others holds no message that is still to be written.
func TestOutputKeepsMessagesInOrder(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 200 {
		var outs [2]Output
		var want, got [2][]string
		taken := func(of int, m *buffer) {
			o, from := &outs[of], 0
			for _, end := range m.ends {
				got[of], from = append(got[of], string(m.b[from:end])), end
			}
			if from != len(m.b) || from > ChunkBytes && len(m.ends) > 1 {
				t.Fatalf("a chunk of %d bytes with %d messages, up to %d", len(m.b), len(m.ends), from)
			}
			for i := range m.b {
				m.b[i] = 0xff // as if others had it
			}
			m.free()
			if o.pending() == 0 && (o.Bytes != nil || o.memory != nil || o.chunks != nil) {
				t.Fatal("memory is kept for nothing")
			}
		}
		for i := range 60 {
			of := rnd.IntN(2)
			o := &outs[of]
			switch rnd.IntN(5) {
			case 0:
				if o.pending() > 0 {
					taken(of, o.take())
				}
			case 1:
				if o.pending() > 0 {
					o.putBack(o.take())
				}
			default:
				m := bytes.Repeat([]byte(fmt.Sprint(i%10)), []int{1, 100, 2000, 30000, ChunkBytes, 3 * ChunkBytes}[rnd.IntN(6)])
				before := o.Size()
				o.Reserve(len(m))
				room := cap(o.Bytes)
				o.Bytes = append(o.Bytes, m...)
				o.EndMessage(i%2 == 0)
				want[of] = append(want[of], string(m))
				if o.Size() != before+len(m) || cap(o.Bytes) != room {
					t.Fatalf("%d bytes after %d and %d, in memory of %d and then %d", o.Size(), before, len(m), room, cap(o.Bytes))
				}
			}
		}
		for of := range outs {
			for outs[of].pending() > 0 {
				taken(of, outs[of].take())
			}
			if fmt.Sprint(got[of]) != fmt.Sprint(want[of]) {
				t.Fatalf("%d messages came out, %d went in, or others", len(got[of]), len(want[of]))
			}
		}
	}
}

// TestUrgentOutputStaysUrgent while a part of it has not been taken.
func TestUrgentOutputStaysUrgent(t *testing.T) {
	t.Parallel()
	var o Output
	for range 3 {
		o.Reserve(ChunkBytes)
		o.Bytes = append(o.Bytes, make([]byte, ChunkBytes)...)
		o.EndMessage(true)
	}
	for left := 2; left >= 0; left-- {
		o.take()
		if o.Urgent != (left > 0) || o.pending() != left*ChunkBytes {
			t.Errorf("%d chunks are left: urgent is %t, %d bytes wait", left, o.Urgent, o.pending())
		}
	}
}
