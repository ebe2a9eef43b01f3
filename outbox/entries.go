package outbox

// Rows as entries of the machine.

import (
	"bytes"

	"github.com/mooring-rpc/mooring/ledger"
)

// routedEntry returns a row with seqs as an entry with its route.
func (l *loop) routedEntry(r *batchRow, bd *body, hold uint64) *entry {
	e := newEntry(r, bd, hold)
	l.setRoute(e)
	return e
}

// newEntry is routedEntry without the route.
func newEntry(r *batchRow, bd *body, hold uint64) *entry {
	e := &entry{num: r.num, id: r.id, session: r.session, via: r.via, seqCount: bd.seqCount(), bytes: len(r.body), pinSeq: hold,
		body: bd, markedInFlight: r.state == rowInFlight, attempts: r.attempts}
	if r.sequenced() {
		e.firstSeq = uint64(*r.firstSeq)
	}
	e.wireBatch = wireBatchOf(e)
	return e
}

// unsequencedEntry returns the entry of a batch for which a stream is to be opened. It has the
// ops that finding the route takes, not the batch: that is read when the stream is open, and
// very many streams may wait for a server that is away.
func (l *loop) unsequencedEntry(r *batchRow, bd *body) *entry {
	first := opRow{id: bd.ops[0].id, method: bd.ops[0].method}
	if createsSession(first.method) {
		for _, a := range bd.ops[0].args {
			if a.Ref == nil && (a.Name == "ref" || a.Name == "via") {
				first.args = append(first.args, ledger.Arg{Name: a.Name, JSON: bytes.Clone(a.JSON)})
			}
		}
	}
	e := &entry{num: r.num, id: r.id, session: r.session, via: r.via, body: &body{ops: []opRow{first}}, attempts: r.attempts}
	l.setRoute(e)
	return e
}

// damagedEntry returns the entry of a row that cannot be read: its stream stops there.
func (l *loop) damagedEntry(r *batchRow, err error) *entry {
	e := newEntry(r, &body{ops: []opRow{{id: r.id, method: ledger.MethodVoid}}}, 0)
	e.damaged = true
	_, e.routeErr = classifyError(err)
	return e
}

// setRoute sets an entry's route, or the error that prevents one.
func (l *loop) setRoute(e *entry) {
	if e.damaged {
		return
	}
	to, err := l.box.resolver().routeOf(l.ctx, e.session, e.via, e.body)
	e.route, e.routeErr, e.retryRoute = to, nil, false
	if err != nil {
		var what errorClass
		what, e.routeErr = classifyError(err)
		e.retryRoute = what == retryHost || what == retryStream
	}
}

// pinSeqOf returns the lowest seq of its own stream that an unfinished batch refers to.
func (l *loop) pinSeqOf(session string, bd *body) (hold uint64, err error) {
	needs := bd.externalRefs()
	if len(needs) == 0 {
		return 0, nil
	}
	err = l.box.db.read(l.ctx, func(q querier) error {
		for _, id := range needs {
			f, err := l.box.t.findOp(l.ctx, q, id, "")
			switch {
			case f.row == nil && err != nil:
				return err
			case f.row == nil || f.row.session != session:
				continue
			}
			if seq := f.seq(); seq > 0 && (hold == 0 || seq < hold) {
				hold = seq
			}
		}
		return nil
	})
	return hold, err
}

// wireBatchOf returns the batch as it is sent.
func wireBatchOf(e *entry) *ledger.Batch {
	room := e.body.intentBuf
	if e.body.intentBuf = nil; cap(room) < e.seqCount {
		room = make([]ledger.Intent, 0, e.seqCount)
	}
	b := &ledger.Batch{Session: e.session, BatchID: e.id, Atomic: e.body.atomic, Ops: room[:0]}
	for i := range e.body.ops {
		op := &e.body.ops[i]
		if !op.takesSeq() {
			continue
		}
		in := ledger.Intent{OpID: op.id, BatchID: e.id, Seq: e.firstSeq + uint64(len(b.Ops)), Session: e.session, Atomic: e.body.atomic}
		if op.void {
			in.Method = ledger.MethodVoid
		} else {
			in.Method, in.Args, in.DependsOn, in.Expected = op.method, op.args, op.deps, op.expected
		}
		b.Ops = append(b.Ops, in)
	}
	return b
}
