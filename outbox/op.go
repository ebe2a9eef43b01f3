package outbox

// Op, Batch and Ticket.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/opid"
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
	// ViaSecret is the caller's secret for Via, and ForkViaSecret that for the ref that a fork,
	// or a create with a parent, names (via). If the stored secret differs, Commit refuses the batch with UnknownRef, so
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

// NewBatchID makes a batch id: a ULID of the present time whose last 16 bits are zero. Ids of
// one process ascend. Safe for concurrent use.
func NewBatchID() string { return opid.NewBatch() }

// OpID is the id that Commit gives to the op at index i (from 0), if it has none, of a batch
// with an id from NewBatchID. It is the batch's id plus i + 1, so a caller can refer to an op
// before it is committed, and find its batch without an index. For other batch ids it is a
// fresh ULID.
func OpID(batch string, i int) string { return opid.Of(batch, i) }
