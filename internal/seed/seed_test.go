package seed

import "testing"

func TestOf(t *testing.T) {
	t.Setenv(EnvVar, "7")
	if got := Of(t); got != 7 {
		t.Errorf("the seed is %d", got)
	}
	for _, none := range []string{"", "0"} {
		t.Setenv(EnvVar, none)
		if a, b := Of(t), Of(t); a == b {
			t.Errorf("with %q two seeds are %d", none, a)
		}
	}
}

func TestPicks(t *testing.T) {
	const n = 3
	seen := map[int]bool{}
	for range 100 {
		t.Run("test", func(t *testing.T) { // each has another name
			var picked []int
			for i := range n {
				if Picks(t, i, n) {
					picked = append(picked, i)
					seen[i] = true
				}
			}
			if want := map[bool]int{true: 1, false: n}[Raced]; len(picked) != want {
				t.Errorf("of %d it picks %v", n, picked)
			}
		})
	}
	if len(seen) != n {
		t.Errorf("all tests pick %v", seen)
	}
}

func TestCases(t *testing.T) {
	for n, want := range map[int]int{1: 1, 5: 1, 100: 10} {
		if !Raced {
			want = n
		}
		if got := Cases(n); got != want {
			t.Errorf("of %d cases it tries %d, want %d", n, got, want)
		}
	}
}

func TestShare(t *testing.T) {
	for share, want := range map[string]int{"": 300, "1": 300, "3": 100, "1000": 1} {
		t.Setenv("SHARE", share)
		if got := Share(t, 300); got != want {
			t.Errorf("with SHARE=%q %d of 300 are done, not %d", share, got, want)
		}
	}
}
