//go:build linux

// Files that refs are written to: whole, for their owner alone, and never in the
// place of something else.

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// names are what is in the rig's folder, hidden files too.
func (r *cliRig) names() (names []string) {
	r.t.Helper()
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// onAFullDisk gives a folder with room for names alone, where this user may mount one.
func onAFullDisk(t *testing.T, test func(dir string)) {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4096"); err != nil {
		t.Logf("no full disk is tried: %v", err)
		return
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}()
	test(dir)
}

func TestShareToAFile(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_s")
	reader := r.shareTo("reader", id, "--rights", "read")
	if info, err := os.Stat(reader[1:]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the ref's file: %v, %v", info.Mode(), err)
	}
	r.okAs(r.otherHome("helper"), "", "redeem", reader)

	// What is refused, or cannot be written, leaves no file and no ref.
	if err := os.Symlink(r.file("older.ref", "an older ref\n"), filepath.Join(r.dir, "link.ref")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(r.dir, "nowhere"), filepath.Join(r.dir, "dangling.ref")); err != nil {
		t.Fatal(err)
	}
	ops, before := r.statusOf(r.home()).States["acked"], r.names()
	for name, c := range map[string]struct {
		code  int
		words string
	}{
		"older.ref": {cli.ExitRefused, "exists already"}, "link.ref": {cli.ExitRefused, "exists already"}, "dangling.ref": {cli.ExitRefused, "exists already"},
		"home": {cli.ExitUsage, "is a folder"}, "no/such/helper.ref": {cli.ExitUsage, "write the ref"},
	} {
		r.fails(c.code, c.words, "share", id, "--rights", "read", "--to", filepath.Join(r.dir, name))
	}
	r.fails(cli.ExitRefused, "exists already", "share", r.owner(), "--rights", "list", "--to", r.owner()[1:])
	fresh := filepath.Join(r.dir, "fresh.ref")
	r.fails(cli.ExitRefused, "no ref for", "share", "ses_none", "--rights", "read", "--to", fresh)
	onAFullDisk(t, func(dir string) {
		r.fails(cli.ExitRefused, "no space left", "share", id, "--rights", "read", "--to", filepath.Join(dir, "helper.ref"))
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left on the full disk: %v, %v", left, err)
		}
	})
	if st := r.statusOf(r.home()); st.States["acked"] != ops || st.States["pending"] != 0 {
		t.Errorf("outbox: %+v, %d ops before", st, ops)
	}
	r.refusedAs(r.otherHome("helper"), "", []string{"the share was refused", "missing_right"}, "share", reader, "--rights", "read", "--to", fresh)
	r.fails(cli.ExitRefused, "bad_argument", "share", r.owner(), "--rights", "read", "--to", fresh)
	r.refusedAs(r.otherHome("helper"), "", []string{"not_an_owner"}, "rotate", reader, "--to", fresh)
	r.refusedAs(r.otherHome("helper"), "", []string{"not_an_owner"}, "rotate", reader, "--to", filepath.Join(r.dir, "older.ref"))
	if after := r.names(); !slices.Equal(after, before) || string(readFile(t, filepath.Join(r.dir, "older.ref"))) != "an older ref\n" {
		t.Errorf("the folder had %q and has %q", before, after)
	}

	// What is no regular file is written to as it is.
	fifo := filepath.Join(r.dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	piped := make(chan string)
	go func() {
		text, _ := os.ReadFile(fifo)
		piped <- string(text)
	}()
	if id, text := strings.TrimSpace(r.ok("share", id, "--rights", "read", "--to", fifo)), <-piped; !strings.Contains(text, "/"+id+"#") {
		t.Errorf("the pipe gives %d bytes without %s", len(text), id)
	}
	r.fails(cli.ExitRefused, "was made, and could not be written", "share", id, "--rights", "read", "--to", "/dev/full")

	// Without a server the share is durable, and so is its file.
	r.stop()
	got := r.runIn("", "share", id, "--rights", "read", "--to", fresh)
	if got.code != cli.ExitOK || !strings.Contains(got.err, "durable in the outbox") || !strings.HasPrefix(string(readFile(t, fresh)), "mooring://") {
		t.Errorf("offline: %+v", got)
	}
	r.start()
	r.ok("outbox", "drain")
	r.okAs(r.otherHome("late"), "", "redeem", "@"+fresh)

	// A rotation may take its file's place, however that was kept.
	if err := os.Chmod(r.owner()[1:], 0o644); err != nil {
		t.Fatal(err)
	}
	owner := filepath.Join(r.dir, "linked-owner.ref")
	if err := os.Symlink(r.owner()[1:], owner); err != nil {
		t.Fatal(err)
	}
	was := mustRef(t, r.owner())
	r.ok("rotate", r.owner(), "--to", owner)
	info, err := os.Lstat(r.owner()[1:])
	if now := mustRef(t, r.owner()); err != nil || info.Mode() != 0o600 || now.ID == was.ID {
		t.Errorf("the file behind the link: %v, %v", info.Mode(), err)
	}
}
