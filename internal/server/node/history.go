// The id of the database's history, in hello, /readyz and /api/v1: a client that knows another id
// talks to a database that was restored from a copy since.

package node

import (
	"context"
	"net/http"
)

// historyHeader is the header with the history id in answers over HTTP.
const historyHeader = "Mooring-History"

// loadHistory reads the history id: at the start of the server, and with each /readyz.
func (s *Server) loadHistory(ctx context.Context) error {
	id, err := s.cfg.Store.HistoryID(ctx)
	if err == nil {
		s.history.Store(&id)
	}
	return err
}

// historyID returns the id last read; "" if none was.
func (s *Server) historyID() string {
	if id := s.history.Load(); id != nil {
		return *id
	}
	return ""
}

// withHistory adds the history header to answers.
func (s *Server) withHistory(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := s.historyID(); id != "" {
			w.Header().Set(historyHeader, id)
		}
		next.ServeHTTP(w, r)
	})
}
