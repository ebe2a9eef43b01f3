//go:build unix

package httpapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

var wires = [3]string{"over HTTP", "over Cap'n Proto", "over Cap'n Web"}

// anyPayload is the text of a JSON object, spelt in any way that it can be.
func anyPayload(rt *rapid.T) json.RawMessage {
	quoted, err := json.Marshal(rapid.String().Draw(rt, "text"))
	if err != nil {
		rt.Fatal(err)
	}
	blank := rapid.SampledFrom([]string{"", " ", "\n\t", "\r\n  "}).Draw(rt, "blank")
	value := rapid.SampledFrom([]string{string(quoted), `"\u00e9\ud83d\ude00\/<>&\u2028"`, "1.50", "-0", "1e400", "[1, 2 ,{}]", "123456789012345678901234567890"}).Draw(rt, "value")
	around := rapid.SampledFrom([]string{"", "", blank}).Draw(rt, "around")
	return json.RawMessage(around + `{` + blank + `"k"` + blank + `:` + value + blank + `, "k": null}` + around)
}

// otherOps are of the other methods. What they change is each other's, so some apply and some do not.
var otherOps = []func() ledger.Intent{
	func() ledger.Intent { return op("put", "key", "todo/1", "payload", obj{"n": 1}) },
	func() ledger.Intent { return op("put", "key", "schema/todo", "payload", obj{"maxProperties": 2}) },
	func() ledger.Intent { return op("patch", "key", "todo/1", "patch", json.RawMessage(`{"p": 1.50}`)) },
	func() ledger.Intent { return op("add", "key", "todo/1", "member", "n", "by", -1) },
	func() ledger.Intent { return op("claim", "key", "todo/1", "lease", 3_600_000, "worker", "w") },
	func() ledger.Intent { return op("claim", "prefix", "todo/", "lease", 3_600_000) },
	func() ledger.Intent { return op("release", "key", "todo/1", "claim", 2) },
	func() ledger.Intent { return op("begin", "message", "t", "payload", obj{}) },
	func() ledger.Intent { return op("finalize", "message", "t", "status", "completed") },
	func() ledger.Intent { return op("revert", "to", "message/m1") },
	func() ledger.Intent { return op("revert", "cursor", 3) },
	func() ledger.Intent { return op("unrevert") },
	func() ledger.Intent { return op("compact", "upto", "message/m1", "summary", "message/m1") },
	func() ledger.Intent { return op("purge", "key", "message/m2") },
}

// anyBatch is a batch of what applies and what does not.
func anyBatch(rt *rapid.T, b *box, session string, done []string) *ledger.Batch {
	var ops []ledger.Intent
	for i := range rapid.IntRange(1, 4).Draw(rt, "ops") {
		key := fmt.Sprintf("message/m%d", rapid.IntRange(0, 3).Draw(rt, "key"))
		in := op("put", "key", key, "payload", anyPayload(rt))
		switch rapid.IntRange(0, 8).Draw(rt, "kind") {
		case 0:
			in = op("put", "key", "a bad key", "payload", anyPayload(rt))
		case 1:
			in = op("remove", "key", key)
		case 2:
			in = op("nonsense", "x", 1)
		case 3:
			in.Expected = ledger.Expect{Set: true, Cursor: rapid.Uint64Range(0, 9).Draw(rt, "expected")}
		case 4:
			if len(done) > 0 {
				in.DependsOn = []string{rapid.SampledFrom(done).Draw(rt, "depends on")}
			}
		case 5:
			if i > 0 {
				in.Args = append(in.Args, ledger.Arg{Name: "schema_version", Ref: &ledger.Ref{Op: ops[0].OpID, Path: "cursor"}})
			}
		case 6:
			in.Args = append(in.Args, ledger.Arg{Name: "schema_version", JSON: []byte("no JSON")})
		case 7:
			in = rapid.SampledFrom(otherOps).Draw(rt, "op")()
		}
		ops = append(ops, in)
	}
	batch := b.batch(session, ops...)
	batch.Atomic = rapid.Bool().Draw(rt, "atomic")
	return batch
}

// TestARetryOverAnotherWireIsADuplicate applies batches over one of the three wires
// and sends them again over any, at random points, in between and after a
// revocation: the answer is the first one word for word, however HTTP spells an
// argument. Another batch of the same seqs is told from it over each, too.
func TestARetryOverAnotherWireIsADuplicate(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		rapid.Check(t, func(rt *rapid.T) {
			m := r.create()
			helper, err := capability.ParseRef(r.share(m, obj{"rights": []string{"read", "append", "schema", "revert", "compact"}, "actor": "owner/helper"}))
			if err != nil {
				rt.Fatal(err)
			}
			b := newBox()
			inline := func(ledger.Arg) bool { return rapid.Bool().Draw(rt, "inline") }
			opening := [3]func() func(*ledger.Batch) applyReply{
				func() func(*ledger.Batch) applyReply { return r.overHTTP(helper, b, inline) },
				func() func(*ledger.Batch) applyReply { return r.overCapnp(t, helper, b) },
				func() func(*ledger.Batch) applyReply { return r.overWeb(t, helper, b) },
			}
			var send [3]func(*ledger.Batch) applyReply
			for i, open := range opening {
				send[i] = open()
			}
			anyWire := func() int { return rapid.IntRange(0, 2).Draw(rt, "wire") }
			type sent struct {
				batch *ledger.Batch
				first applyReply
				wire  int
			}
			apply := func(batch *ledger.Batch) sent {
				s := sent{batch: batch, wire: anyWire()}
				if s.first = send[s.wire](batch); s.first.refusal != fault.None {
					rt.Fatalf("%s: %v", wires[s.wire], s.first.refusal)
				}
				return s
			}
			retry := func(label string, s sent) {
				wire := anyWire()
				again := send[wire](s.batch)
				if again.refusal != fault.None || !reflect.DeepEqual(again.outcomes, s.first.outcomes) || int(again.duplicates) != len(s.batch.Ops) {
					rt.Fatalf("%s, %s:\n%+v\nwas, %s,\n%+v", label, wires[wire], again, wires[s.wire], s.first)
				}
			}
			var all []sent
			var done []string
			for range rapid.IntRange(1, 8).Draw(rt, "steps") {
				if rapid.IntRange(0, 1).Draw(rt, "step") == 0 && len(all) > 0 {
					retry("a retry", rapid.SampledFrom(all).Draw(rt, "batch"))
					continue
				}
				s := apply(anyBatch(rt, b, m.id, done))
				for _, op := range s.batch.Ops {
					done = append(done, op.OpID)
				}
				all = append(all, s)
			}
			r.must(200, "DELETE", "/sessions/"+m.id+"/refs/"+helper.ID, m.owner.Text(), nil)
			for _, s := range all {
				retry("after the revocation", s)
			}
			late := apply(anyBatch(rt, b, m.id, nil))
			if slices.ContainsFunc(late.first.outcomes, func(o ledger.Outcome) bool { return o.Status == ledger.Applied }) || late.first.outcomes[0].Reason != fault.Revoked {
				rt.Fatalf("what is new after the revocation, %s: %+v", wires[late.wire], late.first)
			}
			retry("a denial", late)

			// The same seqs and ids with one byte changed are another batch.
			forged := *all[len(all)-1].batch
			forged.Ops = slices.Clone(forged.Ops)
			i := rapid.IntRange(0, len(forged.Ops)-1).Draw(rt, "op")
			forged.Ops[i].Args = append(slices.Clone(forged.Ops[i].Args), ledger.Arg{Name: "extra", JSON: []byte(" 1")})
			for wire := range send {
				if got := send[wire](&forged); got.refusal != fault.OutboxDiverged {
					rt.Fatalf("another batch, %s: %+v", wires[wire], got)
				}
			}
		})
	})
}
