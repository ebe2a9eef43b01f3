// Random scripts of ops, for the comparison of a store with the model.

package scripts

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/ledger/ledgertest"
)

// script makes and runs random groups.
type script struct {
	*twin
	rand    *rand.Rand
	space   string
	authors []*harness.Author
	refs    map[string][]string // session → its refs, the owner's first
	sent    []decide.Submission
	earlier map[string][]string // session → op ids
	lengths map[string]int      // session and part → the text's length, as far as known
	trims   bool                // logs are trimmed: nobody forks an earlier state, revokes an owner, who ends turns, or purges, which touches what the model still has
	oldest  int                 // the number of the first message that is written to
}

// seeds are those of random scripts: some that are the same each time, and one by the clock.
func seeds(f *harness.Fixture, fixed ...uint64) []uint64 {
	f.Helper()
	all := append(fixed, uint64(f.Load(&session.ReadSet{}).Now))
	return all[:seed.Cases(len(all))]
}

func newScript(w *twin) *script {
	root := w.Space()
	w.model.AddGrant(*root)
	s := &script{twin: w, rand: rand.New(rand.NewPCG(w.seed, 1)), space: root.ID, refs: map[string][]string{}, earlier: map[string][]string{}, lengths: map[string]int{}}
	s.newSession()
	s.newSession()
	return s
}

func (s *script) newSession() {
	o := s.open(harness.NewAuthor(s.space))
	s.addAuthor(o)
	s.commit(o.Batch(false, o.Create("external", "ext-"+o.Session, "label", "l"),
		harness.NewIntent(session.MethodBegin, "message", "m0", "payload", json.RawMessage(`{"role":"x"}`)),
		harness.PutOp("part/m0/p0", `{"text":""}`)))
}

// addAuthor takes in who creates a session.
func (s *script) addAuthor(o *harness.Author) {
	s.authors, s.refs[o.Session] = append(s.authors, o), []string{o.Ref}
}

// ref is one of a session's refs, mostly a late one, or the owner's.
func (s *script) ref(id string) string {
	refs := s.refs[id]
	if s.oneIn(3) {
		return refs[0]
	}
	return refs[s.rand.IntN(len(refs))]
}

// victim is a ref to revoke: seldom the owner's, which ends everything.
func (s *script) victim(id string) string {
	refs := s.refs[id]
	if s.trims {
		return pick(s, append([]string{harness.NewRef(id)}, refs[1:]...))
	}
	if len(refs) > 1 && !s.oneIn(20) {
		refs = refs[1:]
	}
	return pick(s, refs)
}

// oneIn is true once in n times.
func (s *script) oneIn(n int) bool { return s.rand.IntN(n) == 0 }

// pick is one of some.
func pick[T any](s *script, from []T) T { return from[s.rand.IntN(len(from))] }

// step commits a group of one to three submissions.
func (s *script) step() {
	var group []decide.Submission
	for range 1 + s.rand.IntN(3) {
		switch o := pick(s, s.authors); {
		case s.oneIn(12) && len(s.sent) > 0:
			group = append(group, pick(s, s.sent)) // again, as it was
			continue
		case s.oneIn(30):
			group = append(group, decide.Submission{Batch: ledger.Batch{Session: o.Session}, Ref: s.refs[o.Session][0],
				Direct: &decide.Direct{Ref: s.victim(o.Session), Epoch: s.oneIn(2)}})
			continue
		case s.oneIn(30):
			group = append(group, s.older(o.Session))
			continue
		case s.oneIn(60) && len(s.authors) < 12:
			group = append(group, s.rotation(o.Session))
			s.authors = append(s.authors, s.open(o.WithRef(s.refs[o.Session][0])))
			continue
		case s.oneIn(12):
			o.Acked = o.Seq - uint64(s.rand.IntN(3))%(o.Seq+1)
			group = append(group, decide.Submission{Ack: true, Ref: o.Ref,
				Batch: ledger.Batch{Session: o.Session, Outbox: o.Outbox, Incarnation: 1, AckedThrough: o.Acked}})
			continue
		case s.oneIn(10) && len(s.authors) < 12:
			s.authors = append(s.authors, s.open(o.WithRef(s.ref(o.Session))))
			continue
		case s.oneIn(25) && len(s.authors) < 12:
			group = append(group, s.fork())
			continue
		case s.oneIn(25) && len(s.authors) < 12:
			group = append(group, s.child())
			continue
		}
		o := pick(s, s.authors)
		var ops []ledger.Intent
		for range 1 + s.rand.IntN(5) {
			ops = append(ops, s.op(o))
		}
		sub := o.Batch(s.oneIn(4), ops...)
		s.sent, group = append(s.sent, sub), append(group, sub)
	}
	if len(group) > 0 {
		s.commit(group...)
	}
	if s.oneIn(4) {
		s.search()
	}
	if s.oneIn(4) { // in the middle of what a revert hid, too; the model removes nothing
		_, err := s.RemoveReverted(s.Ctx, 1+s.rand.IntN(3))
		s.Must("remove what was reverted", err)
	}
}

// search compares what searches find in a session with a look at every value.
func (s *script) search() {
	id := pick(s, s.authors).Session
	if row, _ := s.model.State(id); len(row) == 0 {
		return
	}
	name := pick(s, slices.Sorted(maps.Keys(harness.LimitedRefs)))
	s.CheckSearch(id, map[string]*capability.Grant{"of all": harness.Everything, name: harness.LimitedRefs[name]}, pick(s, []string{"t1", "é2", "aé", "end", "1", "c"}), `"end aé"`)
}

// rotation puts a new ref in the place of a session's owner's, if that lives.
func (s *script) rotation(id string) decide.Submission {
	to := harness.NewRef(id)
	sub := decide.Submission{Batch: ledger.Batch{Session: id}, Ref: s.refs[id][0], Direct: &decide.Direct{Rotate: &decide.Rotation{ID: to, Hash: harness.Hash()}}}
	s.refs[id] = append([]string{to}, s.refs[id]...)
	s.sent = append(s.sent, sub)
	return sub
}

// older removes in a session what is there of a key, or all, if it is old: seldom.
func (s *script) older(id string) decide.Submission {
	remove := &session.OlderRemoval{Method: session.MethodPurge, Key: pick(s, []string{"message/m0", "part/m0/p0", "part/m1/p0"}), Before: pick(s, []int64{1, math.MaxInt64})}
	if s.trims || s.oneIn(10) {
		remove.Method, remove.Key = session.MethodDelete, ""
	}
	if s.trims {
		remove.Before = 1
	}
	sub := decide.Submission{Batch: ledger.Batch{Session: id}, Ref: s.space, Manage: true, Direct: &decide.Direct{Older: remove}}
	s.sent = append(s.sent, sub)
	return sub
}

// fork is the first submission of a session that begins with another's state.
func (s *script) fork() decide.Submission {
	source := pick(s, s.authors)
	o := s.open(harness.NewAuthor(s.space))
	o.With = []string{source.Ref}
	args := []any{"source", source.Session, "via", source.Ref, "ref", o.Ref, "hash", harness.HashText()}
	if !s.trims && s.oneIn(2) {
		args = append(args, "at", 1+s.rand.IntN(10))
	}
	s.addAuthor(o)
	return o.Batch(false, harness.NewIntent(session.MethodFork, args...), harness.PutOp("message/m1", `{"forked":1}`))
}

// child is the first submission of a session that is another's child.
func (s *script) child() decide.Submission {
	parent := pick(s, s.authors)
	o := s.open(harness.NewAuthor(s.space))
	via := pick(s, s.refs[parent.Session])
	o.With = []string{via}
	args := []any{"parent", parent.Session, "via", via}
	if s.oneIn(2) {
		args = append(args, "part", "message/m1")
	}
	s.addAuthor(o)
	return o.Batch(false, o.Create(args...), harness.PutOp("message/m1", `{"child":1}`))
}

// op is a random op; some of them break a rule.
func (s *script) op(o *harness.Author) ledger.Intent {
	message := fmt.Sprintf("m%d", s.oldest+s.rand.IntN(3))
	part := fmt.Sprintf("part/%s/p%d", message, s.rand.IntN(2))
	key := pick(s, []string{"session", "message/" + message, part, part, "session_diff", "model/a/b", "todo/1"})
	var in ledger.Intent
	switch s.rand.IntN(31) {
	case 0, 1, 2, 3, 4:
		in = harness.PutOp(key, `{"title":"t%d","text":"é%d"}`, s.rand.IntN(3), s.rand.IntN(3))
	case 5:
		in = harness.NewIntent(session.MethodRemove, "key", key)
	case 6, 7:
		in = harness.NewIntent(session.MethodBegin, "message", message, "payload", json.RawMessage(`{"role":"y"}`))
	case 8, 9, 10, 11, 12, 13:
		if s.oneIn(2) {
			part = fmt.Sprintf("part/m%d/p0", s.oldest)
		}
		at := s.lengths[o.Session+part]
		if s.oneIn(6) {
			at = pick(s, []int{0, 3, 5}) // a part may have been put anew
		}
		s.lengths[o.Session+part] = at + 3
		in = harness.NewIntent(session.MethodAppendText, "key", part, "offset", at, "text", "aé")
	case 14, 15:
		in = harness.NewIntent(session.MethodFinalize, "message", message, "status", pick(s, []string{"completed", "failed", "aborted"}), "completed", 5,
			"parts", json.RawMessage(`[{"id":"p1","payload":{"text":"end"}}]`))
	case 16:
		ref := harness.ClientRef(o.Session)
		s.refs[o.Session] = append(s.refs[o.Session], ref)
		in = harness.ShareOp(ref, pick(s, [][]string{{"read"}, {"read", "append"}, {"read", "append", "share", "revoke"}})...)
	case 17:
		in = harness.NewIntent(session.MethodRevoke, "ref", s.victim(o.Session))
	case 18, 19:
		if in = harness.PutOp(key, `{"n":9}`); s.oneIn(8) {
			in = harness.NewIntent(session.MethodBumpEpoch)
		}
	case 20:
		if in = harness.PutOp(key, `{"n":8}`); !s.trims {
			in = harness.NewIntent(session.MethodPurge, "key", key)
		}
	case 21:
		if in = harness.PutOp(key, `{}`); len(s.earlier[o.Session]) > 0 {
			in.Args[1] = ledger.Arg{Name: "payload", Ref: &ledger.Ref{Op: pick(s, s.earlier[o.Session])}}
		}
	case 22, 23, 24, 25:
		in = s.edit(o)
	case 26, 27, 28, 29:
		in = pick(s, []ledger.Intent{harness.NewIntent(session.MethodRevert, "to", "message/"+message), harness.NewIntent(session.MethodRevert, "to", part), harness.NewIntent(session.MethodRevert, "cursor", 2+s.rand.IntN(30)),
			harness.NewIntent(session.MethodUnrevert), harness.NewIntent(session.MethodCompact, "upto", fmt.Sprintf("message/m%d", s.oldest+s.rand.IntN(3)), "summary", "message/"+message)})
	default:
		in = harness.PutOp(key, `{"n":%d}`, s.rand.IntN(2))
		if s.oneIn(20) {
			in = harness.NewIntent(session.MethodDelete)
		}
	}
	if s.oneIn(12) && len(s.earlier[o.Session]) > 0 {
		in.DependsOn = []string{pick(s, s.earlier[o.Session])}
	}
	if s.oneIn(15) {
		in.Expected = ledger.Expect{Set: true, Cursor: uint64(s.rand.IntN(30))}
	}
	s.earlier[o.Session] = append(s.earlier[o.Session], in.OpID)
	return in
}

// largeValue is one whose edits are stored apart.
var largeValue = `{"o":{"a":[0], "x":"` + strings.Repeat("x", 5000) + `"},"n":1, "p":"` + strings.Repeat("y", 3000) + `"}`

// edit is a random op on keys of the users' own kinds; some of them break a rule.
func (s *script) edit(o *harness.Author) ledger.Intent {
	key := pick(s, []string{"todo/1", "todo/2", "plan"})
	value := pick(s, []string{`{"n":1,"o":{"a":[1, 2]}}`, `{"o":{"b":null,"c":"é"}}`, `{"n":null}`, `[]`, ` null `, `{"n":"1"}`, largeValue})
	var in ledger.Intent
	switch s.rand.IntN(8) {
	case 4, 5:
		if s.oneIn(2) {
			return harness.NewIntent(session.MethodClaim, "prefix", "todo/", "lease", 1000)
		}
		return harness.NewIntent(session.MethodClaim, "key", key, "lease", 3_600_000, "worker", pick(s, []string{"", "w"}))
	case 6:
		return harness.NewIntent(session.MethodRelease, "key", key, "claim", s.claimOf(o, key))
	case 0:
		in = harness.NewIntent(session.MethodPut, "key", key, "payload", json.RawMessage(value))
	case 7: // a schema, which the others have to be valid by
		key = "schema/" + session.KindOf(key)
		if in = harness.NewIntent(session.MethodRemove, "key", key); !s.oneIn(3) {
			in = harness.NewIntent(session.MethodPut, "key", key, "payload", json.RawMessage(pick(s, []string{`{"type":["object","null"]}`, `{"properties":{"n":{"type":"integer","maximum":2}}}`, `{"maxProperties":1}`, `{"type":0}`})))
		}
	case 1, 2:
		in = harness.NewIntent(session.MethodPatch, "key", key, "patch", json.RawMessage(value))
	default:
		in = harness.NewIntent(session.MethodAdd, "key", key, "member", pick(s, []string{"n", "m"}), "by", s.rand.IntN(5)-2)
	}
	if claim := s.claimOf(o, key); claim > 0 && !s.oneIn(3) {
		in.Args = append(in.Args, ledgertest.Args("claim", claim)...)
	}
	if s.oneIn(5) {
		in.Args = append(in.Args, ledgertest.Args("expect", s.rand.IntN(40))...)
	}
	return in
}

// editOrEnd is an edit, or, seldom, the end of a value.
func (s *script) editOrEnd(o *harness.Author) ledger.Intent {
	key := pick(s, []string{"todo/1", "todo/2", "plan"})
	switch s.rand.IntN(30) {
	case 0:
		return harness.NewIntent(session.MethodPurge, "key", key)
	case 1, 2:
		in := harness.NewIntent(session.MethodRemove, "key", key)
		if claim := s.claimOf(o, key); claim > 0 && s.oneIn(2) {
			in.Args = append(in.Args, ledgertest.Args("claim", claim)...)
		}
		if s.oneIn(3) {
			in.Args = append(in.Args, ledgertest.Args("expect", s.rand.IntN(40))...)
		}
		return in
	}
	return s.edit(o)
}

// claimOf is the cursor of a key's claim before the group, 0 if it has none.
func (s *script) claimOf(o *harness.Author, key string) uint64 {
	entries, _ := s.model.State(o.Session)
	for _, e := range entries {
		if e.Key == key && e.Claim != nil {
			return e.Claim.Cursor
		}
	}
	return 0
}

// finish compares everything.
func (s *script) finish() {
	done := map[string]bool{}
	for _, o := range s.authors {
		if done[o.Session] {
			continue
		}
		done[o.Session] = true
		var authors []*harness.Author
		for _, p := range s.authors {
			if p.Session == o.Session {
				authors = append(authors, p)
			}
		}
		s.compare(o.Session, authors, s.refs[o.Session])
	}
}
