package outbox

// Op, Batch, Ticket and their ids.

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// Op is one op intent of a Batch.
type Op struct {
	// ID is the op id, a ULID. If empty, OpID of the batch and the op's index is used, which is
	// also the cheapest to store.
	ID     string
	Method string
	Args   []ledger.Arg
	// DependsOn lists ops without which this one must not apply.
	DependsOn []string
	Expected  ledger.Expect
	// Retries is the failed op that this one retries, if any. It is not sent: Row shows it, and
	// later references to the old op follow it.
	Retries string
}

// Batch is a set of ops of one session that Commit makes durable as a whole.
//
// References, in Args, Expected and DependsOn, name ops that come earlier in the batch or are
// in the outbox already, of this session or another.
type Batch struct {
	// ID is the batch id, a ULID. If empty, Commit makes one with NewBatchID. Committing the
	// same batch under the same id again changes nothing and gives the same Ticket.
	ID      string
	Session string // ses_ + ULID
	// Via is the id of the ref to send through, stored with PutRef. If empty, it is the
	// session's own (RefFor). A batch that begins with create or fork names the space's ref
	// here; if empty, the only space ref.
	Via string
	// ViaSecret is the caller's secret for Via, and ForkViaSecret that for the ref that a fork
	// names (via). If the stored secret differs, Commit refuses the batch with UnknownRef, so
	// that a caller that knows only a ref's id cannot send through it. The zero Secret is not
	// compared.
	ViaSecret, ForkViaSecret capability.Secret

	// Owner is the ref that a batch which begins with create or fork mints. It is stored in the
	// batch's transaction, as PutRef would; nil if the caller stores it.
	Owner *OwnerRef

	Atomic bool
	Ops    []Op
	// JSONChecked reports that the caller has found all arguments to be JSON text in UTF-8:
	// Commit does not check again. The server does.
	JSONChecked bool
}

// OwnerRef is a ref and its metadata; its role is SessionOwner.
type OwnerRef struct {
	Ref  capability.Ref
	Meta RefMeta
}

// Ticket names a committed batch and its ops, in order. Any later process can Wait on it, for
// 30 days after the batch is finished.
type Ticket struct {
	Batch string
	Ops   []string
}

// opBits is the number of low bits of a batch id that are zero, for its ops' ids.
const opBits = 16

var batchIDs struct {
	sync.Mutex
	last ulid.ULID
}

// NewBatchID makes a batch id: a ULID of the present time whose last 16 bits are zero. Ids of
// one process ascend. Safe for concurrent use.
func NewBatchID() string {
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

// OpID is the id that Commit gives to the op at index i (from 0), if it has none, of a batch
// with an id from NewBatchID. It is the batch's id plus i + 1, so a caller can refer to an op
// before it is committed, and find its batch without an index. For other batch ids it is a
// fresh ULID.
func OpID(batch string, i int) string {
	if id, ok := derivedFrom(batch).at(i); ok {
		return id.String()
	}
	return ulid.Make().String()
}

// OpIDs returns OpID of n indexes from first on, at the cost of about one.
func OpIDs(batch string, first, n int) []string {
	ids := make([]string, n)
	from := derivedFrom(batch)
	text := make([]byte, 0, n*ulid.EncodedSize)
	for i := range ids {
		id, ok := from.at(first + i)
		if !ok {
			ids[i] = OpID(batch, first+i)
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

// batchOf is the batch id that op belongs to if OpID made it.
func batchOf(op string) string {
	id, err := ulid.ParseStrict(op)
	if err != nil {
		return ""
	}
	id[14], id[15] = 0, 0
	return id.String()
}

// derivedIDs derives the ids that OpID gives to a batch's ops.
type derivedIDs struct {
	base        ulid.ULID
	batch       string // the batch id as text
	underivable bool   // OpID does not count up from this batch's id
}

func derivedFrom(batch string) derivedIDs {
	id, ok := parseID(batch)
	return derivedIDs{id, batch, !ok || id[14] != 0 || id[15] != 0}
}

// hasIndex reports whether there is an id for the op at index place.
func (d derivedIDs) hasIndex(place int) bool {
	return !d.underivable && place >= 0 && place+1 < 1<<opBits
}

// at returns the id of the op at index place; ok is false if there is none.
func (d derivedIDs) at(place int) (id ulid.ULID, ok bool) {
	if !d.hasIndex(place) {
		return id, false
	}
	id = d.base
	binary.BigEndian.PutUint16(id[14:], uint16(place+1))
	return id, true
}

// last returns the last id that can be derived.
func (d derivedIDs) last() string {
	id := d.base
	id[14], id[15] = 0xff, 0xff
	return id.String()
}

// has reports whether op is the id of the op at index place. Ids of one batch differ in their
// last four characters, of five bits each.
func (d derivedIDs) has(place int, op string) bool {
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

// parseID parses a ULID in canonical spelling.
func parseID(s string) (id ulid.ULID, ok bool) {
	id, err := ulid.ParseStrict(s)
	return id, err == nil && isCanonical(id, s)
}

// isCanonical reports whether s is id's canonical spelling.
func isCanonical(id ulid.ULID, s string) bool {
	var text [ulid.EncodedSize]byte
	return id.MarshalTextTo(text[:]) == nil && string(text[:]) == s
}
