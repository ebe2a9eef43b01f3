// Package seed has random tests do the same each time where that is wanted: what only one seed in thousands shows is looked
// for on purpose, and does not stop somebody else's change.
package seed

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// EnvVar is the environment's: a number, which make test sets to 1. 0 is none.
const EnvVar = "SEED"

// Of gives the seed in SEED, or a new one if there is none, and logs it at once, whatever becomes of the test.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(0)
	if text := os.Getenv(EnvVar); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s is to be a number: %v", EnvVar, err)
		}
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%s=%d", EnvVar, seed)
	return seed
}

// Share is how many of n repetitions a slow test does: one in $SHARE of them, and one at least; all of them where that is not set.
func Share(t testing.TB, n int) int {
	t.Helper()
	text := os.Getenv("SHARE")
	if text == "" {
		return n
	}
	share, err := strconv.Atoi(text)
	if err != nil || share < 1 {
		t.Fatalf("SHARE is to be a number from 1 on, and is %q", text)
	}
	return max(n/share, 1)
}

// Cases is how many of n random cases to try, unless one is asked for: a tenth of them, and one at least, where the race
// detector watches, for what it alone finds. make test-slow tries all of them without it.
func Cases(n int) int {
	if Raced {
		return max(n/10, 1)
	}
	return n
}

// Picks says whether a test tries case i of n that differ in what it runs on, such as a recording, and not in what it shows: all
// of them, or one, which its name decides, where the race detector watches. So some tests race each. make test-slow tries all.
func Picks(t testing.TB, i, n int) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	return !Raced || int(h.Sum32()%uint32(n)) == i
}
