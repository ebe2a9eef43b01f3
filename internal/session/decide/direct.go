package decide

// Calls without an outbox: the authority over refs, repeatable ops, for callers that keep no outbox, and the removal of an old
// session, which is looked at under its lock: what has changed meanwhile is left.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
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

// errRunning is why a session with a turn that is written now is left.
func errRunning(message string) *fault.Error {
	return fault.TurnOpen.With("a turn is running in it (message/%s): it is not old", message)
}

// removeOlder does what r says to the submission's session, if that is old. Conflict is the error where it
// has changed, TurnOpen where a turn is running. The denial of a ref has no audit row here: one call would make one
// for each of its sessions.
func (a *applier) removeOlder(out *Answer, r *session.OlderRemoval) *fault.Error {
	do := opargs.Op(&opargs.Delete{})
	if r.Method == session.MethodPurge {
		key, err := session.ParseKey(r.Key)
		if err != nil {
			return err
		}
		do = &opargs.Purge{Key: key}
	}
	row, _ := opargs.MethodOf(r.Method)
	if err := a.authorizeRef(row, r.Method, 0); err != nil {
		return err
	}
	a.outbox = "" // it belongs to no stream
	if err := a.requireOld(r.Before); err != nil {
		return err
	}
	before := a.v.Savepoint()
	err := a.inScope(do)
	var done result
	if err == nil {
		done, err = a.apply(do)
	}
	if err != nil {
		a.v.Rollback(before)
		return err
	}
	if done, ok := done.(purgeResult); !ok || !done.Unchanged {
		out.Cut = a.s.Row.Cursor
	}
	return nil
}

// requireOld returns an error unless nothing has changed in the session since before.
func (a *applier) requireOld(before int64) *fault.Error {
	if err := a.requireLive(); err != nil {
		return err
	}
	if a.s.Row.Updated >= before {
		return fault.Conflict.With("it has changed since")
	}
	turns := a.v.LoadedTurns(a.s, "")
	if i := slices.IndexFunc(turns, func(t *session.Turn) bool { return t.Status == session.Streaming && t.Lease > a.v.Now }); i >= 0 {
		return errRunning(turns[i].Message)
	}
	return nil
}

// direct decides a submission without an outbox.
func (a *applier) direct(out *Answer) *fault.Error {
	d := a.sub.Direct
	switch {
	case d.Rotate != nil:
		return a.rotate(out, d.Rotate)
	case d.Older != nil:
		return a.removeOlder(out, d.Older)
	case d.Ops:
		return a.applyDirectOps(out)
	}
	name, do := session.MethodRevoke, opargs.Op(&opargs.Revoke{Ref: d.Ref, TakeOver: d.TakeOver})
	switch {
	case d.Share != nil:
		name, do = session.MethodShare, &opargs.Share{Mint: *d.Share, Idempotent: true}
	case d.Epoch:
		name, do = session.MethodBumpEpoch, &opargs.BumpEpoch{}
	}
	before := a.v.Savepoint()
	row, _ := opargs.MethodOf(name)
	err := a.authorizeRef(row, name, 0)
	switch { // refusals here need no read of the database
	case err != nil:
	case name == session.MethodRevoke && capability.Target(d.Ref) == "":
		err = fault.NotFound.With("this session has no such ref")
	case d.Share != nil && capability.Target(d.Share.ID) != a.s.Row.ID:
		err = fault.BadArgument.With("the new ref's id is not one for %s", a.s.Row.ID)
	case d.Share != nil:
		if err = opargs.CheckShare(d.Share); err == nil && a.cfg.Features != nil {
			err = session.CheckFeatures(opargs.MintFeatures(d.Share), a.cfg.Features())
		}
	}
	if err == nil && d.Share != nil {
		err = a.checkQuota(session.EventCost)
	}
	var r result
	if err == nil {
		a.outbox = "" // it belongs to no stream
		err = a.inScope(do)
	}
	if err == nil {
		r, err = a.apply(do)
	}
	if err != nil {
		return a.rollBackRefused(before, name, err)
	}
	switch r := r.(type) {
	case cutResult:
		out.Cut, out.Children, out.ChildrenCount = r.Cut, r.Children, r.ChildrenCount
	case epochResult:
		out.Cut, out.Children, out.ChildrenCount = r.Cut, r.Children, r.ChildrenCount
	}
	out.Epoch = a.s.Row.Epoch
	out.Uses = []Use{{Ref: a.grant.ID, Actor: a.grant.Actor, Method: name, Count: 1}}
	return nil
}
