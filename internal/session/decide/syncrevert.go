package decide

// Reverts that opencode makes. Its syncs never say that something was removed or hidden: the session's info says to which message
// or part it is reverted, and stops saying so both when that is taken back and when a new prompt has removed what was hidden.

import (
	"encoding/json"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
)

// sessionKey is the key of a session's info.
var sessionKey = session.Key{Kind: session.KeySession}.String()

// syncRevert is what a batch of a sync does to reverts.
type syncRevert struct {
	row      session.Revert // that was in force before it
	was, now string         // InfoRevert before and after it
	arrives  bool           // it has a message that is new
}

// InfoRevert returns the key of the message or part to which an info of opencode's says that its session is reverted, "" for none.
func InfoRevert(info []byte) string {
	var of struct {
		Revert json.RawMessage `json:"revert"`
	}
	var to struct {
		Message string `json:"messageID"`
		Part    string `json:"partID"`
	}
	if json.Unmarshal(info, &of) != nil || of.Revert == nil || json.Unmarshal(of.Revert, &to) != nil || to.Message == "" {
		return ""
	}
	key := session.MessageKey(to.Message)
	if to.Part != "" {
		key = session.PartKey(to.Message, to.Part)
	}
	if _, bad := session.ParseKey(key); bad != nil {
		return ""
	}
	return key
}

// syncRun is a sync whose puts and removes are the ops of a batch that have the argument sync.
type syncRun struct {
	syncRevert
	last string // id of the last of them
}

// syncOp does a put or remove as a direct call of opencode's does: those of the batch with the argument sync are one sync. What the info says is
// done with the last of them, unless that is refused.
func (a *applier) syncOp(do func() (result, *fault.Error)) (_ result, err *fault.Error) {
	before, op, run := a.v.Savepoint(), a.op, a.sync
	if run == nil {
		of := slices.DeleteFunc(slices.Clone(a.sub.Batch.Ops), func(op ledger.Intent) bool { return !opargs.HasArgument(&op, "sync") })
		run = &syncRun{last: of[len(of)-1].OpID}
		run.syncRevert, err = a.beginSync(of)
	}
	var r result
	if err == nil {
		err = a.showForSync(op)
	}
	if err == nil {
		r, err = do()
	}
	if err == nil && op.OpID == run.last {
		err = a.endSync(&run.syncRevert)
	}
	if err != nil {
		a.v.Rollback(before)
		return nil, err
	}
	a.sync = run
	return r, nil
}

// beginSync looks at what ops will do.
func (a *applier) beginSync(ops []ledger.Intent) (r syncRevert, _ *fault.Error) {
	r.row = a.s.Row.Revert
	var info []byte
	for i := range ops {
		key := opargs.Text(&ops[i], "key")
		if key == sessionKey {
			if at := slices.IndexFunc(ops[i].Args, func(arg ledger.Arg) bool { return arg.Name == "payload" }); at >= 0 {
				info = ops[i].Args[at].JSON
			}
		}
		if r.arrives || key == "" || session.HeadOf(key) != key {
			continue
		}
		slot, err := a.v.EntryMeta(a.s, key)
		if err != nil {
			return r, err
		}
		r.arrives = slot.Entry == nil
	}
	if info == nil && !r.arrives && !r.row.InForce() {
		return r, nil
	}
	e, err := a.v.Value(a.s, sessionKey)
	if err != nil {
		return r, err
	}
	if e != nil {
		r.was = InfoRevert(e.Payload)
	}
	if r.now = r.was; info != nil {
		r.now = InfoRevert(info)
	}
	if r.arrives && r.row.InForce() && r.now == r.row.To { // it is no prompt, which would settle the revert
		return r, a.showAgain()
	}
	return r, nil
}

// endSync reverts the session as its info says after the ops. An info that stops saying so takes the revert back, unless a message that
// is new has settled it in the same batch: opencode sends together what it does at once, and a prompt clears the info and adds its
// message. An info that goes on saying so counts again when what it hides was shown by the batch, and when its message has arrived.
func (a *applier) endSync(r *syncRevert) *fault.Error {
	at := a.s.Row.Revert.To
	var do opargs.Op
	switch {
	case r.now == "" && r.was != "" && at == r.was:
		do = &opargs.Unrevert{}
	case r.now != "" && r.now != at && (r.now != r.was || r.now == r.row.To || r.arrives && !r.row.InForce()):
		key, _ := session.ParseKey(r.now)
		do = &opargs.Revert{To: key}
	default:
		return nil
	}
	if a.cfg.Features != nil && session.CheckFeatures(session.FeatureRevert, a.cfg.Features()) != nil {
		return nil
	}
	err := a.aside(func() *fault.Error { _, err := a.apply(do); return err })
	if err != nil && (err.Code == fault.NotFound || err.Code == fault.MissingRight) {
		return nil // it is not there (yet), or the writer may not see all
	}
	return err
}

// showForSync shows again what is hidden, if an op of a direct call is about it: opencode, whose calls these are,
// still has it.
func (a *applier) showForSync(op *ledger.Intent) *fault.Error {
	key := opargs.Text(op, "key")
	if !a.s.Row.Revert.InForce() || session.HeadOf(key) == "" {
		return nil
	}
	if hidden := a.notHidden(key); hidden == nil || hidden.Code != fault.Reverted {
		return hidden
	}
	return a.showAgain()
}

// showAgain takes a revert back by an event of its own.
func (a *applier) showAgain() *fault.Error {
	return a.aside(func() *fault.Error {
		a.emit(session.MethodUnrevert, "", 1, rawjson.Encode(session.RevertPayload{To: a.s.Row.Revert.To}))
		a.v.ChangeRow(a.s).Revert = session.Revert{}
		return nil
	})
}
