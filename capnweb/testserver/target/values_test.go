// Every value is what its text says.

package target

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestValues(t *testing.T) {
	seen := make(map[string]bool)
	for _, v := range Values() {
		if seen[v.Name] {
			t.Errorf("two values are called %q", v.Name)
		}
		seen[v.Name] = true
		if got := Describe(v.Make()); got != v.Text {
			t.Errorf("%s: %s, want %s", v.Name, got, v.Text)
		}
		if _, err := Make(v.Name); err != nil {
			t.Error(err)
		}
	}
	if _, err := Make("no such value"); err == nil {
		t.Error("a value without a name was made")
	}
}
