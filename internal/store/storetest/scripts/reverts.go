package scripts

// Random scripts of reverts: what they hide comes to the same on a database as in memory, whatever is written, purged, trimmed,
// swept and forked meanwhile.

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// revertOp is a random op on messages and parts; some of them break a rule.
func (s *script) revertOp(o *harness.Author) ledger.Intent {
	id := func() string { return fmt.Sprintf("m%d", s.oldest+s.rand.IntN(9)) }
	message := id()
	part := fmt.Sprintf("part/%s/p%d", message, s.rand.IntN(3))
	value := fmt.Sprintf(`{"text":"t%d","time":{"created":%d}}`, s.rand.IntN(3), 1000+s.rand.IntN(6))
	if s.oneIn(8) {
		value = fmt.Sprintf(`{"text":"t1","more":%q,"time":{"created":%d}}`, largeValue, 1000+s.rand.IntN(6))
	}
	switch s.rand.IntN(28) {
	case 0, 1, 2, 3, 26, 27:
		return harness.PutOp("message/"+message, "%s", value)
	case 4, 5, 6, 7:
		return harness.PutOp(part, "%s", value)
	case 8, 9, 20:
		return harness.NewIntent(session.MethodBegin, "message", message, "payload", json.RawMessage(value))
	case 10, 11, 12:
		entries, turns := s.model.State(o.Session)
		for _, t := range turns {
			if !t.Status.Open() || t.Outbox != o.Outbox {
				continue
			}
			part = session.PartKey(t.Message, "p0")
			if i := slices.IndexFunc(entries, func(e *session.Entry) bool { return e.Key == part }); i >= 0 {
				return harness.NewIntent(session.MethodAppendText, "key", part, "offset", entries[i].TextLen, "text", "a\u00e9")
			}
		}
		return harness.PutOp(part, "%s", value)
	case 13, 14:
		return harness.NewIntent(session.MethodFinalize, "message", message, "status", pick(s, []string{"completed", "failed", "aborted"}), "completed", 5, "parts", json.RawMessage(`[{"id":"p1","payload":{"text":"end"}}]`))
	case 15:
		return harness.NewIntent(session.MethodRemove, "key", pick(s, []string{"message/" + message, part}))
	case 16:
		return harness.NewIntent(session.MethodPurge, "key", pick(s, []string{"message/" + message, part}))
	case 17, 18:
		return harness.NewIntent(session.MethodCompact, "upto", "message/"+id(), "summary", "message/"+message)
	case 19:
		return s.edit(o)
	case 21:
		return harness.NewIntent(session.MethodUnrevert)
	case 22:
		return harness.NewIntent(session.MethodRevert, "cursor", s.model.Session(o.Session).Cursor-uint64(s.rand.IntN(8)))
	case 23:
		return harness.NewIntent(session.MethodRevert, "to", part)
	default:
		return harness.NewIntent(session.MethodRevert, "to", "message/"+message)
	}
}

// testRevertScripts: the log is kept, or trimmed as it grows.
func testRevertScripts(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	happened := map[string]int{}
	for _, seed := range seeds(f, 1, 2, 3) {
		t.Logf("seed %d", seed)
		s := newScript(&twin{Fixture: f, model: memtx.New(), seed: seed})
		s.trims = seed%2 == 0
		owner := s.open(harness.NewAuthor(s.space))
		s.authors, s.refs = nil, map[string][]string{}
		s.addAuthor(owner)
		order := []any{}
		if seed%4 > 1 {
			order = []any{"order", "time"}
		}
		s.commit(owner.Batch(false, owner.Create(order...)))
		s.authors = append(s.authors, s.open(owner.WithRef(owner.Ref)))
		var guest *harness.Author
		for i := range 60 {
			if i%15 == 0 { // the turns of the one before may be open
				if guest != nil {
					s.commit(owner.Batch(false, harness.NewIntent(session.MethodRevoke, "ref", guest.Ref)))
					s.authors = s.authors[:2]
				}
				ref := harness.ClientRef(owner.Session)
				s.commit(owner.Batch(false, harness.ShareOp(ref, "read", "append", "revert", "compact")))
				s.refs[owner.Session] = append(s.refs[owner.Session], ref)
				guest = s.open(owner.WithRef(ref))
				s.authors = append(s.authors, guest)
			}
			var group []decide.Submission
			for range 1 + s.rand.IntN(3) {
				o := pick(s, s.authors)
				var ops []ledger.Intent
				for range 1 + s.rand.IntN(4) {
					in := s.revertOp(o)
					if in.Method == session.MethodPurge && s.trims { // the model has what was trimmed
						in = harness.NewIntent(session.MethodUnrevert)
					}
					ops = append(ops, in)
				}
				group = append(group, o.Batch(s.oneIn(5), ops...))
			}
			for j, a := range s.commit(group...) {
				for k, out := range a.Outcomes {
					if out.Status != ledger.Applied {
						happened[fmt.Sprint(out.Reason, " ", group[j].Batch.Ops[k].Method)]++
					}
				}
			}
			if left := f.LogOf(owner.Session).Row.Left; left != nil && len(left.Reverts) > 1 {
				happened["several that are settled"]++
			}
			if s.oneIn(3) { // in the middle of what a revert hid, too; the model removes nothing
				_, err := f.RemoveReverted(f.Ctx, 1+s.rand.IntN(4))
				f.Must("remove what was reverted", err)
			}
			if s.trims && s.oneIn(2) {
				_, err := f.Trim(f.Ctx, owner.Session, harness.KeepNothing, 1+s.rand.IntN(10), 1+s.rand.IntN(1000))
				f.Must("trim", err)
			}
			if i%6 == 5 {
				s.compare(owner.Session, s.authors, s.refs[owner.Session])
			}
			if i == 59 {
				s.CheckCompacted(owner.Session)
				f.Shown(owner.Session)
			}
			if i%10 == 9 {
				s.search()
				s.forkAt(owner)
			}
		}
		for _, e := range s.model.Events(owner.Session) {
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
func (s *script) forkAt(source *harness.Author) {
	o := s.open(harness.NewAuthor(s.space))
	o.With = []string{source.Ref}
	args := []any{"source", source.Session, "via", source.Ref, "ref", o.Ref, "hash", harness.HashText()}
	if at := s.model.Session(source.Session).Cursor; !s.trims && s.oneIn(2) {
		args = append(args, "at", 1+s.rand.IntN(int(at)))
	}
	if s.oneIn(2) {
		args = append(args, "message", fmt.Sprintf("m%d", s.rand.IntN(9)))
	}
	s.commit(o.Batch(false, harness.NewIntent(session.MethodFork, args...)))
	s.compare(o.Session, []*harness.Author{o}, []string{o.Ref})
}
