//go:build unix && !linux

package agentproc

// Where no start times and environments can be read: a group is known by its number alone.

import (
	"errors"
	"syscall"
	"time"
)

func endWithParent(*syscall.SysProcAttr) {}

func identify(mark string, pid int) Identity { return Identity{Mark: mark, PID: pid} }

// NewIdentity returns what a process that is going to be started can be found by: here, nothing.
func NewIdentity(mark string) Identity { return Identity{Mark: mark} }

// EndLeft makes sure that nothing is left of a process whose starter is gone. A group of its number may be another's by
// now, so it is not ended: the error is an ErrLeft.
func EndLeft(id Identity, _ time.Duration) error {
	if f := running(id, false, nil); len(f.doubtful) > 0 {
		return leftError(f.doubtful, "it cannot be told here whether this group is the agent's")
	}
	return nil
}

func running(id Identity, leads bool, _ known) found {
	if id.PID == 0 || errors.Is(syscall.Kill(-id.PID, 0), syscall.ESRCH) {
		return found{}
	}
	if leads {
		return found{ours: []int{id.PID}}
	}
	return found{doubtful: []int{id.PID}}
}

func signalTo(id Identity, _ int, sig syscall.Signal) { _ = syscall.Kill(-id.PID, sig) }
