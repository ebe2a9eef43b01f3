package ledger_test

// The design's table, row by row, in its order: what arrives, the answer,
// whether it is recorded.

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// prepared is a stream with a history: seqs 1 to 7, acknowledged through 2.
//
//	seq 1      op 1  applied, pruned       batch 101
//	seq 2      op 2  applied, pruned       batch 102
//	seq 3, 4   op 3  applied, sum 5
//	           op 4  rejected              batch 103
//	seq 5      op 5  denied                batch 104
//	seq 6      op 6  voided                batch 105
//	seq 7      op 7  applied {"got":{…}}   batch 106
//
// The session is then at cursor 4.
func prepared(t *testing.T) *fakeServer {
	t.Helper()
	s := newServer()
	must := func(b *ledger.Batch) {
		t.Helper()
		if _, err := s.handle(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range old() {
		if b.BatchID == id(104) {
			s.deny["add"] = fault.Revoked
		}
		must(b)
		delete(s.deny, "add")
	}
	if err := s.acknowledge(ledger.NewHistory(s.records), 2); err != nil {
		t.Fatal(err)
	}
	s.calls = nil
	if s.cursor != 4 || s.stream.LastSeq != 7 || len(s.records) != 4 {
		t.Fatalf("prepared: cursor %d, last seq %d, %d records", s.cursor, s.stream.LastSeq, len(s.records))
	}
	return s
}

func old() []*ledger.Batch {
	return []*ledger.Batch{
		batch(101, 1, op(1, "add", val("n", "1"))),
		batch(102, 2, op(2, "add", val("n", "2"))),
		batch(103, 3, op(3, "add", val("n", "2")), op(4, "add", val("n", `"two"`))),
		batch(104, 5, op(5, "add", val("n", "9"))),
		batch(105, 6, op(6, "void")),
		batch(106, 7, op(7, "show", val("v", `{"id":"x","list":[10, 11]}`))),
	}
}

func with(b *ledger.Batch, change func(*ledger.Batch)) *ledger.Batch {
	change(b)
	return b
}

func expect(o ledger.Intent, cursor uint64) ledger.Intent {
	o.Expected = ledger.Expect{Set: true, Cursor: cursor}
	return o
}

func expectRef(o ledger.Intent, opID uint64, path string) ledger.Intent {
	o.Expected = ledger.Expect{Set: true, Ref: &ledger.Ref{Op: id(opID), Path: path}}
	return o
}

// both gives o a reference and a number for its expected_cursor, which is malformed.
func both(o ledger.Intent, opID uint64, path string) ledger.Intent {
	o = expectRef(o, opID, path)
	o.Expected.Cursor = 4
	return o
}

// upto are the numbers from from to to.
func upto(from, to uint64) (all []uint64) {
	for ; from <= to; from++ {
		all = append(all, from)
	}
	return all
}

func after(o ledger.Intent, opIDs ...uint64) ledger.Intent {
	for _, n := range opIDs {
		o.DependsOn = append(o.DependsOn, id(n))
	}
	return o
}

func TestTableRowsThatRefuseTheCall(t *testing.T) {
	t.Parallel()
	next := func() *ledger.Batch { return batch(201, 8, op(81, "add", val("n", "1"))) }
	rows := []struct {
		arrives string
		batch   *ledger.Batch
		answer  fault.Code
		at      uint64
	}{
		{"an older incarnation", with(next(), func(b *ledger.Batch) { b.Incarnation = 0 }), fault.Fenced, 0},
		{"an older incarnation, even of a duplicate", with(old()[2], func(b *ledger.Batch) { b.Incarnation = 0 }), fault.Fenced, 0},
		{"an older incarnation, and acked_through above last_seq", with(next(), func(b *ledger.Batch) { b.Incarnation, b.AckedThrough = 0, 8 }), fault.Fenced, 0},
		{"an older incarnation of what cannot be keyed", with(next(), func(b *ledger.Batch) { b.Incarnation, b.Ops = 0, nil }), fault.Malformed, 0},
		{"a newer incarnation, and acked_through above last_seq", with(next(), func(b *ledger.Batch) { b.Incarnation, b.AckedThrough = 5, 8 }), fault.ServerBehind, 7},
		{"a newer incarnation, and a gap", with(batch(201, 9, op(81, "same")), func(b *ledger.Batch) { b.Incarnation = 5 }), fault.Gap, 8},
		{"a newer incarnation, and an old seq with another op id", with(batch(104, 5, op(55, "add", val("n", "9"))), func(b *ledger.Batch) { b.Incarnation = 5 }), fault.OutboxDiverged, 5},
		{"acked_through above last_seq", with(next(), func(b *ledger.Batch) { b.AckedThrough = 8 }), fault.ServerBehind, 7},
		{"acked_through above last_seq, and a gap", with(batch(201, 30, op(81, "same")), func(b *ledger.Batch) { b.AckedThrough = 29 }), fault.ServerBehind, 7},
		{"an old seq with another op id", batch(103, 3, op(33, "add", val("n", "2")), op(4, "add", val("n", `"two"`))), fault.OutboxDiverged, 3},
		{"an old seq with another digest", batch(103, 3, op(3, "add", val("n", "2")), op(4, "add", val("n", `"TWO"`))), fault.OutboxDiverged, 4},
		{"an old batch under another batch id", batch(203, 5, op(5, "add", val("n", "9"))), fault.OutboxDiverged, 5},
		{"an old batch cut short", batch(103, 3, op(3, "add", val("n", "2"))), fault.OutboxDiverged, 3},
		{"an old batch's tail alone", batch(103, 4, op(4, "add", val("n", `"two"`))), fault.OutboxDiverged, 4},
		{"two old batches merged", batch(104, 5, op(5, "add", val("n", "9")), op(6, "void")), fault.OutboxDiverged, 5},
		{"an old op with a new one behind it", batch(106, 7, op(7, "show", val("v", `{"id":"x","list":[10, 11]}`)), op(81, "same")), fault.OutboxDiverged, 7},
		{"a pruned and a recorded seq in one batch", batch(102, 2, op(2, "add", val("n", "2")), op(3, "add", val("n", "2"))), fault.OutboxDiverged, 2},
		{"another op at the acknowledged boundary", batch(102, 2, op(22, "add", val("n", "2"))), fault.OutboxDiverged, 2},
		{"another digest at the acknowledged boundary", batch(102, 2, op(2, "add", val("n", "3"))), fault.OutboxDiverged, 2},
		{"a seq beyond last_seq + 1", batch(201, 9, op(81, "same")), fault.Gap, 8},
		{"a seq far beyond", batch(201, 1<<63, op(81, "same")), fault.Gap, 8},
		{"a batch that cannot be keyed", with(next(), func(b *ledger.Batch) { b.Ops[0].OpID = "x" }), fault.Malformed, 0},
		{"a ref not known yet", batch(201, 8, op(81, "fail", val("code", `"not_yet_known"`))), fault.NotYetKnown, 17},
		{"a server busy half way", batch(201, 8, op(81, "add", val("n", "1")), op(82, "fail", val("code", `"overloaded"`))), fault.Overloaded, 17},
		{"a result that is a list", batch(201, 8, op(81, "add", val("n", "1")), op(82, "broken", val("v", "[1]"))), fault.Internal, 0},
		{"a result that is cut off", batch(201, 8, op(81, "add", val("n", "1")), op(82, "broken", val("v", "{}"), val("cut", "1"))), fault.Internal, 0},
		{"a result that is nothing", batch(201, 8, op(81, "add", val("n", "1")), op(82, "broken")), fault.Internal, 0},
	}
	for _, row := range rows {
		t.Run(row.arrives, func(t *testing.T) {
			t.Parallel()
			s := prepared(t)
			before := s.clone()
			ack, err := s.handle(row.batch)
			if err == nil {
				t.Fatalf("answered %+v, want %s", ack, row.answer)
			}
			if err.Code != row.answer || err.At != row.at {
				t.Errorf("answer %s at %d, want %s at %d", err.Code, err.At, row.answer, row.at)
			}
			if err.Message == "" {
				t.Error("the answer says nothing")
			}
			if *s.stream != *before.stream || s.cursor != before.cursor || s.sum != before.sum || len(s.records) != len(before.records) {
				t.Error("something was recorded")
			}
		})
	}
}

func TestTableDuplicates(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	for i, b := range old() {
		var want []ledger.Outcome
		if i >= 2 {
			want = ledger.NewHistory(s.records).Record(b.Ops[0].Seq).Outcomes
		} else {
			want = []ledger.Outcome{{OpID: b.Ops[0].OpID, Reason: fault.Pruned, Message: "recorded before; its outcome was acknowledged and is gone"}}
		}
		ack, err := s.handle(b)
		if err != nil {
			t.Fatalf("batch %d: %v", i+1, err)
		}
		sameOutcomes(t, ack.Outcomes, want)
		if int(ack.Duplicates) != len(b.Ops) || ack.Applied+ack.Rejected != 0 || ack.Cursor != 4 || !ack.Repeated {
			t.Errorf("batch %d: ack %+v", i+1, ack)
		}
	}
	if len(s.calls) != 0 {
		t.Errorf("a duplicate was tried again: %v", s.calls)
	}
	// The answer is the caller's, and so is what it makes of it.
	h := ledger.NewHistory(s.records)
	for range 2 {
		outcomes, err := ledger.Admit(s.stream, old()[3], h.Record)
		if err != nil || outcomes[0].Status != ledger.Denied {
			t.Errorf("%+v, %v", outcomes, err)
		}
		outcomes[0] = ledger.Outcome{}
	}
	if _, err := s.handle(with(old()[3], func(b *ledger.Batch) { b.Incarnation = 5 })); err != nil || s.stream.Incarnation != 5 {
		t.Errorf("a duplicate by the next incarnation: %v, stream %+v", err, s.stream)
	}
}

// A batch that is acknowledged only in part keeps its record whole.
func TestTableDuplicateOfAPartlyAcknowledgedBatch(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	if err := s.acknowledge(ledger.NewHistory(s.records), 3); err != nil {
		t.Fatal(err)
	}
	ack, err := s.handle(old()[2])
	if err != nil || ack.Outcomes[0].Status != ledger.Applied || ack.Outcomes[1].Status != ledger.Rejected {
		t.Fatalf("%+v, %v", ack, err)
	}
	_, err = s.handle(batch(103, 2, op(2, "add", val("n", "2")), op(3, "add", val("n", "2"))))
	if err == nil || err.Code != fault.OutboxDiverged {
		t.Errorf("a batch of another shape that ends at the boundary: %v", err)
	}
}

type recorded struct {
	status ledger.Status
	reason fault.Code
	cause  uint64 // op
	cursor uint64
	at     uint64
	result string
}

func TestTableRowsThatAreRecorded(t *testing.T) {
	t.Parallel()
	applied := func(cursor uint64, result string) recorded {
		return recorded{status: ledger.Applied, cursor: cursor, result: result}
	}
	big := `"` + strings.Repeat("x", 100) + `"`
	rows := []struct {
		arrives string
		deny    fault.Code // of method add
		batch   *ledger.Batch
		answer  []recorded
	}{
		// skipped
		{"an argument refers to an op that was rejected", 0, batch(201, 8, op(81, "add", ref("n", 4, "sum"))),
			[]recorded{{status: ledger.Skipped, reason: fault.BadArgument, cause: 4}}},
		{"depends_on an op that was denied", 0, batch(201, 8, after(op(81, "same"), 7, 5)),
			[]recorded{{status: ledger.Skipped, reason: fault.Revoked, cause: 5}}},
		{"expected_cursor refers to a void", 0, batch(201, 8, expectRef(op(81, "same"), 6, "cursor")),
			[]recorded{{status: ledger.Skipped, reason: fault.Voided, cause: 6}}},
		{"an op of the same batch did not apply, and one that needs that", 0,
			batch(201, 8, op(81, "add", val("n", `[]`)), after(op(82, "same"), 81), op(83, "add", ref("n", 82, "cursor"))),
			[]recorded{{status: ledger.Rejected, reason: fault.BadArgument}, {status: ledger.Skipped, reason: fault.BadArgument, cause: 81}, {status: ledger.Skipped, reason: fault.BadArgument, cause: 82}}},
		{"skipped comes before denied", fault.Expired, batch(201, 8, after(op(81, "add", val("n", "1")), 4)),
			[]recorded{{status: ledger.Skipped, reason: fault.BadArgument, cause: 4}}},
		{"skipped comes before rejected", 0, batch(201, 8, op(81, "add", ref("n", 4, "sum"), ref("m", 99, "x"), val("o", "{"))),
			[]recorded{{status: ledger.Skipped, reason: fault.BadArgument, cause: 4}}},
		{"depends_on one that did not apply, and as many others as may be", 0, batch(201, 8, after(op(81, "same"), append(upto(501, 999), 5)...), after(op(82, "same"), upto(1000, 1499)...)),
			[]recorded{{status: ledger.Skipped, reason: fault.Revoked, cause: 5}, {status: ledger.Rejected, reason: fault.BadReference}}},
		{"a void that needs what did not apply", 0, batch(201, 8, after(op(81, "void"), 4)),
			[]recorded{{status: ledger.Skipped, reason: fault.BadArgument, cause: 4}}},

		// denied
		{"revoked", fault.Revoked, batch(201, 8, op(81, "add", val("n", "1"))), []recorded{{status: ledger.Denied, reason: fault.Revoked}}},
		{"stale epoch", fault.StaleEpoch, batch(201, 8, op(81, "add", val("n", "1"))), []recorded{{status: ledger.Denied, reason: fault.StaleEpoch}}},
		{"expired", fault.Expired, batch(201, 8, op(81, "add", val("n", "1"))), []recorded{{status: ledger.Denied, reason: fault.Expired}}},
		{"missing right", fault.MissingRight, batch(201, 8, op(81, "add", val("n", "1"))), []recorded{{status: ledger.Denied, reason: fault.MissingRight}}},
		{"denied comes before conflict", fault.Revoked, batch(201, 8, expect(op(81, "add", val("n", "1")), 1)), []recorded{{status: ledger.Denied, reason: fault.Revoked}}},
		{"denied comes before rejected", fault.Revoked, batch(201, 8, op(81, "add", val("n", "{"))), []recorded{{status: ledger.Denied, reason: fault.Revoked}}},
		{"a denial does not stop its siblings", fault.Revoked, batch(201, 8, op(81, "add", val("n", "1")), op(82, "same")),
			[]recorded{{status: ledger.Denied, reason: fault.Revoked}, applied(4, `{"cursor":4,"unchanged":true}`)}},
		{"a lack of authority that only the rules show", 0, batch(201, 8, op(81, "fail", val("code", `"not_an_owner"`))), []recorded{{status: ledger.Denied, reason: fault.NotAnOwner}}},

		// conflict
		{"expected_cursor differs", 0, batch(201, 8, expect(op(81, "add", val("n", "1")), 3)), []recorded{{status: ledger.Conflict, reason: fault.Conflict, cursor: 4}}},
		{"expected_cursor 0 is a cursor too", 0, batch(201, 8, expect(op(81, "add", val("n", "1")), 0)), []recorded{{status: ledger.Conflict, reason: fault.Conflict, cursor: 4}}},
		{"expected_cursor by reference differs", 0, batch(201, 8, expectRef(op(81, "add", val("n", "1")), 3, "cursor")), []recorded{{status: ledger.Conflict, reason: fault.Conflict, cursor: 4}}},
		{"expected_cursor is compared before the batch's first op", 0,
			batch(201, 8, op(81, "add", val("n", "1")), expect(op(82, "add", val("n", "1")), 4), expect(op(83, "add", val("n", "1")), 6)),
			[]recorded{applied(5, `{"cursor":5,"sum":6}`), applied(6, `{"cursor":6,"sum":7}`), {status: ledger.Conflict, reason: fault.Conflict, cursor: 4}}},
		{"conflict comes before rejected", 0, batch(201, 8, expect(op(81, "no such", val("n", "{")), 3)), []recorded{{status: ledger.Conflict, reason: fault.Conflict, cursor: 4}}},

		// rejected
		{"an argument that is not JSON", 0, batch(201, 8, op(81, "same", val("n", `{"a":`))), []recorded{{status: ledger.Rejected, reason: fault.Malformed}}},
		{"an argument without a value", 0, batch(201, 8, op(81, "same", ledger.Arg{Name: "n"})), []recorded{{status: ledger.Rejected, reason: fault.Malformed}}},
		{"an argument twice", 0, batch(201, 8, op(81, "same", val("n", "1"), val("n", "2"))), []recorded{{status: ledger.Rejected, reason: fault.Malformed}}},
		{"unknown method", 0, batch(201, 8, op(81, "frobnicate")), []recorded{{status: ledger.Rejected, reason: fault.UnknownMethod}}},
		{"a broken rule", 0, batch(201, 8, op(81, "add", val("n", "-1"))), []recorded{{status: ledger.Rejected, reason: fault.BadArgument}}},
		{"a wrong offset, with the present length", 0, batch(201, 8, op(81, "fail", val("code", `"wrong_offset"`))), []recorded{{status: ledger.Rejected, reason: fault.WrongOffset, at: 17}}},
		{"an argument too large", 0, batch(201, 8, op(81, "show", val("v", big))), []recorded{{status: ledger.Rejected, reason: fault.TooLarge}}},
		{"a batch too large", 0, batch(201, 8, op(81, "same"), op(82, "same"), op(83, "same"), op(84, "same"), op(85, "same")),
			[]recorded{{status: ledger.Rejected, reason: fault.TooLarge}, {status: ledger.Rejected, reason: fault.TooLarge}, {status: ledger.Rejected, reason: fault.TooLarge}, {status: ledger.Rejected, reason: fault.TooLarge}, {status: ledger.Rejected, reason: fault.TooLarge}}},
		{"depends_on one that did not apply, and more others than are looked for", 0, batch(201, 8, after(op(81, "same"), append(upto(501, 999), 5)...), after(op(82, "same"), upto(1000, 1500)...)),
			[]recorded{{status: ledger.Rejected, reason: fault.TooLarge}, {status: ledger.Rejected, reason: fault.TooLarge}}},
		{"a reference to nothing in a result, and a good one behind it", 0, batch(201, 8, op(81, "same", ref("n", 3, "total"), ref("m", 3, "sum"))), []recorded{{status: ledger.Rejected, reason: fault.BadReference}}},
		{"expected_cursor refers to an op never seen", 0, batch(201, 8, expectRef(op(81, "same"), 99, "cursor")), []recorded{{status: ledger.Rejected, reason: fault.BadReference}}},
		{"a reference to nothing in a result", 0, batch(201, 8, op(81, "add", ref("n", 3, "total"))), []recorded{{status: ledger.Rejected, reason: fault.BadReference}}},
		{"a reference to an op that is pruned", 0, batch(201, 8, op(81, "add", ref("n", 2, "sum"))), []recorded{{status: ledger.Rejected, reason: fault.BadReference}}},
		{"depends_on an op never seen", 0, batch(201, 8, after(op(81, "same"), 99)), []recorded{{status: ledger.Rejected, reason: fault.BadReference}}},
		{"a reference forward", 0, batch(201, 8, op(81, "add", ref("n", 82, "sum")), op(82, "add", val("n", "1"))),
			[]recorded{{status: ledger.Rejected, reason: fault.BadReference}, applied(5, `{"cursor":5,"sum":6}`)}},
		{"a reference to itself", 0, batch(201, 8, op(81, "add", ref("n", 81, "sum"))), []recorded{{status: ledger.Rejected, reason: fault.BadReference}}},
		{"a reference to no op id", 0, batch(201, 8, op(81, "add", ledger.Arg{Name: "n", Ref: &ledger.Ref{Op: "x"}})), []recorded{{status: ledger.Rejected, reason: fault.BadReference}}},
		{"expected_cursor refers to what is no cursor", 0, batch(201, 8, expectRef(op(81, "same"), 7, "got.id")), []recorded{{status: ledger.Rejected, reason: fault.BadReference}}},
		{"an argument that is a value and a reference", 0, batch(201, 8, op(81, "add", ledger.Arg{Name: "n", JSON: []byte("1"), Ref: &ledger.Ref{Op: id(7), Path: "got.list.0"}})),
			[]recorded{{status: ledger.Rejected, reason: fault.Malformed}}},
		{"expected_cursor that is a number and a reference", 0, batch(201, 8, both(op(81, "same"), 7, "cursor")),
			[]recorded{{status: ledger.Rejected, reason: fault.Malformed}}},
		{"a reference to a value that is too large", 0, batch(201, 8, op(81, "show", val("v", `"`+strings.Repeat("x", 95)+`"`)), op(82, "show", ref("v", 81, ""))),
			[]recorded{applied(5, `{"cursor":5,"got":"`+strings.Repeat("x", 95)+`"}`), {status: ledger.Rejected, reason: fault.TooLarge}}},
		{"denied comes before a bad shape", fault.Revoked, batch(201, 8, op(81, "add", ledger.Arg{Name: "n", JSON: []byte("1"), Ref: &ledger.Ref{Op: id(7), Path: "got.list.0"}})),
			[]recorded{{status: ledger.Denied, reason: fault.Revoked}}},
		{"conflict comes before a bad shape", 0, batch(201, 8, both(op(81, "same"), 3, "cursor")),
			[]recorded{{status: ledger.Conflict, reason: fault.Conflict, cursor: 4}}},
		{"a rejection does not undo its siblings", 0, batch(201, 8, op(81, "add", val("n", "1")), op(82, "frobnicate"), op(83, "add", val("n", "1"))),
			[]recorded{applied(5, `{"cursor":5,"sum":6}`), {status: ledger.Rejected, reason: fault.UnknownMethod}, applied(6, `{"cursor":6,"sum":7}`)}},
		{"a void with a bad argument", 0, batch(201, 8, op(81, "void", val("v", "{"))), []recorded{{status: ledger.Rejected, reason: fault.Malformed}}},

		// voided
		{"void", 0, batch(201, 8, op(81, "void")), []recorded{{status: ledger.Voided, reason: fault.Voided}}},

		// applied
		{"otherwise", 0, batch(201, 8, op(81, "add", val("n", "1"))), []recorded{applied(5, `{"cursor":5,"sum":6}`)}},
		{"unchanged", 0, batch(201, 8, op(81, "same")), []recorded{applied(4, `{"cursor":4,"unchanged":true}`)}},
		{"expected_cursor fits", 0, batch(201, 8, expect(op(81, "add", val("n", "1")), 4)), []recorded{applied(5, `{"cursor":5,"sum":6}`)}},
		{"expected_cursor by reference fits", 0, batch(201, 8, expectRef(op(81, "add", val("n", "1")), 7, "cursor")), []recorded{applied(5, `{"cursor":5,"sum":6}`)}},
		{"a reference into an earlier batch, byte for byte", 0, batch(201, 8, op(81, "show", ref("v", 7, "got.list"))), []recorded{applied(5, `{"cursor":5,"got":[10, 11]}`)}},
		{"a reference to an array's element", 0, batch(201, 8, op(81, "add", ref("n", 7, "got.list.1"))), []recorded{applied(5, `{"cursor":5,"sum":16}`)}},
		{"a reference to a whole result", 0, batch(201, 8, op(81, "show", ref("v", 3, ""))), []recorded{applied(5, `{"cursor":5,"got":{"cursor":3,"sum":5}}`)}},
		{"references within the batch", 0, batch(201, 8, op(81, "add", val("n", "1")), op(82, "add", ref("n", 81, "sum")), op(83, "show", ref("v", 82, "sum"))),
			[]recorded{applied(5, `{"cursor":5,"sum":6}`), applied(6, `{"cursor":6,"sum":12}`), applied(7, `{"cursor":7,"got":12}`)}},

		// atomic
		{"atomic, all apply", 0, atomic(batch(201, 8, op(81, "add", val("n", "1")), op(82, "add", ref("n", 81, "sum")))),
			[]recorded{applied(5, `{"cursor":5,"sum":6}`), applied(6, `{"cursor":6,"sum":12}`)}},
		{"atomic, one is rejected", 0, atomic(batch(201, 8, op(81, "add", val("n", "1")), op(82, "fail", val("code", `"wrong_offset"`)), op(83, "add", val("n", "1")))),
			[]recorded{{status: ledger.BatchAborted, reason: fault.WrongOffset, cause: 82}, {status: ledger.BatchAborted, reason: fault.WrongOffset, cause: 82, at: 17}, {status: ledger.BatchAborted, reason: fault.WrongOffset, cause: 82}}},
		{"atomic, one is denied", fault.Revoked, atomic(batch(201, 8, op(81, "same"), op(82, "add", val("n", "1")))),
			[]recorded{{status: ledger.BatchAborted, reason: fault.Revoked, cause: 82}, {status: ledger.BatchAborted, reason: fault.Revoked, cause: 82}}},
		{"atomic, one conflicts", 0, atomic(batch(201, 8, op(81, "add", val("n", "1")), expect(op(82, "same"), 9))),
			[]recorded{{status: ledger.BatchAborted, reason: fault.Conflict, cause: 82}, {status: ledger.BatchAborted, reason: fault.Conflict, cause: 82, cursor: 4}}},
		{"atomic, one is skipped", 0, atomic(batch(201, 8, op(81, "add", val("n", "1")), after(op(82, "same"), 5))),
			[]recorded{{status: ledger.BatchAborted, reason: fault.Revoked, cause: 82}, {status: ledger.BatchAborted, reason: fault.Revoked, cause: 82}}},
		{"atomic, one was dropped", 0, atomic(batch(201, 8, op(81, "add", val("n", "1")), op(82, "void"))),
			[]recorded{{status: ledger.BatchAborted, reason: fault.Voided, cause: 82}, {status: ledger.BatchAborted, reason: fault.Voided, cause: 82}}},
		{"atomic, all were dropped", 0, atomic(batch(201, 8, op(81, "void"), op(82, "void"))),
			[]recorded{{status: ledger.Voided, reason: fault.Voided}, {status: ledger.Voided, reason: fault.Voided}}},
		{"atomic, of one op", 0, atomic(batch(201, 8, op(81, "frobnicate"))),
			[]recorded{{status: ledger.BatchAborted, reason: fault.UnknownMethod, cause: 81}}},
	}
	for _, row := range rows {
		t.Run(row.arrives, func(t *testing.T) {
			t.Parallel()
			s := prepared(t)
			s.lim = ledger.Limits{BatchOps: 4, BatchBytes: 1000, PayloadBytes: 100}
			if row.deny != 0 {
				s.deny["add"] = row.deny
			}
			cursor, sum := s.cursor, s.sum
			ack, err := s.handle(row.batch)
			if err != nil {
				t.Fatal(err)
			}
			if len(ack.Outcomes) != len(row.answer) {
				t.Fatalf("%d outcomes for %d ops", len(ack.Outcomes), len(row.answer))
			}
			var applied, rejected uint32
			for i, o := range ack.Outcomes {
				want := row.answer[i]
				got := recorded{status: o.Status, reason: o.Reason, cursor: o.Cursor, at: o.At, result: string(o.Result), cause: want.cause}
				if wantCause := map[bool]string{true: id(want.cause)}[want.cause != 0]; o.Cause != wantCause {
					t.Errorf("op %d: cause %q, want %q", i+1, o.Cause, wantCause)
				}
				if got != want {
					t.Errorf("op %d:\n got %+v\nwant %+v", i+1, got, want)
				}
				if o.OpID != row.batch.Ops[i].OpID || o.Digest != row.batch.Ops[i].Digest() {
					t.Errorf("op %d: recorded for another op", i+1)
				}
				if (o.Message == "") != (o.Status == ledger.Applied) {
					t.Errorf("op %d: %s with message %q", i+1, o.Status, o.Message)
				}
				if of := "op " + o.Cause + " of the same atomic batch"; o.Status == ledger.BatchAborted && strings.HasPrefix(o.Message, of) != (o.Cause != o.OpID) {
					t.Errorf("op %d: aborted for %s with message %q", i+1, o.Cause, o.Message)
				}
				if o.Status == ledger.Applied {
					applied++
				} else {
					rejected++
				}
			}
			if ack.Applied != applied || ack.Rejected != rejected || ack.Duplicates != 0 || ack.Cursor != s.cursor {
				t.Errorf("ack %d applied, %d rejected, %d duplicates at %d", ack.Applied, ack.Rejected, ack.Duplicates, ack.Cursor)
			}
			if applied == 0 && (s.cursor != cursor || s.sum != sum) {
				t.Error("nothing applied, yet something changed")
			}
			if s.stream.LastSeq != 7+uint64(len(row.batch.Ops)) {
				t.Errorf("last seq %d: the seqs were not consumed", s.stream.LastSeq)
			}
			again, err := s.handle(row.batch)
			if err != nil {
				t.Fatal(err)
			}
			sameOutcomes(t, again.Outcomes, ack.Outcomes)
		})
	}
}

func TestNewerIncarnationFencesTheOlder(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	if _, err := s.handle(with(batch(201, 8, op(81, "same")), func(b *ledger.Batch) { b.Incarnation = 5 })); err != nil {
		t.Fatal(err)
	}
	if _, err := s.handle(batch(202, 9, op(82, "same"))); err == nil || err.Code != fault.Fenced {
		t.Errorf("the older incarnation got %v", err)
	}
	if s.stream.Incarnation != 5 || s.stream.LastSeq != 8 {
		t.Errorf("stream %+v", s.stream)
	}
}

func TestAckThrough(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	h := ledger.NewHistory(s.records)
	for _, row := range []struct {
		through uint64
		raised  bool
		err     fault.Code
		acked   uint64
	}{
		{0, false, fault.None, 2},
		{2, false, fault.None, 2},
		{8, false, fault.ServerBehind, 2},
		{4, true, fault.None, 4},
		{3, false, fault.None, 4},
		{7, true, fault.None, 7},
	} {
		raised, err := ledger.AckThrough(s.stream, row.through, h.Record)
		if got := codeOf(err); raised != row.raised || got != row.err || s.stream.AckedThrough != row.acked {
			t.Errorf("through %d: raised %v, %v, acked through %d; want %+v", row.through, raised, err, s.stream.AckedThrough, row)
		}
	}
	last := old()[5].Ops[0]
	if s.stream.AckedOp != last.OpID || s.stream.AckedDigest != last.Digest() {
		t.Errorf("the boundary is %s", s.stream.AckedOp)
	}
	if raised, err := ledger.AckThrough(&ledger.Stream{LastSeq: 9}, 9, h.Record); raised || codeOf(err) != fault.Internal {
		t.Errorf("a record that was not loaded: raised %v, %v", raised, err)
	}
	none := ledger.NewHistory(nil).Record
	if outcomes, err := ledger.Admit(&ledger.Stream{LastSeq: 9}, batch(201, 9, op(81, "same")), none); outcomes != nil || codeOf(err) != fault.Internal {
		t.Errorf("a batch whose record was not loaded: %+v, %v", outcomes, err)
	}
}

func TestAcknowledge(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	s.stream.Incarnation = 3
	h := ledger.NewHistory(s.records)
	for _, row := range []struct {
		incarnation, through uint64
		raised               bool
		err                  fault.Code
		acked, now           uint64
	}{
		{2, 7, false, fault.Fenced, 2, 3},
		{3, 4, true, fault.None, 4, 3},
		{5, 4, false, fault.None, 4, 5},
		{3, 7, false, fault.Fenced, 4, 5},
		{6, 8, false, fault.ServerBehind, 4, 6},
	} {
		raised, err := ledger.Acknowledge(s.stream, row.incarnation, row.through, h.Record)
		if raised != row.raised || codeOf(err) != row.err || s.stream.AckedThrough != row.acked || s.stream.Incarnation != row.now {
			t.Errorf("%+v: raised %v, %v, stream %+v", row, raised, err, s.stream)
		}
	}
}

func TestOpenFor(t *testing.T) {
	t.Parallel()
	st := &ledger.Stream{SecretHash: [32]byte{1}, Incarnation: 3}
	if !st.IsOpenBy([32]byte{1}, 3) || st.IsOpenBy([32]byte{2}, 3) || st.IsOpenBy([32]byte{1}, 2) || st.IsOpenBy([32]byte{1}, 4) {
		t.Error("opened for another secret or incarnation, or not for its own")
	}
}

// Whatever a session refuses with is recorded, or answers the call: by its block.
func TestCodesThatAnswerTheCall(t *testing.T) {
	t.Parallel()
	for code := fault.Skipped; code <= fault.OutboxDamaged; code++ {
		if name, known := fault.ParseCode(code.String()); !known || name != code {
			continue
		}
		want := ledger.Rejected
		switch {
		case code.Authority():
			want = ledger.Denied
		case code == fault.Conflict:
			want = ledger.Conflict
		case code >= fault.Fenced && code <= fault.Unsupported, code == fault.Internal, code == fault.DiskFull, code == fault.Canceled:
			want = 0
		}
		for what, change := range map[string]func(*fakeServer) *ledger.Batch{
			"applying": func(*fakeServer) *ledger.Batch {
				return batch(201, 8, op(81, "fail", val("code", `"`+code.String()+`"`)))
			},
			"authorizing": func(s *fakeServer) *ledger.Batch {
				s.deny["same"] = code
				return batch(201, 8, op(81, "same"))
			},
		} {
			s := prepared(t)
			ack, err := s.handle(change(s))
			switch {
			case want == 0:
				if codeOf(err) != code || s.stream.LastSeq != 7 {
					t.Errorf("%s fails with %s: %+v, %v", what, code, ack, err)
				}
			case what == "authorizing":
				if err != nil || ack.Outcomes[0].Status != ledger.Denied || ack.Outcomes[0].Reason != code {
					t.Errorf("%s fails with %s: %+v, %v", what, code, ack, err)
				}
			case err != nil || ack.Outcomes[0].Status != want || ack.Outcomes[0].Reason != code:
				t.Errorf("%s fails with %s: %+v, %v", what, code, ack, err)
			}
		}
	}
}

// Of several things that are wrong with an op the first is told.
func TestFirstBadReferenceIsReported(t *testing.T) {
	t.Parallel()
	for _, o := range []ledger.Intent{
		after(op(81, "same"), 98, 99),
		op(81, "same", ref("n", 3, id(98)), ref("m", 3, id(99))),
		expectRef(op(81, "same", ref("n", 3, id(98))), 3, id(99)),
		expectRef(op(81, "same", ref("n", 3, id(98))), 7, "got.id"),  // which is no cursor
		op(81, "same", ref("n", 3, id(98)), ref("m", 7, "got.list")), // which is too large
	} {
		s := prepared(t)
		s.lim.PayloadBytes = 5
		ack, err := s.handle(batch(201, 8, o))
		if err != nil || !strings.Contains(ack.Outcomes[0].Message, id(98)) || strings.Contains(ack.Outcomes[0].Message, id(99)) {
			t.Errorf("%+v: %+v, %v", o, ack, err)
		}
	}
}

func codeOf(err *fault.Error) fault.Code {
	if err == nil {
		return fault.None
	}
	return err.Code
}

func sameOutcomes(t interface {
	Helper()
	Errorf(string, ...any)
}, got, want []ledger.Outcome) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d outcomes, want %d", len(got), len(want))
		return
	}
	for i := range got {
		g, w := got[i], want[i]
		if g.OpID != w.OpID || g.Digest != w.Digest || g.Status != w.Status || g.Reason != w.Reason || g.Message != w.Message ||
			g.Cursor != w.Cursor || string(g.Result) != string(w.Result) || g.Cause != w.Cause || g.At != w.At {
			t.Errorf("outcome %d is not word for word:\n got %+v\nwant %+v", i+1, g, w)
		}
	}
}
