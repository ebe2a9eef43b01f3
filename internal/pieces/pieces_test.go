package pieces

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
)

// edit is a random change of a text of n bytes: some of it is kept, in order, and new text comes between.
func edit(r *rand.Rand, n int) (l List) {
	for at := 0; at < n; {
		at += r.IntN(n - at + 1)
		to := at + r.IntN(n-at+1)
		l = l.Keep(at, to)
		at = to
		text := make([]byte, r.IntN(4))
		for i := range text {
			text[i] = byte('A' + r.IntN(26))
		}
		l = l.New(text)
		if r.IntN(4) == 0 {
			break
		}
	}
	return l
}

func mustMake(t *testing.T, l List, base []byte) []byte {
	t.Helper()
	text, err := l.Of(base)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Changes one after the other, each of the text before, come to what their lists on the first text do.
func TestChangesOfChanges(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 2_000 {
		base := make([]byte, r.IntN(60))
		for i := range base {
			base[i] = byte('a' + i%26)
		}
		text, all := base, Whole(len(base))
		for range 1 + r.IntN(6) {
			change := edit(r, len(text))
			text, all = mustMake(t, change, text), change.On(all)
			stored, err := Unmarshal(all.Marshal())
			if err != nil {
				t.Fatal(err)
			}
			if got := mustMake(t, stored, base); !bytes.Equal(got, text) {
				t.Fatalf("%q: %q, want %q (%v)", base, got, text, all)
			}
			for i := 1; i < len(all); i++ {
				if a, b := all[i-1], all[i]; a.Text != nil && b.Text != nil || a.Text == nil && b.Text == nil && a.To == b.From {
					t.Fatalf("pieces %d and %d of %v are one", i-1, i, all)
				}
			}
		}
	}
}

// Lists share the memory of those they were made from, and do not write to it.
func TestOlderListsStay(t *testing.T) {
	t.Parallel()
	base := []byte("abcdef")
	first := List{}.Keep(0, 2).New([]byte("XY")).Keep(4, 6) // abXYef
	want := first.Marshal()
	List{}.Keep(0, 3).New([]byte("1")).Keep(3, 6).On(first)
	second := List{}.Keep(0, 4).New([]byte("2")).Keep(4, 6).On(first)
	if got := mustMake(t, second, base); string(got) != "abXY2ef" {
		t.Errorf("%q", got)
	}
	if !bytes.Equal(first.Marshal(), want) {
		t.Errorf("the first list is %v now", first)
	}
}

func TestBadBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		b    []byte
	}{
		{"a text that ends early", []byte{5<<1 | 1, 'a'}},
		{"no place", []byte{5 << 1}},
		{"a number that never ends", bytes.Repeat([]byte{0xff}, 12)},
		{"a huge length", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0}},
		{"a huge place", []byte{2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}},
	} {
		if l, err := Unmarshal(c.b); err == nil {
			t.Errorf("%s: %v", c.name, l)
		}
	}
	beyond, err := Unmarshal([]byte{4 << 1, 3})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := beyond.Of([]byte("abcdef")); err == nil {
		t.Errorf("4 bytes from byte 3 of 6: %q", text)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(List{}.Keep(0, 2).New([]byte("XY")).Keep(4, 6).Marshal(), []byte("abcdef"))
	f.Fuzz(func(t *testing.T, b, base []byte) {
		l, err := Unmarshal(b)
		if err != nil {
			return
		}
		text, err := l.Of(base)
		if again, bad := Unmarshal(l.Marshal()); bad != nil {
			t.Fatalf("%v: %v", l, bad)
		} else if got, bad := again.Of(base); !bytes.Equal(got, text) || (bad == nil) != (err == nil) {
			t.Fatalf("%v: %q, %v, stored %q, %v", l, text, err, got, bad)
		}
	})
}
