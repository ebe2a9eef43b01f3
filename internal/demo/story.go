// The demo's steps, in order.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/internal/faultproxy"
)

const (
	recording = "testdata/opencode/f-streamlong-1.1.65.jsonl"
	expected  = "testdata/opencode/f-streamlong-1.1.65.export.json"
)

// story is the demo, step by step.
func story(ctx context.Context, w *world) error {
	p := w.page

	p.step("Serve on embedded SQLite; the link to the server goes through a proxy that can break it")
	if err := w.serve(ctx); err != nil {
		return err
	}

	p.step("The agent starts to share its session: the first 3 syncs of the recording")
	said, err := w.imports(ctx, 3)
	if err != nil {
		return err
	}
	session := lastWord(said, "ses_")
	if session == "" {
		return fmt.Errorf("import named no session: %q", said)
	}

	p.step("It shares the session read-only; the ref goes to a second agent, on another home folder")
	ref, err := w.agent(ctx, "share", session, "--rights", "read", "--label", "reviewer", "--expires", "24h")
	if err != nil {
		return err
	}
	refFile := filepath.Join(w.dir, "reviewer.ref")
	if err := os.WriteFile(refFile, []byte(strings.TrimSpace(ref)+"\n"), 0o600); err != nil {
		return err
	}
	if _, err := w.viewer(ctx, "redeem", "@"+refFile); err != nil {
		return err
	}
	tail, err := w.follow(ctx, "@"+refFile)
	if err != nil {
		return err
	}

	watch := &observer{w: w, ref: strings.TrimSpace(ref)}
	p.step("The agent goes on, 4 syncs more, while the link is cut in the middle of what it sends")
	cuts, err := w.whileImporting(ctx, 7, func(ctx context.Context) (cuts int) {
		for bytes := int64(2_000); bytes < 30_000; bytes += 9_000 {
			select {
			case <-w.proxy.CutAfter(faultproxy.ToServer, bytes):
				cuts++
			case <-ctx.Done():
				return cuts
			}
		}
		return cuts
	})
	if err != nil {
		return err
	}
	if cuts < 3 {
		return fmt.Errorf("the link was cut %d times only", cuts)
	}
	p.say("The link was cut %d times. What had not arrived whole was sent again.", cuts)

	p.step("4 syncs more: the server commits them, its answers are swallowed on their way, and then the link is cut")
	var lost []lostAnswer
	var unseen error
	_, err = w.whileImporting(ctx, 11, func(ctx context.Context) int {
		lost, unseen = watch.dropAnswers(ctx)
		return 1
	})
	if err = errors.Join(err, unseen); err != nil {
		return err
	}
	if err := watch.repeated(ctx, lost); err != nil {
		return err
	}
	p.say("When the link was cut, the server had %d ops in its log that were unanswered in the agent's outbox.", len(lost))
	p.say("So they were sent again. The server knew them as duplicates and answered as it had the first time:")
	p.say("op %s at cursor %d, op %s at cursor %d, and so on. Each is in the log once.", lost[0].op, lost[0].cursor, lost[len(lost)-1].op, lost[len(lost)-1].cursor)

	p.step("The rest of the recording: the server is killed with SIGKILL in the middle, and started again")
	kills, err := w.whileImporting(ctx, 15, func(ctx context.Context) (kills int) {
		select {
		case <-w.proxy.CutAfter(faultproxy.ToServer, 60_000):
			if unseen = w.restart(ctx); unseen == nil {
				return 1
			}
		case <-ctx.Done():
		}
		return 0
	})
	if err = errors.Join(err, unseen); err != nil {
		return err
	}
	if kills != 1 {
		return errors.New("the import was over before the server was killed")
	}
	broken := cuts + 2

	p.step("Importing the same file once more changes nothing")
	before, err := w.cursor(ctx, session)
	if err != nil {
		return err
	}
	if _, err := w.imports(ctx, 15); err != nil {
		return err
	}
	after, err := w.cursor(ctx, session)
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("a second import moved the cursor from %d to %d", before, after)
	}
	p.say("Cursor %d before, %d after.", before, after)

	p.step("The second agent saw every event once and in order, live")
	if err := tail.reached(ctx, after); err != nil {
		return err
	}
	if err := tail.gapless(after); err != nil {
		return err
	}
	p.quote(tail.shown())
	p.say("Its tail shows cursors 1 to %d: no gap, no repeat, over %d broken links.", after, broken)

	p.step("The owner takes the share back")
	cut, err := w.agent(ctx, "revoke", "@"+refFile)
	if err != nil {
		return err
	}
	why, err := tail.ended(ctx)
	if err != nil {
		return err
	}
	p.say("The live tail ended by itself, with exit code 1:")
	p.quote(why)
	if refusal, err := w.viewerRefused(ctx, "redeem", "@"+refFile); err != nil {
		return err
	} else if !strings.Contains(refusal, "revoked") {
		return fmt.Errorf("the refusal does not say revoked: %q (cut %q)", refusal, cut)
	}

	p.step("What arrived, held against what opencode itself exported")
	return compare(ctx, w, session)
}

// imports shares the first n syncs of the recording.
func (w *world) imports(ctx context.Context, n int) (said string, err error) {
	head, err := firstLines(recording, 1+n, filepath.Join(w.dir, filepath.Base(recording)))
	if err != nil {
		return "", err
	}
	return w.agent(ctx, "session", "import", head, "--owner", "@"+w.ownerRef())
}

// whileImporting is imports, and what is left in the outbox is sent too, while
// something is broken. That gives how often it was; its context ends with the import.
func (w *world) whileImporting(ctx context.Context, n int, breaks func(context.Context) int) (times int, err error) {
	importing, over := context.WithCancel(ctx)
	broken := make(chan int, 1)
	go func() { broken <- breaks(importing) }()
	_, err = w.imports(ctx, n)
	var left map[string]bool
	if err == nil {
		left, err = w.unanswered(ctx)
	}
	if err == nil && len(left) > 0 {
		_, err = w.agent(ctx, "outbox", "drain")
	}
	over()
	times = <-broken
	w.proxy.Cut() // ends a fault that did not come to anything
	return times, err
}

// compare exports the session and holds it against the expectation, value for value.
func compare(ctx context.Context, w *world, session string) error {
	got, err := w.quiet(ctx, w.agentHome(), "session", "export", session)
	if err != nil {
		return err
	}
	want, err := os.ReadFile(expected)
	if err != nil {
		return err
	}
	var g, x any
	if err := decode([]byte(got), &g); err != nil {
		return fmt.Errorf("the export is not JSON: %w", err)
	}
	if err := decode(want, &x); err != nil {
		return err
	}
	if !reflect.DeepEqual(g, x) {
		return fmt.Errorf("the export differs from %s", expected)
	}
	w.page.say("Equal, value for value: %d messages, %d bytes of JSON, exactly once, in order.", len(x.(map[string]any)["messages"].([]any)), len(want))
	w.page.end()
	return nil
}

func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(v)
}

// cursor asks the server where the session is.
func (w *world) cursor(ctx context.Context, session string) (uint64, error) {
	said, err := w.quiet(ctx, w.agentHome(), "session", "show", session, "--json")
	if err != nil {
		return 0, err
	}
	var shown struct {
		Cursor json.Number `json:"cursor"`
	}
	if err := json.Unmarshal([]byte(said), &shown); err != nil {
		return 0, fmt.Errorf("session show --json: %w", err)
	}
	return strconv.ParseUint(shown.Cursor.String(), 10, 64)
}

// firstLines copies a file's first n lines.
func firstLines(from string, n int, to string) (string, error) {
	all, err := os.ReadFile(from)
	if err != nil {
		return "", fmt.Errorf("run the demo from the top of the checkout: %w", err)
	}
	lines := bytes.SplitAfterN(all, []byte("\n"), n+1)
	return to, os.WriteFile(to, bytes.Join(lines[:min(n, len(lines))], nil), 0o600)
}

// lastWord finds the last word of s that begins with prefix.
func lastWord(s, prefix string) (found string) {
	for _, word := range strings.Fields(s) {
		if strings.HasPrefix(word, prefix) {
			found = strings.Trim(word, ".,:;\"")
		}
	}
	return found
}

// poll asks until done says yes.
func poll(ctx context.Context, what string, done func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}
