package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
)

// The hash of this stays what it was when the first one was stored.
func TestSumStaysWhatItWas(t *testing.T) {
	t.Parallel()
	w := New("mooring event v1")
	w.Sum32([32]byte{1, 2, 3})
	w.Text("ses_x")
	w.Num(1 << 40)
	w.Text("")
	sum := w.Sum()
	const want = "ec3421e23ea4ed424226766f6bd9fcedde1b86be64318f3192a4e0cb48f59946"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("it is %s, it was %s", got, want)
	}
}

// What does not fit into a writer's room is hashed as what does.
func TestSumOfMuch(t *testing.T) {
	t.Parallel()
	w, h := New("x"), sha256.New()
	add := func(b []byte) { h.Write(b) }
	num := func(v int) { add(binary.BigEndian.AppendUint64(nil, uint64(v))) }
	num(1)
	add([]byte("x"))
	for i, n := range []int{0, 1, 495, 496, 503, 504, 505, 511, 512, 513, 5000, 40, 400, 40, 24, 480} {
		s := strings.Repeat("y", n)
		w.Text(s)
		num(n)
		add([]byte(s))
		w.Num(uint64(i))
		num(i)
		sum := [32]byte{byte(i)}
		w.Sum32(sum)
		add(sum[:])
		if got := w.Sum(); got != [32]byte(h.Sum(nil)) {
			t.Fatalf("after a text of %d bytes it is %x", n, got)
		}
	}
}
