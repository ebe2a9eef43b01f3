package session

import (
	"testing"

	"github.com/mooring-rpc/mooring/ledger"
)

// However far apart the seqs are that a group names, what lies between them is not
// read: a stream may have 300,000 records.
func TestRecordsAreReadNearWhatIsNamed(t *testing.T) {
	t.Parallel()
	const last = 300_000
	key := StreamKey{"ses", "obx"}
	batch := func(acked uint64, seqs ...uint64) Submission {
		b := ledger.Batch{Session: key.Session, Outbox: key.Outbox, AckedThrough: acked}
		for _, seq := range seqs {
			b.Ops = append(b.Ops, ledger.Intent{Seq: seq})
		}
		return Submission{Batch: b}
	}
	v := newView(t.Context(), nil, 0)
	v.streams[key] = &streamView{row: ledger.Stream{LastSeq: last}}
	for name, subs := range map[string][]Submission{
		"seqs that are not consecutive": {batch(0, 1, last)},
		"seqs that go back":             {batch(0, last, 1)},
		"a batch that is far too long":  {batch(0, make([]uint64, ledger.MaxFrameOps+1)...)},
		"repeats far apart":             {batch(0, 1), batch(0, last), batch(0, 2), batch(0, last/2)},
		"acknowledgements far apart":    {batch(1, last+1), batch(last, last+2), batch(2, last+3)},
	} {
		wants := []*Want{firstWant(subs)}
		if w := recordsWant(v, subs); w != nil {
			wants = append(wants, w)
		}
		named, ranges := map[uint64]bool{}, 0
		for _, w := range wants {
			for i, r := range w.Records {
				if ranges++; r.To-r.From > 10 || i > 0 && r.From <= w.Records[i-1].To {
					t.Errorf("%s: %+v", name, w.Records)
				}
				for seq := r.From; seq <= r.To; seq++ {
					named[seq] = true
				}
			}
		}
		for _, sub := range subs {
			if acked := sub.Batch.AckedThrough; acked > 0 && !named[acked] {
				t.Errorf("%s: %d is not read", name, acked)
			}
			if n := len(sub.Batch.Ops); n == 1 && sub.Batch.Ops[0].Seq <= last && !named[sub.Batch.Ops[0].Seq] {
				t.Errorf("%s: %d is not read", name, sub.Batch.Ops[0].Seq)
			}
		}
		if ranges > 3 {
			t.Errorf("%s: %d ranges", name, ranges)
		}
	}
	// What stands side by side is read at once.
	if w := recordsWant(v, []Submission{batch(0, 5, 6), batch(0, 9), batch(0, 7)}); len(w.Records) != 1 || w.Records[0].From != 5 || w.Records[0].To != 9 {
		t.Errorf("side by side: %+v", w.Records)
	}
}
