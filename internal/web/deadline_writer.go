// Writes to readers, with deadlines.

package web

import (
	"net/http"
	"time"
)

// pieceBytes is how many bytes have one piece's deadline; minReadRate is how many bytes a second
// a reader of a document must take overall.
const (
	pieceBytes  = 32 << 10
	minReadRate = 16 << 10
)

// deadlineWriter writes an answer under deadlines.
type deadlineWriter struct {
	w     http.ResponseWriter
	timer *http.ResponseController
}

func (q *request) newDeadlineWriter() *deadlineWriter {
	return &deadlineWriter{w: q.w, timer: http.NewResponseController(q.w)}
}

// write implements sender.
func (p *deadlineWriter) write(piece []byte, until time.Time) error {
	_ = p.timer.SetWriteDeadline(until) // a server without deadlines has limits of its own
	_, err := p.w.Write(piece)
	return err
}

// flush implements sender.
func (p *deadlineWriter) flush(until time.Time) error {
	_ = p.timer.SetWriteDeadline(until)
	return p.timer.Flush()
}

// documentWriter writes an answer of finite length: its reader has a deadline for every piece,
// and one for the whole.
type documentWriter struct {
	*deadlineWriter
	pieceTimeout time.Duration // for one piece
	startedAt    time.Time
	written      int
}

func (q *request) newDocumentWriter() *documentWriter {
	d := &documentWriter{deadlineWriter: q.newDeadlineWriter(), pieceTimeout: q.site.cfg.WriteTimeout, startedAt: time.Now()}
	_ = d.timer.SetReadDeadline(time.Time{}) // else a long document's request ends in the middle
	return d
}

// send writes and flushes b. The error says that the reader has gone or is too slow.
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

// deadline returns the deadline of the next piece.
func (d *documentWriter) deadline() time.Time {
	piece, all := time.Now().Add(d.pieceTimeout), d.startedAt.Add(2*d.pieceTimeout+time.Duration(d.written/minReadRate)*time.Second)
	if all.Before(piece) {
		return all
	}
	return piece
}
