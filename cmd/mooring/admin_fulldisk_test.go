//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackupOnAFullDisk: without room for a copy the error names the copy, and no file is left.
func TestBackupOnAFullDisk(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	r.importSmall()
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -S -f 64 && exec "$0" "$@"`,
		mooringProgram(), "admin", "backup", "--fast", "--data", r.data(), filepath.Join(folder, "copy.db"))
	said, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "disk_full: no space left for "+filepath.Join(folder, "copy.db")) || strings.Contains(string(said), "data folder") {
		t.Errorf("a copy on a full disk: %v, %s", err, said)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
