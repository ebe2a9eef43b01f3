package intent

// Rows come back as they went in, and damaged ones fail instead of misleading.

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
)

func drawBody(t *rapid.T, batch string) *Batch {
	text := rapid.StringN(0, 12, 40)
	id := rapid.Custom(func(t *rapid.T) string { return opid.Of(batch, rapid.IntRange(0, 9).Draw(t, "i")) })
	ref := rapid.Custom(func(t *rapid.T) *ledger.Ref {
		return &ledger.Ref{Op: id.Draw(t, "op"), Path: text.Draw(t, "path")}
	})
	b := &Batch{Atomic: rapid.Bool().Draw(t, "atomic")}
	for i := range rapid.IntRange(1, 5).Draw(t, "ops") {
		op := Op{ID: opid.Of(batch, i), Method: "m" + text.Draw(t, "method")}
		if rapid.Bool().Draw(t, "own id") {
			op.ID = opid.NewBatch()
		}
		for range rapid.IntRange(0, 3).Draw(t, "args") {
			a := ledger.Arg{Name: text.Draw(t, "name")}
			if rapid.Bool().Draw(t, "by ref") {
				a.Ref = ref.Draw(t, "ref")
			} else {
				a.JSON = append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "json")...)
			}
			op.Args = append(op.Args, a)
		}
		for range rapid.IntRange(0, 2).Draw(t, "deps") {
			op.Deps = append(op.Deps, id.Draw(t, "dep"))
		}
		switch rapid.IntRange(0, 2).Draw(t, "expected") {
		case 1:
			op.Expected = ledger.Expect{Set: true, Cursor: rapid.Uint64().Draw(t, "cursor")}
		case 2:
			op.Expected = ledger.Expect{Set: true, Ref: ref.Draw(t, "cursor ref")}
		}
		if rapid.Bool().Draw(t, "retries") {
			op.Retries = id.Draw(t, "old")
		}
		if rapid.Bool().Draw(t, "decided") {
			o := drawOutcome(t, op.ID)
			op.LocalOutcome = &o
		}
		op.Void, op.DropRequested = rapid.Bool().Draw(t, "void"), rapid.Bool().Draw(t, "drop")
		b.Ops = append(b.Ops, op)
	}
	return b
}

func drawOutcome(t *rapid.T, id string) ledger.Outcome {
	text := rapid.StringN(0, 12, 40)
	o := ledger.Outcome{OpID: id, Status: ledger.Status(rapid.IntRange(0, 7).Draw(t, "status")), Reason: fault.Code(rapid.Uint16().Draw(t, "reason")),
		Message: text.Draw(t, "message"), Cursor: rapid.Uint64().Draw(t, "at cursor"), Cause: text.Draw(t, "cause"), At: rapid.Uint64().Draw(t, "at")}
	if rapid.Bool().Draw(t, "result") {
		o.Result = []byte(`{"cursor":` + text.Draw(t, "r") + "}")
	}
	return o
}

func TestRowsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		batch := opid.NewBatch()
		b := drawBody(t, batch)
		got, err := Decode("ses_1", batch, b.Encode("ses_1", batch))
		if err != nil || !reflect.DeepEqual(got, b) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, got, b)
		}
		var outs []ledger.Outcome
		for i := range b.Ops {
			outs = append(outs, drawOutcome(t, b.Ops[i].ID))
		}
		again, err := DecodeOutcomes(EncodeOutcomes(outs, b.Ops), b.Ops)
		if err != nil || !reflect.DeepEqual(again, outs) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, again, outs)
		}
		slim := Batch{Atomic: b.Atomic, Compacted: true, Ops: b.Ops}
		got, err = Decode("ses_1", batch, slim.Encode("ses_1", batch))
		if err != nil || !got.Compacted || len(got.Ops) != len(b.Ops) || got.Ops[0].ID != b.Ops[0].ID || got.Ops[0].Method != b.Ops[0].Method || got.Ops[0].Args != nil {
			t.Fatalf("slim: %v, %+v", err, got)
		}
	})
}

// TestRowFormatStays pins the form: a later version must read it.
func TestRowFormatStays(t *testing.T) {
	t.Parallel()
	const batch = "01M7XHJRC423DKMC0KKDH30000"
	b := &Batch{Atomic: true, Ops: []Op{
		{ID: opid.Of(batch, 0), Method: "put", Args: []ledger.Arg{{Name: "key", JSON: []byte(`"k"`)}, {Name: "v", Ref: &ledger.Ref{Op: opid.Of(batch, 7), Path: "a.b"}}},
			Deps: []string{opid.Of(batch, 8)}, Expected: ledger.Expect{Set: true, Cursor: 300}},
		{ID: "01M7XHJRC423DKMC0KKDH3ZZZZ", Method: "void", Void: true, Retries: opid.Of(batch, 9),
			LocalOutcome: &ledger.Outcome{OpID: "01M7XHJRC423DKMC0KKDH3ZZZZ", Status: ledger.Rejected, Reason: fault.TooLarge, Message: "m"}},
	}}
	data := b.Encode("ses_1", batch)
	got, err := Decode("ses_1", batch, data)
	if err != nil || !reflect.DeepEqual(got, b) {
		t.Fatalf("%v, %+v", err, got)
	}
	if h := hex.EncodeToString(data); h != pinnedRow {
		t.Fatalf("the form of rows has changed: raise opsVersion and keep reading the old one\n got %s\nwant %s", h, pinnedRow)
	}
}

const pinnedRow = "02" + pinnedOps + "1025e4c7b228e63792893c90f49dfcb18642aef49dd5bae9cac13ea98c4376e8"

// pinnedUnproven is the same ops as they were stored without a digest.
const pinnedUnproven = "01" + pinnedOps

const pinnedOps = "01022103707574ac02011a30314d3758484a5243343233444b4d43304b4b4448333030303902036b65790003226b220176011a30314d3758484a52" +
	"43343233444b4d43304b4b4448333030303803612e62161a30314d3758484a5243343233444b4d43304b4b4448335a5a5a5a04766f69641a30314d37" +
	"58484a5243343233444b4d43304b4b444833303030410540016d000000000000"

// withoutDigest is an encoded body without its digest.
func withoutDigest(data []byte) []byte { return data[:len(data)-sha256.Size] }

// TestRowsOfBefore are read, and shown as unproven for as long as they are kept.
func TestRowsOfBefore(t *testing.T) {
	t.Parallel()
	const batch = "01M7XHJRC423DKMC0KKDH30000"
	data, err := hex.DecodeString(pinnedUnproven)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Decode("ses_1", batch, data)
	if err != nil || !b.NoDigest || len(b.Ops) != 2 || string(b.Ops[0].Args[0].JSON) != `"k"` {
		t.Fatalf("%v, %+v", err, b)
	}
	if b, err = Decode("ses_1", batch, b.Encode("ses_1", batch)); err != nil || !b.NoDigest {
		t.Errorf("written again: %v, %+v", err, b)
	}
}

// TestEveryBitCounts: no bit of a row's ops, and neither its session nor its batch, can
// change unnoticed.
func TestEveryBitCounts(t *testing.T) {
	t.Parallel()
	batch := opid.NewBatch()
	b := &Batch{Ops: []Op{{ID: opid.Of(batch, 0), Method: "put", Args: []ledger.Arg{{Name: "payload", JSON: []byte(`{"n":1}`)}}}}}
	data := b.Encode("ses_1", batch)
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		if got, err := Decode("ses_1", batch, data); err == nil && !got.NoDigest {
			t.Errorf("bit %d is another, and %+v is read", bit, got)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
	if _, err := Decode("ses_2", batch, data); err == nil {
		t.Error("the ops were another session's")
	}
	if _, err := Decode("ses_1", opid.NewBatch(), data); err == nil {
		t.Error("the ops were another batch's")
	}
	for n := range data {
		if _, err := Decode("ses_1", batch, data[:n]); err == nil {
			t.Errorf("cut after %d bytes, it is read", n)
		}
	}
}

// FuzzRecover reads rows that anything may have happened to: never a panic,
// and what is read is written the same again.
func FuzzRecover(f *testing.F) {
	batch := opid.NewBatch()
	for _, b := range []*Batch{
		{Ops: []Op{{ID: opid.Of(batch, 0), Method: "put", Args: []ledger.Arg{{Name: "a", JSON: []byte("1")}}}}},
		{Atomic: true, Compacted: true, Ops: []Op{{ID: opid.Of(batch, 0), Method: "put"}, {ID: opid.NewBatch(), Method: "put"}}},
		{Ops: []Op{{ID: opid.Of(batch, 0), Method: "m", Void: true, LocalOutcome: &ledger.Outcome{Status: ledger.Skipped, Result: []byte("{}")},
			Deps: []string{"x"}, Expected: ledger.Expect{Set: true, Ref: &ledger.Ref{Op: "o", Path: "p"}}, Args: []ledger.Arg{{Name: "a", Ref: &ledger.Ref{Op: "o"}}}}}},
	} {
		f.Add(true, withoutDigest(b.Encode("ses_1", batch)), EncodeOutcomes(make([]ledger.Outcome, len(b.Ops)), b.Ops))
		f.Add(false, withoutDigest(b.Encode("ses_1", "")), []byte{outcomesVersion, 1})
	}
	f.Add(true, []byte{noDigestVersion, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, []byte{outcomesVersion, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, derived bool, data, outcomes []byte) {
		id := ""
		if derived {
			id = batch
		}
		if len(data) > 0 && data[0] == OpsVersion { // what has the right digest and is damaged all the same
			data = append(bytes.Clone(data), digestOf("ses_1", id, data)...)
		}
		b, err := Decode("ses_1", id, data)
		if err != nil {
			return
		}
		again, err := Decode("ses_1", id, b.Encode("ses_1", id))
		if err != nil || !bytes.Equal(b.Encode("ses_1", id), again.Encode("ses_1", id)) {
			t.Fatalf("not the same again: %v", err)
		}
		if outs, err := DecodeOutcomes(outcomes, b.Ops); err == nil {
			if _, err := DecodeOutcomes(EncodeOutcomes(outs, b.Ops), b.Ops); err != nil {
				t.Fatal(err)
			}
			b.Count(outs)
		}
		b.Outcomes(nil)
		b.SkipDependents()
		b.Wire("s", id, 1)
	})
}
