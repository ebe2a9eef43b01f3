//go:build unix

// Logs that are put back to an earlier state under their subscribers.

package fanout

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// chained is a log whose events have hashes; restore puts it back to a cursor.
type chained struct{ *logged }

func (c chained) append(key string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &session.Event{Session: c.row.ID, Cursor: c.row.Cursor + 1, Key: key, Payload: []byte("{}")}
	e.Hash = session.HashEvent(c.row.Head, e)
	c.events = append(c.events, e)
	c.row.Cursor, c.row.Head = e.Cursor, e.Hash
	return e.Cursor
}

func (c chained) restore(cursor uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = c.events[:cursor:cursor]
	c.row.Cursor, c.row.Head = cursor, c.events[cursor-1].Hash
}

// publish tells the hub of the log's last events as a commit of its own replica does.
func (c chained) publish(h *Hub, n int) {
	h.BeginCommit([]string{c.row.ID})
	h.EndCommit([]string{c.row.ID}, &session.Published{Sessions: []session.PublishedSession{{Row: c.row, Events: session.NewUnscopedEvents(c.events[len(c.events)-n:])}}})
}

// A database that is put back under a server takes nobody along who follows: neither by
// what the server reads, nor by what it has just committed itself.
func TestALogThatIsPutBackIsNotGoneOnWith(t *testing.T) {
	for label, c := range map[string]struct {
		since   int // events, after 3
		publish int // of these
	}{"read": {3, 0}, "published": {3, 1}, "as long as it was": {2, 0}} {
		t.Run(label, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := chained{newLogged()}
				log.events[0].Session = log.row.ID
				log.events[0].Hash = session.HashEvent(session.Hash{}, log.events[0])
				log.row.Head = log.events[0].Hash
				h := hubOn(t, log.logged)
				took, loses := &noting{}, &noting{}
				h.follow(t, log.grant("owner", ""), 0, took, wideConnState())
				follow := func(sink *noting, after uint64) { h.follow(t, log.grant("other", ""), after, sink, wideConnState()) }
				follow(loses, 0)
				for range 4 {
					log.append("message/a")
				}
				log.publish(h, 4)
				synctest.Wait()
				if took.at() != 5 || loses.at() != 5 {
					t.Fatalf("they have events up to %d and %d", took.at(), loses.at())
				}
				log.restore(3)
				for range c.since { // 4 and 5 are others now
					log.append("message/b")
				}
				if c.publish > 0 {
					log.publish(h, c.publish)
				} else {
					h.Notify(log.row.ID, log.row.Cursor, 2)
				}
				synctest.Wait()
				for _, s := range []*noting{took, loses} {
					if s.at() != 5 || s.why == nil || s.why.Code != fault.ServerBehind {
						t.Errorf("who has events up to 5 was given those up to %d: %v", s.at(), s.why)
					}
				}
				fresh := &noting{}
				follow(fresh, 3)
				synctest.Wait()
				if fresh.at() != log.row.Cursor || fresh.why != nil {
					t.Errorf("who follows from before has events up to %d: %v", fresh.at(), fresh.why)
				}
			})
		})
	}
}

// Who was busy goes on from what it has, and from the hash of that.
func TestBusyFollowerContinuesItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := chained{newLogged()}
		log.events[0].Session = log.row.ID
		log.events[0].Hash = session.HashEvent(session.Hash{}, log.events[0])
		log.row.Head = log.events[0].Hash
		h, n, busy := hubOn(t, log.logged), &noting{}, 0
		n.err = func() error {
			if busy--; busy >= 0 {
				return ErrWouldBlock
			}
			return nil
		}
		h.follow(t, log.grant("owner", ""), 0, n, wideConnState())
		synctest.Wait()
		for range 4 {
			log.append("message/a")
		}
		busy = 2
		log.publish(h, 4)
		time.Sleep(3 * wouldBlockPause)
		synctest.Wait()
		if n.at() != 5 || n.why != nil {
			t.Errorf("it has events up to %d: %v", n.at(), n.why)
		}
	})
}
