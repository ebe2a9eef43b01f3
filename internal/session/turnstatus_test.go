package session_test

import (
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func TestTurnLifecycle(t *testing.T) {
	t.Parallel()
	const none = session.TurnStatus(0)
	steps := []session.TurnStep{session.StepBegin, session.StepResume, session.StepLapse, session.StepComplete, session.StepFail, session.StepAbort}
	type cell struct {
		to   session.TurnStatus
		code fault.Code
	}
	ended := []cell{{0, fault.TurnEnded}, {0, fault.TurnEnded}, {0, fault.TurnEnded}, {0, fault.TurnEnded}, {0, fault.TurnEnded}, {0, fault.TurnEnded}}
	open := []cell{{0, fault.TurnOpen}, {session.Streaming, 0}, {session.Interrupted, 0}, {session.Completed, 0}, {session.Failed, 0}, {session.Aborted, 0}}
	for from, row := range map[session.TurnStatus][]cell{
		none:                {{session.Streaming, 0}, {0, fault.NotFound}, {0, fault.NotFound}, {0, fault.NotFound}, {0, fault.NotFound}, {0, fault.NotFound}},
		session.Streaming:   open,
		session.Interrupted: open,
		session.Completed:   ended,
		session.Failed:      ended,
		session.Aborted:     ended,
	} {
		for i, want := range row {
			to, err := from.Next(steps[i])
			if want.code != 0 {
				if err == nil || err.Code != want.code || to != from {
					t.Errorf("%s, step %d: %s, %v; want %s", from, i, to, err, want.code)
				}
			} else if err != nil || to != want.to {
				t.Errorf("%s, step %d: %s, %v; want %s", from, i, to, err, want.to)
			}
		}
	}
}

func TestTurnStatusNames(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"none", "streaming", "interrupted", "completed", "failed", "aborted", "none"} {
		if got := session.TurnStatus(i).String(); got != want {
			t.Errorf("state %d is %s, want %s", i, got, want)
		}
	}
}
