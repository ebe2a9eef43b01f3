// The wild peer's books: what each side may name, kept from the messages of both as they are read. They tell the peer
// what it can say that hits something live, and check that the vat keeps the protocol, whatever the peer does.

package rpc

import (
	"fmt"
	"slices"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/table"
)

// books are guarded by the connection's lock.
type books struct {
	asked  map[uint32]*wildQuestion // of the peer, until returned and finished; or used again, if that is not needed
	open   map[uint32]*wildQuestion // of the vat
	held   map[uint32]uint32        // the vat's exports that the peer holds, counted
	hosted map[uint32]*wildExport   // the peer's exports that the vat holds
	lifts  []uint32                 // disembargoes that the vat waits for
	echoes map[uint32]int           // disembargoes that the peer waits for
	honest bool
	ended  bool
	wrong  string // the first thing the vat did wrong
}

type wildQuestion struct {
	returned, finished bool
	boot, yourself     bool
	taken              bool // the peer has used it as an answer
	noFinish           bool
	exports            []uint32 // in the results of the vat, or in its parameters
}

type wildExport struct {
	count   uint32
	promise bool
}

func newBooks() *books {
	return &books{
		asked: map[uint32]*wildQuestion{}, open: map[uint32]*wildQuestion{}, held: map[uint32]uint32{},
		hosted: map[uint32]*wildExport{}, echoes: map[uint32]int{},
	}
}

func (b *books) check(ok bool, format string, args ...any) {
	if !ok && b.wrong == "" {
		b.wrong = fmt.Sprintf(format, args...)
	}
}

// trace is Config.Trace. What the peer says wrong ends the connection, so that the books need not make sense of it.
func (b *books) trace(dir string, m rpccp.Message) {
	switch {
	case b.ended:
	case dir == "in":
		b.in(m)
	default:
		b.out(m)
	}
}

func (b *books) in(m rpccp.Message) {
	switch m.Which() {
	case rpccp.Message_Which_bootstrap:
		if v, err := m.Bootstrap(); err == nil && b.free(v.QuestionId()) {
			b.asked[v.QuestionId()] = &wildQuestion{boot: true}
		}
	case rpccp.Message_Which_call:
		v, err := m.Call()
		to := v.SendResultsTo().Which()
		if err != nil || to > rpccp.Call_sendResultsTo_Which_yourself || !b.free(v.QuestionId()) {
			return
		}
		b.asked[v.QuestionId()] = &wildQuestion{yourself: to == rpccp.Call_sendResultsTo_Which_yourself}
		if params, err := v.Params(); err == nil {
			b.gives(params)
		}
	case rpccp.Message_Which_return:
		v, err := m.Return()
		if err != nil {
			return
		}
		q := b.open[v.AnswerId()]
		if q == nil || q.returned {
			return
		}
		if v.ReleaseParamCaps() {
			b.drop(q.exports)
		}
		if v.Which() == rpccp.Return_Which_results && !q.finished {
			if p, err := v.Results(); err == nil {
				b.gives(p)
			}
		}
		b.answered(v.AnswerId(), q, v.NoFinishNeeded())
	case rpccp.Message_Which_finish:
		v, err := m.Finish()
		if err != nil {
			return
		}
		if q := b.asked[v.QuestionId()]; q != nil {
			q.finished = true
			if q.returned {
				if v.ReleaseResultCaps() {
					b.drop(q.exports)
				}
				delete(b.asked, v.QuestionId())
			}
		}
	case rpccp.Message_Which_resolve:
		v, err := m.Resolve()
		if err != nil {
			return
		}
		if v.Which() == rpccp.Resolve_Which_cap {
			if d, err := v.Cap(); err == nil {
				b.give(d)
			}
		}
	case rpccp.Message_Which_release:
		if v, err := m.Release(); err == nil {
			b.dropN(v.Id(), v.ReferenceCount())
		}
	case rpccp.Message_Which_disembargo:
		v, err := m.Disembargo()
		if err != nil {
			return
		}
		switch ctx := v.Context(); ctx.Which() {
		case rpccp.Disembargo_context_Which_senderLoopback:
			b.echoes[ctx.SenderLoopback()]++
		case rpccp.Disembargo_context_Which_receiverLoopback:
			if i := slices.Index(b.lifts, ctx.ReceiverLoopback()); i >= 0 {
				b.lifts = slices.Delete(b.lifts, i, i+1)
			}
		}
	case rpccp.Message_Which_unimplemented:
		b.unimplemented(m)
	}
}

func (b *books) unimplemented(m rpccp.Message) {
	m, err := m.Unimplemented()
	if err != nil || !m.IsValid() {
		return
	}
	var id uint32
	switch m.Which() {
	case rpccp.Message_Which_bootstrap:
		v, _ := m.Bootstrap()
		id = v.QuestionId()
	case rpccp.Message_Which_call:
		v, _ := m.Call()
		id = v.QuestionId()
	case rpccp.Message_Which_resolve:
		v, _ := m.Resolve()
		if v.Which() != rpccp.Resolve_Which_cap {
			return
		}
		if d, err := v.Cap(); err == nil {
			if id, ok := exportIn(d); ok {
				b.dropN(id, 1)
			}
		}
		return
	default:
		return
	}
	if q := b.open[id]; q != nil && !q.returned {
		b.drop(q.exports)
		b.answered(id, q, true)
	}
}

// answered notes that the vat got the answer to a question. One that needs no finish has its number free, but may be
// named until then: in a disembargo, if the peer returned capabilities against the rules.
func (b *books) answered(id uint32, q *wildQuestion, noFinish bool) {
	q.returned, q.noFinish = true, noFinish
	if q.finished {
		delete(b.open, id)
	}
}

func (b *books) out(m rpccp.Message) {
	switch m.Which() {
	case rpccp.Message_Which_abort:
		b.ended = true
	case rpccp.Message_Which_bootstrap:
		v, err := m.Bootstrap()
		b.asks(v.QuestionId(), err, &wildQuestion{boot: true})
	case rpccp.Message_Which_call:
		v, err := m.Call()
		target, err2 := v.Target()
		params, err3 := v.Params()
		b.check(err == nil && err2 == nil && err3 == nil, "a call that cannot be read")
		b.targets(target, "call")
		if content, err := params.Content(); err == nil && b.honest {
			n := content.Struct().Uint64(0)
			b.check(uint64(v.MethodId()) == n%wildMethods, "method %d with number %d", v.MethodId(), n)
		}
		q := &wildQuestion{}
		b.asks(v.QuestionId(), err, q)
		q.exports = b.gets(params)
	case rpccp.Message_Which_return:
		v, err := m.Return()
		q := b.asked[v.AnswerId()]
		b.check(err == nil && q != nil && !q.returned, "return of question %d, which is not open", v.AnswerId())
		if q == nil {
			return
		}
		q.returned, q.noFinish = true, v.NoFinishNeeded()
		hint := false
		if v.Which() == rpccp.Return_Which_results {
			b.check(!q.finished && !q.yourself, "results of question %d, which wants none", v.AnswerId())
			p, err := v.Results()
			b.check(err == nil, "results that cannot be read")
			q.exports = b.gets(p)
			list, err := p.CapTable()
			hint = err == nil && list.Len() == 0 && v.AnswerId() < table.IDSetSize
		}
		b.check(q.noFinish == hint, "return of question %d says %v of needing no finish", v.AnswerId(), q.noFinish)
		if q.finished {
			delete(b.asked, v.AnswerId())
		}
	case rpccp.Message_Which_finish:
		v, err := m.Finish()
		q := b.open[v.QuestionId()]
		b.check(err == nil && q != nil && !q.finished, "finish of question %d, which is not open", v.QuestionId())
		if q == nil {
			return
		}
		if q.finished = true; q.returned {
			delete(b.open, v.QuestionId())
		}
	case rpccp.Message_Which_resolve:
		v, err := m.Resolve()
		b.check(err == nil, "a resolve that cannot be read")
		if v.Which() == rpccp.Resolve_Which_cap {
			d, err := v.Cap()
			b.check(err == nil, "a resolve that cannot be read")
			b.get(d)
		}
	case rpccp.Message_Which_release:
		v, err := m.Release()
		e := b.hosted[v.Id()]
		b.check(err == nil && e != nil && v.ReferenceCount() <= e.count, "release of %d of %d, of which it has less",
			v.ReferenceCount(), v.Id())
		if e == nil {
			return
		}
		if e.count -= v.ReferenceCount(); e.count == 0 {
			delete(b.hosted, v.Id())
		}
	case rpccp.Message_Which_disembargo:
		v, err := m.Disembargo()
		b.check(err == nil, "a disembargo that cannot be read")
		switch ctx := v.Context(); ctx.Which() {
		case rpccp.Disembargo_context_Which_senderLoopback:
			target, err := v.Target()
			b.check(err == nil, "a disembargo that cannot be read")
			b.targets(target, "disembargo")
			b.lifts = append(b.lifts, ctx.SenderLoopback())
		case rpccp.Disembargo_context_Which_receiverLoopback:
			id := ctx.ReceiverLoopback()
			b.check(b.echoes[id] > 0, "disembargo %d goes back and did not come", id)
			if b.echoes[id]--; b.echoes[id] <= 0 {
				delete(b.echoes, id)
			}
		}
	}
}

// free is whether the peer may use a number for a question.
func (b *books) free(id uint32) bool {
	q := b.asked[id]
	return q == nil || q.noFinish
}

// unfinished is how many questions the peer has to finish.
func (b *books) unfinished() (n int) {
	for id := range b.asked {
		if !b.free(id) {
			n++
		}
	}
	return n
}

func (b *books) asks(id uint32, err error, q *wildQuestion) {
	old := b.open[id]
	b.check(err == nil && (old == nil || old.noFinish), "question %d is used again", id)
	b.open[id] = q
}

// targets checks what the vat addresses a message to.
func (b *books) targets(t rpccp.MessageTarget, what string) {
	if t.Which() == rpccp.MessageTarget_Which_importedCap {
		b.check(b.hosted[t.ImportedCap()] != nil, "%s to %d, which it does not hold", what, t.ImportedCap())
		return
	}
	pa, err := t.PromisedAnswer()
	b.check(err == nil, "a %s whose target cannot be read", what)
	b.names(pa, what)
}

// names checks a question of its own that the vat names.
func (b *books) names(pa rpccp.PromisedAnswer, what string) {
	q := b.open[pa.QuestionId()]
	b.check(q != nil && !q.finished, "%s names question %d, which is not open", what, pa.QuestionId())
}

// gives notes the capabilities the vat gets in a payload.
func (b *books) gives(p rpccp.Payload) {
	list, err := p.CapTable()
	if err != nil {
		return
	}
	for i := range min(list.Len(), 1000) {
		b.give(list.At(i))
	}
}

func (b *books) give(d rpccp.CapDescriptor) {
	id, ok := exportIn(d)
	if !ok && d.Which() == rpccp.CapDescriptor_Which_thirdPartyHosted {
		tp, err := d.ThirdPartyHosted()
		id, ok = tp.VineId(), err == nil
	}
	if !ok {
		return
	}
	e := b.hosted[id]
	if e == nil {
		e = &wildExport{promise: d.Which() == rpccp.CapDescriptor_Which_senderPromise}
		b.hosted[id] = e
	}
	e.count++
}

// gets notes the capabilities that the vat gives.
func (b *books) gets(p rpccp.Payload) (exports []uint32) {
	list, err := p.CapTable()
	b.check(err == nil, "a table that cannot be read")
	if err != nil {
		return nil
	}
	for i := range list.Len() {
		if id, ok := b.get(list.At(i)); ok {
			exports = append(exports, id)
		}
	}
	return exports
}

func (b *books) get(d rpccp.CapDescriptor) (id uint32, ok bool) {
	switch d.Which() {
	case rpccp.CapDescriptor_Which_receiverHosted:
		b.check(b.hosted[d.ReceiverHosted()] != nil, "it names %d, which it does not hold", d.ReceiverHosted())
	case rpccp.CapDescriptor_Which_receiverAnswer:
		pa, err := d.ReceiverAnswer()
		b.check(err == nil, "a capability that cannot be read")
		b.names(pa, "a capability")
	}
	if id, ok = exportIn(d); ok {
		b.held[id]++
	}
	return id, ok
}

func (b *books) drop(exports []uint32) {
	for _, id := range exports {
		b.dropN(id, 1)
	}
}

func (b *books) dropN(id, n uint32) {
	if have := b.held[id]; have > n {
		b.held[id] = have - n
	} else {
		delete(b.held, id)
	}
}

// compare compares the vat's tables with the books. Its lock is held, and it has not ended the connection.
func (b *books) compare(co *core) {
	b.check(len(b.held) == co.exports.Len(), "the peer holds %d exports, the vat has %d", len(b.held), co.exports.Len())
	for id, n := range b.held {
		exp := co.exports.Get(id)
		b.check(exp != nil && exp.wireRefs == n, "export %d is held %d times: %+v", id, n, exp)
	}
	b.check(len(b.hosted) == len(co.imports), "the vat holds %d imports, has %d", len(b.hosted), len(co.imports))
	for id, e := range b.hosted {
		r := co.imports[id]
		b.check(r != nil && r.wireRefs == e.count, "import %d is held %d times: %+v", id, e.count, r)
	}
	b.check(b.unfinished() == len(co.answers), "the peer has to finish %d questions, the vat has %d", b.unfinished(),
		len(co.answers))
	for id := range uint32(table.IDSetSize) {
		q := b.asked[id]
		b.check((q != nil && q.noFinish) == co.finishOptional.Has(id), "question %d: %+v, a finish may come: %v", id, q, co.finishOptional.Has(id))
	}
	b.check(len(b.lifts) == co.disembargoesOut.Len(), "the vat waits for %d disembargoes, has %d", len(b.lifts), co.disembargoesOut.Len())
	unanswered, promised, queued := 0, 0, 0
	for id, ans := range co.answers {
		q := b.asked[id]
		b.check(q != nil && !q.noFinish && q.returned == ans.returned && q.finished == ans.finished,
			"question %d: %+v, %+v", id, q, ans)
		if !ans.returned {
			unanswered++
		}
		promised += len(ans.pipelined)
		queued += len(ans.queue)
	}
	b.check(unanswered == co.unanswered && promised == co.pipelinedPromises, "unanswered %d, %d; promised %d, %d",
		unanswered, co.unanswered, promised, co.pipelinedPromises)
	for p := range co.conn.lanes {
		p.mu.Lock()
		if l := p.lanes[co.conn]; l != nil && p.target.Load() == nil { // else it is on its way, and tells its hooks once
			for _, h := range l.hooks {
				b.check(h.export == nil || co.exports.Get(h.export.id) == h.export, "a promise remembers a released export")
			}
		}
		p.mu.Unlock()
	}
	b.check(queued <= co.queuedCalls, "queued %d, counted %d", queued, co.queuedCalls)
}
