// Package opid makes the ids of batches and ops. An op's id is counted up from its batch's, so
// that neither has to be stored where the other is known. The client makes ids before it
// commits, and the outbox reads a batch's id out of an op's.
package opid

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// opBits is the number of low bits of a batch id that are zero, for its ops' ids.
const opBits = 16

var batchIDs struct {
	sync.Mutex
	last ulid.ULID
}

// NewBatch makes a batch id: a ULID of the present time whose last 16 bits are zero. Ids of
// one process ascend. Safe for concurrent use.
func NewBatch() string {
	var id ulid.ULID
	_ = id.SetTime(uint64(time.Now().UnixMilli())) // fails in the year 10889
	_, _ = rand.Read(id[6:14])                     // never fails: it ends the process instead
	id[6] &= 0x7f                                  // leaves space to count up within a millisecond
	batchIDs.Lock()
	defer batchIDs.Unlock()
	if id.Compare(batchIDs.last) <= 0 || id.Time() == batchIDs.last.Time() {
		id = batchIDs.last
		step := binary.BigEndian.Uint64(id[6:14]) + 1
		binary.BigEndian.PutUint64(id[6:14], step)
	}
	batchIDs.last = id
	return id.String()
}

// Of is the id of the op at index i (from 0) of a batch with an id from NewBatch: the batch's id
// plus i + 1. For other batch ids it is a fresh ULID.
func Of(batch string, i int) string {
	if id, ok := DerivedFrom(batch).At(i); ok {
		return id.String()
	}
	return ulid.Make().String()
}

// Sequence returns Of of n indexes from first on, at the cost of about one.
func Sequence(batch string, first, n int) []string {
	ids := make([]string, n)
	from := DerivedFrom(batch)
	text := make([]byte, 0, n*ulid.EncodedSize)
	for i := range ids {
		id, ok := from.At(first + i)
		if !ok {
			ids[i] = Of(batch, first+i)
			continue
		}
		text = text[:len(text)+ulid.EncodedSize]
		_ = id.MarshalTextTo(text[len(text)-ulid.EncodedSize:]) // text has space
	}
	for i, all := 0, string(text); len(all) > 0; i++ {
		ids[i], all = all[:ulid.EncodedSize], all[ulid.EncodedSize:]
	}
	return ids
}

// BatchOf is the batch id that op belongs to if Of made it.
func BatchOf(op string) string {
	id, err := ulid.ParseStrict(op)
	if err != nil {
		return ""
	}
	id[14], id[15] = 0, 0
	return id.String()
}

// Derived derives the ids that Of gives to a batch's ops.
type Derived struct {
	base        ulid.ULID
	batch       string // the batch id as text
	Underivable bool   // Of does not count up from this batch's id
}

func DerivedFrom(batch string) Derived {
	id, ok := Parse(batch)
	return Derived{id, batch, !ok || id[14] != 0 || id[15] != 0}
}

// hasIndex reports whether there is an id for the op at index place.
func (d Derived) hasIndex(place int) bool {
	return !d.Underivable && place >= 0 && place+1 < 1<<opBits
}

// At returns the id of the op at index place; ok is false if there is none.
func (d Derived) At(place int) (id ulid.ULID, ok bool) {
	if !d.hasIndex(place) {
		return id, false
	}
	id = d.base
	binary.BigEndian.PutUint16(id[14:], uint16(place+1))
	return id, true
}

// Last returns the last id that can be derived.
func (d Derived) Last() string {
	id := d.base
	id[14], id[15] = 0xff, 0xff
	return id.String()
}

// Has reports whether op is the id of the op at index place. Ids of one batch differ in their
// last four characters, of five bits each.
func (d Derived) Has(place int, op string) bool {
	const same = ulid.EncodedSize - 4
	if !d.hasIndex(place) || len(op) != ulid.EncodedSize || op[:same] != d.batch[:same] {
		return false
	}
	end := uint32(d.base[13])<<16 | uint32(place+1)
	for i := ulid.EncodedSize - 1; i >= same; i-- {
		if op[i] != ulid.Encoding[end%32] {
			return false
		}
		end /= 32
	}
	return true
}

// Parse parses a ULID in canonical spelling.
func Parse(s string) (id ulid.ULID, ok bool) {
	id, err := ulid.ParseStrict(s)
	return id, err == nil && isCanonical(id, s)
}

// isCanonical reports whether s is id's canonical spelling.
func isCanonical(id ulid.ULID, s string) bool {
	var text [ulid.EncodedSize]byte
	return id.MarshalTextTo(text[:]) == nil && string(text[:]) == s
}

func IsULID(s string) bool {
	_, ok := Parse(s)
	return ok
}
