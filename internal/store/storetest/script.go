// Random scripts of ops, for the comparison of a store with the model.

package storetest

import (
	"encoding/base64"
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
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/ledger/ledgertest"
)

// author is one outbox's stream in a session, with the ref it goes by.
type author struct {
	session, outbox, ref, space string
	with                        []string
	seq, acked                  uint64

	secret  [32]byte // its hash, once the stream is open
	visitor *author  // by a ref made for somebody else
	last    session.Submission
}

// newAuthor is one that is about to create its session.
func newAuthor(space string) *author {
	id := newSession()
	return &author{session: id, outbox: newOutbox(), ref: clientRef(id), space: space}
}

// withRef is another outbox in the same session, by another ref.
func (o *author) withRef(ref string) *author {
	return &author{session: o.session, outbox: newOutbox(), ref: ref}
}

// sameSession is another outbox that creates the same session.
func (o *author) sameSession() *author {
	return &author{session: o.session, outbox: newOutbox(), ref: o.ref, space: o.space}
}

func newIntent(method string, args ...any) ledger.Intent {
	return ledger.Intent{OpID: newOp(), Method: method, Args: ledgertest.Args(args...)}
}

func hashText() string {
	h := hash()
	return base64.RawURLEncoding.EncodeToString(h[:])
}

func (o *author) create(args ...any) ledger.Intent {
	return newIntent(session.MethodCreate, append([]any{"ref", o.ref, "hash", hashText()}, args...)...)
}

func putOp(key, payload string, args ...any) ledger.Intent {
	return newIntent(session.MethodPut, "key", key, "payload", json.RawMessage(fmt.Sprintf(payload, args...)))
}

func shareOp(ref string, rights ...string) ledger.Intent {
	return newIntent(session.MethodShare, "ref", ref, "hash", hashText(), "rights", rights)
}

// batch gives ops the next places of the stream.
func (o *author) batch(atomic bool, ops ...ledger.Intent) session.Submission {
	b := ledger.Batch{Session: o.session, Outbox: o.outbox, Incarnation: 1, AckedThrough: o.acked, BatchID: newOp(), Atomic: atomic}
	for _, in := range ops {
		o.seq++
		in.BatchID, in.Seq, in.Session, in.Atomic = b.BatchID, o.seq, o.session, atomic
		b.Ops = append(b.Ops, in)
	}
	return session.Submission{Batch: b, Ref: o.ref, Space: o.space, PassedRefs: o.with}
}

// script makes and runs random groups.
type script struct {
	*twin
	rand    *rand.Rand
	space   string
	authors []*author
	refs    map[string][]string // session → its refs, the owner's first
	sent    []session.Submission
	earlier map[string][]string // session → op ids
	lengths map[string]int      // session and part → the text's length, as far as known
	trims   bool                // logs are trimmed: nobody forks an earlier state, revokes an owner, who ends turns, or purges, which touches what the model still has
	oldest  int                 // the number of the first message that is written to
}

// seeds are those of random scripts: some that are the same each time, and one by the clock.
func (f *fixture) seeds(fixed ...uint64) []uint64 {
	f.Helper()
	all := append(fixed, uint64(f.load(&session.ReadSet{}).Now))
	return all[:seed.Cases(len(all))]
}

func newScript(w *twin) *script {
	root := w.space()
	w.model.AddGrant(*root)
	s := &script{twin: w, rand: rand.New(rand.NewPCG(w.seed, 1)), space: root.ID, refs: map[string][]string{}, earlier: map[string][]string{}, lengths: map[string]int{}}
	s.newSession()
	s.newSession()
	return s
}

func (s *script) newSession() {
	o := s.open(newAuthor(s.space))
	s.addAuthor(o)
	s.commit(o.batch(false, o.create("external", "ext-"+o.session, "label", "l"),
		newIntent(session.MethodBegin, "message", "m0", "payload", json.RawMessage(`{"role":"x"}`)),
		putOp("part/m0/p0", `{"text":""}`)))
}

// addAuthor takes in who creates a session.
func (s *script) addAuthor(o *author) {
	s.authors, s.refs[o.session] = append(s.authors, o), []string{o.ref}
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
		return pick(s, append([]string{newRef(id)}, refs[1:]...))
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
	var group []session.Submission
	for range 1 + s.rand.IntN(3) {
		switch o := pick(s, s.authors); {
		case s.oneIn(12) && len(s.sent) > 0:
			group = append(group, pick(s, s.sent)) // again, as it was
			continue
		case s.oneIn(30):
			group = append(group, session.Submission{Batch: ledger.Batch{Session: o.session}, Ref: s.refs[o.session][0],
				Direct: &session.Direct{Ref: s.victim(o.session), Epoch: s.oneIn(2)}})
			continue
		case s.oneIn(30):
			group = append(group, s.older(o.session))
			continue
		case s.oneIn(60) && len(s.authors) < 12:
			group = append(group, s.rotation(o.session))
			s.authors = append(s.authors, s.open(o.withRef(s.refs[o.session][0])))
			continue
		case s.oneIn(12):
			o.acked = o.seq - uint64(s.rand.IntN(3))%(o.seq+1)
			group = append(group, session.Submission{Ack: true, Ref: o.ref,
				Batch: ledger.Batch{Session: o.session, Outbox: o.outbox, Incarnation: 1, AckedThrough: o.acked}})
			continue
		case s.oneIn(10) && len(s.authors) < 12:
			s.authors = append(s.authors, s.open(o.withRef(s.ref(o.session))))
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
		sub := o.batch(s.oneIn(4), ops...)
		s.sent, group = append(s.sent, sub), append(group, sub)
	}
	if len(group) > 0 {
		s.commit(group...)
	}
	if s.oneIn(4) {
		s.search()
	}
	if s.oneIn(4) { // in the middle of what a revert hid, too; the model removes nothing
		_, err := s.RemoveReverted(s.ctx, 1+s.rand.IntN(3))
		s.must("remove what was reverted", err)
	}
}

// search compares what searches find in a session with a look at every value.
func (s *script) search() {
	id := pick(s, s.authors).session
	if row, _ := s.model.State(id); len(row) == 0 {
		return
	}
	name := pick(s, slices.Sorted(maps.Keys(limitedRefs)))
	s.checkSearch(id, map[string]*capability.Grant{"of all": everything, name: limitedRefs[name]}, pick(s, []string{"t1", "é2", "aé", "end", "1", "c"}), `"end aé"`)
}

// rotation puts a new ref in the place of a session's owner's, if that lives.
func (s *script) rotation(id string) session.Submission {
	to := newRef(id)
	sub := session.Submission{Batch: ledger.Batch{Session: id}, Ref: s.refs[id][0], Direct: &session.Direct{Rotate: &session.Rotation{ID: to, Hash: hash()}}}
	s.refs[id] = append([]string{to}, s.refs[id]...)
	s.sent = append(s.sent, sub)
	return sub
}

// older removes in a session what is there of a key, or all, if it is old: seldom.
func (s *script) older(id string) session.Submission {
	remove := &session.OlderRemoval{Method: session.MethodPurge, Key: pick(s, []string{"message/m0", "part/m0/p0", "part/m1/p0"}), Before: pick(s, []int64{1, math.MaxInt64})}
	if s.trims || s.oneIn(10) {
		remove.Method, remove.Key = session.MethodDelete, ""
	}
	if s.trims {
		remove.Before = 1
	}
	sub := session.Submission{Batch: ledger.Batch{Session: id}, Ref: s.space, Manage: true, Direct: &session.Direct{Older: remove}}
	s.sent = append(s.sent, sub)
	return sub
}

// fork is the first submission of a session that begins with another's state.
func (s *script) fork() session.Submission {
	source := pick(s, s.authors)
	o := s.open(newAuthor(s.space))
	o.with = []string{source.ref}
	args := []any{"source", source.session, "via", source.ref, "ref", o.ref, "hash", hashText()}
	if !s.trims && s.oneIn(2) {
		args = append(args, "at", 1+s.rand.IntN(10))
	}
	s.addAuthor(o)
	return o.batch(false, newIntent(session.MethodFork, args...), putOp("message/m1", `{"forked":1}`))
}

// child is the first submission of a session that is another's child.
func (s *script) child() session.Submission {
	parent := pick(s, s.authors)
	o := s.open(newAuthor(s.space))
	via := pick(s, s.refs[parent.session])
	o.with = []string{via}
	args := []any{"parent", parent.session, "via", via}
	if s.oneIn(2) {
		args = append(args, "part", "message/m1")
	}
	s.addAuthor(o)
	return o.batch(false, o.create(args...), putOp("message/m1", `{"child":1}`))
}

// op is a random op; some of them break a rule.
func (s *script) op(o *author) ledger.Intent {
	message := fmt.Sprintf("m%d", s.oldest+s.rand.IntN(3))
	part := fmt.Sprintf("part/%s/p%d", message, s.rand.IntN(2))
	key := pick(s, []string{"session", "message/" + message, part, part, "session_diff", "model/a/b", "todo/1"})
	var in ledger.Intent
	switch s.rand.IntN(31) {
	case 0, 1, 2, 3, 4:
		in = putOp(key, `{"title":"t%d","text":"é%d"}`, s.rand.IntN(3), s.rand.IntN(3))
	case 5:
		in = newIntent(session.MethodRemove, "key", key)
	case 6, 7:
		in = newIntent(session.MethodBegin, "message", message, "payload", json.RawMessage(`{"role":"y"}`))
	case 8, 9, 10, 11, 12, 13:
		if s.oneIn(2) {
			part = fmt.Sprintf("part/m%d/p0", s.oldest)
		}
		at := s.lengths[o.session+part]
		if s.oneIn(6) {
			at = pick(s, []int{0, 3, 5}) // a part may have been put anew
		}
		s.lengths[o.session+part] = at + 3
		in = newIntent(session.MethodAppendText, "key", part, "offset", at, "text", "aé")
	case 14, 15:
		in = newIntent(session.MethodFinalize, "message", message, "status", pick(s, []string{"completed", "failed", "aborted"}), "completed", 5,
			"parts", json.RawMessage(`[{"id":"p1","payload":{"text":"end"}}]`))
	case 16:
		ref := clientRef(o.session)
		s.refs[o.session] = append(s.refs[o.session], ref)
		in = shareOp(ref, pick(s, [][]string{{"read"}, {"read", "append"}, {"read", "append", "share", "revoke"}})...)
	case 17:
		in = newIntent(session.MethodRevoke, "ref", s.victim(o.session))
	case 18, 19:
		if in = putOp(key, `{"n":9}`); s.oneIn(8) {
			in = newIntent(session.MethodBumpEpoch)
		}
	case 20:
		if in = putOp(key, `{"n":8}`); !s.trims {
			in = newIntent(session.MethodPurge, "key", key)
		}
	case 21:
		if in = putOp(key, `{}`); len(s.earlier[o.session]) > 0 {
			in.Args[1] = ledger.Arg{Name: "payload", Ref: &ledger.Ref{Op: pick(s, s.earlier[o.session])}}
		}
	case 22, 23, 24, 25:
		in = s.edit(o)
	case 26, 27, 28, 29:
		in = pick(s, []ledger.Intent{newIntent(session.MethodRevert, "to", "message/"+message), newIntent(session.MethodRevert, "to", part), newIntent(session.MethodRevert, "cursor", 2+s.rand.IntN(30)),
			newIntent(session.MethodUnrevert), newIntent(session.MethodCompact, "upto", fmt.Sprintf("message/m%d", s.oldest+s.rand.IntN(3)), "summary", "message/"+message)})
	default:
		in = putOp(key, `{"n":%d}`, s.rand.IntN(2))
		if s.oneIn(20) {
			in = newIntent(session.MethodDelete)
		}
	}
	if s.oneIn(12) && len(s.earlier[o.session]) > 0 {
		in.DependsOn = []string{pick(s, s.earlier[o.session])}
	}
	if s.oneIn(15) {
		in.Expected = ledger.Expect{Set: true, Cursor: uint64(s.rand.IntN(30))}
	}
	s.earlier[o.session] = append(s.earlier[o.session], in.OpID)
	return in
}

// largeValue is one whose edits are stored apart.
var largeValue = `{"o":{"a":[0], "x":"` + strings.Repeat("x", 5000) + `"},"n":1, "p":"` + strings.Repeat("y", 3000) + `"}`

// edit is a random op on keys of the users' own kinds; some of them break a rule.
func (s *script) edit(o *author) ledger.Intent {
	key := pick(s, []string{"todo/1", "todo/2", "plan"})
	value := pick(s, []string{`{"n":1,"o":{"a":[1, 2]}}`, `{"o":{"b":null,"c":"é"}}`, `{"n":null}`, `[]`, ` null `, `{"n":"1"}`, largeValue})
	var in ledger.Intent
	switch s.rand.IntN(8) {
	case 4, 5:
		if s.oneIn(2) {
			return newIntent(session.MethodClaim, "prefix", "todo/", "lease", 1000)
		}
		return newIntent(session.MethodClaim, "key", key, "lease", 3_600_000, "worker", pick(s, []string{"", "w"}))
	case 6:
		return newIntent(session.MethodRelease, "key", key, "claim", s.claimOf(o, key))
	case 0:
		in = newIntent(session.MethodPut, "key", key, "payload", json.RawMessage(value))
	case 7: // a schema, which the others have to be valid by
		key = "schema/" + session.KindOf(key)
		if in = newIntent(session.MethodRemove, "key", key); !s.oneIn(3) {
			in = newIntent(session.MethodPut, "key", key, "payload", json.RawMessage(pick(s, []string{`{"type":["object","null"]}`, `{"properties":{"n":{"type":"integer","maximum":2}}}`, `{"maxProperties":1}`, `{"type":0}`})))
		}
	case 1, 2:
		in = newIntent(session.MethodPatch, "key", key, "patch", json.RawMessage(value))
	default:
		in = newIntent(session.MethodAdd, "key", key, "member", pick(s, []string{"n", "m"}), "by", s.rand.IntN(5)-2)
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
func (s *script) editOrEnd(o *author) ledger.Intent {
	key := pick(s, []string{"todo/1", "todo/2", "plan"})
	switch s.rand.IntN(30) {
	case 0:
		return newIntent(session.MethodPurge, "key", key)
	case 1, 2:
		in := newIntent(session.MethodRemove, "key", key)
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
func (s *script) claimOf(o *author, key string) uint64 {
	entries, _ := s.model.State(o.session)
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
		if done[o.session] {
			continue
		}
		done[o.session] = true
		var authors []*author
		for _, p := range s.authors {
			if p.session == o.session {
				authors = append(authors, p)
			}
		}
		s.compare(o.session, authors, s.refs[o.session])
	}
}
