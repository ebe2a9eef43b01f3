package machine

// The actions that the machine asks the loop to perform, in order.

import (
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Action is one step for the loop. kind says which fields count.
type Action struct {
	Kind         ActionKind
	Session      string
	ConnID       int
	Route        Route
	AwaitLastSeq bool
	Entry        *Entry
	Entries      []*Entry
	Through      uint64
	Batches      int
	Bytes        int
	At           time.Time
	Err          *fault.Error
	Outcomes     []ledger.Outcome
	Drops        map[int64]*fault.Error
}

type ActionKind uint8

const (
	ActPeek             ActionKind = iota // read the session's first row without a seq
	ActLoad                               // allocate seqs, up to a number of batches and bytes
	ActFindRoute                          // look up the routes of entries
	ActOpen                               // open a stream; with AwaitLastSeq, also ask for the server's last seq
	ActClose                              // close the stream
	ActSend                               // send entry, with acked_through
	ActAck                                // send acked_through alone
	ActFinish                             // store entry's outcomes; route: how a session that was not created is reached
	ActRecordAttempt                      // record entries' attempts, at (next retry) and err
	ActMarkInFlight                       // set entry's row from pending to in flight
	ActSetStopped                         // record that the stream stopped, err says why
	ActRaiseIncarnation                   // raise the incarnation
	ActResolveDrops                       // void the ops that drops names, of entries
	ActEndRefused                         // the server refuses the stream of route, for err: clear the seqs, deny route's batches
	ActFenced                             // the lease is lost
)
