//go:build unix

package node

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// bothWires speaks to one session through one ref and one outbox, over either wire.
type bothWires struct {
	send    [2]func(b *ledger.Batch) *reply // on the stream that is open
	opening [2]func()                       // opens it anew
	leave   [2]func()
}

func (r *rig) bothWires(t testing.TB, ref capability.Ref, b *box) *bothWires {
	p, w := r.dialIn(t), r.dialWebIn(t)
	x := &bothWires{leave: [2]func(){p.leave, w.leave}}
	x.opening = [2]func(){
		func() {
			stream := p.open(p.restore(ref), b)
			x.send[0] = func(b *ledger.Batch) *reply { return p.apply(stream, b) }
		},
		func() {
			stream := w.open(w.restore(ref), b)
			x.send[1] = func(b *ledger.Batch) *reply { return w.apply(stream, b) }
		},
	}
	for _, open := range x.opening {
		open()
	}
	return x
}

var wires = [2]string{"over Cap'n Proto", "over Cap'n Web"}

// anyPayload is the text of a JSON object, spelt in any way that it can be.
func anyPayload(rt *rapid.T) json.RawMessage {
	text := rapid.String().Draw(rt, "text")
	quoted, err := json.Marshal(text)
	if err != nil {
		rt.Fatal(err)
	}
	blank := rapid.SampledFrom([]string{"", " ", "\n\t", "\r\n  "}).Draw(rt, "blank")
	value := rapid.SampledFrom([]string{string(quoted), `"\u00e9\ud83d\ude00\/"`, "1.50", "-0", "1e400", "[1, 2 ,{}]", "123456789012345678901234567890"}).Draw(rt, "value")
	return json.RawMessage(blank + `{` + blank + `"k"` + blank + `:` + value + blank + `, "k": null}` + blank)
}

// anyBatch is a batch of what applies and what does not.
func anyBatch(rt *rapid.T, b *box, session string, done []string) *ledger.Batch {
	var ops []ledger.Intent
	for i := range rapid.IntRange(1, 4).Draw(rt, "ops") {
		key := fmt.Sprintf("message/m%d", rapid.IntRange(0, 3).Draw(rt, "key"))
		switch rapid.IntRange(0, 6).Draw(rt, "kind") {
		case 0:
			ops = append(ops, op("put", "key", "a bad key", "payload", anyPayload(rt)))
		case 1:
			ops = append(ops, op("remove", "key", key))
		case 2:
			ops = append(ops, op("nonsense", "x", 1))
		case 3:
			in := op("put", "key", key, "payload", anyPayload(rt))
			in.Expected = ledger.Expect{Set: true, Cursor: rapid.Uint64Range(0, 9).Draw(rt, "expected")}
			ops = append(ops, in)
		case 4:
			in := op("put", "key", key, "payload", anyPayload(rt))
			if len(done) > 0 {
				in.DependsOn = []string{rapid.SampledFrom(done).Draw(rt, "depends on")}
			} else if i > 0 {
				in.DependsOn = []string{ops[0].OpID}
			}
			ops = append(ops, in)
		case 5:
			in := op("put", "key", key, "payload", anyPayload(rt))
			if i > 0 {
				in.Args = append(in.Args, ledger.Arg{Name: "schema_version", Ref: &ledger.Ref{Op: ops[0].OpID, Path: "cursor"}})
			}
			ops = append(ops, in)
		default:
			ops = append(ops, op("put", "key", key, "payload", anyPayload(rt), "schema_version", rapid.IntRange(1, 5).Draw(rt, "schema")))
		}
	}
	batch := b.batch(session, ops...)
	batch.Atomic = rapid.Bool().Draw(rt, "atomic")
	return batch
}

// TestARetryOverTheOtherWireIsADuplicate applies batches over one wire and sends
// them again over either, at random points, in between and after a revocation:
// the answer is the first one word for word. Digests are over what both wires
// carry, so another batch of the same seqs is told from it over either, too.
func TestARetryOverTheOtherWireIsADuplicate(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		rapid.Check(t, func(rt *rapid.T) {
			m := r.create(p)
			helper := p.share(m, "rights", []string{"read", "append"}, "actor", "owner/helper")
			b := newBox()
			x := r.bothWires(t, helper, b)
			type sent struct {
				batch *ledger.Batch
				first *reply
			}
			var all []sent
			var done []string
			retry := func(label string, s sent) {
				wire := rapid.IntRange(0, 1).Draw(rt, "wire")
				again := x.send[wire](s.batch)
				switch {
				case again.refusal != nil:
					rt.Fatalf("%s, %s: %v", label, wires[wire], again.refusal)
				case !reflect.DeepEqual(again.outcomes, s.first.outcomes):
					rt.Fatalf("%s, %s:\n%+v\nwas\n%+v", label, wires[wire], again.outcomes, s.first.outcomes)
				case int(again.duplicates) != len(s.batch.Ops) || slices.Contains(again.repeated, false):
					rt.Fatalf("%s, %s: %d duplicates of %d", label, wires[wire], again.duplicates, len(s.batch.Ops))
				}
			}
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				switch step := rapid.IntRange(0, 5).Draw(rt, "step"); {
				case step <= 2 || len(all) == 0:
					s := sent{batch: anyBatch(rt, b, m.id, done)}
					wire := rapid.IntRange(0, 1).Draw(rt, "wire")
					if s.first = x.send[wire](s.batch); s.first.refusal != nil {
						rt.Fatalf("%s: %v", wires[wire], s.first.refusal)
					}
					for _, op := range s.batch.Ops {
						done = append(done, op.OpID)
					}
					all = append(all, s)
				case step == 3:
					x.opening[rapid.IntRange(0, 1).Draw(rt, "wire")]()
				default:
					retry("a retry", rapid.SampledFrom(all).Draw(rt, "batch"))
				}
			}
			revoking(t, m.sess, helper.ID)
			for _, s := range all {
				retry("after the revocation", s)
			}
			late := anyBatch(rt, b, m.id, nil)
			wire := rapid.IntRange(0, 1).Draw(rt, "wire")
			first := x.send[wire](late)
			if first.refusal != nil || slices.ContainsFunc(first.outcomes, func(o ledger.Outcome) bool { return o.Status == ledger.Applied }) ||
				first.outcomes[0].Reason != fault.Revoked {
				rt.Fatalf("what is new after the revocation, %s: %+v", wires[wire], first)
			}
			retry("a denial", sent{late, first})

			// The same seqs and ids with one byte changed are another batch.
			forged := *all[len(all)-1].batch
			forged.Ops = slices.Clone(forged.Ops)
			i := rapid.IntRange(0, len(forged.Ops)-1).Draw(rt, "op")
			forged.Ops[i].Args = append(slices.Clone(forged.Ops[i].Args), ledger.Arg{Name: "extra", JSON: []byte(" 1")})
			for wire, opening := range x.opening {
				opening() // what has given itself away is answered so from then on
				if got := x.send[wire](&forged); got.refusal == nil || got.refusal.Code != fault.OutboxDiverged {
					rt.Fatalf("another batch, %s: %+v", wires[wire], got)
				}
			}
			for _, leaving := range x.leave {
				leaving()
			}
		})
	})
}

// Each payload is the text that was sent, over whichever wire it comes and goes.
func TestPayloadsAreKeptByteForByte(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p, w := r.dial(), r.dialWeb()
	m := r.create(p)
	b := newBox()
	stream := w.open(w.restore(m.owner), b)
	payloads := []string{"{ }", `{"a":1.50,"a":"\ud83d\ude00é😀\u0000\/"}`, "\n{\"k\"\t: [1 ,2]}  ", `{"long":"` + strings.Repeat("\\\"", 1000) + `"}`}
	for i, payload := range payloads {
		in := op("put", "key", fmt.Sprintf("message/m%d", i), "payload", json.RawMessage(payload))
		ack := w.must(stream, b.batch(m.id, in))
		if ack.applied != 1 {
			t.Fatalf("%q: %+v", payload, ack.outcomes[0])
		}
	}
	k := newRecorder()
	promise := p.subscribing(m.sess, k, 0, 0, true)
	defer promise.Release()
	k.until(t, "the state", func() bool { return k.last })
	page := w.give(w.restore(m.owner), "events", 1).(object)["events"].([]any)
	for i, payload := range payloads {
		if got := k.keys[fmt.Sprintf("message/m%d", i)]; got != payload {
			t.Errorf("over Cap'n Proto %q, was %q", got, payload)
		}
		if got := page[i].(object)["payload"]; got != payload {
			t.Errorf("over Cap'n Web %q, was %q", got, payload)
		}
	}
}
