//go:build unix

package node

import (
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
)

// The server by itself removes the rows of what a settled revert hid. Nobody sees a difference: neither readers nor
// who writes meanwhile.
func TestWhatWasRevertedLeaves(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.SweepInterval = 5 * time.Millisecond })
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		m := r.create(p)
		type value struct{}
		p.must(m.stream, m.batch(op("put", "key", "message/a", "payload", value{}), op("put", "key", "message/b", "payload", value{}), op("put", "key", "part/b/1", "payload", value{})))
		p.must(m.stream, m.batch(op("revert", "to", "message/b"), op("put", "key", "message/c", "payload", value{})))
		until.True(t, "its rows leave", func() bool { return rowOf(t, st, m.id).Left == nil })
		p.must(m.stream, m.batch(op("put", "key", "part/b/2", "payload", value{})))
		w := r.dialWebIn(t)
		var keys []string
		for _, e := range w.give(w.restore(m.owner), "list").(object)["entries"].([]any) {
			keys = append(keys, e.(object)["key"].(string))
		}
		same(t, "the keys", keys, []string{"message/a", "message/c", "part/b/2"})
	})
}
