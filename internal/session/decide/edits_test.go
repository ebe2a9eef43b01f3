package decide_test

// Large values that are edited: what the database is given of them. That the values are right is
// checked after every commit (world.check, and memtx, which makes them of base and changes).

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/ledger"
)

// document is an object of n members with 80 bytes each.
func document(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"member%04d":"%080d"`, i, i)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// written is how many bytes of values and changes an op has the database write, its event's included.
func (o *writer) written(x anOp) int {
	o.w.Helper()
	before := o.w.store.BytesWritten
	o.apply(x)
	return o.w.store.BytesWritten - before
}

func patchMember(i int, value string) anOp {
	return op("patch", "key", "doc/1", "patch", raw(`{"member%04d":%q}`, i, value))
}

// TestEditsWriteWhatTheyChange: an edit of a large value writes what it changes, the same member again
// and again or one after the other; only where changes have become many is the value written whole.
func TestEditsWriteWhatTheyChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		member func(i int) int
		whole  int // times that the value is written whole in 200 edits, at most
		each   int // bytes that all other edits write, at most
	}{
		{"one member", func(int) int { return 500 }, 1, 400},
		{"members by turns", func(i int) int { return i % 3 * 333 }, 1, 1000},
		{"every member", func(i int) int { return i * 5 }, 4, 6500},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newWorld(t).create()
			size := len(document(1000))
			o.apply(op("put", "key", "doc/1", "payload", raw("%s", document(1000))))
			whole := 0
			for i := range 200 {
				switch n := o.written(patchMember(c.member(i), fmt.Sprintf("%*d", 70+i%20, i))); {
				case n > size/2:
					whole++
				case n > c.each:
					t.Errorf("edit %d writes %d bytes, want %d at most", i, n, c.each)
				}
			}
			if whole < 1 || whole > c.whole {
				t.Errorf("200 edits write the value %d times, want 1 to %d", whole, c.whole)
			}
			if n := o.written(op("add", "key", "doc/1", "member", "count", "by", 1)); n > c.each {
				t.Errorf("a sum writes %d bytes", n)
			}
			if n := o.written(op("patch", "key", "doc/1", "patch", raw(`{"member0001":null,"member0998":{"a":1}}`))); n > c.each {
				t.Errorf("a patch of two members writes %d bytes", n)
			}
		})
	}
}

// TestEditsAmongOtherOps: whatever else happens to an edited value, in groups of its own or in one.
func TestEditsAmongOtherOps(t *testing.T) {
	t.Parallel()
	put := op("put", "key", "doc/1", "payload", raw("%s", document(60)))
	small := op("put", "key", "doc/1", "payload", raw(`{"member0001":"x"}`))
	remove, purge := op("remove", "key", "doc/1"), op("purge", "key", "doc/1")
	edit := func(i int) anOp { return patchMember(i, fmt.Sprint("edit ", i)) }
	shrink := op("patch", "key", "doc/1", "patch", raw(`{%s"last":1}`, func() (all string) {
		for i := range 60 {
			all += fmt.Sprintf(`"member%04d":null,`, i)
		}
		return all
	}()))
	edited := []anOp{put, edit(1), edit(2), edit(30)}
	for _, c := range []struct {
		name string
		ops  []anOp
	}{
		{"nothing", nil},
		{"put whole", []anOp{put, edit(3), edit(4)}},
		{"put small", []anOp{small, edit(3)}},
		{"removed", []anOp{remove}},
		{"removed and put", []anOp{remove, put, edit(3), edit(5)}},
		{"purged", []anOp{purge}},
		{"purged and put", []anOp{purge, put, edit(3), edit(5)}},
		{"patched to a small one", []anOp{shrink, edit(3)}},
		{"patched to a small one and put", []anOp{shrink, put, edit(3), edit(4)}},
		{"replaced by a patch that is no object", []anOp{op("patch", "key", "doc/1", "patch", raw(`[1]`)), edit(2), put, edit(3), edit(4)}},
		{"claimed", []anOp{op("claim", "key", "doc/1", "lease", lease)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, together := range []bool{false, true} {
				o := newWorld(t).create()
				for _, x := range edited {
					o.apply(x)
				}
				if together {
					o.together(append([]anOp{edit(40), edit(41)}, c.ops...)...)
				} else {
					for _, x := range c.ops {
						o.apply(x)
					}
				}
				if c.name != "claimed" {
					for _, x := range []anOp{edit(6), put, edit(7), edit(8)} {
						o.apply(x)
					}
				}
				// A batch that fails leaves the changes as they were.
				answers, _ := o.w.commit(o.batch(true, edit(9), remove, put, edit(10), op("put", "key", "doc/2", "payload", raw(`{}`), "expect", 1)))
				for _, out := range answers[0].Outcomes {
					mustEqual(t, "an op of it", out.Status, ledger.BatchAborted)
				}
				at := o.entryOf("doc/1")
				if at.Claim == nil {
					o.apply(edit(11))
				} else {
					o.apply(op("patch", "key", "doc/1", "patch", raw(`{"member0011":"x"}`), "claim", at.Claim.Cursor))
				}
			}
		})
	}
}

// TestForkOfEditedValues: a fork has the values, also as of a cursor among the edits, and its own go on.
func TestForkOfEditedValues(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	for _, x := range []anOp{op("put", "key", "doc/1", "payload", raw("%s", document(60))), patchMember(1, "a"), patchMember(2, "b"), patchMember(3, "c")} {
		o.apply(x)
	}
	for _, c := range []struct {
		args []any
		last string
	}{{nil, `"member0003":"c"`}, {[]any{"at", 4}, `"member0002":"b"`}} {
		f := o.w.newWriter()
		f.with = []string{o.ref}
		f.apply(op("fork", append([]any{"source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)}, c.args...)...))
		if value := f.payload("doc/1"); !strings.Contains(value, c.last) || len(c.args) > 0 && strings.Contains(value, `:"c"`) {
			t.Errorf("a fork of %v has %.300s", c.args, value)
		}
		for i := range 4 {
			f.apply(patchMember(i, "fork"))
		}
	}
}
