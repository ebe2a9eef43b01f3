package measure

import (
	"bytes"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	if m := Median([]float64{3, 1, 2}); m != 2 {
		t.Errorf("of three: %v", m)
	}
	if m := Median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Errorf("of four: %v", m)
	}
}

func TestProgressOffATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out)
	p.Printf("round %d", 1)
	p.Printf("round %d", 2)
	p.End()
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[0], " s  round 1") || !strings.HasSuffix(lines[1], " s  round 2") || lines[2] != "" {
		t.Errorf("%q", out.String())
	}
}
