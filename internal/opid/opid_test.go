package opid

// How ids are made and read.

import (
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	last := ""
	for range 10_000 {
		id := NewBatch()
		if id <= last || !IsULID(id) || DerivedFrom(id).Underivable {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
	for _, i := range []int{0, 1, 999, 1<<opBits - 2} {
		op := Of(last, i)
		if !IsULID(op) || BatchOf(op) != last || !DerivedFrom(last).Has(i, op) || op <= last {
			t.Errorf("op %d: %s", i, op)
		}
	}
	for name, op := range map[string]string{"beyond": Of(last, 1<<opBits-1), "negative": Of(last, -1), "of another": Of("x", 0)} {
		if !IsULID(op) || BatchOf(op) == last {
			t.Errorf("%s: %s", name, op)
		}
	}
}

func TestIDsInAnotherSpelling(t *testing.T) {
	t.Parallel()
	batch := NewBatch()
	op := Of(batch, 3)
	if !DerivedFrom(batch).Has(3, op) || DerivedFrom(batch).Has(2, op) {
		t.Fatalf("%s is the fourth of %s", op, batch)
	}
	for _, s := range []string{strings.ToLower(op), strings.Replace(op, "0", "O", 1), op[:25], op + "0", ""} {
		if IsULID(s) || DerivedFrom(batch).Has(3, s) || !DerivedFrom(s).Underivable {
			t.Errorf("%q was taken", s)
		}
	}
	if low := strings.ToLower(batch); !DerivedFrom(low).Underivable || DerivedFrom(low).Has(3, op) {
		t.Errorf("%q was taken for a batch id", low)
	}
}

// TestIDsByTheirCharacters: Has compares characters, and finds what Of would spell.
func TestIDsByTheirCharacters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var batch ulid.ULID
		copy(batch[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "batch"))
		if batch[14], batch[15] = 0, 0; rapid.Bool().Draw(t, "not counted up from") {
			batch[14] = rapid.Byte().Draw(t, "a low byte")
		}
		place := rapid.OneOf(rapid.IntRange(-2, 40), rapid.IntRange(1<<opBits-5, 1<<opBits+2), rapid.Int()).Draw(t, "place")
		op := []byte(Of(batch.String(), rapid.SampledFrom([]int{place, place, place + 1, place ^ 1<<10}).Draw(t, "place of the op")))
		if rapid.Bool().Draw(t, "changed") {
			op[rapid.IntRange(0, len(op)-1).Draw(t, "where")] = rapid.SampledFrom([]byte(ulid.Encoding+"abcIOlu")).Draw(t, "to")
		}
		ids := DerivedFrom(batch.String())
		id, ok := ids.At(place)
		if want := ok && id.String() == string(op); ids.Has(place, string(op)) != want {
			t.Errorf("%s at %d of %s: %v", op, place, batch, !want)
		}
	})
}

// TestSequence: its ids are those that Of gives, one by one.
func TestSequence(t *testing.T) {
	t.Parallel()
	batch := NewBatch()
	for _, c := range []struct{ first, n int }{{0, 1}, {0, 5}, {7, 40}, {1<<opBits - 4, 8}} {
		ids := Sequence(batch, c.first, c.n)
		if len(ids) != c.n {
			t.Fatalf("%d ids for %d ops", len(ids), c.n)
		}
		for i, id := range ids {
			derived := c.first+i < 1<<opBits-1
			if own := Of(batch, c.first+i); derived && id != own || !IsULID(id) {
				t.Errorf("op %d is %s, not %s", c.first+i, id, own)
			}
		}
	}
	seen := map[string]bool{}
	for _, batch := range []string{ulid.Make().String(), "none"} {
		for _, id := range Sequence(batch, 0, 9) {
			if !IsULID(id) || seen[id] {
				t.Errorf("an op of batch %s is %q", batch, id)
			}
			seen[id] = true
		}
	}
}
