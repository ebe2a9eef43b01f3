package decide

// Ops without an outbox: repeatable ops, for callers that keep none.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// directMethods are the methods that need no ledger: a repetition changes nothing, or is refused. Those of
// requests have the request's id for it.
var directMethods = []string{session.MethodCreate, session.MethodPut, session.MethodRemove, session.MethodAsk, session.MethodAnswer, session.MethodWithdraw}

// applyDirectOps applies a batch's ops, all or none. The refusal is that of the first op that did
// not apply.
func (a *applier) applyDirectOps(out *Answer) *fault.Error {
	ops := a.sub.Batch.Ops
	if err := a.checkDirectOps(); err != nil {
		return err
	}
	a.outbox = "" // it belongs to no stream
	if err := a.checkQuota(estimateGrowth(ops)); err != nil {
		return err
	}
	before := a.v.Savepoint()
	reverts, err := a.beginSync(ops)
	if err != nil {
		return err
	}
	for i := range ops {
		op := &ops[i]
		err := a.Authorize(op)
		if err == nil {
			err = a.showForSync(op)
		}
		if err == nil {
			out.At, _, err = a.Apply(op)
		}
		if err != nil {
			return a.rollBackRefused(before, op.Method, err)
		}
	}
	if err := a.endSync(&reverts); err != nil {
		return a.rollBackRefused(before, session.MethodPut, err)
	}
	out.Epoch, out.Uses = a.s.Row.Epoch, a.uses(ops, func(int) bool { return true })
	return nil
}

// checkDirectOps refuses ops that no authority permits.
func (a *applier) checkDirectOps() *fault.Error {
	ops, lim := a.sub.Batch.Ops, a.cfg.Limits
	if len(ops) == 0 || len(ops) > lim.BatchOps {
		return fault.TooLarge.With("a batch has 1 to %d ops, not %d", lim.BatchOps, len(ops))
	}
	bytes := 0
	for i := range ops {
		op := &ops[i]
		if err := ledger.CheckIntent(op, lim.Limits); err != nil {
			return err
		}
		if len(op.DependsOn) > 0 || len(op.References()) > 0 || op.Expected.Set {
			return fault.BadArgument.With("only a stream's ops refer to others or expect a cursor")
		}
		for _, arg := range op.Args {
			bytes += len(arg.JSON)
		}
		if !slices.Contains(directMethods, op.Method) {
			return fault.UnknownMethod.With("without an outbox there is %s, not %s: open a stream", strings.Join(directMethods, ", "), fault.Clip(op.Method))
		}
	}
	if bytes > lim.BatchBytes {
		return fault.TooLarge.With("the ops have %d bytes of arguments and may have %d: send them in pieces", bytes, lim.BatchBytes)
	}
	return nil
}
