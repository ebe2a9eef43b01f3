package storetest

// Random scripts of reverts: what they hide comes to the same on a database as in memory, whatever is written, purged, trimmed,
// swept and forked meanwhile.

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/ledger"
)

// revertOp is a random op on messages and parts; some of them break a rule.
func (s *script) revertOp(o *author) ledger.Intent {
	id := func() string { return fmt.Sprintf("m%d", s.oldest+s.rand.IntN(9)) }
	message := id()
	part := fmt.Sprintf("part/%s/p%d", message, s.rand.IntN(3))
	value := fmt.Sprintf(`{"text":"t%d","time":{"created":%d}}`, s.rand.IntN(3), 1000+s.rand.IntN(6))
	if s.oneIn(8) {
		value = fmt.Sprintf(`{"text":"t1","more":%q,"time":{"created":%d}}`, largeValue, 1000+s.rand.IntN(6))
	}
	switch s.rand.IntN(28) {
	case 0, 1, 2, 3, 26, 27:
		return putOp("message/"+message, "%s", value)
	case 4, 5, 6, 7:
		return putOp(part, "%s", value)
	case 8, 9, 20:
		return newIntent(session.MethodBegin, "message", message, "payload", json.RawMessage(value))
	case 10, 11, 12:
		entries, turns := s.model.State(o.session)
		for _, t := range turns {
			if !t.Status.Open() || t.Outbox != o.outbox {
				continue
			}
			part = session.PartKey(t.Message, "p0")
			if i := slices.IndexFunc(entries, func(e *session.Entry) bool { return e.Key == part }); i >= 0 {
				return newIntent(session.MethodAppendText, "key", part, "offset", entries[i].TextLen, "text", "a\u00e9")
			}
		}
		return putOp(part, "%s", value)
	case 13, 14:
		return newIntent(session.MethodFinalize, "message", message, "status", pick(s, []string{"completed", "failed", "aborted"}), "completed", 5, "parts", json.RawMessage(`[{"id":"p1","payload":{"text":"end"}}]`))
	case 15:
		return newIntent(session.MethodRemove, "key", pick(s, []string{"message/" + message, part}))
	case 16:
		return newIntent(session.MethodPurge, "key", pick(s, []string{"message/" + message, part}))
	case 17, 18:
		return newIntent(session.MethodCompact, "upto", "message/"+id(), "summary", "message/"+message)
	case 19:
		return s.edit(o)
	case 21:
		return newIntent(session.MethodUnrevert)
	case 22:
		return newIntent(session.MethodRevert, "cursor", s.model.Session(o.session).Cursor-uint64(s.rand.IntN(8)))
	case 23:
		return newIntent(session.MethodRevert, "to", part)
	default:
		return newIntent(session.MethodRevert, "to", "message/"+message)
	}
}

// testRevertScripts: the log is kept, or trimmed as it grows.
func testRevertScripts(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	happened := map[string]int{}
	for _, seed := range f.seeds(1, 2, 3) {
		t.Logf("seed %d", seed)
		s := newScript(&twin{fixture: f, model: memtx.New(), seed: seed})
		s.trims = seed%2 == 0
		owner := s.open(newAuthor(s.space))
		s.authors, s.refs = nil, map[string][]string{}
		s.addAuthor(owner)
		order := []any{}
		if seed%4 > 1 {
			order = []any{"order", "time"}
		}
		s.commit(owner.batch(false, owner.create(order...)))
		s.authors = append(s.authors, s.open(owner.withRef(owner.ref)))
		var guest *author
		for i := range 60 {
			if i%15 == 0 { // the turns of the one before may be open
				if guest != nil {
					s.commit(owner.batch(false, newIntent(session.MethodRevoke, "ref", guest.ref)))
					s.authors = s.authors[:2]
				}
				ref := clientRef(owner.session)
				s.commit(owner.batch(false, shareOp(ref, "read", "append", "revert", "compact")))
				s.refs[owner.session] = append(s.refs[owner.session], ref)
				guest = s.open(owner.withRef(ref))
				s.authors = append(s.authors, guest)
			}
			var group []session.Submission
			for range 1 + s.rand.IntN(3) {
				o := pick(s, s.authors)
				var ops []ledger.Intent
				for range 1 + s.rand.IntN(4) {
					in := s.revertOp(o)
					if in.Method == session.MethodPurge && s.trims { // the model has what was trimmed
						in = newIntent(session.MethodUnrevert)
					}
					ops = append(ops, in)
				}
				group = append(group, o.batch(s.oneIn(5), ops...))
			}
			for j, a := range s.commit(group...) {
				for k, out := range a.Outcomes {
					if out.Status != ledger.Applied {
						happened[fmt.Sprint(out.Reason, " ", group[j].Batch.Ops[k].Method)]++
					}
				}
			}
			if left := f.log(owner.session).Row.Left; left != nil && len(left.Reverts) > 1 {
				happened["several that are settled"]++
			}
			if s.oneIn(3) { // in the middle of what a revert hid, too; the model removes nothing
				_, err := f.RemoveReverted(f.ctx, 1+s.rand.IntN(4))
				f.must("remove what was reverted", err)
			}
			if s.trims && s.oneIn(2) {
				_, err := f.Trim(f.ctx, owner.session, keepNothing, 1+s.rand.IntN(10), 1+s.rand.IntN(1000))
				f.must("trim", err)
			}
			if i%6 == 5 {
				s.compare(owner.session, s.authors, s.refs[owner.session])
			}
			if i == 59 {
				s.checkCompacted(owner.session)
				f.shown(owner.session)
			}
			if i%10 == 9 {
				s.search()
				s.forkAt(owner)
			}
		}
		for _, e := range s.model.Events(owner.session) {
			happened[e.Method]++
		}
	}
	if seed.Raced {
		return // with few seeds not all of it happens
	}
	for _, what := range []string{"put", "begin", "appendText", "finalize", "purge", "remove", "compact", "revert", "unrevert", "settle", "reverted put", "reverted begin", "reverted remove", "reverted compact", "not_reverted unrevert", "several that are settled"} {
		if happened[what] == 0 {
			t.Errorf("no %s has happened: %v", what, happened)
		}
	}
}

// forkAt makes a fork, now or as of an earlier cursor.
func (s *script) forkAt(source *author) {
	o := s.open(newAuthor(s.space))
	o.with = []string{source.ref}
	args := []any{"source", source.session, "via", source.ref, "ref", o.ref, "hash", hashText()}
	if at := s.model.Session(source.session).Cursor; !s.trims && s.oneIn(2) {
		args = append(args, "at", 1+s.rand.IntN(int(at)))
	}
	if s.oneIn(2) {
		args = append(args, "message", fmt.Sprintf("m%d", s.rand.IntN(9)))
	}
	s.commit(o.batch(false, newIntent(session.MethodFork, args...)))
	s.compare(o.session, []*author{o}, []string{o.ref})
}
