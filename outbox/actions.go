package outbox

// The actions that the machine asks the loop to perform, in order.

import (
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// action is one step for the loop. kind says which fields count.
type action struct {
	kind         actionKind
	session      string
	connID       int
	route        route
	awaitLastSeq bool
	entry        *entry
	entries      []*entry
	through      uint64
	batches      int
	bytes        int
	at           time.Time
	err          *fault.Error
	outcomes     []ledger.Outcome
	drops        map[int64]*fault.Error
}

type actionKind uint8

const (
	actPeek             actionKind = iota // read the session's first row without a seq
	actLoad                               // allocate seqs, up to a number of batches and bytes
	actFindRoute                          // look up the routes of entries
	actOpen                               // open a stream; with awaitLastSeq, also ask for the server's last seq
	actClose                              // close the stream
	actSend                               // send entry, with acked_through
	actAck                                // send acked_through alone
	actFinish                             // store entry's outcomes; route: how a session that was not created is reached
	actRecordAttempt                      // record entries' attempts, at (next retry) and err
	actMarkInFlight                       // set entry's row from pending to in flight
	actSetStopped                         // record that the stream stopped, err says why
	actRaiseIncarnation                   // raise the incarnation
	actResolveDrops                       // void the ops that drops names, of entries
	actEndRefused                         // the server refuses the stream of route, for err: clear the seqs, deny route's batches
	actFenced                             // the lease is lost
)
