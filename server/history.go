// The id of the database's history, which hello, /readyz and /api/v1 name: who knew
// another one talks to a database that was restored from a copy since.

package server

import (
	"context"
	"net/http"
)

// historyHeader names the history in answers over HTTP.
const historyHeader = "Mooring-History"

// loadHistory reads the id: when the server starts, and whenever it is asked whether it is ready.
func (s *Server) loadHistory(ctx context.Context) error {
	id, err := s.cfg.Store.HistoryID(ctx)
	if err == nil {
		s.history.Store(&id)
	}
	return err
}

// historyID is the id as it was last read; "" if it never was.
func (s *Server) historyID() string {
	if id := s.history.Load(); id != nil {
		return *id
	}
	return ""
}

// withHistory has answers name it.
func (s *Server) withHistory(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := s.historyID(); id != "" {
			w.Header().Set(historyHeader, id)
		}
		next.ServeHTTP(w, r)
	})
}
