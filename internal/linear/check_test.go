package linear

// The model as Porcupine takes it, and what is shown of a history it refuses.

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// never is when a call returns whose answer was lost: it may have taken effect
// at any time since, or not at all.
const never = math.MaxInt64

// seen is one call of a history, as its client saw it.
type seen struct {
	client   int
	server   int // it went to, the last of them if it was repeated
	attempts int // how often it was sent
	call     call
	answer   answer
	from, to int64 // nanoseconds since the history began, on one monotonic clock
}

// history is all that the clients of one session saw.
type history []seen

// checkTime bounds the search for an order of one history. It takes milliseconds;
// one that takes this long is reported as such and is no success.
const checkTime = 20 * time.Second

// model is the session as Porcupine takes it.
var model = porcupine.Model{
	Init: func() any { return created() },
	Step: func(state, input, output any) (bool, any) {
		c, got := input.(call), output.(answer)
		next, want := state.(session).do(c)
		return got.fits(want), next
	},
	DescribeOperation: func(input, output any) string {
		c := input.(call)
		return c.String() + " → " + output.(answer).text(c)
	},
	DescribeState: func(state any) string { return state.(session).String() },
}

// fits says whether an answer is the one that the model gives.
func (a answer) fits(want answer) bool {
	if a.lost {
		return true
	}
	if want.cursorKnown && !a.cursorKnown { // a repeated batch: the ack's cursor is a later one
		want.cursorKnown, want.cursor = false, a.cursor
	}
	return a == want
}

func (h history) operations() []porcupine.Operation {
	ops := make([]porcupine.Operation, len(h))
	for i, s := range h {
		ops[i] = porcupine.Operation{ClientId: s.client, Input: s.call, Call: s.from, Output: s.answer, Return: s.to}
	}
	return ops
}

// check looks for an order that the model allows: Ok, Illegal, or Unknown if
// there was not time enough.
func (h history) check() porcupine.CheckResult { return h.checkWithin(checkTime) }

func (h history) checkWithin(limit time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, h.operations(), limit)
}

// odd are the calls of a refused history each of which would put it in order if
// its answer had been another: what is wrong is among them, mostly alone. There
// are none where more than one answer is wrong.
func (h history) odd() history {
	var odd history
	for i := range h {
		other := slices.Clone(h)
		other[i].answer, other[i].to = answer{lost: true}, never
		if other.checkWithin(time.Second) == porcupine.Ok {
			odd = append(odd, h[i])
		}
	}
	return odd
}

// visualize writes Porcupine's page of a refused history and gives its path.
func (h history) visualize(dir string) (string, error) {
	_, info := porcupine.CheckOperationsVerbose(model, h.operations(), checkTime)
	f, err := os.Create(filepath.Join(dir, "history.html"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), porcupine.Visualize(model, info, f)
}

// String is the history in the order in which the calls were made, a line each.
func (h history) String() string {
	var b strings.Builder
	sorted := slices.Clone(h)
	slices.SortFunc(sorted, func(x, y seen) int { return cmp.Compare(x.from, y.from) })
	for _, s := range sorted {
		to := "never"
		if s.to != never {
			to = fmt.Sprintf("%.3f", float64(s.to)/1e6)
		}
		again := ""
		if s.attempts > 1 {
			again = fmt.Sprintf(" [sent %d times]", s.attempts)
		}
		fmt.Fprintf(&b, "%9.3f–%-9s ms  c%d at s%d  %s → %s%s\n", float64(s.from)/1e6, to, s.client, s.server, s.call, s.answer.text(s.call), again)
	}
	return b.String()
}
