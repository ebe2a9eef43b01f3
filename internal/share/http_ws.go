// WS /ws/ID: changes of a share, as arrays of items. No item expresses a removal: a remove or
// purge ends the stream after an array, and pages then load the share again.

package share

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/wsock"
)

// maxClientMessage bounds a client's message, in bytes.
const maxClientMessage = 32 << 10

// errRemoved ends a stream whose reader would show removed or hidden entries, or not show those that are
// shown again, until it loads the share again.
var errRemoved = errors.New("something was removed or hidden: load the share again")

// serveWS follows a share from its present cursor until it ends or the client goes. The client's
// messages are ignored.
func (s *Service) serveWS(w http.ResponseWriter, v *visitor, id string) {
	live, err := s.Public(v.Context(), v.caller, id)
	var d *objects.Description
	if err == nil {
		d, err = live.Describe(v.Context())
	}
	if err != nil {
		s.refuse(w, v, err, opencode.ForReader)
		return
	}
	done, err := s.cfg.Server.Admit(v.RemoteAddr)
	if err != nil {
		s.refuse(w, v, err, opencode.ForReader)
		return
	}
	defer done()
	conn, err := wsock.Accept(w, v.Request, wsock.AcceptOptions{OriginPatterns: s.cfg.OriginPatterns})
	if err != nil {
		return // already answered
	}
	conn.SetLowMemory(admission.MaxUnsentBytes)
	conn.SetReadLimit(maxClientMessage)
	ctx, cancel := context.WithCancel(v.Context())
	var beside sync.WaitGroup
	defer beside.Wait()
	defer func() { _ = conn.CloseNow() }() // no effect after a Close
	defer cancel()
	beside.Go(func() { // handles pings and the close
		defer cancel()
		for err := error(nil); err == nil; {
			_, _, err = conn.Read(context.WithoutCancel(ctx))
		}
	})
	to := &follower{Conn: conn, start: time.Now()}
	beside.Go(func() { s.ping(ctx, to, cancel) })
	err = live.Follow(ctx, fanout.Position{Cursor: d.Row.Cursor, Hash: d.Row.Head}, nil, func(events []*session.Event) error { return s.sendEvents(ctx, to, live, events) })
	code, why := websocket.StatusInternalError, ""
	var f *fault.Error
	switch {
	case errors.Is(err, errRemoved):
		code, why = websocket.StatusServiceRestart, err.Error()
	case errors.As(err, &f):
		why = f.Error()
		switch f.Code {
		case fault.Draining:
			code = websocket.StatusGoingAway
		case fault.Revoked, fault.StaleEpoch, fault.Expired, fault.SessionDeleted:
			code = websocket.StatusNormalClosure
		}
	}
	_ = conn.Close(int(code), why) // the client may have gone
}

// follower is a client of /ws that is written to.
type follower struct {
	*wsock.Conn
	busy    atomic.Bool  // something is being written to it
	written atomic.Int64 // when that last ended, since start
	start   time.Time
}

func (f *follower) write(ctx context.Context, text []byte) error {
	f.busy.Store(true)
	err := f.Write(ctx, websocket.MessageText, text)
	f.written.Store(int64(time.Since(f.start)))
	f.busy.Store(false)
	return err
}

// silence is how long ago something was last written, or zero.
func (f *follower) silence() time.Duration {
	if f.busy.Load() {
		return 0
	}
	return time.Since(f.start) - time.Duration(f.written.Load())
}

// ping detects a peer that is gone without closing, while nothing is written to it: what is written has a limit of its own, and a
// ping would have to wait behind it, for which the library gives it 5 seconds.
func (s *Service) ping(ctx context.Context, f *follower, gone func()) {
	timer := time.NewTimer(s.cfg.PingInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait := s.cfg.PingInterval - f.silence()
		if wait <= 0 {
			limit, cancel := context.WithTimeout(ctx, s.cfg.PingInterval)
			err := f.Ping(limit)
			cancel()
			if err != nil {
				gone()
				return
			}
			wait = s.cfg.PingInterval
		}
		timer.Reset(wait)
	}
}

// sendEvents sends the events of each sync as one array of items, up to the first that removes
// something (errRemoved). That last array may be empty: a page may load the share again at any
// message.
func (s *Service) sendEvents(ctx context.Context, to *follower, live *objects.Capability, events []*session.Event) error {
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Batch == events[0].Batch {
			n++
		}
		items, removed := []byte{'['}, false
		for _, e := range events[:n] {
			removed = removed || e.Method == session.MethodRemove || e.Method == session.MethodPurge || session.IsRevert(e.Method)
			changed, err := changedBy(ctx, live, e)
			if err != nil {
				return err
			}
			for _, p := range changed {
				was := len(items)
				if was > 1 {
					items = append(items, ',')
				}
				at := len(items)
				if items = opencode.AppendItem(items, p.Key, p.Payload); len(items) == at {
					items = items[:was]
				}
			}
		}
		events = events[n:]
		if len(items) == 1 && !removed {
			continue
		}
		limit, cancel := context.WithTimeout(ctx, s.cfg.StallTimeout)
		err := to.write(limit, append(items, ']'))
		cancel()
		if err != nil {
			return err
		}
		if removed {
			return errRemoved
		}
	}
	return nil
}

// changedBy returns the keys that an event has changed, with their values. opencode only puts,
// but a session's owner may use every method.
func changedBy(ctx context.Context, live *objects.Capability, e *session.Event) ([]opencode.Put, error) {
	switch e.Method {
	case session.MethodPut, session.MethodBegin:
		if e.Payload == nil { // purged meanwhile
			return nil, nil
		}
		return []opencode.Put{{Key: e.Key, Payload: e.Payload}}, nil
	case session.MethodAppendText:
		page, _, err := live.Range(ctx, e.Key[:len(e.Key)-1], e.Key+"!", pageBytes, 1)
		if err != nil || len(page.Entries) == 0 || page.Entries[0].Key != e.Key {
			return nil, err
		}
		return []opencode.Put{{Key: e.Key, Payload: page.Entries[0].Payload}}, nil
	case session.MethodFinalize:
		var final struct {
			Entries []struct {
				Key     string `json:"key"`
				Payload string `json:"payload"`
			} `json:"entries"`
		}
		if e.Payload == nil || json.Unmarshal(e.Payload, &final) != nil {
			return nil, nil
		}
		puts := make([]opencode.Put, len(final.Entries))
		for i, entry := range final.Entries {
			puts[i] = opencode.Put{Key: entry.Key, Payload: []byte(entry.Payload)}
		}
		return puts, nil
	}
	return nil, nil
}
