//go:build unix

// Tests of finding and installing PostgreSQL, on made-up machines.

package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program writes a shell script as an executable file.
func program(t *testing.T, path, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// postgresIn makes dir look like a PostgreSQL of a version.
func postgresIn(t *testing.T, dir, version string) string {
	t.Helper()
	program(t, filepath.Join(dir, "postgres"), "echo 'postgres (PostgreSQL) "+version+"'")
	program(t, filepath.Join(dir, "initdb"), "exit 1")
	return dir
}

func TestFind(t *testing.T) {
	t.Parallel()
	t.Run("PATH comes first, through links", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		want := postgresIn(t, filepath.Join(root, "lib/14/bin"), "14.3")
		postgresIn(t, filepath.Join(root, "lib/17/bin"), "17.1")
		if err := os.Mkdir(filepath.Join(root, "links"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(want, "initdb"), filepath.Join(root, "links/initdb")); err != nil {
			t.Fatal(err)
		}
		m := machine{path: filepath.Join(root, "links"), globs: []string{root + "/lib/*/bin"}}
		checkFind(t, m, want)
	})
	t.Run("then pg_config", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		want := postgresIn(t, filepath.Join(root, "pg/bin"), "16.0")
		program(t, filepath.Join(root, "path/pg_config"), "[ $1 = --bindir ] && echo "+want)
		checkFind(t, machine{path: filepath.Join(root, "path")}, want)
	})
	t.Run("a pg_config without a server is passed over", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		want := postgresIn(t, filepath.Join(root, "lib/16/bin"), "16.0")
		program(t, filepath.Join(root, "path/pg_config"), "echo /nowhere")
		checkFind(t, machine{path: filepath.Join(root, "path"), globs: []string{root + "/lib/*/bin"}}, want)
	})
	t.Run("then the newest one in the usual folders", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		postgresIn(t, filepath.Join(root, "a/bin"), "9.6.1")
		want := postgresIn(t, filepath.Join(root, "b/bin"), "17beta1")
		postgresIn(t, filepath.Join(root, "c/bin"), "15.1")
		checkFind(t, machine{globs: []string{root + "/c*/bin", root + "/*/bin"}}, want)
	})
	t.Run("nothing that is too old", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		dir := postgresIn(t, root, "12.9")
		if got, err := (machine{path: dir}).find(t.Context()); !errors.Is(err, errNotFound) {
			t.Errorf("found %q, %v", got, err)
		}
	})
}

func checkFind(t *testing.T, m machine, want string) {
	t.Helper()
	want, err := filepath.EvalSymlinks(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err = filepath.EvalSymlinks(got); err != nil || got != want {
		t.Errorf("found %s, %v; want %s", got, err, want)
	}
}

// packageManager makes an apt-get that logs how it was called and, on install,
// puts a PostgreSQL into the machine.
func packageManager(t *testing.T, root string) (m machine, log string) {
	t.Helper()
	log = filepath.Join(root, "log")
	spare := postgresIn(t, filepath.Join(root, "spare"), "15.0")
	program(t, filepath.Join(root, "path/apt-get"), `echo "apt-get $*" >> `+log+`
case $1 in install) /bin/mkdir -p `+root+`/lib/15 && /bin/cp -r `+spare+` `+root+`/lib/15/bin ;; esac`)
	return machine{path: filepath.Join(root, "path"), globs: []string{root + "/lib/*/bin"}}, log
}

func TestInstall(t *testing.T) {
	t.Parallel()
	t.Run("as root", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		m, log := packageManager(t, root)
		dir, err := m.findOrInstall(t.Context(), true)
		if err != nil || dir != filepath.Join(root, "lib/15/bin") {
			t.Fatalf("found %q, %v", dir, err)
		}
		checkLog(t, log, "apt-get update\napt-get install -y --no-install-recommends postgresql\n")
		// A second time there is nothing to install.
		if _, err := m.findOrInstall(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		checkLog(t, log, "apt-get update\napt-get install -y --no-install-recommends postgresql\n")
	})
	t.Run("through sudo that asks nothing", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		m, log := packageManager(t, root)
		program(t, filepath.Join(root, "path/sudo"), `[ "$1" = -n ] || exit 1; shift; echo "sudo" >> `+log+`; exec "$@"`)
		program(t, filepath.Join(root, "path/env"), `exec /usr/bin/env "$@"`)
		if _, err := m.findOrInstall(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		checkLog(t, log, "sudo\nsudo\napt-get update\nsudo\napt-get install -y --no-install-recommends postgresql\n")
	})
	t.Run("without leave it says what to run", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		m, log := packageManager(t, root)
		program(t, filepath.Join(root, "path/sudo"), "exit 1")
		_, err := m.findOrInstall(t.Context(), false)
		if !errors.Is(err, errNotFound) || !strings.Contains(err.Error(), "sudo apt-get install -y --no-install-recommends postgresql") {
			t.Errorf("error: %v", err)
		}
		if _, err := os.Stat(log); !os.IsNotExist(err) {
			t.Error("the package manager was run without leave")
		}
	})
	t.Run("without a package manager it says what is missing", func(t *testing.T) {
		t.Parallel()
		_, err := machine{path: t.TempDir()}.findOrInstall(t.Context(), true)
		if !errors.Is(err, errNotFound) || !strings.Contains(err.Error(), "install PostgreSQL 13 or newer") ||
			!strings.Contains(err.Error(), EnvURL) {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("a failed install shows why", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		program(t, filepath.Join(root, "apk"), "echo 'no such package'; exit 3")
		_, err := machine{path: root}.findOrInstall(t.Context(), true)
		if err == nil || !strings.Contains(err.Error(), "no such package") {
			t.Errorf("error: %v", err)
		}
	})
}

func checkLog(t *testing.T, log, want string) {
	t.Helper()
	got, err := os.ReadFile(log)
	if err != nil || string(got) != want {
		t.Errorf("calls:\n%s%v; want:\n%s", got, err, want)
	}
}
