// Package wirelayout says where capnp/mooring.capnp has the fields of what Stream.apply takes and gives, and of the events that
// followers are sent, for code that reads and writes them by hand (package internal/capnpfast): sizes in words, numbers by byte of their struct's data, pointers by their
// place among a struct's pointers. Tests hold it to the generated code.
package wirelayout

import "github.com/mooring-rpc/mooring/internal/capnpfast"

// Parameters of apply.
const (
	ParamsBatch = 0
	ParamsWith  = 1
)

// Batch is the size of a batch.
var Batch = capnpfast.Size{Data: 2, Pointers: 3}

// Fields of a batch.
const (
	BatchAtomic       = 0 // a bit
	BatchAckedThrough = 8
	BatchID           = 0
	BatchOps          = 1
	BatchHints        = 2
)

// Op is the size of an op.
var Op = capnpfast.Size{Data: 3, Pointers: 5}

// Fields of an op.
const (
	OpSeq            = 0
	OpExpected       = 8 // which of the union
	OpExpectedCursor = 16
	OpID             = 0
	OpMethod         = 1
	OpArgs           = 2
	OpDependsOn      = 3
)

// Arg is the size of an argument.
var Arg = capnpfast.Size{Data: 1, Pointers: 2}

// Fields of an argument.
const (
	ArgWhich = 0
	ArgName  = 0
	ArgJSON  = 1
)

// Results of apply, and ApplyReply.
const (
	ResultsReply = 0
	ReplyWhich   = 0
	ReplyAck     = 0
)

// Ack is the size of an ack.
var Ack = capnpfast.Size{Data: 3, Pointers: 1}

// Fields of an ack.
const (
	AckCursor   = 0
	AckOutcomes = 0
)

// Outcome is the size of an outcome.
var Outcome = capnpfast.Size{Data: 3, Pointers: 4}

// Fields of an outcome.
const (
	OutcomeStatus    = 0
	OutcomeDuplicate = 8 // a bit
	OutcomeReason    = 2
	OutcomeCursor    = 8
	OutcomeAt        = 16
	OutcomeOp        = 0
	OutcomeMessage   = 1
	OutcomeResult    = 2
	OutcomeCause     = 3
)

// SinkEvents is the parameter of a sink's call with events.
const SinkEvents = 0

// Fields of an event.
const (
	EventCursor  = 0
	EventSchema  = 8
	EventPurged  = 96 // a bit
	EventHidden  = 97 // a bit
	EventAt      = 16
	EventMethod  = 0
	EventKey     = 1
	EventPayload = 2
	EventRef     = 3
	EventActor   = 4
	EventOp      = 5
	EventBatch   = 6
	EventOutbox  = 7
	EventHash    = 8
	EventSum     = 9
)
