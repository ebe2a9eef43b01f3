package agentproc

// What a process is known by after the one that started it is gone.

import (
	"errors"
	"fmt"
	"strings"
)

// Identity is what a process and all that it started are known by, also to a later process of the one that started it.
type Identity struct {
	Mark  string `json:"mark"`
	PID   int    `json:"pid,omitempty"`   // of the leader, and of its group; 0 before the start
	Start uint64 `json:"start,omitempty"` // of the leader, in ticks since the system's start; 0 where it is not known
	Boot  string `json:"boot,omitempty"`  // which start of the system
}

// ErrLeft is in the error of EndLeft and End where processes are left that it cannot end, or may not.
var ErrLeft = errors.New("processes of an agent are left")

// leftError names processes that are left.
func leftError(pids []int, why string) error {
	names := make([]string, 0, len(pids))
	for _, pid := range pids {
		names = append(names, fmt.Sprint(pid))
	}
	return fmt.Errorf("%w (%s): %s; end them by hand, then run this again", ErrLeft, strings.Join(names, ", "), why)
}
