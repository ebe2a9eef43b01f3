package digest

import (
	"encoding/hex"
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
