//go:build unix

// Whose clock decides: the database's, whatever the server's own says. And the
// times that nobody sets.

package node

import (
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// A peer that is dead is found out within ten seconds, by either side.
func TestDeadPeerIsFoundOutInTime(t *testing.T) {
	t.Parallel()
	for who, l := range map[string]rpc.Limits{"the server": DefaultConfig().withDefaults().RPC, "a client": rpc.DefaultLimits()} {
		if worst := l.PingInterval + l.PingTimeout; worst <= 0 || worst > 10*time.Second {
			t.Errorf("%s finds a dead peer after %v", who, worst)
		}
	}
}

func TestExpiryIsByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, wrong := range map[string]time.Duration{"a year ahead": year, "a year behind": -year} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, st Store) {
				r := start(t, st, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(wrong) } })
				p := r.dial()
				m := r.create(p)
				hour := p.share(m, "rights", []string{"read", "append"}, "expires_at", time.Now().Add(time.Hour).UnixMilli())
				soon := p.share(m, "rights", []string{"read", "append"}, "expires_at", time.Now().Add(time.Second).UnixMilli())

				sub := newRecorder()
				defer p.subscribe(p.restore(soon), sub, 0).Release()
				late := newBox()
				stream := p.open(p.restore(soon), late)
				last := uint64(0) // cursor of what was committed under it
				for n := 0; ; n++ {
					o := p.must(stream, late.batch(m.id, put(n))).outcomes[0]
					if o.Status != ledger.Applied {
						wantRecorded(t, "a ref that has expired", o, ledger.Denied, fault.Expired)
						break
					}
					last = o.Cursor
				}
				if last == 0 {
					t.Fatal("a ref was dead before its time")
				}
				_, _, err := call(t, p.restore(soon), methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
				wantCode(t, "reading under it", err, fault.Expired)

				// What comes later is not for its subscriber, but for the other's.
				other, lives := newRecorder(), newBox()
				defer p.subscribe(p.restore(hour), other, 0).Release()
				ack := p.must(p.open(p.restore(hour), lives), lives.batch(m.id, put(-1)))
				if ack.outcomes[0].Status != ledger.Applied {
					t.Fatalf("a ref with an hour left: %+v", ack.outcomes[0])
				}
				other.untilCursor(t, ack.outcomes[0].Cursor)
				sub.until(t, "its end", func() bool { return sub.ended != nil })
				if sub.ended.Code != fault.Expired {
					t.Errorf("the subscription ended with %v", sub.ended)
				}
				sub.consecutive(t, 0)
				if n := uint64(len(sub.cursors)); n > last {
					t.Errorf("event %d was delivered, the last one before the end is %d", n, last)
				}
				other.mu.Lock()
				defer other.mu.Unlock()
				if other.ended != nil {
					t.Errorf("the other subscription ended with %v", other.ended)
				}
			})
		})
	}
}
