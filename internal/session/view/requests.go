package view

// The view of requests: the rows of those that are open or claimed, with the group's changes.

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// requestRows are a session's rows of requests, as the group has them.
type requestRows struct {
	open    map[string]*session.OpenRequest // by id; nil: not read
	changed map[string]bool                 // ids of which a row is to be written, or removed
}

// OpenRequests returns the requests of a session that are open or claimed, by id: not to be changed.
func (v *View) OpenRequests(s *Session) (map[string]*session.OpenRequest, *fault.Error) {
	if s.requests.open == nil && s.Row.Needs&session.FeatureRequests == 0 {
		return nil, nil // there was never one
	}
	if s.requests.open == nil {
		if err := v.loadMissing(&session.ReadSet{Requests: []string{s.Row.ID}}); err != nil {
			return nil, err
		}
	}
	return s.requests.open, nil
}

// SortedRequests returns requests by id.
func SortedRequests(open map[string]*session.OpenRequest) []*session.OpenRequest {
	return slices.SortedFunc(maps.Values(open), func(a, b *session.OpenRequest) int { return cmp.Compare(a.ID, b.ID) })
}

// SetRequest adds or replaces a request's row.
func (v *View) SetRequest(s *Session, r *session.OpenRequest) { v.changeRequest(s, r.ID, r) }

// DropRequest removes the row of a request that has ended.
func (v *View) DropRequest(s *Session, id string) { v.changeRequest(s, id, nil) }

func (v *View) changeRequest(s *Session, id string, next *session.OpenRequest) {
	before := s.requests
	v.journalUndo(func() { s.requests = before })
	s.requests = requestRows{open: added(before.open), changed: added(before.changed)}
	s.requests.changed[id] = true
	if next == nil {
		delete(s.requests.open, id)
		return
	}
	s.requests.open[id] = next
}

// mergeRequests adds rows that were read.
func (s *Session) mergeRequests(rows []*session.OpenRequest) {
	if s.requests.open != nil {
		return
	}
	s.requests.open = make(map[string]*session.OpenRequest, len(rows))
	for _, r := range rows {
		s.requests.open[r.ID] = r
	}
}

// requestChanges adds the rows of a living session's requests.
func (s *Session) requestChanges(c *session.Changes) {
	for _, id := range slices.Sorted(maps.Keys(s.requests.changed)) {
		if r := s.requests.open[id]; r != nil {
			c.Requests = append(c.Requests, r)
		} else {
			AddKey(&c.DropRequests, s.Row.ID, id)
		}
	}
}

// PutRequest puts the value that an event of a request has; slot is the state of its key.
func (v *View) PutRequest(s *Session, slot *EntryState, ev *session.Event) {
	v.Put(s, &session.Entry{Session: s.Row.ID, Key: ev.Key, Cursor: ev.Cursor, Since: ev.Cursor, Schema: 1, Sum: ev.Sum, Payload: ev.Payload}, ev, 0, WriteInEvent)
}
