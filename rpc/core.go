// core: the state of one connection. It has no goroutine, socket or clock. Its input is a message of the peer or an action
// of this vat; its output is appended to it: messages to send and deliveries (out), references and calls to
// release (drops, cancels). The Conn around it holds the lock and carries them out.

package rpc

import (
	"fmt"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/table"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// core is guarded by Conn.mu.
type core struct {
	conn   *Conn // for references that point back to it
	limits Limits
	boot   *localCap // our bootstrap interface, counted, or nil

	questions       table.Table[*Promise]
	answers         map[uint32]*answer
	finishOptional  table.IDSet // numbers of answers dropped with their Return: they need no Finish, but one may come; none is in answers
	exports         table.Table[*export]
	exportIDs       map[node]uint32 // the number of each node in exports
	imports         map[uint32]*remoteCap
	disembargoesOut table.Table[*remoteCap]
	peakSizes       struct{ answers, exported, imports, lanes int } // largest sizes of the maps (remove)

	unanswered        int // answers without a return
	answerBytes       int // bytes of parameters and results in answers
	queuedCalls       int // calls that wait on promises of this connection
	pipelinedPromises int // promises in the answers' pipelined
	resolvedImports   int // imports that have resolved, so are in no table, and are still referenced
	disembargoesIn    int // disembargoes of the peer that wait for their turn to go back
	draining          bool

	reading wire.Limits // of limits, what reading a message needs
	scratch wire.In     // for messages that are not kept

	out           peerconn.Output
	overflowed    bool // too much output is pending: the connection is about to end
	drops         []node
	cancels       []*Call
	afterUnlock   []func()       // to run when the lock is free: steps that need other locks
	brokenExports []brokenExport // exports to resolve to errors right after the present message
	counters      Stats          // counters
	stranger

	ended   *Exception // set when there is no more input or output: the error of broken promises
	orphans []*answer  // answers that were open when it ended
	trace   func(dir string, m rpccp.Message)
}

// callTask delivers a call.
type callTask Call

func (t *callTask) Run() { (*Call)(t).deliver() }

// brokenExport is an export that resolves to an error.
type brokenExport struct {
	id uint32
	ex *Exception
}

// violation is a violation of the protocol by the peer: it is sent in an abort, and the connection ends.
func violation(format string, args ...any) error {
	return fmt.Errorf(format, args...)
}

func (co *core) init(conn *Conn, cfg *Config, lim Limits) {
	co.conn = conn
	co.limits = lim
	co.reading = wire.Limits{Limits: lim.frame(), Nesting: lim.Nesting, Traversal: lim.Traversal}
	co.answers = make(map[uint32]*answer)
	co.exportIDs = make(map[node]uint32)
	co.imports = make(map[uint32]*remoteCap)
	co.trace = cfg.Trace
	if cfg.Bootstrap != nil {
		co.boot = newLocalCap(cfg.Bootstrap)
	}
}

// send builds a message and queues it for sending. It is for small messages that the protocol cannot do without: if one
// cannot be built or queued, the connection ends.
func (co *core) send(build func(rpccp.Message) error) {
	out := newOutMsg()
	root, err := out.Init()
	if err == nil {
		err = build(root)
	}
	if err == nil {
		err = co.emit(out)
	}
	if err != nil {
		co.endOnUnlock(peerconn.Ending{Err: Failedf("a message could not be sent: %v", err), Code: peerconn.CloseTryAgainLater})
	}
}

// sendLazily is send for a message that nobody waits for: it may leave with the next one.
func (co *core) sendLazily(build func(rpccp.Message) error) {
	urgent := co.out.Urgent
	co.send(build)
	co.out.Urgent = urgent
}

// emit queues a message for sending and frees it. After an error nothing is sent.
func (co *core) emit(m *outMsg) error {
	err := co.emitReusable(m)
	m.free()
	return err
}

// emitReusable is emit without freeing the message.
func (co *core) emitReusable(m *outMsg) error {
	if co.ended != nil {
		return nil
	}
	size := m.Size()
	if size > co.limits.SendBytes {
		return Failedf("%d bytes, the limit is %d", size, co.limits.SendBytes)
	}
	if co.trace != nil {
		root, err := m.Root()
		if err != nil {
			return err
		}
		co.trace("out", root)
	}
	co.out.Reserve(size)
	var err error
	if co.out.Bytes, err = m.Append(co.out.Bytes); err != nil {
		return err
	}
	co.out.EndMessage(true)
	co.counters.MessagesOut++
	co.counters.BytesOut += uint64(size)
	if n := co.out.Size(); n/4 > co.limits.QueuedBytes && !co.overflowed {
		co.overflowed = true
		co.countHit(LimitQueuedBytes)
		co.endOnUnlock(peerconn.Ending{Err: Disconnectedf("the peer does not read: %d bytes wait to be sent", n), Code: peerconn.ClosePolicyViolation})
	}
	return nil
}

// endOnUnlock ends the connection when the lock is free: the present step is in the middle of changing the tables.
func (co *core) endOnUnlock(e peerconn.Ending) {
	conn := co.conn
	co.afterUnlock = append(co.afterUnlock, func() { conn.loop.End(e) })
}

// wakeLimitWaiters wakes the callers that wait at a limit.
func (co *core) wakeLimitWaiters() {
	co.recheckDeferred()
	co.out.WakeWaiters()
}
