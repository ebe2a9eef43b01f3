package main

import (
	"bytes"
	"context"
	"encoding/json"
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

// story is the demo, told in order.
func story(ctx context.Context, w *world) error {
	p := w.page

	p.step("Serve on embedded SQLite; the link to the server goes through a proxy that can break it")
	if err := w.serve(ctx); err != nil {
		return err
	}

	p.step("The agent starts to share its session: the first 3 syncs of the recording")
	head, err := firstLines(recording, 4, filepath.Join(w.dir, filepath.Base(recording)))
	if err != nil {
		return err
	}
	said, err := w.agent(ctx, "session", "import", head, "--owner", "@"+w.ownerRef())
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

	p.step("The agent goes on, while the link is cut again and again, answers are swallowed, and the server is killed")
	breaking, stopBreaking := context.WithCancel(ctx)
	broken := make(chan breakage, 1)
	go func() { broken <- w.breakThings(breaking, tail) }()
	_, err = w.agent(ctx, "session", "import", recording, "--owner", "@"+w.ownerRef())
	if err == nil {
		_, err = w.agent(ctx, "outbox", "drain")
	}
	stopBreaking()
	b := <-broken
	if err != nil {
		return err
	}
	if b.err != nil {
		return b.err
	}
	p.say("The link was cut %d times and an answer swallowed %d times; the server was killed with SIGKILL %d time and started again.", b.cuts, b.swallowed, b.kills)
	if b.cuts < 3 || b.kills != 1 {
		return fmt.Errorf("the import was over before enough was broken: %+v", b)
	}

	p.step("Importing the same file once more changes nothing")
	before, err := w.cursor(ctx, session)
	if err != nil {
		return err
	}
	if _, err := w.agent(ctx, "session", "import", recording, "--owner", "@"+w.ownerRef()); err != nil {
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
	p.say("Its tail shows cursors 1 to %d: no gap, no repeat, over %d broken links.", after, b.cuts+b.kills)

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

// breakage counts what was broken.
type breakage struct {
	cuts, swallowed, kills int
	err                    error
}

// breakThings cuts the link again and again while the import runs, swallows
// one answer after the server has committed, and kills the server once.
func (w *world) breakThings(ctx context.Context, tail *tail) (b breakage) {
	for round := range 8 {
		lost := w.proxy.CutAfter(faultproxy.ToServer, int64(3_000+4_000*round))
		if round == 2 || round == 5 {
			lost = w.proxy.Blackhole(faultproxy.ToClient, 64)
		}
		select {
		case <-lost:
			if round == 2 || round == 5 {
				b.swallowed++
			} else {
				b.cuts++
			}
		case <-ctx.Done():
			return b
		}
		if round == 3 {
			if b.err = w.restart(ctx); b.err != nil {
				return b
			}
			b.kills++
		}
	}
	<-ctx.Done()
	return b
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
