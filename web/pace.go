// The pace of readers: what is written to them, and the time they may take.

package web

import (
	"net/http"
	"time"
)

// pieceBytes is what is written at a time, and leastRate how many bytes a second a
// reader of a document must take, all in all.
const (
	pieceBytes = 32 << 10
	leastRate  = 16 << 10
)

// pacer writes an answer to a reader who has a time limit for every piece, and
// where it is a document (not a stream of events), for all of it too.
type pacer struct {
	w     http.ResponseWriter
	timer *http.ResponseController
	limit time.Duration // for a piece

	begun time.Time // of a document; zero for a stream
	taken int
}

func (q *request) pacer(document bool) *pacer {
	p := &pacer{w: q.w, timer: http.NewResponseController(q.w), limit: q.site.cfg.WriteTimeout}
	if document {
		p.begun = time.Now()
		_ = p.timer.SetReadDeadline(time.Time{}) // else the request ends in the middle of a long one
	}
	return p
}

// send writes b and sees that it is on its way. The error says that the reader has
// gone, or is too slow.
func (p *pacer) send(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), pieceBytes)
		p.wait()
		if _, err := p.w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
		p.taken += n
	}
	p.wait()
	return p.timer.Flush()
}

// wait sets the time limit of the next piece.
func (p *pacer) wait() {
	until := time.Now().Add(p.limit)
	if !p.begun.IsZero() {
		all := p.begun.Add(2*p.limit + time.Duration(p.taken/leastRate)*time.Second)
		if all.Before(until) {
			until = all
		}
	}
	_ = p.timer.SetWriteDeadline(until) // a server that has no deadlines has its own way
}
