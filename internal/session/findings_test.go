package session_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// A purge explains what is gone before it, as far as it can be read, and nothing else.
func TestVerifierOfOddPurges(t *testing.T) {
	t.Parallel()
	left := `{"left":1}`
	sum := session.SumOf([]byte(left)).String()
	for _, c := range []struct {
		second *string // what is left of the second event; nil for nothing
		gone   int     // an event that is missing
		purge  string
		want   []string
	}{
		{nil, 0, `{"events":[{"cursor":2}]}`, nil},
		{nil, 0, `{"events":[{"cursor":2},{"cursor":4},{"cursor":9}]}`, nil},
		{nil, 0, `[]`, []string{"2 has lost its payload, and no purge took it", "4 is a purge that cannot be read"}},
		{nil, 0, `{"events":[{"cursor":2,"sum":"` + sum + `"}]}`, []string{"2 has lost its payload, and no purge took it"}},
		{nil, 0, `{"events":[{"cursor":2},{"cursor":1},{"cursor":3}]}`, []string{"1 has its payload, which event 4 purged", "3 has its payload, which event 4 purged"}},
		{&left, 0, `{"events":[{"cursor":2,"sum":"` + sum + `"}]}`, nil},
		{&left, 0, `{"events":[{"cursor":2,"sum":"` + sum + `x"}]}`, []string{"2 has another payload than was written"}},
		{&left, 0, `{"events":[{"cursor":2}]}`, []string{"2 has another payload than was written"}},
		{nil, 2, `{"events":[{"cursor":2}]}`, []string{"2 is missing"}},
		{nil, 2, `{"events":[{"cursor":1},{"cursor":2}]}`, []string{"1 has its payload, which event 4 purged", "2 is missing"}},
		{nil, 1, `{"events":[{"cursor":1},{"cursor":2},{"cursor":3}]}`, []string{"1 is missing", "3 has its payload, which event 4 purged"}},
	} {
		var prev session.Hash
		v := session.NewVerifier(session.Hash{}, 0)
		for i, payload := range []string{`{}`, `{"secret":1}`, `{}`, c.purge} {
			e := &session.Event{Session: "ses", Cursor: uint64(i + 1), Method: session.MethodPut, Payload: []byte(payload), Sum: session.SumOf([]byte(payload))}
			if i == 3 {
				e.Method = session.MethodPurge
			}
			e.Hash = session.HashEvent(prev, e)
			prev = e.Hash
			if i == 1 {
				e.Payload = nil
				if c.second != nil {
					e.Payload = []byte(*c.second)
				}
			}
			if c.gone != i+1 {
				v.Add([]*session.Event{e})
			}
		}
		var got []string
		for _, f := range v.Findings() {
			got = append(got, fmt.Sprint(f.Cursor, " ", f.What))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.purge, got, c.want)
		}
	}
}

func TestFindingsErrorNamesSome(t *testing.T) {
	t.Parallel()
	var found []session.Finding
	for i := range 21 {
		if err := session.FindingsError(found); i > 0 && (fault.CodeOf(err) != fault.Internal || strings.Count(err.Error(), "event ") != i || strings.Contains(err.Error(), "more")) || (err == nil) != (i == 0) {
			t.Errorf("%d: %v", i, err)
		}
		found = append(found, session.Finding{Cursor: uint64(7 + i), What: "is odd"})
	}
	err := session.FindingsError(found)
	var f *fault.Error
	if !errors.As(err, &f) || f.At != 7 || !strings.HasSuffix(f.Message, "; event 26 is odd; and 1 more") {
		t.Errorf("%v", err)
	}
}

// Whatever was done to a log, to say what costs in proportion to its length. Not
// parallel, since it counts allocations, of which each hash makes some.
func TestVerifierOfALogChangedThroughout(t *testing.T) {
	var prev session.Hash
	var log []*session.Event
	for i := range 3000 {
		e := &session.Event{Session: "ses", Cursor: uint64(i + 1), Method: "put", Key: "session", Payload: []byte("{}"), Sum: session.SumOf([]byte("{}")), Actor: "ann"}
		e.Hash = session.HashEvent(prev, e)
		prev = e.Hash
		log = append(log, e)
	}
	for _, e := range log {
		e.Actor = "eve"
	}
	cost := func(n int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v := session.NewVerifier(session.Hash{}, 0)
		v.Add(log[:n])
		v.End(uint64(n), log[n-1].Hash)
		mustEqual(t, "findings", len(v.Findings()), n)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	const few = 300
	if little, much := cost(few), cost(len(log)); much > little*uint64(len(log)/few) {
		t.Errorf("%d rows take %d allocations, %d take %d", few, little, len(log), much)
	}
}
