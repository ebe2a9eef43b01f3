// The target of a peer's message: an export, or something in the results of one of its questions.

package rpc

import (
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// destination is the target of a message of the peer: a reference, or a path of a pending answer. The reference is borrowed:
// code that keeps it takes its own count while the lock is held.
type destination struct {
	ref     *Ref
	pending *answer
	path    []uint16
}

func (co *core) destination(t rpccp.MessageTarget, what string) (destination, error) {
	if !t.IsValid() {
		return destination{}, violation("%s has no target", what)
	}
	switch t.Which() {
	case rpccp.MessageTarget_Which_importedCap:
		return co.importedCap(t.ImportedCap(), what)
	case rpccp.MessageTarget_Which_promisedAnswer:
		pa, err := t.PromisedAnswer()
		if err != nil {
			return destination{}, framing.Error(err.Error())
		}
		return co.promisedAnswer(pa, what)
	}
	return destination{}, violation("%s is targeted at a kind of thing that is not known", what)
}

// importedCap returns the destination of a message that is targeted at an import of the peer's.
func (co *core) importedCap(id uint32, what string) (destination, error) {
	exp := co.exports.Get(id)
	if exp == nil {
		return destination{}, violation("%s is targeted at export %d, which does not exist", what, id)
	}
	return destination{ref: exp.ref}, nil
}

// promisedAnswer returns the destination in the results of a question of the peer, returned or not.
func (co *core) promisedAnswer(pa rpccp.PromisedAnswer, what string) (destination, error) {
	if !pa.IsValid() {
		return destination{}, violation("%s names no question", what)
	}
	ans := co.openAnswer(pa.QuestionId())
	if ans == nil { // a question's own number is not in the table yet when it is targeted at itself
		return destination{}, violation("%s names question %d, which is not open", what, pa.QuestionId())
	}
	path, bad, err := co.readTransform(pa)
	switch {
	case err != nil:
		return destination{}, err
	case bad != nil:
		return destination{ref: brokenRef(bad)}, nil
	case !ans.returned:
		return destination{pending: ans, path: path}, nil
	}
	return destination{ref: co.resultOf(ans, path)}, nil
}

// openAnswer finds the answer to a question that the peer may name, or nil. One that needed no Finish can be named until
// the peer sends it or reuses the number: until then it is an answer whose results hold no capabilities.
func (co *core) openAnswer(id uint32) *answer {
	if co.finishOptional.Has(id) {
		return &answer{id: id, returned: true}
	}
	if ans := co.answers[id]; ans != nil && !ans.finished {
		return ans
	}
	return nil
}

// resultOf returns the capability at a path of a returned answer, borrowed from it or broken.
func (co *core) resultOf(ans *answer, path []uint16) *Ref {
	if ans.ex != nil {
		return brokenRef(ans.ex)
	}
	r := capAt(ans.content, &ans.caps, path)
	co.drops = append(co.drops, r.node) // released when the lock is free; until then it lives
	return r
}

// readTransform reads a pipeline's path. bad says that it cannot be followed, with which that one call fails.
func (co *core) readTransform(pa rpccp.PromisedAnswer) (path []uint16, bad *Exception, err error) {
	ops, err := pa.Transform()
	if err != nil {
		return nil, nil, framing.Error(err.Error())
	}
	if ops.Len() > co.limits.Nesting {
		co.countHit(LimitNesting)
		return nil, Failedf("a pipelined path of %d steps, the limit is %d", ops.Len(), co.limits.Nesting), nil
	}
	if ops.Len() == 0 {
		return nil, nil, nil
	}
	path = make([]uint16, 0, ops.Len())
	for i := range ops.Len() {
		switch op := ops.At(i); op.Which() {
		case rpccp.PromisedAnswer_Op_Which_noop:
		case rpccp.PromisedAnswer_Op_Which_getPointerField:
			path = append(path, op.GetPointerField())
		default:
			return nil, Unimplementedf("a pipelined path has a step that is not known"), nil
		}
	}
	return path, nil, nil
}
