package outbox

// What the machine asks the loop for, in order.

import (
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// action is what the loop has to do. Which fields count depends on kind.
type action struct {
	kind    actionKind
	session string
	conn    int
	route   route
	settle  bool
	entry   *entry
	entries []*entry
	through uint64
	batches int
	bytes   int
	at      time.Time
	err     *fault.Error
	answer  []ledger.Outcome
	drops   map[int64]*fault.Error
}

type actionKind uint8

const (
	actLook   actionKind = iota // what is the session's first row without a seq?
	actLoad                     // give seqs to so many batches and bytes
	actFind                     // look again how entries are sent
	actOpen                     // open a stream; settle: and ask for the server's last seq
	actClose                    // let go of it
	actSend                     // entry, with acked_through
	actAck                      // acked_through alone
	actFinish                   // entry has its answer: store it; route: how a session not made is reached
	actNote                     // entries: attempts, at (next retry), err
	actMark                     // entry was pending and is in flight now
	actStop                     // the stream stands still, err says why
	actRaise                    // raise the incarnation
	actSettle                   // void what drops says, of entries
	actRefuse                   // the server makes no such stream for route, err says why: give the seqs back, and end what goes that way
	actFenced                   // the lease is gone
)
