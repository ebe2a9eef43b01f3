// Deadlines of requests whose handler takes its time.

package httpkit

import (
	"net/http"
	"time"
)

// SetDeadlines sets by when a request must have been read, and how much later it must have been
// answered: the HTTP server's own deadlines are for requests answered at once. A server without
// deadlines needs none.
func SetDeadlines(w http.ResponseWriter, read, answer time.Duration) {
	now, control := time.Now(), http.NewResponseController(w)
	_ = control.SetReadDeadline(now.Add(read))
	_ = control.SetWriteDeadline(now.Add(read + answer))
}

// LiftDeadlines removes both deadlines, for an answer without end, each of whose writes has its own.
func LiftDeadlines(w http.ResponseWriter) {
	LiftReadDeadline(w)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

// LiftReadDeadline removes the deadline by which a request must have been read: at it, an answer
// that takes longer would end midway. The request must have no body.
func LiftReadDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a server without support has none
}
