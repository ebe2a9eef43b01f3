//go:build unix

package fanout

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mooring-rpc/mooring/internal/session"
)

// keeping is a sink that keeps what it is sent.
type keeping struct {
	noting
	mu    sync.Mutex
	shown []*session.Shown
}

func (k *keeping) Events(shown *session.Shown, done func(error)) {
	k.mu.Lock()
	k.shown = append(k.shown, shown)
	k.mu.Unlock()
	k.noting.Events(shown, done)
}

// TestSightsOfOneSession: subscriptions of equal sight are sent the same events from one memory, and each
// the events of its own sight, whether they come from the tail or from the log.
func TestSightsOfOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLogged()
		h := hubOn(t, log)
		asking := func(keys ...string) *session.Selection {
			selected, refused := session.SelectKeys(keys)
			if refused != nil {
				t.Fatal(refused)
			}
			return selected
		}
		owner, message := log.grant("owner", ""), log.grant("message", "msg_1")
		limited := log.grant("limited", "")
		log.grants[limited.ref].ReadKeys = []string{"todo/"}
		later := log.grant("later", "")
		log.grants[later.ref].VisibleFrom = 4
		kinds := []struct {
			auth  *testAuthority
			keys  *session.Selection
			shows []string // what of the events below
			sinks [2]*keeping
		}{
			{auth: owner, shows: []string{"message/msg_1", "message/msg_1", "message/msg_2", "todo/1", "todo/2"}},
			{auth: owner, keys: asking("todo/"), shows: []string{"todo/1", "todo/2"}},
			{auth: owner, keys: asking("todo/1"), shows: []string{"todo/1"}},
			{auth: message, shows: []string{"message/msg_1", "message/msg_1"}},
			{auth: limited, shows: []string{"todo/1", "todo/2"}},
			{auth: limited, keys: asking("todo/2", "message/"), shows: []string{"todo/2"}},
			{auth: later, shows: []string{"todo/1", "todo/2"}},
		}
		for i := range kinds {
			k := &kinds[i]
			for n := range k.sinks {
				k.sinks[n] = &keeping{}
				h.followKeys(t, k.auth, k.keys, 0, k.sinks[n], wideConnState())
			}
		}
		synctest.Wait() // so that no subscription gets together what is there and what is put
		put := func(key string) []*session.Event {
			log.mu.Lock()
			defer log.mu.Unlock()
			log.row.Cursor++
			e := &session.Event{Cursor: log.row.Cursor, Method: session.MethodPut, Key: key, Payload: []byte(`{}`)}
			log.events = append(log.events, e)
			return []*session.Event{e}
		}
		for _, key := range []string{"message/msg_1", "message/msg_2", "todo/1", "todo/2"} {
			if events := put(key); key == "todo/1" { // from the log
				h.Notify(log.row.ID, log.row.Cursor, 1)
			} else {
				h.EndCommit(nil, &session.Published{Sessions: []session.PublishedSession{{Row: log.row, Events: session.NewUnscopedEvents(events)}}})
			}
			synctest.Wait()
		}
		if kept := h.fanout(log.row.ID).shown; !reflect.ValueOf(kept).IsZero() {
			t.Errorf("deliveries are kept while nobody is sent anything: %+v", kept)
		}
		for i := range kinds {
			k := &kinds[i]
			what := fmt.Sprintf("%s, kind %d", k.auth.ref, i)
			for _, sink := range k.sinks {
				var keys []string
				for _, s := range sink.shown {
					for _, e := range s.Events {
						if !e.Hidden {
							keys = append(keys, e.Key)
						}
					}
				}
				if fmt.Sprint(keys) != fmt.Sprint(k.shows) {
					t.Errorf("%s is shown %q, not %q", what, keys, k.shows)
				}
			}
			a, b := k.sinks[0].shown, k.sinks[1].shown
			if len(a) == 0 || len(a) != len(b) || a[len(a)-1] != b[len(b)-1] {
				t.Errorf("%s: two of the same sight do not share the last delivery", what)
			}
		}
	})
}
