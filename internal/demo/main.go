// Command demo shows Mooring's main job on a real recording, well under a minute,
// with Go alone: it builds the binary, serves on embedded SQLite, shares a session
// over a link that is cut and loses answers, from a server that is killed, takes
// the share back, and holds what arrived against what was expected.
//
// Every step runs the binary as a user would; what is printed is what it said.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
			fmt.Fprintln(os.Stderr, "demo: stopped")
		} else {
			fmt.Fprintln(os.Stderr, "demo: FAILED:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "mooring-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	p := &page{out: os.Stdout}
	p.title("Mooring: a real agent session, shared over a link that breaks")
	p.say("Recording: testdata/opencode/f-streamlong-1.1.65.jsonl, 15 share syncs of opencode 1.1.65, 713 items.")

	p.step("Build")
	w := &world{dir: dir, page: p, bin: filepath.Join(dir, "mooring")}
	defer w.close()
	if err := w.build(ctx); err != nil {
		return err
	}
	return story(ctx, w)
}
