//go:build unix

// Command pgtest runs a command with MOORING_TEST_DATABASE_URL set to a Postgres
// that tests may use, so that one server serves a whole "go test ./...":
//
//	go run ./internal/pgtest/cmd/pgtest -- go test ./...
//
// If the variable is set already the command is simply run. The exit code is the
// command's own, or 125 if there is no Postgres or the command cannot be started.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

const couldNotRun = 125

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: pgtest [--] COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
	}
	os.Exit(code)
}

// run runs the command to its end. SIGTERM is handed on to it; SIGINT reaches it
// by itself, being sent to the whole foreground group.
func run(args []string) (int, error) {
	url, err := pgtest.ServerURL(context.Background())
	if err != nil {
		return couldNotRun, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), pgtest.EnvURL+"="+url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return couldNotRun, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				cmd.Process.Signal(s)
			}
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.Exited() {
				return exit.ExitCode(), nil
			}
			if err != nil {
				return couldNotRun, err
			}
			return 0, nil
		}
	}
}
