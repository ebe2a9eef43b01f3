// The proof that answers were lost: what is known at each end of the broken link.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/internal/faultproxy"
)

// observer knows both ends of the broken link at one moment: what the server has
// in its log, which it asks without the proxy, and what the agent's outbox knows.
type observer struct {
	w   *world
	ref string // that may read the session, as text
}

// lostAnswer is an op that the server had committed while the agent did not know.
type lostAnswer struct {
	op     string
	cursor uint64
}

// handshake is more bytes than the server's answer to a WebSocket handshake has.
const handshake = 400

// dropAnswers lets the links through their handshakes and swallows all that the
// server sends then. When it has committed ops and the agent still has no answer
// to them, the link is cut. It gives those ops, in the log's order.
func (v *observer) dropAnswers(ctx context.Context) ([]lostAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	v.w.proxy.Cut() // the links to come are new ones
	began := time.Now().UnixMilli()
	v.w.proxy.BlackholeAfter(faultproxy.ToClient, handshake)
	defer v.w.proxy.Cut()
	var lost []lostAnswer
	for {
		waiting, err := v.w.unanswered(ctx)
		if err != nil {
			return nil, fmt.Errorf("no answer was lost: %w", err)
		}
		lost = slices.DeleteFunc(lost, func(l lostAnswer) bool { return !waiting[l.op] })
		if len(lost) > 0 { // for longer than an answer that had come would need to be stored
			return lost, nil
		}
		log, err := v.log(ctx)
		if err != nil {
			return nil, fmt.Errorf("no answer was lost: %w", err)
		}
		for _, e := range log {
			if e.At >= began && waiting[e.Op] {
				lost = append(lost, lostAnswer{e.Op, e.Cursor})
			}
		}
	}
}

// repeated holds what was lost against what has become of it: the outbox has the
// answers that were given the first time, and the log has each op once.
func (v *observer) repeated(ctx context.Context, lost []lostAnswer) error {
	answers := map[lostAnswer]bool{}
	var row struct {
		Op     string `json:"op"`
		Cursor uint64 `json:"cursor"`
	}
	err := v.w.ask(ctx, v.w.agentHome(), &row, func() { answers[lostAnswer{row.Op, row.Cursor}] = true },
		"outbox", "list", "--state", "acked", "--json")
	if err != nil {
		return err
	}
	log, err := v.log(ctx)
	if err != nil {
		return err
	}
	for _, l := range lost {
		if !answers[l] {
			return fmt.Errorf("op %s was committed at cursor %d, and was not answered so when it came again", l.op, l.cursor)
		}
		times := 0
		for _, e := range log {
			if e.Op == l.op {
				times++
			}
		}
		if times != 1 {
			return fmt.Errorf("op %s is in the log %d times", l.op, times)
		}
	}
	return nil
}

// event is one of the log.
type event struct {
	Cursor uint64 `json:"cursor"`
	Op     string `json:"op"`
	At     int64  `json:"at"`
}

// log is the session's, from the server itself.
func (v *observer) log(ctx context.Context) ([]event, error) {
	direct := filepath.Join(v.w.dir, "direct.ref")
	if err := os.WriteFile(direct, []byte(strings.Replace(v.ref, v.w.proxy.Addr(), v.w.addr, 1)), 0o600); err != nil {
		return nil, err
	}
	var log []event
	var e event
	err := v.w.ask(ctx, filepath.Join(v.w.dir, "witness"), &e, func() { log = append(log, e) }, "session", "tail", "@"+direct, "--json")
	return log, err
}

// unanswered gives the ops of which the agent's outbox knows no answer.
func (w *world) unanswered(ctx context.Context) (map[string]bool, error) {
	ops := map[string]bool{}
	var row struct {
		Op string `json:"op"`
	}
	err := w.ask(ctx, w.agentHome(), &row, func() { ops[row.Op] = true }, "outbox", "list", "--state", "pending,in_flight", "--json")
	return ops, err
}

// ask runs a command that prints objects, and calls each for every one, with into set.
func (w *world) ask(ctx context.Context, home string, into any, each func(), args ...string) error {
	said, err := w.quiet(ctx, home, args...)
	if err != nil {
		return err
	}
	for line := range bytes.Lines([]byte(said)) {
		if err := json.Unmarshal(line, into); err != nil {
			return fmt.Errorf("mooring %s printed %q: %w", strings.Join(args[:2], " "), line, err)
		}
		each()
	}
	return nil
}
