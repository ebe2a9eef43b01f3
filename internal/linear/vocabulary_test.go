package linear

// Calls and answers. Both are comparable: an answer is right if it equals the
// model's.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Bounds of a history, so that its state is one comparable value.
const (
	maxRefs = 16
	maxKeys = 12
	maxOps  = 3 // of one batch
)

// ownerRef is the place of the owner's ref; those after it are shared.
const ownerRef = 0

// callKind is what is called.
type callKind uint8

const (
	callApply    callKind = iota // Stream.apply of a batch
	callRevoke                   // Session.revoke of a ref
	callBump                     // Session.revoke of the epoch
	callDescribe                 // Session.describe
	callEvents                   // Session.events, all of the log
	callRestore                  // Gateway.restore
)

// call is one call, under the ref in place ref.
type call struct {
	kind   callKind
	ref    int
	target int // callRevoke: the ref to revoke
	batch  batch
}

// batch is what callApply carries.
type batch struct {
	atomic bool
	n      int
	ops    [maxOps]op
}

func batchOf(ops ...op) batch {
	b := batch{n: len(ops)}
	copy(b.ops[:], ops)
	return b
}

// opKind is an op's method.
type opKind uint8

const (
	opPut opKind = iota
	opShare
	opRevoke
	opBump
	opRevert
	opUnrevert
)

// op is one op intent.
type op struct {
	kind     opKind
	key      int // opPut, opRevert
	value    int // opPut, from 1
	target   int // opShare: the new ref; opRevoke: the ref to revoke
	rights   capability.Rights
	compare  bool   // it has an expected cursor
	expected uint64 // which
}

// answer is what a call came back with.
type answer struct {
	lost bool // it never came back: whatever the call may have done, it did

	// A refusal of the call as a whole: of a restore, of a read, of Session.revoke.
	refused fault.Code
	at      uint64

	outcomes    [maxOps]outcome // callApply
	cursorKnown bool            // callApply: the ack's cursor is as of this very commit (a repeated answer's is not)
	cursor      uint64          // callApply: the ack's; callDescribe, callEvents: the session's
	cut         uint64          // callRevoke, callBump; callDescribe: the ref's
	epoch       uint64          // callRevoke, callBump, callDescribe: the session's
	dead        fault.Code      // callDescribe: what the ref fails with
	minted      uint64          // callDescribe: the ref's epoch
	log         string          // callEvents: see session.emit
}

// outcome is what became of one op.
type outcome struct {
	status    ledger.Status
	reason    fault.Code
	at        uint64 // of a denial: the cut or the epoch that it names
	cursor    uint64
	unchanged bool
	cut       uint64 // opRevoke, opBump
	epoch     uint64 // opShare, opBump
	cause     int    // batch_aborted: which op of the batch is the cause, counted from 1
}
