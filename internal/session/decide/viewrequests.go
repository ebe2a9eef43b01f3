package decide

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

// openRequests returns the requests of a session that are open or claimed, by id: not to be changed.
func (v *view) openRequests(s *sessionView) (map[string]*session.OpenRequest, *fault.Error) {
	if s.requests.open == nil && s.row.Needs&session.FeatureRequests == 0 {
		return nil, nil // there was never one
	}
	if s.requests.open == nil {
		if err := v.loadMissing(&session.ReadSet{Requests: []string{s.row.ID}}); err != nil {
			return nil, err
		}
	}
	return s.requests.open, nil
}

func sortedRequests(open map[string]*session.OpenRequest) []*session.OpenRequest {
	return slices.SortedFunc(maps.Values(open), func(a, b *session.OpenRequest) int { return cmp.Compare(a.ID, b.ID) })
}

// setRequest adds or replaces a request's row.
func (v *view) setRequest(s *sessionView, r *session.OpenRequest) { v.changeRequest(s, r.ID, r) }

// dropRequest removes the row of a request that has ended.
func (v *view) dropRequest(s *sessionView, id string) { v.changeRequest(s, id, nil) }

func (v *view) changeRequest(s *sessionView, id string, next *session.OpenRequest) {
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
func (s *sessionView) mergeRequests(rows []*session.OpenRequest) {
	if s.requests.open != nil {
		return
	}
	s.requests.open = make(map[string]*session.OpenRequest, len(rows))
	for _, r := range rows {
		s.requests.open[r.ID] = r
	}
}

// requestChanges adds the rows of a living session's requests.
func (s *sessionView) requestChanges(c *session.Changes) {
	for _, id := range slices.Sorted(maps.Keys(s.requests.changed)) {
		if r := s.requests.open[id]; r != nil {
			c.Requests = append(c.Requests, r)
		} else {
			addKey(&c.DropRequests, s.row.ID, id)
		}
	}
}
