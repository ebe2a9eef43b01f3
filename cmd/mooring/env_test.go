//go:build linux

// What the environment says where no flag does, to processes of their own.

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// inEnv runs a command with these variables, of which none is inherited that Mooring
// or the place of folders goes by.
func inEnv(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), mooringProgram(), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MOORING_") || strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "HOME=")
	})
	cmd.Env = append(cmd.Env, env...)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // its code says it
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

func TestTheDatabaseOfTheEnvironment(t *testing.T) {
	t.Parallel()
	url, dir := pgtest.URL(t), t.TempDir()
	s := startSignalled(t, exec.Command("env", append([]string{"MOORING_DATABASE_URL=" + url}, serveLine(dir)...)...))
	if s.banner.Database != "postgres" {
		t.Errorf("the database is %s", s.banner.Database)
	}
	s.signal(os.Interrupt)
	if code := s.code(); code != cli.ExitOK {
		t.Errorf("it ended with %d: %s", code, s.log.String())
	}
	const nonsense = "postgres://u:p4ss@h:x/secret-name"
	rescue := []string{"admin", "rotate-owner", "--data", dir}
	for _, c := range []struct {
		env   string
		args  []string
		code  int
		words string
	}{
		{url, rescue, cli.ExitOK, "the new owner's ref is in"},                                                                                  // goes by it as well
		{url, append(rescue, "--database-url", "postgres://x@127.0.0.1:1/x"), cli.ExitRefused, "the database at 127.0.0.1:1 cannot be reached"}, // a flag goes before it
		{"", rescue, cli.ExitUsage, "it has no mooring.db"},                                                                                     // which is SQLite's
		{nonsense, []string{"serve", "--listen", "127.0.0.1:0", "--data", dir}, cli.ExitUsage, "MOORING_DATABASE_URL"},
	} {
		if got := inEnv(t, []string{"MOORING_DATABASE_URL=" + c.env}, c.args...); got.code != c.code || !strings.Contains(got.out+got.err, c.words) || strings.Contains(got.err, "p4ss") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestTheHomeAndOwnerOfTheEnvironment(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	r.create("ses_seen")
	dir := t.TempDir()
	owner := "MOORING_OWNER=" + r.owner()
	has := func(folder string) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(folder, "outbox.db")); err != nil {
			t.Errorf("no outbox: %v", err)
		}
	}
	for _, c := range []struct {
		home string
		env  []string
	}{
		{"config/mooring", []string{"XDG_CONFIG_HOME=" + dir + "/config", "HOME=" + dir + "/nobody"}},
		{"person/.config/mooring", []string{"HOME=" + dir + "/person"}},
		{"named", []string{"MOORING_HOME=" + dir + "/named", "XDG_CONFIG_HOME=" + dir + "/nowhere"}},
	} {
		got := inEnv(t, append(c.env, owner+"\n"), "session", "list")
		if got.code != cli.ExitOK || !strings.Contains(got.out, "ses_seen") {
			t.Errorf("%s: %+v", c.home, got)
		}
		has(filepath.Join(dir, c.home))
	}
	if got := inEnv(t, []string{"MOORING_HOME=" + dir + "/named", "MOORING_OWNER=mooring://nonsense"}, "session", "list"); got.code != cli.ExitUsage || !strings.Contains(got.err, "bad_ref_text") {
		t.Errorf("a misspelt owner: %+v", got)
	}
	if got := inEnv(t, []string{"MOORING_HOME=" + dir + "/fresh", "MOORING_OWNER="}, "session", "list"); got.code != cli.ExitUsage || !strings.Contains(got.err, "MOORING_OWNER") {
		t.Errorf("no owner: %+v", got)
	}
	if got := inEnv(t, []string{owner}, "session", "list"); got.code != cli.ExitUsage || !strings.Contains(got.err, "MOORING_HOME") {
		t.Errorf("no home: %+v", got)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 4 {
		t.Errorf("there are %v, %v", left, err)
	}
}

// An opencode export, from a file, is a session whose export is the same.
func TestImportOfAnExport(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	const name = "a-edit-1.18.33"
	id := strings.TrimSpace(r.ok("session", "import", opencodetest.Path(t, name+".export.json"), "--owner", r.owner()))
	out := []byte(r.ok("session", "export", id))
	opencodetest.CheckExport(t, name, out)
	events := r.tailed(id)
	if again := strings.TrimSpace(r.ok("session", "import", r.file("again.json", string(out)))); again != id || r.tailed(id) != events {
		t.Errorf("its own export imported is %s with %d events, not %s with %d", again, r.tailed(id), id, events)
	}
}
