// Package crashpoint lets a test kill the process at a named step of the
// corridor, the way a power cut would: with SIGKILL, so that no deferred
// function, no flush and no handler runs.
//
//	crashpoint.Hit(crashpoint.ServerCommitBefore)
//
// Nothing happens unless the environment variable MOORING_CRASHPOINT names the
// point when the process starts: "server.commit.before" kills at the first hit,
// "server.commit.before:3" at the third. Unset, a Hit is one load of a nil
// pointer. The names are in names.go, so that a test can go through all of them.
package crashpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// Env names the variable that arms a point.
const Env = "MOORING_CRASHPOINT"

// armed is the point to die at; nil in every ordinary process.
var armed = parse(os.Getenv(Env))

type point struct {
	name string
	left atomic.Int64
}

// Hit kills the process if name is armed and this is the hit it was armed for.
// Safe from any goroutine.
func Hit(name string) {
	if armed != nil {
		armed.hit(name, kill)
	}
}

func (p *point) hit(name string, die func()) {
	if name == p.name && p.left.Add(-1) == 0 {
		die()
	}
}

// parse reads NAME or NAME:N. A variable that is wrong ends the process with a
// word, because a test that believes it is crashing must not pass by running through.
func parse(text string) *point {
	if text == "" {
		return nil
	}
	p, err := newPoint(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return p
}

func newPoint(text string) (*point, error) {
	name, count, counted := strings.Cut(text, ":")
	n := int64(1)
	if counted {
		var err error
		if n, err = strconv.ParseInt(count, 10, 64); err != nil || n < 1 {
			return nil, fmt.Errorf("%s: %q is not NAME or NAME:N with N from 1", Env, text)
		}
	}
	if !isKnown(name) {
		return nil, fmt.Errorf("%s: no crash point is named %q", Env, name)
	}
	p := &point{name: name}
	p.left.Store(n)
	return p, nil
}

// kill ends this process at once and does not return.
func kill() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("crashpoint: cannot kill this process: %v", err))
	}
	select {} // until the signal is delivered
}
