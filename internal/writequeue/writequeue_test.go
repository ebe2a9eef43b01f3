package writequeue

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/until"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTurns(t *testing.T) {
	t.Parallel()
	var line Queue
	a, b, c, other := line.Join("x"), line.Join("x"), line.Join("x"), line.Join("y")
	open := func(label string, turn Ticket, want bool) {
		t.Helper()
		select {
		case <-turn.Ready:
			if !want {
				t.Errorf("%s: it is its turn", label)
			}
		default:
			if want {
				t.Errorf("%s: it is not its turn", label)
			}
		}
	}
	open("the first", a, true)
	open("of another share", other, true)
	open("the second", b, false)
	b.Leave() // before its turn
	open("the third, while the first is there", c, false)
	a.Leave()
	<-c.Ready
	c.Leave()
	other.Leave()
	until.True(t, "all lines are empty", func() bool {
		line.mu.Lock()
		defer line.mu.Unlock()
		return len(line.tails) == 0
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	var line Queue
	a, b := line.Join("x"), line.Join("x")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := b.Wait(stopped, time.Hour); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("with a context that has ended: %v", err)
	}
	if err := b.Wait(t.Context(), time.Nanosecond); fault.CodeOf(err) != fault.Overloaded {
		t.Errorf("for too long: %v", err)
	}
	if err := a.Wait(t.Context(), time.Hour); err != nil {
		t.Errorf("the first: %v", err)
	}
	a.Leave()
	if err := b.Wait(t.Context(), time.Hour); err != nil {
		t.Errorf("the second: %v", err)
	}
	b.Leave()
}
