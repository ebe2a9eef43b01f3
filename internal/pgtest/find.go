//go:build unix

// The folders in which a machine keeps its PostgreSQL server programs.

package pgtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// minVersion is the first PostgreSQL release that will do: DROP DATABASE WITH
// (FORCE) came with it.
const minVersion = 13

// errNotFound says that no usable PostgreSQL server programs were found.
var errNotFound = errors.New("no PostgreSQL server programs (initdb, postgres) found")

// machine is where to look for programs; tests give one of their own.
type machine struct {
	path  string   // as in the PATH variable
	globs []string // folders that may hold initdb and postgres; the newest wins
}

// thisMachine looks where the packagers of the common systems put PostgreSQL.
func thisMachine() machine {
	return machine{
		path: os.Getenv("PATH"),
		globs: []string{
			"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
			"/usr/pgsql-*/bin",                                   // PostgreSQL's own RPMs
			"/usr/lib/postgresql*/bin",                           // SUSE
			"/usr/libexec/postgresql*",                           // Alpine
			"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew on Apple silicon
			"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
			"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
			"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
			"/opt/local/lib/postgresql*/bin",                     // MacPorts
			"/usr/local/pgsql/bin",                               // built from source
			"/usr/local/bin",                                     // the BSDs' ports
			"/usr/bin",
		},
	}
}

// find returns the folder that holds initdb and postgres: the one on PATH, else
// the one pg_config tells, else the newest in the usual places.
func (m machine) find(ctx context.Context) (string, error) {
	for _, dir := range filepath.SplitList(m.path) {
		// A link on PATH leads to the folder that has the other programs too.
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb")); err == nil {
			if dir := filepath.Dir(real); usable(ctx, dir) {
				return dir, nil
			}
		}
	}
	if config := m.look("pg_config"); config != "" {
		out, err := exec.CommandContext(ctx, config, "--bindir").Output()
		if dir := strings.TrimSpace(string(out)); err == nil && usable(ctx, dir) {
			return dir, nil
		}
	}
	newest, best := 0, ""
	for _, glob := range m.globs {
		dirs, err := filepath.Glob(glob)
		if err != nil {
			return "", err
		}
		for _, dir := range dirs {
			if r := release(ctx, dir); r > newest {
				newest, best = r, dir
			}
		}
	}
	if newest < minVersion {
		return "", errNotFound
	}
	return best, nil
}

// look returns the program's path, or "" if PATH does not have it.
func (m machine) look(program string) string {
	for _, dir := range filepath.SplitList(m.path) {
		if file := filepath.Join(dir, program); dir != "" && executable(file) {
			return file
		}
	}
	return ""
}

// usable reports whether dir holds a PostgreSQL that is new enough.
func usable(ctx context.Context, dir string) bool { return release(ctx, dir) >= minVersion }

var firstNumber = regexp.MustCompile(`\d+`)

// release returns the major version of the PostgreSQL in dir, or 0 if there is
// none with both programs.
func release(ctx context.Context, dir string) int {
	postgres := filepath.Join(dir, "postgres")
	if !filepath.IsAbs(dir) || !executable(postgres) || !executable(filepath.Join(dir, "initdb")) {
		return 0
	}
	out, err := exec.CommandContext(ctx, postgres, "--version").Output()
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(firstNumber.FindString(string(out)))
	if err != nil {
		return 0
	}
	return n
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
