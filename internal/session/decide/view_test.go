package decide

import (
	"runtime"
	"testing"
	"weak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// TestEventsKeepNoOtherSessions: who keeps an event keeps nothing of another session that was in its group.
func TestEventsKeepNoOtherSessions(t *testing.T) {
	t.Parallel()
	mine, other := func() (*session.Event, weak.Pointer[session.Event]) {
		v := view.New(t.Context(), nil, 0)
		var last [2]*session.Event
		for range 10 {
			for i := range last {
				a := applier{v: v, s: &view.Session{}, grant: &capability.Grant{}}
				if last[i] != nil {
					a.s = v.Sessions[last[i].Outbox]
				}
				a.outbox = []string{"mine", "other"}[i]
				v.Sessions[a.outbox] = a.s
				last[i] = a.emit(session.MethodPut, "session", 1, []byte("{}"))
			}
		}
		return last[0], weak.Make(last[1])
	}()
	runtime.GC()
	if other.Value() != nil {
		t.Error("another session's event is kept with it")
	}
	runtime.KeepAlive(mine)
}
