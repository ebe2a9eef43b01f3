//go:build unix

// Installing PostgreSQL through the system's package manager, where it may.

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// installTimeout bounds one run of a package manager.
const installTimeout = 10 * time.Minute

// manager is a package manager and how it installs the server programs.
type manager struct {
	program string
	steps   [][]string
	own     bool // for the user's own account: never as root, needs no sudo
}

var managers = []manager{
	{program: "apt-get", steps: [][]string{
		{"update"}, {"install", "-y", "--no-install-recommends", "postgresql"}}},
	{program: "dnf", steps: [][]string{{"install", "-y", "postgresql-server"}}},
	{program: "yum", steps: [][]string{{"install", "-y", "postgresql-server"}}},
	{program: "zypper", steps: [][]string{{"--non-interactive", "install", "postgresql-server"}}},
	{program: "apk", steps: [][]string{{"add", "--no-cache", "postgresql"}}},
	{program: "pacman", steps: [][]string{{"-Sy", "--noconfirm", "postgresql"}}},
	{program: "brew", steps: [][]string{{"install", "postgresql@17"}}, own: true},
}

// findOrInstall finds PostgreSQL's programs and installs them if need be. What
// it runs it says on standard error.
func (m machine) findOrInstall(ctx context.Context, root bool) (string, error) {
	dir, err := m.find(ctx)
	if !errors.Is(err, errNotFound) {
		return dir, err
	}
	if err := m.install(ctx, root); err != nil {
		return "", fmt.Errorf("%w; %w", errNotFound, err)
	}
	return m.find(ctx)
}

// install runs the first package manager there is; its errors tell a person
// what to do by hand.
func (m machine) install(ctx context.Context, root bool) error {
	byHand := fmt.Errorf("install PostgreSQL %d or newer (its server programs), or set %s to a server's URL", minVersion, EnvURL)
	for _, mgr := range managers {
		program := m.look(mgr.program)
		if program == "" {
			continue
		}
		var prefix []string
		switch {
		case mgr.own && root:
			continue
		case !mgr.own && !root:
			sudo := m.look("sudo")
			if sudo == "" || exec.CommandContext(ctx, sudo, "-n", "true").Run() != nil {
				return fmt.Errorf("run: sudo %s %s (or set %s to a server's URL)",
					mgr.program, strings.Join(mgr.steps[len(mgr.steps)-1], " "), EnvURL)
			}
			prefix = []string{sudo, "-n", "env", "DEBIAN_FRONTEND=noninteractive"}
		}
		for _, step := range mgr.steps {
			if err := runManager(ctx, append(append(prefix, program), step...)); err != nil {
				return fmt.Errorf("%w; %w", err, byHand)
			}
		}
		return nil
	}
	return byHand
}

func runManager(ctx context.Context, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	fmt.Fprintln(os.Stderr, "pgtest: PostgreSQL is missing, running:", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, tail(out))
	}
	return nil
}

// tail returns the last part of a program's output, enough to see why it failed.
func tail(out []byte) string {
	const most = 2000
	text := strings.TrimSpace(string(out))
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return text
}
