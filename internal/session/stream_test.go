package session_test

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestOutboxOfAStream(t *testing.T) {
	t.Parallel()
	key := session.StreamKey{Session: "ses_1", Outbox: "obx_1"}
	own := session.FallbackStream(key, [32]byte{1})
	if own.Session != key.Session || !strings.HasPrefix(own.Outbox, "obx_1~") || session.OutboxOf(own.Outbox) != "obx_1" {
		t.Fatalf("%+v is shown as %s", own, session.OutboxOf(own.Outbox))
	}
	for _, other := range []session.StreamKey{
		session.FallbackStream(key, [32]byte{2}),
		session.FallbackStream(session.StreamKey{Session: "ses_2", Outbox: "obx_1"}, [32]byte{1}),
		session.FallbackStream(session.StreamKey{Session: "ses_1", Outbox: "obx_2"}, [32]byte{1}),
	} {
		_, a, _ := strings.Cut(own.Outbox, session.FallbackSep)
		if _, b, _ := strings.Cut(other.Outbox, session.FallbackSep); a == b {
			t.Errorf("%+v and %+v end alike", own, other)
		}
	}
	for _, plain := range []string{"", "obx_1", "a~b", "~", "a~" + strings.Repeat("a", 26), "a~" + strings.Repeat("A", 25)} {
		if got := session.OutboxOf(plain); got != plain {
			t.Errorf("%s is shown as %s", plain, got)
		}
	}
}

func TestStreamFor(t *testing.T) {
	t.Parallel()
	mine, theirs := [32]byte{1}, [32]byte{2}
	key, marked := session.StreamKey{Session: "s", Outbox: "o"}, session.StreamKey{Session: "s", Outbox: "o~"}
	own := session.FallbackStream(key, mine)
	row := func(k session.StreamKey, hash [32]byte) *ledger.Stream {
		return &ledger.Stream{Session: k.Session, Outbox: k.Outbox, SecretHash: hash}
	}
	for name, c := range map[string]struct {
		key   session.StreamKey
		rows  []*ledger.Stream
		at    session.StreamKey
		found int // of rows; -1: none
		taken bool
	}{
		"nothing is there":                        {key, nil, key, -1, false},
		"mine":                                    {key, []*ledger.Stream{row(key, mine)}, key, 0, false},
		"another's":                               {key, []*ledger.Stream{row(key, theirs)}, own, -1, false},
		"another's, and mine beside it":           {key, []*ledger.Stream{row(key, theirs), row(own, mine)}, own, 1, false},
		"another's, and my own id, too":           {key, []*ledger.Stream{row(key, theirs), row(own, theirs)}, key, -1, true},
		"an id with a mark, of before":            {marked, []*ledger.Stream{row(marked, mine)}, marked, 0, false},
		"an id with a mark, which is another's":   {marked, []*ledger.Stream{row(marked, theirs)}, marked, -1, true},
		"the id of my own stream, as it is named": {own, []*ledger.Stream{row(own, mine)}, own, 0, false},
	} {
		rows := map[session.StreamKey]*ledger.Stream{}
		for _, r := range c.rows {
			rows[session.StreamKey{Session: r.Session, Outbox: r.Outbox}] = r
		}
		at, stream, taken := session.MatchStream(c.key, mine, rows)
		var want *ledger.Stream
		if c.found >= 0 {
			want = c.rows[c.found]
		}
		if at != c.at || stream != want || taken != c.taken {
			t.Errorf("%s: %+v, %+v, taken %v", name, at, stream, taken)
		}
	}
}
