//go:build unix

package web

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
)

func putEvent(cursor uint64, text string) *session.Event {
	payload := fmt.Appendf(nil, `{"type":"text","text":%q}`, text)
	return &session.Event{Session: "ses", Cursor: cursor, Method: session.MethodPut, Key: "part/m/p", Payload: payload, Sum: session.SumOf(payload)}
}

// What is kept is what would be made, of many readers at once, within its bound; of
// a purged event nothing is kept.
func TestRenderedEvents(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	c := newRenderCache(limit)
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for i := range uint64(200) {
				e := putEvent(i+1, strings.Repeat("x", int(i)*10))
				if got := c.get(e, session.ByLog); !bytes.Equal(got, appendEvent(nil, e, session.ByLog.NewOrd)) {
					t.Errorf("event %d is sent as %s", e.Cursor, got)
				}
			}
		})
	}
	readers.Wait()
	sum := 0
	for at := c.lru.Front(); at != nil; at = at.Next() {
		sum += at.Value.(*renderedEvent).size
	}
	if c.bytes > limit || c.bytes != sum || len(c.entries) != c.lru.Len() || len(c.entries) == 0 {
		t.Errorf("%d bytes are kept of %d events, counted as %d", sum, len(c.entries), c.bytes)
	}
	e := putEvent(300, "to be purged")
	first := c.get(e, session.ByLog)
	if &first[0] != &c.get(e, session.ByLog)[0] {
		t.Error("it is made twice")
	}
	e.Payload, e.Sum = nil, session.Hash{}
	if got := c.get(e, session.ByLog); strings.Contains(string(got), "purged") {
		t.Errorf("after the purge: %s", got)
	}
	huge := putEvent(301, strings.Repeat("y", 4*limit))
	if got := c.get(huge, session.ByLog); len(got) < limit || c.bytes > limit {
		t.Errorf("one of %d bytes leaves %d kept", len(got), c.bytes)
	}
}
