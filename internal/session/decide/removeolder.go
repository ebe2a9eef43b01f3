package decide

// The removal of an old session: it is deleted, or a key of it purged, under its lock, if nothing has changed in it meanwhile.

import (
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// errRunning is why a session with a turn that is written now is left.
func errRunning(message string) *fault.Error {
	return fault.TurnOpen.With("a turn is running in it (message/%s): it is not old", message)
}

// removeOlder does what r says to the submission's session, if that is old. Conflict is the error where it
// has changed, TurnOpen where a turn is running. The denial of a ref has no audit row here: one call would make one
// for each of its sessions.
func (a *applier) removeOlder(out *Answer, r *session.OlderRemoval) *fault.Error {
	do := op(&opDelete{})
	if r.Method == session.MethodPurge {
		key, err := session.ParseKey(r.Key)
		if err != nil {
			return err
		}
		do = &opPurge{key: key}
	}
	if err := a.authorizeRef(methods[r.Method], r.Method, 0); err != nil {
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
		done, err = do.apply(a)
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
