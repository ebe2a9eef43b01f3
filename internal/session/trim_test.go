package session_test

// How far a log may be let go.

import (
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
)

func TestTrimTo(t *testing.T) {
	t.Parallel()
	// Events 3 to 8, a second apart, of 10 bytes each; the log goes on to 9.
	row := &session.Row{Base: 2, Cursor: 9}
	var log []session.EventMeta
	for c := uint64(3); c <= 8; c++ {
		log = append(log, session.EventMeta{Cursor: c, At: int64(c) * 1000, Bytes: 10})
	}
	turn := func(begun uint64) *session.Turn { return &session.Turn{Begun: begun} }
	for name, c := range map[string]struct {
		open     []*session.Turn
		log      []session.EventMeta
		before   int64
		maxBytes int
		base     uint64
		more     bool
	}{
		"nothing is old":              {nil, log, 3000, 1000, 2, false},
		"some are":                    {nil, log, 5001, 1000, 5, false},
		"all that were read":          {nil, log, 9000, 1000, 8, true},
		"all there are":               {nil, append(log[:6:6], session.EventMeta{Cursor: 9}), 9000, 1000, 9, false},
		"there is none":               {nil, nil, 9000, 1000, 2, false},
		"as many bytes as may be":     {nil, log, 9000, 30, 5, true},
		"one byte less":               {nil, log, 9000, 29, 4, true},
		"the first in any case":       {nil, log, 9000, 1, 3, true},
		"up to an open turn":          {[]*session.Turn{turn(8), turn(6)}, log, 9000, 1000, 5, false},
		"a turn that began before it": {[]*session.Turn{turn(1)}, log, 9000, 1000, 2, false},
		"a turn that began later":     {[]*session.Turn{turn(9)}, log, 9000, 1000, 8, true},
	} {
		if base, more := session.TrimTo(row, c.open, c.log, c.before, c.maxBytes); base != c.base || more != c.more {
			t.Errorf("%s: up to %d, more %v; want %d, %v", name, base, more, c.base, c.more)
		}
	}
}
