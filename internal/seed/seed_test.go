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
