package capability_test

// What is wrong with a chain, and with its end.

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

// chained is a chain of n rows.
func chained(n int) (rows []*capability.AuditRow) {
	var prev [32]byte
	for i := range n {
		r := &capability.AuditRow{Target: "ses_x", Seq: uint64(i + 1), At: int64(1000 + i/2), Act: capability.AuditUse, Ref: "r", Subject: "put", Count: 1}
		r.Hash = capability.HashAuditRow(prev, r)
		prev = r.Hash
		rows = append(rows, r)
	}
	return rows
}

func TestChainNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	const n = 9
	swap := func(rows []*capability.AuditRow, i, j int) []*capability.AuditRow {
		rows[i-1], rows[j-1] = rows[j-1], rows[i-1]
		rows[i-1].Seq, rows[j-1].Seq = uint64(i), uint64(j)
		return rows
	}
	for _, c := range []struct {
		name string
		edit func(rows []*capability.AuditRow) []*capability.AuditRow
		want []string
	}{
		{"nothing", func(rows []*capability.AuditRow) []*capability.AuditRow { return rows }, nil},
		{"a field", func(rows []*capability.AuditRow) []*capability.AuditRow {
			rows[3].Actor = "somebody"
			return rows
		}, []string{"row 4 was changed after it was written"}},
		{"the first and the last", func(rows []*capability.AuditRow) []*capability.AuditRow {
			rows[0].At, rows[8].Count = 7, 99
			return rows
		}, []string{"row 1 was changed after it was written", "row 9 was changed after it was written"}},
		{"a hash", func(rows []*capability.AuditRow) []*capability.AuditRow {
			rows[3].Hash[5]++
			return rows
		}, []string{"row 4 was changed after it was written"}},
		{"the last hash", func(rows []*capability.AuditRow) []*capability.AuditRow {
			rows[8].Hash[5]++
			return rows
		}, []string{"row 9 was changed after it was written"}},
		{"one gone", func(rows []*capability.AuditRow) []*capability.AuditRow { return slices.Delete(rows, 3, 4) },
			[]string{"row 4 is missing"}},
		{"the first gone", func(rows []*capability.AuditRow) []*capability.AuditRow { return rows[1:] }, []string{"row 1 is missing"}},
		{"the last gone", func(rows []*capability.AuditRow) []*capability.AuditRow { return rows[:8] }, []string{"row 9 is missing"}},
		{"three gone", func(rows []*capability.AuditRow) []*capability.AuditRow { return slices.Delete(rows, 3, 6) },
			[]string{"rows 4 to 6 are missing"}},
		{"all gone", func([]*capability.AuditRow) []*capability.AuditRow { return nil }, []string{"rows 1 to 9 are missing"}},
		{"one gone, the others closed up", func(rows []*capability.AuditRow) []*capability.AuditRow {
			rows = slices.Delete(rows, 3, 4)
			for i, r := range rows {
				r.Seq = uint64(i + 1)
			}
			return rows
		}, []string{"row 9 is missing", "row 4 was changed after it was written", "row 5 is out of order: what stands there was written as 6",
			"row 6 is out of order: what stands there was written as 7", "row 7 is out of order: what stands there was written as 8",
			"row 8 is out of order: what stands there was written as 9"}},
		{"two swapped", func(rows []*capability.AuditRow) []*capability.AuditRow { return swap(rows, 3, 7) },
			[]string{"row 3 is out of order: what stands there was written as 7", "row 7 is out of order: what stands there was written as 3"}},
		{"neighbours swapped", func(rows []*capability.AuditRow) []*capability.AuditRow { return swap(rows, 3, 4) },
			[]string{"row 3 is out of order: what stands there was written as 4", "row 4 is out of order: what stands there was written as 3"}},
		{"the first and the last swapped", func(rows []*capability.AuditRow) []*capability.AuditRow { return swap(rows, 1, 9) },
			[]string{"row 1 is out of order: what stands there was written as 9", "row 9 is out of order: what stands there was written as 1"}},
		{"two swapped but for their hashes", func(rows []*capability.AuditRow) []*capability.AuditRow {
			rows = swap(rows, 3, 7)
			rows[2].Hash, rows[6].Hash = rows[6].Hash, rows[2].Hash
			return rows
		}, []string{"row 3 is out of order: what stands there was written as 7", "row 7 is out of order: what stands there was written as 3"}},
		{"one moved to the end", func(rows []*capability.AuditRow) []*capability.AuditRow {
			r := rows[3]
			r.Seq = 12
			return append(slices.Delete(rows, 3, 4), r)
		}, []string{"row 4 is missing", "rows 10 to 11 are missing", "row 12 is out of order: what stands there was written as 4", "row 12 is beyond the end, which is 9"}},
		{"one gone and one changed", func(rows []*capability.AuditRow) []*capability.AuditRow {
			rows[6].Ref = "another"
			return slices.Delete(rows, 1, 2)
		}, []string{"row 2 is missing", "row 7 was changed after it was written"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rows := chained(n)
			head := rows[n-1].Hash
			chain := capability.NewChainVerifier(0)
			for _, r := range c.edit(rows) {
				chain.Add(r.ChainRow())
			}
			var got []string
			for _, f := range chain.End(n, head) {
				got = append(got, f.Text("row"))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The end of the log is held against its last row.
func TestChainEnd(t *testing.T) {
	t.Parallel()
	rows := chained(5)
	chain := func(seq uint64, head [32]byte) string {
		c := capability.NewChainVerifier(0)
		for _, r := range rows {
			c.Add(r.ChainRow())
		}
		return fmt.Sprint(c.End(seq, head))
	}
	if got := chain(5, rows[4].Hash); got != "[]" {
		t.Errorf("whole: %s", got)
	}
	if got := chain(5, rows[3].Hash); got != fmt.Sprint([]capability.Flaw{{Kind: capability.EndChanged, Seq: 5}}) {
		t.Errorf("another end: %s", got)
	}
	if got := chain(4, rows[3].Hash); got != fmt.Sprint([]capability.Flaw{{Kind: capability.RowAfterEnd, Seq: 5, WrittenAs: 4}}) {
		t.Errorf("an earlier end: %s", got)
	}
	if got := capability.NewChainVerifier(3).End(3, rows[2].Hash); got != nil {
		t.Errorf("nothing after a row that is not known: %v", got)
	}
	// Another end is told beside what is wrong elsewhere, but not again of the row itself.
	for at, want := range map[int][]capability.Flaw{
		2: {{Kind: capability.RowChanged, Seq: 3}, {Kind: capability.EndChanged, Seq: 5}},
		4: {{Kind: capability.RowChanged, Seq: 5}},
	} {
		c := capability.NewChainVerifier(0)
		for i, r := range rows {
			l := r.ChainRow()
			l.Corrupt = i == at
			c.Add(l)
		}
		if got := c.End(5, rows[3].Hash); !slices.Equal(got, want) {
			t.Errorf("row %d spoilt, and another end: %v, want %v", at+1, got, want)
		}
	}
	// A log that begins later is taken at its word where it begins, and no further.
	late := capability.NewChainVerifier(2)
	rows[3].Actor = "somebody"
	for _, r := range rows[2:] {
		late.Add(r.ChainRow())
	}
	if got := fmt.Sprint(late.End(5, rows[4].Hash)); got != fmt.Sprint([]capability.Flaw{{Kind: capability.RowChanged, Seq: 4}}) {
		t.Errorf("from row 3 on: %s", got)
	}
	from := capability.NewChainVerifierFrom(2, rows[1].Hash)
	if from.Seq() != 2 || from.Head() != rows[1].Hash {
		t.Errorf("it goes on from %d, %x", from.Seq(), from.Head())
	}
	from.Add(rows[2].ChainRow())
	if got := from.End(3, rows[2].Hash); got != nil || from.Seq() != 3 || from.Head() != rows[2].Hash {
		t.Errorf("one row on: %v, at %d, %x", got, from.Seq(), from.Head())
	}
	if got := capability.NewChainVerifierFrom(1, rows[1].Hash).End(1, rows[0].Hash); !slices.Equal(got, []capability.Flaw{{Kind: capability.EndChanged, Seq: 1}}) {
		t.Errorf("nothing after another row than there was: %v", got)
	}
}

// The end may be asked for while rows come: each time it is as if for the first time.
func TestChainEndIsAskedAgain(t *testing.T) {
	t.Parallel()
	rows := chained(6)
	c := capability.NewChainVerifier(0)
	rows[1].Actor = "somebody"
	for _, r := range rows[:4] {
		c.Add(r.ChainRow())
	}
	for _, r := range rows[1:4] { // behind what came later, or again
		c.Add(r.ChainRow())
	}
	first := c.End(6, rows[5].Hash)
	c.Add(rows[5].ChainRow())
	var got []string
	for _, f := range append(first, c.End(6, rows[5].Hash)...) {
		got = append(got, f.Text("row"))
	}
	again := []string{"row 2 is out of order", "row 3 is out of order", "row 4 is out of order"}
	want := slices.Concat(again, []string{"rows 5 to 6 are missing", "row 2 was changed after it was written"},
		again, []string{"row 5 is missing", "row 2 was changed after it was written"})
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (capability.Flaw{Kind: capability.EndChanged, Seq: 6}).Text("row"); got != "the end was changed: it is not the hash of row 6" {
		t.Error(got)
	}
}

// However much is wrong, it is all told, and found without going through what is not there.
func TestChainOfManyFlaws(t *testing.T) {
	t.Parallel()
	const n = 50
	rows := chained(n)
	c := capability.NewChainVerifier(0)
	for _, r := range rows {
		r.Actor = "somebody"
		c.Add(r.ChainRow())
	}
	got := c.End(1<<62, [32]byte{})
	slices.SortFunc(got, func(a, b capability.Flaw) int { return cmp.Compare(a.Seq, b.Seq) })
	for i, f := range got {
		if i == n && f != (capability.Flaw{Kind: capability.RowMissing, Seq: n + 1, Through: 1 << 62}) ||
			i < n && f != (capability.Flaw{Kind: capability.RowChanged, Seq: uint64(i + 1)}) {
			t.Errorf("flaw %d: %s", i+1, f.Text("row"))
		}
	}
	if len(got) != n+1 {
		t.Errorf("%d flaws", len(got))
	}
	late := capability.NewChainVerifier(0)
	for i, r := range chained(2 * n) {
		if i%2 == 1 {
			late.Add(r.ChainRow()) // nothing speaks against it
		}
	}
	for _, f := range late.End(2*n, late.Head()) {
		if f.Kind != capability.RowMissing {
			t.Errorf("of every other row: %s", f.Text("row"))
		}
	}
}
