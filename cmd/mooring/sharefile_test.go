//go:build unix

package main

import (
	"os"
	"strings"
	"testing"
)

// TestNoTemporaryRefFileIsLeft: commands that end before they have shared leave nothing of --share-to behind.
func TestNoTemporaryRefFileIsLeft(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, line := range []string{
		"run --session ses_none --share-to FILE -- true",
		"run --session ses_none --owner none --share-to FILE -- true",
		"run --owner none --share-to FILE -- true",
		"acp --session ses_none --share-to FILE -- true",
		"acp --share-to FILE -- true",
		"attach opencode --url http://127.0.0.1:1 --share-to FILE",
	} {
		args := strings.Fields(strings.ReplaceAll(line, "FILE", folder+"/phone.ref"))
		if code, out, said := command(t, append([]string{args[0], "--home", t.TempDir()}, args[1:]...)...); code == 0 && args[0] != "acp" {
			t.Errorf("%s: %s%s", line, out, said)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s leaves %v, %v", line, left, err)
		}
	}
}
