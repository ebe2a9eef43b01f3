package linear

// The sequential model: a session, as if all its calls came one after the other.

import (
	"fmt"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// session is the model's state: one comparable value that is copied and never
// shared.
type session struct {
	cursor uint64
	epoch  uint64
	values [maxKeys]int    // 0: absent
	places [maxKeys]uint64 // of what is not absent: the cursor of its first put
	revert revert
	refs   [maxRefs]ref
	log    string
}

// ref is one sturdy ref.
type ref struct {
	minted bool
	owner  bool
	parent int
	rights capability.Rights
	epoch  uint64 // it was minted under; 0 for the owner's
	cut    uint64 // where it was revoked; 0 while it was not
}

// revert hides a message and those whose places are after its.
type revert struct {
	inForce bool
	key     int
}

// hidden says whether there is a message that is hidden.
func (s *session) hidden(key int) bool {
	return s.revert.inForce && s.values[key] != 0 && s.places[key] >= s.places[s.revert.key]
}

// settle ends a revert: what it hid is gone.
func (s *session) settle(by int) {
	if !s.revert.inForce {
		return
	}
	s.emit("settle", fmt.Sprintf("k%d", s.revert.key), by)
	gone := *s
	for key := range s.values {
		if gone.hidden(key) {
			s.values[key], s.places[key] = 0, 0
		}
	}
	s.revert = revert{}
}

// created is a session of which nothing but create has happened.
func created() session {
	s := session{epoch: 1}
	s.refs[ownerRef] = ref{minted: true, owner: true, rights: everything}
	s.emit("create", "", ownerRef)
	return s
}

// emit is an event: the next cursor, and a line of the log.
func (s *session) emit(method, what string, by int) {
	s.cursor++
	s.log += logLine(method, what, by)
}

// logLine is what is compared of an event: its method, what it is about, and
// the ref under which it was made.
func logLine(method, what string, by int) string {
	return fmt.Sprintf("%s %s by r%d\n", method, what, by)
}

// refusal is why something is not done.
type refusal struct {
	code fault.Code
	at   uint64
}

// check says whether the ref in place i allows need now; need 0 asks whether it
// lives.
func (s *session) check(i int, need capability.Rights) (refusal, bool) {
	r := s.refs[i]
	switch {
	case !r.minted:
		return refusal{code: fault.UnknownRef}, false
	case r.cut != 0:
		return refusal{fault.Revoked, r.cut}, false
	case !r.owner && r.epoch != s.epoch:
		return refusal{fault.StaleEpoch, s.epoch}, false
	case r.rights&need != need:
		return refusal{code: fault.MissingRight}, false
	}
	return refusal{}, true
}

// do is one call: the state after it, and its answer.
func (s session) do(c call) (session, answer) {
	switch c.kind {
	case callApply:
		return s.apply(c)
	case callRevoke, callBump:
		return s.direct(c)
	case callDescribe:
		return s, s.describe(c.ref)
	case callEvents:
		if no, ok := s.check(c.ref, capability.Read); !ok {
			return s, answer{refused: no.code, at: no.at}
		}
		return s, answer{cursor: s.cursor, log: s.log}
	case callRestore:
		// A dead ref restores too: what it may do is decided call by call.
		if !s.refs[c.ref].minted {
			return s, answer{refused: fault.NotYetKnown}
		}
		return s, answer{}
	}
	panic("unknown call")
}

// describe tells a dead ref what killed it, and of the session the epoch alone.
func (s *session) describe(i int) answer {
	r := s.refs[i]
	if !r.minted {
		return answer{refused: fault.UnknownRef}
	}
	no, ok := s.check(i, 0)
	a := answer{epoch: s.epoch, dead: no.code, cut: r.cut, minted: r.epoch}
	if ok {
		a.cursor = s.cursor
	}
	return a
}

// apply decides a batch op by op. An expected cursor is compared with the one
// before the batch; an atomic batch does all or nothing.
func (s session) apply(c call) (session, answer) {
	before, base := s, s.cursor
	a := answer{cursorKnown: true}
	authorized := false
	for i := range c.batch.n {
		o := c.batch.ops[i]
		no, ok := s.check(c.ref, o.kind.need())
		authorized = authorized || ok
		switch {
		case !ok:
			a.outcomes[i] = outcome{status: ledger.Denied, reason: no.code, at: no.at}
		case o.compare && o.expected != base:
			a.outcomes[i] = outcome{status: ledger.Conflict, reason: fault.Conflict, cursor: base}
		default:
			a.outcomes[i] = s.op(c.ref, o)
		}
		if c.batch.atomic && a.outcomes[i].status != ledger.Applied {
			s = before
			a.outcomes = aborted(c.batch.n, i, a.outcomes[i])
			break
		}
	}
	// The cursor is told to whom some op was allowed, or who lives all the same.
	if _, lives := s.check(c.ref, 0); authorized || lives {
		a.cursor = s.cursor
	}
	return s, a
}

func aborted(n, cause int, why outcome) (all [maxOps]outcome) {
	for i := range n {
		all[i] = outcome{status: ledger.BatchAborted, reason: why.reason, cause: cause + 1}
	}
	all[cause].cursor, all[cause].at = why.cursor, why.at
	return all
}

// need is the right that an op takes.
func (k opKind) need() capability.Rights {
	switch k {
	case opPut:
		return capability.Append
	case opShare:
		return capability.Share
	case opRevert, opUnrevert:
		return capability.Revert
	}
	return capability.Revoke
}

// op does one op that its ref allows.
func (s *session) op(by int, o op) outcome {
	switch o.kind {
	case opPut:
		switch {
		case s.hidden(o.key):
			return outcome{status: ledger.Rejected, reason: fault.Reverted}
		case s.values[o.key] == o.value:
			return outcome{status: ledger.Applied, cursor: s.cursor, unchanged: true}
		case s.values[o.key] == 0:
			s.settle(by)
			s.places[o.key] = s.cursor + 1
		}
		s.values[o.key] = o.value
		s.emit("put", fmt.Sprintf("k%d=%d", o.key, o.value), by)
		return outcome{status: ledger.Applied, cursor: s.cursor}
	case opShare:
		switch {
		case s.refs[o.target].minted:
			return outcome{status: ledger.Rejected, reason: fault.AlreadyExists}
		case s.refs[by].rights&o.rights != o.rights:
			return outcome{status: ledger.Rejected, reason: fault.Widening}
		}
		s.refs[o.target] = ref{minted: true, parent: by, rights: o.rights, epoch: s.epoch}
		s.emit("share", fmt.Sprintf("r%d", o.target), by)
		return outcome{status: ledger.Applied, cursor: s.cursor, epoch: s.epoch}
	case opRevoke:
		return s.revoke(by, o.target)
	case opRevert:
		to := revert{true, o.key}
		switch {
		case s.values[o.key] == 0:
			return outcome{status: ledger.Rejected, reason: fault.NotFound}
		case s.revert == to:
			return outcome{status: ledger.Applied, cursor: s.cursor, unchanged: true}
		}
		s.revert = to
		s.emit("revert", fmt.Sprintf("k%d", o.key), by)
		return outcome{status: ledger.Applied, cursor: s.cursor}
	case opUnrevert:
		if !s.revert.inForce {
			return outcome{status: ledger.Rejected, reason: fault.NotReverted}
		}
		s.emit("unrevert", fmt.Sprintf("k%d", s.revert.key), by)
		s.revert = revert{}
		return outcome{status: ledger.Applied, cursor: s.cursor}
	}
	s.epoch++
	s.emit("bumpEpoch", "", by)
	return outcome{status: ledger.Applied, cursor: s.cursor, cut: s.cursor, epoch: s.epoch}
}

// revoke kills a ref and all below it. What was dead keeps its first cut.
func (s *session) revoke(by, target int) outcome {
	r := s.refs[target]
	switch {
	case !r.minted:
		return outcome{status: ledger.Rejected, reason: fault.NotFound}
	case !s.refs[by].owner && !s.descends(target, by):
		return outcome{status: ledger.Denied, reason: fault.MissingRight}
	case r.cut != 0:
		return outcome{status: ledger.Applied, cursor: s.cursor, unchanged: true, cut: r.cut}
	}
	s.emit("revoke", fmt.Sprintf("r%d", target), by)
	for i := range s.refs {
		if s.refs[i].minted && s.refs[i].cut == 0 && s.descends(i, target) {
			s.refs[i].cut = s.cursor
		}
	}
	return outcome{status: ledger.Applied, cursor: s.cursor, cut: s.cursor}
}

// descends says whether a minted ref is ancestor or was minted below it.
func (s *session) descends(i, ancestor int) bool {
	for ; i != ancestor; i = s.refs[i].parent {
		if s.refs[i].owner {
			return false
		}
	}
	return true
}

// direct is Session.revoke: the ops' rules without an outbox.
func (s session) direct(c call) (session, answer) {
	o := op{kind: opRevoke, target: c.target}
	if c.kind == callBump {
		o = op{kind: opBump}
	}
	if no, ok := s.check(c.ref, capability.Revoke); !ok {
		return s, answer{refused: no.code, at: no.at}
	}
	out := s.op(c.ref, o)
	if out.status != ledger.Applied {
		return s, answer{refused: out.reason}
	}
	return s, answer{cut: out.cut, epoch: s.epoch}
}
