package session_test

// The order of a session's state: by first puts, or by times; and what keeps it.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
)

// Where what a key holds says when it was created.
func TestPlaceByTime(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000
	far := int64(now - 30*365*24*3600_000)
	for _, c := range []struct {
		key, payload string
		want         uint64
	}{
		{"message/m", `{"time":{"created":7}}`, 7}, {"message/m", `{"time":{"created":7.9}}`, 7}, {"message/m", `{"time":{"created":1e3}}`, 1000},
		{"message/m", `{}`, now}, {"message/m", `{"time":{"created":"7"}}`, now}, {"message/m", `{"time":{"created":-1}}`, now}, {"message/m", `{"time":{"created":1e300}}`, now},
		{"message/" + opencodeID("msg", now-5000, 1), `{"time":null}`, now - 5000}, {"part/m/" + opencodeID("prt", now+5000, 4095), `{}`, now + 5000},
		{"part/m/" + opencodeID("prt", far, 1), `{"time":{"created":3}}`, 3}, {"part/m/prt_1", `{}`, now}, {"part/m/prt_zzzzzzzzzzzzz", `{}`, now}, {"session", `{}`, now},
	} {
		if got := session.ByTime.NewOrd(&session.Event{Cursor: 5, At: now}, 2, c.key, []byte(c.payload)); got.At != c.want || (got.Index != 0) != (c.want == now) {
			t.Errorf("%s %s: %v, want %d", c.key, c.payload, got, c.want)
		}
	}
	// A whole turn of the clock apart: the nearest is meant.
	if got := session.ByTime.NewOrd(&session.Event{At: now}, 0, "part/m/"+opencodeID("prt", now-1<<35+1, 0), nil); got.At != now-1<<35+1 {
		t.Errorf("nearly half a turn before: %d", got.At)
	}
	if got := session.ByLog.NewOrd(&session.Event{Cursor: 5, At: now}, 2, "message/m", nil); got != (session.Ord{At: 5, Index: 2}) {
		t.Errorf("by the log: %v", got)
	}
}

// What people read: each message with its parts, and parts without a message where the
// first of them stands. Rows without a place come first, by time.
func TestDocument(t *testing.T) {
	t.Parallel()
	var list []*session.Entry
	for _, e := range []struct {
		key string
		at  uint64
	}{{"part/m2/b", 4}, {"message/m10", 9}, {"part/gone/y", 7}, {"message/m2", 3}, {"part/m10/a", 10}, {"part/m2/a", 8}, {"session", 2}, {"part/gone/x", 6}, {"message/m1", 5}} {
		list = append(list, &session.Entry{Key: e.key, Ord: session.Ord{At: e.at}, Payload: []byte(`{}`)})
	}
	list = append(list, &session.Entry{Key: "message/old2", Payload: []byte(`{"time":{"created":1}}`)}, &session.Entry{Key: "message/old1", Payload: []byte(`{"time":{"created":2}}`)})
	session.SortDocument(list, func(e *session.Entry) *session.Entry { return e })
	var got []string
	for _, e := range list {
		got = append(got, e.Key)
	}
	if want := "session message/old2 message/old1 message/m2 part/m2/b part/m2/a message/m1 part/gone/x part/gone/y message/m10 part/m10/a"; strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}

// opencode's ids at a time: their clock has 36 bits.
func opencodeID(kind string, ms int64, n int) string {
	return fmt.Sprintf("%s_%012xAAAAAAAAAAAAAA", kind, (ms<<12+int64(n))&(1<<48-1))
}
