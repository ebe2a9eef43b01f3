// The pace of readers: what is written to them, and the time they may take.

package web

import (
	"net/http"
	"time"
)

// pieceBytes is what has to be taken in the time of a piece, and minReadRate how many bytes
// a second a reader of a document must take, all in all.
const (
	pieceBytes  = 32 << 10
	minReadRate = 16 << 10
)

// deadlineWriter writes an answer to a reader, in time.
type deadlineWriter struct {
	w     http.ResponseWriter
	timer *http.ResponseController
}

func (q *request) newDeadlineWriter() *deadlineWriter {
	return &deadlineWriter{w: q.w, timer: http.NewResponseController(q.w)}
}

// write implements sender.
func (p *deadlineWriter) write(piece []byte, until time.Time) error {
	_ = p.timer.SetWriteDeadline(until) // a server that has no deadlines has its own way
	_, err := p.w.Write(piece)
	return err
}

// flush implements sender.
func (p *deadlineWriter) flush(until time.Time) error {
	_ = p.timer.SetWriteDeadline(until)
	return p.timer.Flush()
}

// documentWriter writes an answer that ends: its reader has a time limit for every piece, and
// for all of it too.
type documentWriter struct {
	*deadlineWriter
	pieceTimeout time.Duration // for a piece
	startedAt    time.Time
	written      int
}

func (q *request) newDocumentWriter() *documentWriter {
	d := &documentWriter{deadlineWriter: q.newDeadlineWriter(), pieceTimeout: q.site.cfg.WriteTimeout, startedAt: time.Now()}
	_ = d.timer.SetReadDeadline(time.Time{}) // else the request ends in the middle of a long one
	return d
}

// send writes b and sees that it is on its way. The error says that the reader has
// gone, or is too slow.
func (d *documentWriter) send(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), pieceBytes)
		if err := d.write(b[:n], d.deadline()); err != nil {
			return err
		}
		b = b[n:]
		d.written += n
	}
	return d.flush(d.deadline())
}

// deadline is the time limit of the next piece.
func (d *documentWriter) deadline() time.Time {
	piece, all := time.Now().Add(d.pieceTimeout), d.startedAt.Add(2*d.pieceTimeout+time.Duration(d.written/minReadRate)*time.Second)
	if all.Before(piece) {
		return all
	}
	return piece
}
