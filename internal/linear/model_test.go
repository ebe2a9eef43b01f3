package linear

// The model's own tests: calls one after the other, and histories written by
// hand that must and must not be refused.

import (
	"bytes"
	"os"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

const everything = capability.SessionRights | capability.Revert

func apply(ref int, ops ...op) call { return call{kind: callApply, ref: ref, batch: batchOf(ops...)} }

func atomically(ref int, ops ...op) call {
	c := apply(ref, ops...)
	c.batch.atomic = true
	return c
}

func put(key, value int) op { return op{kind: opPut, key: key, value: value} }

func putAt(cursor uint64, key, value int) op {
	return op{kind: opPut, key: key, value: value, compare: true, expected: cursor}
}

func share(target int, rights capability.Rights) op {
	return op{kind: opShare, target: target, rights: rights}
}

func revoke(target int) op { return op{kind: opRevoke, target: target} }

func revertTo(key int) op { return op{kind: opRevert, key: key} }

func revokeNow(ref, target int) call { return call{kind: callRevoke, ref: ref, target: target} }

var (
	unrevert = op{kind: opUnrevert}

	bump    = op{kind: opBump}
	bumpNow = call{kind: callBump}
)

// answered is an apply's answer.
func answered(cursor uint64, outcomes ...outcome) answer {
	a := answer{cursorKnown: true, cursor: cursor}
	copy(a.outcomes[:], outcomes)
	return a
}

// changed, same and denied are outcomes.
func changed(cursor uint64) outcome { return outcome{status: ledger.Applied, cursor: cursor} }
func same(cursor uint64) outcome {
	return outcome{status: ledger.Applied, cursor: cursor, unchanged: true}
}
func denied(code fault.Code, at uint64) outcome {
	return outcome{status: ledger.Denied, reason: code, at: at}
}
func rejected(code fault.Code) outcome { return outcome{status: ledger.Rejected, reason: code} }
func shared(cursor, epoch uint64) outcome {
	return outcome{status: ledger.Applied, cursor: cursor, epoch: epoch}
}
func cutAt(cursor, cut uint64) outcome {
	return outcome{status: ledger.Applied, cursor: cursor, cut: cut, unchanged: cursor != cut}
}

// exchange is a call and its answer.
type exchange struct {
	call   call
	answer answer
}

func TestModel(t *testing.T) {
	t.Parallel()
	const read, write, revoking = capability.Read, capability.Append, capability.Revoke
	conflict := outcome{status: ledger.Conflict, reason: fault.Conflict, cursor: 2}
	for name, calls := range map[string][]exchange{
		"a put, an equal one, compare-and-set": {
			{apply(0, put(0, 7)), answered(2, changed(2))},
			{apply(0, put(0, 7)), answered(2, same(2))},
			{apply(0, putAt(1, 0, 8)), answered(2, conflict)},
			{apply(0, putAt(2, 0, 8)), answered(3, changed(3))},
		},
		"a revert hides, and is taken back": {
			{apply(0, put(2, 1), put(0, 1), put(1, 1)), answered(4, changed(2), changed(3), changed(4))},
			{apply(0, revertTo(3), unrevert), answered(4, rejected(fault.NotFound), rejected(fault.NotReverted))},
			{apply(0, revertTo(0), revertTo(0), put(0, 2)), answered(5, changed(5), same(5), rejected(fault.Reverted))},
			{apply(0, put(1, 1), put(2, 2)), answered(6, rejected(fault.Reverted), changed(6))},
			{apply(0, revertTo(1), put(0, 1)), answered(7, changed(7), same(7))},
			{apply(0, unrevert, put(1, 2)), answered(9, changed(8), changed(9))},
		},
		"a new message settles a revert": {
			{apply(0, put(2, 1), put(0, 1)), answered(3, changed(2), changed(3))},
			{apply(0, revertTo(0), put(1, 1)), answered(6, changed(4), changed(6))},
			{apply(0, unrevert, revertTo(0), put(0, 1)), answered(7, rejected(fault.NotReverted), rejected(fault.NotFound), changed(7))},
			{call{kind: callEvents}, answer{cursor: 7, log: "create  by r0\nput k2=1 by r0\nput k0=1 by r0\nrevert k0 by r0\nsettle k0 by r0\nput k1=1 by r0\nput k0=1 by r0\n"}},
		},
		"an expected cursor is the one before the batch": {
			{apply(0, put(0, 1), putAt(1, 1, 1)), answered(3, changed(2), changed(3))},
		},
		"an atomic batch does all or nothing": {
			{atomically(0, put(0, 1), revoke(5)), answered(1,
				outcome{status: ledger.BatchAborted, reason: fault.NotFound, cause: 2},
				outcome{status: ledger.BatchAborted, reason: fault.NotFound, cause: 2})},
			{apply(0, put(0, 2)), answered(2, changed(2))},
		},
		"revoking kills the subtree, and twice is once": {
			{apply(0, share(1, everything)), answered(2, shared(2, 1))},
			{apply(1, share(2, everything)), answered(3, shared(3, 1))},
			{apply(0, share(3, everything)), answered(4, shared(4, 1))},
			{apply(2, revoke(1)), answered(4, denied(fault.MissingRight, 0))},
			{revokeNow(0, 1), answer{cut: 5, epoch: 1}},
			{apply(2, put(0, 1)), answered(0, denied(fault.Revoked, 5))},
			{apply(0, revoke(1)), answered(5, cutAt(5, 5).again())},
			{apply(0, revoke(2)), answered(5, cutAt(5, 5).again())},
			{apply(3, put(0, 1)), answered(6, changed(6))},
			{revokeNow(0, 1), answer{cut: 5, epoch: 1}},
		},
		"what was dead keeps its own cut": {
			{apply(0, share(1, everything)), answered(2, shared(2, 1))},
			{apply(1, share(2, everything)), answered(3, shared(3, 1))},
			{apply(2, revoke(2)), answered(4, cutAt(4, 4))},
			{apply(0, revoke(1)), answered(5, cutAt(5, 5))},
			{call{kind: callDescribe, ref: 2}, answer{epoch: 1, minted: 1, dead: fault.Revoked, cut: 4}},
		},
		"within a batch, too": {
			{apply(0, share(1, everything)), answered(2, shared(2, 1))},
			{apply(1, put(0, 1), revoke(1), put(0, 2)), answered(4, changed(3), cutAt(4, 4), denied(fault.Revoked, 4))},
		},
		"a bump kills every share but the owner's ref": {
			{apply(0, share(1, read|write)), answered(2, shared(2, 1))},
			{apply(1, bump), answered(2, denied(fault.MissingRight, 0))},
			{bumpNow, answer{cut: 3, epoch: 2}},
			{apply(1, put(0, 1)), answered(0, denied(fault.StaleEpoch, 2))},
			{call{kind: callEvents, ref: 1}, answer{refused: fault.StaleEpoch, at: 2}},
			{call{kind: callDescribe, ref: 1}, answer{epoch: 2, minted: 1, dead: fault.StaleEpoch}},
			{apply(0, bump), answered(4, outcome{status: ledger.Applied, cursor: 4, cut: 4, epoch: 3})},
			{apply(0, share(2, read)), answered(5, shared(5, 3))},
			{revokeNow(0, 1), answer{cut: 6, epoch: 3}},
			{apply(1, put(0, 1)), answered(0, denied(fault.Revoked, 6))},
		},
		"rights": {
			{apply(0, share(1, read|capability.Share)), answered(2, shared(2, 1))},
			{apply(1, put(0, 1)), answered(2, denied(fault.MissingRight, 0))},
			{apply(1, share(2, read|write)), answered(2, rejected(fault.Widening))},
			{apply(1, share(2, read)), answered(3, shared(3, 1))},
			{apply(0, share(2, write)), answered(3, rejected(fault.AlreadyExists))},
			{revokeNow(1, 2), answer{refused: fault.MissingRight}},
			{apply(0, share(3, revoking)), answered(4, shared(4, 1))},
			{call{kind: callEvents, ref: 3}, answer{refused: fault.MissingRight}},
			{revokeNow(3, 9), answer{refused: fault.NotFound}},
			{revokeNow(3, 2), answer{refused: fault.MissingRight}},
			{revokeNow(3, 3), answer{cut: 5, epoch: 1}},
		},
		"restore waits for the ref to be minted, and for nothing else": {
			{call{kind: callRestore, ref: 1}, answer{refused: fault.NotYetKnown}},
			{apply(0, share(1, read)), answered(2, shared(2, 1))},
			{apply(0, revoke(1)), answered(3, cutAt(3, 3))},
			{call{kind: callRestore, ref: 1}, answer{}},
			{call{kind: callEvents, ref: 0}, answer{cursor: 3, log: "create  by r0\nshare r1 by r0\nrevoke r1 by r0\n"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := created()
			for _, x := range calls {
				next, want := s.do(x.call)
				if !x.answer.fits(want) {
					t.Errorf("%s, to a session %s\n\tsays   %s\n\tshould %s", x.call, s, want.text(x.call), x.answer.text(x.call))
				}
				s = next
			}
		})
	}
}

// again is the outcome of what was so already.
func (o outcome) again() outcome {
	o.unchanged = true
	return o
}

// at is a call of a history: its client, and when it was made and answered.
func at(client int, from, to int64, c call, a answer) seen {
	return seen{client: client, attempts: 1, call: c, answer: a, from: from, to: to}
}

func TestHistoriesByHand(t *testing.T) {
	t.Parallel()
	// The owner shares r1, then all that follows begins.
	begun := at(0, 0, 1, apply(0, share(1, everything)), answered(2, shared(2, 1)))
	lost := answer{lost: true}
	for name, h := range map[string]struct {
		want  porcupine.CheckResult
		calls history
	}{
		"an append that was under way is above the cut's cursor or denied": {porcupine.Ok, history{
			at(0, 2, 9, revokeNow(0, 1), answer{cut: 4, epoch: 1}),
			at(1, 2, 9, apply(1, put(0, 1)), answered(3, changed(3))),
			at(2, 2, 9, apply(1, put(1, 1)), answered(0, denied(fault.Revoked, 4))),
		}},
		"an append commits after the cut": {porcupine.Illegal, history{
			at(0, 2, 9, revokeNow(0, 1), answer{cut: 3, epoch: 1}),
			at(1, 2, 9, apply(1, put(0, 1)), answered(4, changed(4))),
		}},
		"an append begins after the revocation was answered, and is let through without an event": {porcupine.Illegal, history{
			at(1, 2, 3, apply(1, put(0, 1)), answered(3, changed(3))),
			at(0, 4, 5, revokeNow(0, 1), answer{cut: 4, epoch: 1}),
			at(1, 6, 7, apply(1, put(0, 1)), answered(3, same(3))),
		}},
		"a cursor is given twice": {porcupine.Illegal, history{
			at(0, 2, 9, apply(0, put(0, 1)), answered(3, changed(3))),
			at(1, 2, 9, apply(1, put(1, 1)), answered(3, changed(3))),
		}},
		"a value is found that was not there at the cursor": {porcupine.Illegal, history{
			at(0, 2, 9, apply(0, put(0, 1)), answered(3, changed(3))),
			at(1, 2, 9, apply(1, put(0, 1)), answered(2, same(2))),
		}},
		"a revocation is known at a cursor below its cut": {porcupine.Illegal, history{
			at(0, 2, 9, apply(0, revoke(1)), answered(3, cutAt(3, 3))),
			at(1, 2, 9, apply(0, revoke(1)), answered(2, cutAt(2, 3))),
		}},
		"two cuts of one ref": {porcupine.Illegal, history{
			at(0, 2, 9, revokeNow(0, 1), answer{cut: 3, epoch: 1}),
			at(1, 2, 9, revokeNow(0, 1), answer{cut: 4, epoch: 1}),
		}},
		"a cut from after a bump with the epoch from before it": {porcupine.Illegal, history{
			at(0, 2, 3, bumpNow, answer{cut: 3, epoch: 2}),
			at(0, 4, 9, revokeNow(0, 1), answer{cut: 4, epoch: 2}),
			at(1, 2, 9, revokeNow(0, 1), answer{cut: 4, epoch: 1}),
		}},
		"a share of before a bump is used after it": {porcupine.Illegal, history{
			at(0, 2, 3, bumpNow, answer{cut: 3, epoch: 2}),
			at(1, 4, 5, apply(1, put(0, 1)), answered(4, changed(4))),
		}},
		"a denial names another cut": {porcupine.Illegal, history{
			at(0, 2, 3, revokeNow(0, 1), answer{cut: 3, epoch: 1}),
			at(1, 4, 5, apply(1, put(0, 1)), answered(0, denied(fault.Revoked, 2))),
		}},
		"a ref is shared and another replica does not know it": {porcupine.Illegal, history{
			at(1, 2, 3, call{kind: callRestore, ref: 1}, answer{refused: fault.NotYetKnown}),
		}},
		"a revocation whose answer was lost, and was done": {porcupine.Ok, history{
			at(0, 2, never, revokeNow(0, 1), lost),
			at(1, 4, 5, apply(1, put(0, 1)), answered(0, denied(fault.Revoked, 3))),
		}},
		"a revocation whose answer was lost, and was not done": {porcupine.Ok, history{
			at(0, 2, never, revokeNow(0, 1), lost),
			at(1, 4, 5, apply(1, put(0, 1)), answered(3, changed(3))),
		}},
		"a revocation whose answer was lost is not undone": {porcupine.Illegal, history{
			at(0, 2, never, revokeNow(0, 1), lost),
			at(1, 4, 5, apply(1, put(0, 1)), answered(0, denied(fault.Revoked, 3))),
			at(1, 6, 7, apply(1, put(0, 1)), answered(3, changed(3))),
		}},
		"a repeated answer's cursor is a later one": {porcupine.Ok, history{
			at(1, 2, 9, apply(1, put(0, 1)), answer{outcomes: [maxOps]outcome{changed(3)}, cursor: 5}),
			at(0, 3, 4, apply(0, put(0, 2)), answered(4, changed(4))),
			at(0, 5, 6, apply(0, put(0, 3)), answered(5, changed(5))),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := append(history{begun}, h.calls...)
			if got := all.check(); got != h.want {
				t.Errorf("%s, want %s:\n%s", got, h.want, all)
			}
		})
	}
}

func TestRefusedHistoryIsShown(t *testing.T) {
	t.Parallel()
	wrong := at(2, 4, 9, apply(0, revoke(1)), answered(2, cutAt(2, 3)))
	h := history{
		at(0, 0, 1, apply(0, share(1, everything)), answered(2, shared(2, 1))),
		at(1, 2, 9, apply(0, revoke(1)), answered(3, cutAt(3, 3))),
		at(0, 10, 11, apply(1, put(0, 1)), answered(0, denied(fault.Revoked, 3))),
		wrong,
	}
	if odd := h.odd(); len(odd) != 1 || odd[0] != wrong {
		t.Errorf("what is odd should be one call, it is\n%s", odd)
	}
	path, err := h.visualize(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile(path); err != nil || !bytes.Contains(page, []byte("applied at 2 unchanged, cut 3")) {
		t.Errorf("the page does not have the call: %v", err)
	}
	const want = "    0.000–0.000     ms  c2 at s0  r0: revoke r1 → applied at 2 unchanged, cut 3 (session at 2)\n"
	if got := (history{wrong}).String(); got != want {
		t.Errorf("in words it is\n%q, want\n%q", got, want)
	}
}
