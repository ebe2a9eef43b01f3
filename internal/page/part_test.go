package page

import (
	"strings"
	"testing"
)

func TestImages(t *testing.T) {
	t.Parallel()
	png := "data:image/png;base64,iVBORw0KGgo="
	for in, want := range map[string]string{png: png, "data:image/png;base64,": "", "data:image/png;base64,!": "", "data:image/svg+xml;base64,AAAA": "", "https://x/y.png": "", "data:image/png;base64," + strings.Repeat("A", imageBytes+4): ""} {
		if got, _ := image(in); got != want {
			t.Errorf("image(%.40s) is %.40q", in, got)
		}
	}
}

func TestUnmarked(t *testing.T) {
	t.Parallel()
	if got := unmarked("# **Fix** `x`\n> y"); got != "Fix x\ny" {
		t.Errorf("%q", got)
	}
}
