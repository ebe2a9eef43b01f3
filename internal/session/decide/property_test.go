package decide_test

// Random ops of several streams in random groups, against the rules that hold
// whatever comes: rapid prints the seed of a failure and shrinks it.

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// twins are two worlds that get the same submissions: one in groups, one each
// alone. Whatever the grouping, they must come to the same.
type twins struct {
	*rapid.T
	group, single *world
	writers       []*writer
	refs          []string                    // all that were named, minted or not
	lengths       map[string]int              // session and part → the text's length, as far as one can guess
	earlier       map[*writer][]string        // op ids
	sent          []decide.Submission         // what can come again
	said          map[string][]ledger.Outcome // batch id → what was answered
	unjudged      []ledger.Outcome            // not yet held against the events
	events        map[string]uint64           // op id → its event's cursor
	made          int                         // ops that changed something
	compared      map[string]uint64           // session → cursor that the events are held against up to
}

func newTwins(t *rapid.T) *twins {
	w := &twins{T: t, group: newWorld(t), lengths: map[string]int{}, earlier: map[*writer][]string{}, said: map[string][]ledger.Outcome{},
		events: map[string]uint64{}, compared: map[string]uint64{}}
	w.single = newWorld(t)
	root := *w.group.store.Grant(w.group.space)
	w.single.store.AddGrant(root)
	w.single.space = root.ID
	for range 2 {
		w.newSession()
	}
	return w
}

func (w *twins) open(o *writer) *writer {
	w.single.store.OpenStream(o.session, o.outbox, 1)
	w.writers = append(w.writers, o)
	return o
}

func (w *twins) newSession() {
	o := w.open(w.group.newWriter())
	w.refs = append(w.refs, o.ref)
	w.commit([]decide.Submission{o.batch(false, op("create", "ref", o.ref, "hash", sha(o.ref)),
		op("begin", "message", "m0", "payload", raw(`{}`)), op("put", "key", "part/m0/p0", "payload", raw(`{}`)),
		op("put", "key", "schema/todo", "payload", raw(`{"properties":{"a":{"maximum":1},"b":{"maxProperties":1}}}`)), op("put", "key", "todo/1", "payload", raw(`{"a":1}`)))})
}

var texts = []string{"a", "bc", "é", "😀", ""}

// randomOp draws an op of o; most of them are good.
func (w *twins) randomOp(o *writer, before []string) anOp {
	t := w.T
	m := fmt.Sprintf("m%d", rapid.IntRange(0, 2).Draw(t, "message"))
	p := "part/" + m + "/" + fmt.Sprintf("p%d", rapid.IntRange(0, 1).Draw(t, "part"))
	small := rapid.IntRange(0, 2).Draw(t, "value")
	own := []string{"plan", "todo/0", "todo/1"}[small]
	var x anOp
	switch kind := rapid.IntRange(0, 50).Draw(t, "kind"); {
	case kind < 4:
		x = op("put", "key", "message/"+m, "payload", raw(`{"v":%d}`, small))
	case kind < 8:
		x = op("put", "key", p, "payload", raw(`{"text":%q,"state":{"status":"running"}}`, texts[small]))
		w.lengths[o.session+p] = len(texts[small])
	case kind < 9:
		x = op("put", "key", p, "payload", raw(`{"text":%d}`, small))
	case kind < 11:
		x = op("remove", "key", []string{"message/" + m, p, "session"}[small])
	case kind < 15:
		x = op("begin", "message", m, "payload", raw(`{"b":%d}`, small))
	case kind < 22:
		if rapid.Bool().Draw(t, "the first part") {
			p = "part/m0/p0"
		}
		text := rapid.SampledFrom(texts).Draw(t, "text")
		x = op("appendText", "key", p, "offset", w.lengths[o.session+p], "text", text)
		w.lengths[o.session+p] += len(text)
		if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
			w.lengths[o.session+p] = small
		}
	case kind < 24:
		x = op("finalize", "message", m, "status", []string{"completed", "failed", "aborted"}[small])
		if rapid.Bool().Draw(t, "more") {
			x = op("finalize", "message", m, "status", "completed", "completed", 5, "parts", raw(`[{"id":"p0","payload":{"text":"end"}}]`), "usage", raw(`{}`))
			w.lengths[o.session+"part/"+m+"/p0"] = 3
		}
	case kind < 26:
		id, _ := newRef(o.session)
		w.refs = append(w.refs, id)
		x = op("share", "ref", id, "hash", sha(id), "rights", [][]string{{"read", "append"}, append(slices.Clip(all), "schema", "break", "revert", "compact"), {"append", "share"}}[small])
	case kind < 27:
		x = op("revoke", "ref", w.doomed())
	case kind < 28:
		if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
			x = op("bumpEpoch")
		} else {
			x = op("put", "key", "session", "payload", raw(`{"title":%d}`, small))
		}
	case kind < 29:
		x = op("void")
	case kind < 30:
		x = op("put", "key", "ref/x", "payload", raw(`{}`))
	case kind < 31:
		x = [...]anOp{op("revert", "to", "message/"+m), op("revert", "to", p), op("unrevert"), op("revert", "cursor", rapid.IntRange(0, 12).Draw(t, "cursor"))}[rapid.IntRange(0, 3).Draw(t, "revert")]
	case kind < 32:
		x = op("purge", "key", []string{"message/" + m, p, "session", own}[rapid.IntRange(0, 3).Draw(t, "purged")])
	case kind < 42:
		x = w.randomEdit(o, own)
	case kind < 48:
		x = w.randomClaim(o, own)
	case kind < 49:
		x = compactOp(fmt.Sprintf("message/m%d", rapid.IntRange(0, 2).Draw(t, "upto")), "message/"+m)
	default:
		x = op("put", "key", "session_diff", "payload", raw(`{}`))
		if rapid.IntRange(0, 19).Draw(t, "really") == 0 {
			x = op("delete")
		}
	}
	if len(before) == 0 || x.method == "void" {
		return x
	}
	earlier := rapid.SampledFrom(before).Draw(t, "earlier")
	switch rapid.IntRange(0, 19).Draw(t, "reference") {
	case 0:
		x.depends = []string{earlier}
	case 1:
		x.expect = ledger.Expect{Set: true, Ref: &ledger.Ref{Op: earlier, Path: "cursor"}}
	case 2:
		if x.method == "put" {
			x.args = append(x.args, ledger.Arg{Name: "schema_version", Ref: &ledger.Ref{Op: earlier, Path: "cursor"}})
		}
	case 3:
		if x.method == "revoke" {
			x.args[0] = ledger.Arg{Name: "ref", Ref: &ledger.Ref{Op: earlier, Path: "ref"}}
		}
	}
	return x
}

// large is a value whose edits are stored apart.
var large = `{"b":{"c":[0], "x":"` + strings.Repeat("x", 5000) + `"},"a":1, "c":"` + strings.Repeat("y", 3000) + `"}`

// randomEdit draws an op on a key of its users' kinds; most of them are good.
func (w *twins) randomEdit(o *writer, key string) anOp {
	t := w.T
	values := []string{`null`, ` {"a":1, "b":{"c":[1 ,2]}}`, `{}`, `[{"a":1}]`, `"x"`, `{"a":1,"a":2}`, `{"a":9007199254740991}`, `{ "b" : {"d":null} }`, large}
	value := raw("%s", rapid.SampledFrom(values).Draw(t, "a value"))
	var x anOp
	switch rapid.IntRange(0, 6).Draw(t, "edit") {
	case 6:
		x = w.randomSchema("schema/" + session.KindOf(key))
	case 0:
		x = op("put", "key", key, "payload", value)
	case 1:
		x = op("remove", "key", key)
	case 2, 3:
		x = op("patch", "key", key, "patch", value)
		if rapid.IntRange(0, 3).Draw(t, "versioned") == 0 {
			x = op("patch", "key", key, "patch", value, "schema_version", 2)
		}
	default:
		x = op("add", "key", key, "member", rapid.SampledFrom([]string{"a", "b", "n\n"}).Draw(t, "member"), "by", rapid.IntRange(-2, 2).Draw(t, "by"))
	}
	if claim := w.claimOf(o, key); rapid.IntRange(0, 3).Draw(t, "claiming") < 2 && claim != 0 || rapid.IntRange(0, 9).Draw(t, "fenced") == 0 {
		x.args = append(x.args, op("", "claim", claim).args...)
	}
	if rapid.IntRange(0, 3).Draw(t, "expecting") == 0 {
		x.args = append(x.args, op("", "expect", rapid.IntRange(0, 20).Draw(t, "expected")).args...)
	}
	return x
}

// randomClaim draws an op about a claim.
func (w *twins) randomClaim(o *writer, key string) anOp {
	t := w.T
	worker := rapid.SampledFrom([]string{"", "w"}).Draw(t, "worker")
	lease := rapid.SampledFrom([]int{1000, 20_000, 3_600_000}).Draw(t, "lease")
	switch rapid.IntRange(0, 5).Draw(t, "claim") {
	case 0, 1:
		return op("claim", "key", key, "lease", lease, "worker", worker)
	case 2:
		return op("release", "key", key, "claim", w.claimOf(o, key))
	default:
		return op("claim", "prefix", "todo/", "lease", lease, "worker", worker)
	}
}

// ClaimOf is the cursor of a key's claim before the group, 0 if it has none.
func (w *twins) claimOf(o *writer, key string) uint64 {
	if e := o.entryOf(key); e != nil && e.Claim != nil {
		return e.Claim.Cursor
	}
	return 0
}

// randomSchema draws an op on a schema; some schemas do not compile.
func (w *twins) randomSchema(key string) anOp {
	schemas := []string{`{"type":["object","null"]}`, `{"properties":{"a":{"type":"integer","maximum":2,"minimum":-1},"b":{"type":"object"}},"required":["a"]}`,
		`{"anyOf":[{"type":"string"},{"maxProperties":1}]}`, `true`, `false`, `{"type":7}`}
	if rapid.IntRange(0, 2).Draw(w.T, "schema's end") == 0 {
		return op("remove", "key", key)
	}
	return op("put", "key", key, "payload", raw("%s", rapid.SampledFrom(schemas).Draw(w.T, "schema")))
}

// doomed is a ref to revoke, seldom an owner's.
func (w *twins) doomed() string {
	id := rapid.SampledFrom(w.refs).Draw(w.T, "revoked")
	if g := w.group.store.Grant(id); g != nil && g.Owner && rapid.IntRange(0, 9).Draw(w.T, "the owner's") > 0 {
		id = w.refs[len(w.refs)-1]
	}
	return id
}

func (w *twins) randomBatch() decide.Submission {
	t := w.T
	o := rapid.SampledFrom(w.writers).Draw(t, "writer")
	n := rapid.IntRange(1, 4).Draw(t, "ops")
	if o.acked+2 < o.seq && rapid.IntRange(0, 3).Draw(t, "ack") == 0 {
		o.acked = uint64(rapid.IntRange(int(o.acked), int(o.seq)).Draw(t, "acked"))
	}
	before := append([]string(nil), w.earlier[o]...)
	sub := o.batch(rapid.IntRange(0, 3).Draw(t, "atomic") == 0)
	for range n {
		x := w.randomOp(o, before)
		one := o.batch(sub.Batch.Atomic, x).Batch.Ops[0]
		one.BatchID = sub.Batch.BatchID
		sub.Batch.Ops = append(sub.Batch.Ops, one)
		before = append(before, one.OpID)
	}
	w.earlier[o] = before[max(0, len(before)-6):]
	return sub
}

// commit runs subs in one group here and one by one there.
func (w *twins) commit(subs []decide.Submission) {
	answers, published := w.group.commit(subs...)
	cursors := map[string]uint64{}
	for _, p := range published.Sessions {
		if p.Events.Last() != p.Row.Cursor {
			w.Fatalf("published up to %d, the row is at %d", p.Events.Last(), p.Row.Cursor)
		}
		cursors[p.Row.ID] = p.Row.Cursor
	}
	for i := range subs {
		alone, _ := w.single.commit(subs[i])
		if !reflect.DeepEqual(alone[0], answers[i]) {
			w.Fatalf("alone: %+v\nin a group: %+v", alone[0], answers[i])
		}
		w.judge(&subs[i], &answers[i])
	}
	w.compare()
}

// judge holds one answer against what was said before and what atomic means.
func (w *twins) judge(sub *decide.Submission, a *decide.Answer) {
	b := &sub.Batch
	if a.Err != nil {
		w.Fatalf("batch %s refused: %v", b.BatchID, a.Err)
	}
	if len(a.Outcomes) != len(b.Ops) {
		w.Fatalf("%d outcomes for %d ops", len(a.Outcomes), len(b.Ops))
	}
	if was, repeated := w.said[b.BatchID]; repeated != a.Duplicate {
		w.Fatalf("batch %s: repeated %v, answered as duplicate %v", b.BatchID, repeated, a.Duplicate)
	} else if repeated {
		for i, out := range a.Outcomes {
			if out.Status == 0 && out.Reason == fault.Pruned {
				continue
			}
			if was[i].OpID != out.OpID || was[i].Status != out.Status || was[i].Message != out.Message || string(was[i].Result) != string(out.Result) {
				w.Fatalf("said %+v first and %+v again", was[i], out)
			}
		}
		return
	}
	w.said[b.BatchID] = a.Outcomes
	w.unjudged = append(w.unjudged, a.Outcomes...)
	applied := 0
	for i, out := range a.Outcomes {
		if out.Status == ledger.Applied {
			applied++
		}
		if sub.Manage && out.Status == ledger.Denied && out.Reason != fault.NotAnOwner {
			w.Fatalf("%s under the space's own ref: %+v", b.Ops[i].Method, out)
		}
		if out.OpID != b.Ops[i].OpID {
			w.Fatalf("outcome %d is of %s", i, out.OpID)
		}
	}
	if b.Atomic && applied != 0 && applied != len(b.Ops) {
		w.Fatalf("an atomic batch applied in part: %+v", a.Outcomes)
	}
}

// compare holds the twins' rows against each other, and the new events against
// the new outcomes.
func (w *twins) compare() {
	seen := map[string]bool{}
	for _, o := range w.writers {
		if !reflect.DeepEqual(w.group.store.Stream(o.session, o.outbox), w.single.store.Stream(o.session, o.outbox)) {
			w.Fatalf("streams differ")
		}
		if w.group.store.Records(o.session, o.outbox) != w.single.store.Records(o.session, o.outbox) {
			w.Fatalf("records differ")
		}
		if seen[o.session] {
			continue
		}
		seen[o.session] = true
		// Equal heads of the chain are equal logs.
		row := w.group.store.Session(o.session)
		if alone := w.single.store.Session(o.session); !reflect.DeepEqual(row, alone) {
			w.Fatalf("sessions differ:\n%+v\n%+v", row, alone)
		}
		entries, _ := w.group.store.State(o.session)
		for _, e := range entries {
			w.lengths[o.session+e.Key] = int(e.TextLen)
		}
		for _, e := range w.group.store.Events(o.session)[w.compared[o.session]:] {
			if e.Op != "" && w.events[e.Op] != 0 {
				w.Fatalf("op %s made two events", e.Op)
			}
			if e.Op != "" {
				w.events[e.Op] = e.Cursor
			}
		}
		w.compared[o.session] = row.Cursor
	}
	for _, id := range append(w.refs[:len(w.refs):len(w.refs)], w.group.space) {
		a, b := w.group.store.Grant(id), w.single.store.Grant(id)
		if a != nil && b != nil && capability.IsSession(a.Target) && w.group.store.Session(a.Target).Life == session.Deleted {
			// What a purge frees in the group of its session's delete is not subtracted: nobody can write under the ref.
			same := *b
			same.Bytes = a.Bytes
			b = &same
		}
		if !reflect.DeepEqual(a, b) {
			w.Fatalf("grants differ:\n%+v\n%+v", a, b)
		}
	}
	for _, out := range w.unjudged {
		cursor := w.events[out.OpID]
		switch changed := out.Status == ledger.Applied && !strings.Contains(string(out.Result), `"unchanged":true`); {
		case changed && cursor != out.Cursor:
			w.Fatalf("op %s applied at %d and has its event at %d", out.OpID, out.Cursor, cursor)
		case changed:
			w.made++
		case cursor != 0:
			w.Fatalf("op %s (%s) changed nothing and made an event", out.OpID, out.Reason)
		}
	}
	w.unjudged = nil
	if w.made != len(w.events) {
		w.Fatalf("%d events of ops, %d ops that changed something", len(w.events), w.made)
	}
}

func TestRandomGroups(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t)
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				w.T = t
				n := rapid.IntRange(1, 5).Draw(t, "batches")
				var subs []decide.Submission
				for range n {
					subs = append(subs, w.randomBatch())
				}
				if len(w.sent) > 0 && rapid.IntRange(0, 2).Draw(t, "again") == 0 {
					old := rapid.SampledFrom(w.sent).Draw(t, "repeated")
					subs = append(subs, old)
				}
				w.commit(subs)
				w.sent = append(w.sent, subs...)
				w.sent = w.sent[max(0, len(w.sent)-8):]
			},
			"join": func(t *rapid.T) {
				w.T = t
				if len(w.writers) > 8 {
					return
				}
				ref := rapid.SampledFrom(w.refs).Draw(t, "ref")
				o := &writer{w: w.group, session: capability.Target(ref), outbox: fmt.Sprintf("obx_%d", len(w.writers)), ref: ref, inc: 1}
				if rapid.IntRange(0, 3).Draw(t, "manage") == 0 {
					o.ref, o.manage = w.group.space, true
				}
				w.group.store.OpenStream(o.session, o.outbox, 1)
				w.open(o)
			},
			"sweep": func(t *rapid.T) {
				w.T = t
				o := rapid.SampledFrom(w.writers).Draw(t, "session")
				w.group.store.RemoveReverted(o.session)
				w.single.store.RemoveReverted(o.session)
				w.group.check(o.session)
				w.compare()
			},
			"time": func(t *rapid.T) {
				w.T = t
				step := int64(rapid.IntRange(1, 40_000).Draw(t, "ms"))
				w.group.store.Now += step
				w.single.store.Now += step
				o := rapid.SampledFrom(w.writers).Draw(t, "session")
				every := rapid.IntRange(0, 9).Draw(t, "start") == 0
				w.group.lapse(every, o.session)
				w.single.lapse(every, o.session)
				w.compare()
			},
		})
	})
}

// Any place of any chain: a changed field or payload is found.
func TestChainFindsChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	for i := range 5 {
		o.apply(op("put", "key", "message/m", "payload", raw(`{"i":%d}`, i)))
	}
	events := w.store.Events(o.session)
	for name, change := range map[string]func(e *session.Event){
		"method":  func(e *session.Event) { e.Method = "begin" },
		"key":     func(e *session.Event) { e.Key = "message/n" },
		"schema":  func(e *session.Event) { e.Schema++ },
		"payload": func(e *session.Event) { e.Payload = []byte(`{"i":9}`) },
		"sum":     func(e *session.Event) { e.Sum[0]++ },
		"ref":     func(e *session.Event) { e.Ref += "x" },
		"actor":   func(e *session.Event) { e.Actor += "x" },
		"outbox":  func(e *session.Event) { e.Outbox = "" },
		"op":      func(e *session.Event) { e.Op = "" },
		"batch":   func(e *session.Event) { e.Batch = "" },
		"at":      func(e *session.Event) { e.At++ },
		"hash":    func(e *session.Event) { e.Hash[31]++ },
		"cursor":  func(e *session.Event) { e.Cursor++ },
		"session": func(e *session.Event) { e.Session = "ses_x" },
	} {
		for i := range events {
			copied := make([]*session.Event, len(events))
			for j, e := range events {
				copied[j] = new(*e)
			}
			change(copied[i])
			_, err := chained(session.Hash{}, 0, copied)
			f, ok := err.(*fault.Error)
			if !ok || f.At != uint64(i+1) {
				t.Errorf("%s changed at cursor %d: %v", name, i+1, err)
			}
		}
	}
	// A payload that nobody purged is missed.
	events[2].Payload = nil
	if _, err := chained(session.Hash{}, 0, events); err == nil || err.(*fault.Error).At != 3 {
		t.Fatalf("without a payload: %v", err)
	}
}
