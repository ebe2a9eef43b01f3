package writequeue

import (
	"testing"

	"go.uber.org/goleak"

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
	until.True(t, "all lines are empty", func() bool { return line.Len() == 0 })
}
