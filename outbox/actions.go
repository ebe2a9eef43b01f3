package outbox

// What the machine asks the loop for, in order.

import (
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// action is what the loop has to do. Which fields count depends on kind.
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
	actPeek             actionKind = iota // what is the session's first row without a seq?
	actLoad                               // give seqs to so many batches and bytes
	actFindRoute                          // look again how entries are sent
	actOpen                               // open a stream; settle: and ask for the server's last seq
	actClose                              // let go of it
	actSend                               // entry, with acked_through
	actAck                                // acked_through alone
	actFinish                             // entry has its answer: store it; route: how a session not made is reached
	actRecordAttempt                      // entries: attempts, at (next retry), err
	actMarkInFlight                       // entry was pending and is in flight now
	actSetStopped                         // the stream stands still, err says why
	actRaiseIncarnation                   // raise the incarnation
	actResolveDrops                       // void what drops says, of entries
	actEndRefused                         // the server makes no such stream for route, err says why: give the seqs back, and end what goes that way
	actFenced                             // the lease is gone
)
