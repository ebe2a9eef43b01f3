package outbox

// What callers put in and get back.

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// Op is one op intent as its author states it.
type Op struct {
	// ID is the op id, a ULID. Empty: OpID of the batch and the op's place is
	// taken, which is also the cheapest to store.
	ID     string
	Method string
	Args   []ledger.Arg
	// DependsOn names ops without which this one must not apply.
	DependsOn []string
	Expected  ledger.Expect
	// Retries names the failed op that this one stands for, if any. It stays in
	// the outbox: Row shows it, and later references to the old op follow it.
	Retries string
}

// Batch is what Commit makes durable as a whole: ops of one session.
//
// References, in Args, Expected and DependsOn, name ops that come earlier in the
// batch or are in the outbox already, of this session or another.
type Batch struct {
	// ID is the batch id, a ULID; NewBatchID makes one, and so does Commit if it
	// is empty. Committing the same batch under the same id again changes
	// nothing and gives the same Ticket.
	ID      string
	Session string // ses_ + ULID
	// Via is the id of the ref to send through, one that PutRef has stored. ""
	// is the session's own (RefFor). A batch that begins with create or fork
	// names the space's ref here; "" is the only space ref there is.
	Via string
	// ViaSecret is the secret that the caller has for Via, and ForkViaSecret the one for
	// the ref that a fork names (via). If another one is stored, Commit refuses the batch
	// as UnknownRef, so that nothing goes out under a ref of which the caller knew the id
	// alone. The zero Secret is not compared.
	ViaSecret, ForkViaSecret capability.Secret

	// Owner is the ref of its session that a batch which begins with create or fork
	// mints: it is stored with the batch, or not at all, as PutRef would. nil if it is
	// stored otherwise, or kept elsewhere.
	Owner *OwnerRef

	Atomic bool
	Ops    []Op
	// JSONChecked says that its caller has found all arguments to be JSON text in UTF-8:
	// Commit does not look again. The server does.
	JSONChecked bool
}

// OwnerRef is a ref and what is to be remembered of it; its role is SessionOwner.
type OwnerRef struct {
	Ref  capability.Ref
	Meta RefMeta
}

// Ticket names a committed batch and its ops, in order. Any later process can
// Wait on it, for 30 days after the batch is finished.
type Ticket struct {
	Batch string
	Ops   []string
}

// opBits is how many low bits of a batch id are zero: room for its ops' ids.
const opBits = 16

var batchIDs struct {
	sync.Mutex
	last ulid.ULID
}

// NewBatchID makes a batch id: a ULID of the present time whose last 16 bits are
// zero. Ids of one process are ascending. Safe for concurrent use.
func NewBatchID() string {
	var id ulid.ULID
	_ = id.SetTime(uint64(time.Now().UnixMilli())) // fails in the year 10889
	_, _ = rand.Read(id[6:14])                     // never fails: it ends the process instead
	id[6] &= 0x7f                                  // room to count up within a millisecond
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

// OpID is the id that Commit gives to the op at place i (from 0) of a batch with
// an id from NewBatchID, if it has none. It is the batch's id plus i + 1, so one
// can refer to an op before it is committed, and find its batch without an
// index. For other batch ids it is a fresh ULID.
func OpID(batch string, i int) string {
	if id, ok := derivedFrom(batch).at(i); ok {
		return id.String()
	}
	return ulid.Make().String()
}

// OpIDs is OpID of n places from first on, at the cost of about one.
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
		_ = id.MarshalTextTo(text[len(text)-ulid.EncodedSize:]) // there is room
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

// derivedIDs are the ids that OpID gives to a batch's ops.
type derivedIDs struct {
	base        ulid.ULID
	batch       string // its text
	underivable bool   // OpID does not count up from this batch's id
}

func derivedFrom(batch string) derivedIDs {
	id, ok := parseID(batch)
	return derivedIDs{id, batch, !ok || id[14] != 0 || id[15] != 0}
}

// hasIndex says whether there is an id for the op at place.
func (d derivedIDs) hasIndex(place int) bool {
	return !d.underivable && place >= 0 && place+1 < 1<<opBits
}

// at is the id of the op at place, ok if there is one.
func (d derivedIDs) at(place int) (id ulid.ULID, ok bool) {
	if !d.hasIndex(place) {
		return id, false
	}
	id = d.base
	binary.BigEndian.PutUint16(id[14:], uint16(place+1))
	return id, true
}

// last is the last id there can be.
func (d derivedIDs) last() string {
	id := d.base
	id[14], id[15] = 0xff, 0xff
	return id.String()
}

// has says whether op is the id of the op at place. Ids of one batch differ in
// their last four characters, of five bits each.
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

// parseID reads a ULID in its one canonical spelling.
func parseID(s string) (id ulid.ULID, ok bool) {
	id, err := ulid.ParseStrict(s)
	return id, err == nil && isCanonical(id, s)
}

// isCanonical says whether s is id's canonical spelling.
func isCanonical(id ulid.ULID, s string) bool {
	var text [ulid.EncodedSize]byte
	return id.MarshalTextTo(text[:]) == nil && string(text[:]) == s
}
