package ledger_test

// Records: what is stored comes back word for word, and nothing else is read.

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

func records() []*ledger.Record {
	in := sample()
	return []*ledger.Record{
		{BatchID: id(1), FirstSeq: 1, Outcomes: []ledger.Outcome{{OpID: id(2), Digest: in.Digest(), Status: ledger.Applied, Cursor: 9,
			Result: []byte(`{"cursor":9, "html":"<a&b>","é":"\u00e9",  "n":1.0e2}`)}}},
		{BatchID: id(1), FirstSeq: 1 << 62, Outcomes: []ledger.Outcome{
			{OpID: id(2), Status: ledger.Conflict, Reason: fault.Conflict, Message: "say \"no\" to <b>\n\u2028 é", Cursor: 1<<64 - 1},
			{OpID: id(3), Status: ledger.Skipped, Reason: fault.WrongOffset, Message: "m", Cause: id(2)},
			{OpID: id(4), Status: ledger.BatchAborted, Reason: fault.WrongOffset, Cause: id(4), At: 77}}},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	for _, r := range records() {
		text := r.Marshal()
		if !json.Valid(text) {
			t.Errorf("not JSON: %s", text)
		}
		got, err := ledger.UnmarshalRecord(text)
		if err != nil {
			t.Fatal(err)
		}
		if got.BatchID != r.BatchID || got.FirstSeq != r.FirstSeq {
			t.Errorf("got %+v, want %+v", got, r)
		}
		sameOutcomes(t, got.Outcomes, r.Outcomes)
	}
}

func TestRecordText(t *testing.T) {
	t.Parallel()
	r := &ledger.Record{BatchID: "B", FirstSeq: 3, Outcomes: []ledger.Outcome{
		{OpID: "X", Status: ledger.Applied, Cursor: 4, Result: []byte(`{"cursor":4}`)},
		{OpID: "Y", Status: ledger.Denied, Reason: fault.Revoked, Message: "m"},
	}}
	zero := strings.Repeat("A", 43)
	want := `{"b":"B","f":3,"o":[{"i":"X","d":"` + zero + `","s":1,"c":4,"v":{"cursor":4}},{"i":"Y","d":"` + zero + `","s":3,"r":41,"m":"m"}]}`
	if got := string(r.Marshal()); got != want {
		t.Errorf("text\n%s, want\n%s", got, want)
	}
	for _, message := range []string{`\`, `"`, "\n", "\x1f", "\x7f", " ", "é", "\u2028", "<", "/"} {
		r.Outcomes[1].Message = message
		if got, err := ledger.UnmarshalRecord(r.Marshal()); err != nil || got.Outcomes[1].Message != message {
			t.Errorf("the message %q comes back as %+v, %v", message, got, err)
		}
	}
	later := strings.Replace(want, `"s":1`, `"s":1,"new field":{"v":2}`, 1)
	if got, err := ledger.UnmarshalRecord([]byte(later)); err != nil || string(got.Outcomes[0].Result) != `{"cursor":4}` {
		t.Errorf("a later version's record: %+v, %v", got, err)
	}
}

func TestRecordRefusesWhatCannotBeAnsweredFrom(t *testing.T) {
	t.Parallel()
	good, other := string(records()[0].Marshal()), string(records()[1].Marshal())
	for name, text := range map[string]string{
		"nothing":              "",
		"not JSON":             good[:len(good)-1],
		"no outcomes":          `{"b":"x","f":1,"o":[]}`,
		"no seq":               strings.Replace(good, `"f":1`, `"f":0`, 1),
		"seqs run over":        strings.Replace(string(records()[1].Marshal()), `"f":4611686018427387904`, `"f":18446744073709551615`, 1),
		"no status":            strings.Replace(good, `"s":1`, `"s":0`, 1),
		"unknown status":       strings.Replace(good, `"s":1`, `"s":8`, 1),
		"status too large":     strings.Replace(good, `"s":1`, `"s":257`, 1),
		"short digest":         strings.Replace(good, `"d":"`, `"d":"A`, 1),
		"no digest":            strings.Replace(good, `"d":`, `"dd":`, 1),
		"outcomes no list":     strings.Replace(strings.Replace(good, `"o":[`, `"o":{"x":`, 1), `]}`, `}}`, 1),
		"not UTF-8":            strings.Replace(other, `"m":"m"`, "\"m\":\"\xff\"", 1),
		"id not a text":        strings.Replace(other, `"x":"`+id(2)+`"`, `"x":5`, 1),
		"reason not a number":  strings.Replace(other, `"r":3`, `"r":"3"`, 1),
		"reason too large":     strings.Replace(other, `"r":3`, `"r":65536`, 1),
		"position not whole":   strings.Replace(other, `"a":77`, `"a":7.5`, 1),
		"result not an object": strings.Replace(good, `"v":{`, `"v":[],"vv":{`, 1),
	} {
		if text == good || text == other {
			t.Errorf("%s: nothing was spoilt", name)
		}
		if r, err := ledger.UnmarshalRecord([]byte(text)); err == nil {
			t.Errorf("%s: read %+v", name, r)
		}
	}
}

func FuzzRecord(f *testing.F) {
	for _, r := range records() {
		f.Add(r.Marshal())
	}
	f.Add([]byte(`{"b":"","f":1,"o":[{"i":"","d":"AAAA","s":1,"v":{}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ledger.UnmarshalRecord(data)
		if err != nil {
			return
		}
		again, err := ledger.UnmarshalRecord(r.Marshal())
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if again.BatchID != r.BatchID || again.FirstSeq != r.FirstSeq || again.LastSeq() < again.FirstSeq {
			t.Fatalf("%+v became %+v", r, again)
		}
		sameOutcomes(t, again.Outcomes, r.Outcomes)
	})
}

// Messages come from rules that echo what clients sent: they are cut to what
// a record can repeat word for word.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	x, é := strings.Repeat("x", 1024), strings.Repeat("é", 5000)
	for said, want := range map[string]string{
		"\xff\xfe":      "\uFFFD",
		"\xff\xfe" + é:  "\uFFFD" + é[:1020] + " …",
		"x\xff\xfe" + é: "x\uFFFD" + é[:1020] + " …",
		x:               x,
		x + "x":         x + " …",
	} {
		s := newServer()
		rec, err := ledger.Decide(s.stream, batch(1, 1, op(2, "\x7f")), ledger.NewHistory(nil).Outcome, s.lim, loud{s, said})
		if err != nil {
			t.Fatal(err)
		}
		if m := rec.Outcomes[0].Message; m != want {
			t.Errorf("%.20q of %d bytes becomes %.20q of %d", said, len(said), m, len(m))
		}
		stored, derr := ledger.UnmarshalRecord(rec.Marshal())
		if derr != nil {
			t.Fatal(derr)
		}
		sameOutcomes(t, stored.Outcomes, rec.Outcomes)
	}
}

// loud refuses everything, and says this.
type loud struct {
	*fakeServer
	says string
}

func (l loud) Apply(*ledger.Intent) (uint64, []byte, *fault.Error) {
	return 0, nil, fault.BadKey.With("%s", l.says)
}

func TestStatusesAreCodes(t *testing.T) {
	t.Parallel()
	for s, want := range map[ledger.Status]string{
		0: "pruned", ledger.Applied: "applied", ledger.Skipped: "skipped", ledger.Denied: "denied", ledger.Conflict: "conflict",
		ledger.Rejected: "rejected", ledger.Voided: "voided", ledger.BatchAborted: "batch_aborted", ledger.BatchAborted + 1: "unknown",
	} {
		code, named := fault.ParseCode(want)
		if s.String() != want || s.Code() != code || named == (s.Code() == fault.None) {
			t.Errorf("status %d is %s, with code %s, want %s", uint8(s), s, s.Code(), want)
		}
	}
}

func TestOutcomeErr(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		o  ledger.Outcome
		is []fault.Code
		at uint64
	}{
		{ledger.Outcome{Status: ledger.Denied, Reason: fault.Revoked, Message: "gone"}, []fault.Code{fault.Denied, fault.Revoked}, 0},
		{ledger.Outcome{Status: ledger.Conflict, Reason: fault.Conflict, Cursor: 4}, []fault.Code{fault.Conflict}, 4},
		{ledger.Outcome{Status: ledger.Rejected, Reason: fault.WrongOffset, At: 17}, []fault.Code{fault.Rejected, fault.WrongOffset}, 17},
		{ledger.Outcome{Status: ledger.BatchAborted, Reason: fault.TurnEnded}, []fault.Code{fault.BatchAborted, fault.TurnEnded}, 0},
		{ledger.Outcome{Status: ledger.Voided, Reason: fault.Voided}, []fault.Code{fault.Voided}, 0},
		{ledger.Outcome{Reason: fault.Pruned}, []fault.Code{fault.Pruned}, 0},
		{ledger.Outcome{Status: ledger.BatchAborted + 1, Reason: fault.TooLarge, Message: "of a later version"}, []fault.Code{fault.TooLarge}, 0},
		{ledger.Outcome{Status: ledger.BatchAborted + 1, Message: "of a later version"}, []fault.Code{fault.Incompatible}, 0},
	} {
		err := row.o.Err()
		if !strings.Contains(err.Error(), row.o.Message) || errors.Is(err, fault.None) {
			t.Errorf("%+v is the error %v", row.o, err)
		}
		for _, c := range row.is {
			if !errors.Is(err, c) {
				t.Errorf("%v is not %s", err, c)
			}
		}
		var at uint64
		for e := err; e != nil; e = errors.Unwrap(e) {
			var f *fault.Error
			if errors.As(e, &f) {
				at = max(at, f.At)
			}
		}
		if at != row.at {
			t.Errorf("%v is at %d, want %d", err, at, row.at)
		}
	}
	if err := (&ledger.Outcome{Status: ledger.Applied}).Err(); err != nil {
		t.Errorf("applied is the error %v", err)
	}
}

func TestOutcomeDecode(t *testing.T) {
	t.Parallel()
	var got struct{ Cursor uint64 }
	o := ledger.Outcome{Status: ledger.Applied, Result: []byte(`{"cursor":4}`)}
	if err := o.Decode(&got); err != nil || got.Cursor != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := o.Decode(new([]string)); !errors.Is(err, fault.BadArgument) {
		t.Errorf("into a list: %v", err)
	}
	o.Status, o.Reason = ledger.Denied, fault.Revoked
	if err := o.Decode(&got); !errors.Is(err, fault.Revoked) {
		t.Errorf("of a denial: %v", err)
	}
}

func TestHistoryKeepsWhatIsNotPruned(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := ledger.NewHistory(nil)
		var seq, pruned uint64
		byOp := map[string]*ledger.Record{}
		var all []*ledger.Record
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "prune") == 0 {
				pruned = max(pruned, rapid.Uint64Range(0, seq).Draw(t, "through"))
				h.Prune(pruned)
			} else {
				r := &ledger.Record{FirstSeq: seq + 1}
				for range rapid.IntRange(1, 3).Draw(t, "ops") {
					seq++
					r.Outcomes = append(r.Outcomes, ledger.Outcome{OpID: id(seq), Status: ledger.Applied})
					byOp[id(seq)] = r
				}
				all = append(all, r)
				h.Add(r)
				h.Add(r)
			}
			for s := uint64(1); s <= seq; s++ {
				want := byOp[id(s)]
				if want.LastSeq() <= pruned {
					want = nil
				}
				if got := h.Record(s); got != want {
					t.Fatalf("seq %d of %d, pruned to %d: %+v", s, seq, pruned, got)
				}
				if o, ok := h.Outcome(id(s)); ok != (want != nil) || ok && o.OpID != id(s) {
					t.Fatalf("op of seq %d, pruned to %d: %v %v", s, pruned, o, ok)
				}
			}
			if h.Record(0) != nil || h.Record(seq+1) != nil {
				t.Fatal("a record beyond the ends")
			}
		}
		for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
			all[i], all[j] = all[j], all[i]
		}
		if g := ledger.NewHistory(all); len(all) > 0 && g.Record(seq) != byOp[id(seq)] {
			t.Fatal("order of the records given matters")
		}
		late := ledger.NewHistory(nil)
		for _, r := range append(all, all...) { // the last first, and again
			late.Add(r)
		}
		for s := uint64(1); s <= seq; s++ {
			if late.Record(s) != byOp[id(s)] {
				t.Fatalf("seq %d is not found where records came in another order", s)
			}
		}
	})
}

func TestResolve(t *testing.T) {
	t.Parallel()
	const result = `{"many":[0,1,2,3,4,5,6,7,8,9,"ten",11],"cursor":7,"ref":{"id":"a.b","list":[{"x":[ 1,2 ]},"s"]},"a.b":1,"":{"":5},"nul":null,"@this":8,"é":"\u00e9","2":"two"}`
	for _, row := range []struct {
		path, want string
		ok         bool
	}{
		{"", result, true},
		{"cursor", "7", true},
		{"ref.id", `"a.b"`, true},
		{"ref.list.0.x", "[ 1,2 ]", true},
		{"ref.list.0.x.1", "2", true},
		{"ref.list.1", `"s"`, true},
		{"many.10", `"ten"`, true},
		{"many.12", "", false},
		{"many.a", "", false},
		{"nul", "null", true},
		{"é", `"\u00e9"`, true},
		{"2", `"two"`, true},
		{"@this", "8", true},
		{".", "5", true},
		{"ref.list.2", "", false},
		{"ref.list.00", "", false},
		{"ref.list.-1", "", false},
		{"ref.list.#", "", false},
		{"ref.*", "", false},
		{"@pretty", "", false},
		{"a.b", "", false},
		{"cursor.x", "", false},
		{"ref.", "", false},
		{".ref", "", false},
		{"Cursor", "", false},
	} {
		got, ok := ledger.Resolve([]byte(result), row.path)
		if ok != row.ok || !bytes.Equal(got, []byte(row.want)) {
			t.Errorf("%q: %s, %v; want %s, %v", row.path, got, ok, row.want, row.ok)
		}
	}
}
