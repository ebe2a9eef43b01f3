// The pace of readers: what is written to them, and the time they may take.

package web

import (
	"net/http"
	"time"
)

// pieceBytes is what has to be taken in the time of a piece, and leastRate how many bytes
// a second a reader of a document must take, all in all.
const (
	pieceBytes = 32 << 10
	leastRate  = 16 << 10
)

// pacer writes an answer to a reader, in time.
type pacer struct {
	w     http.ResponseWriter
	timer *http.ResponseController
}

func (q *request) pacer() *pacer {
	return &pacer{w: q.w, timer: http.NewResponseController(q.w)}
}

// write implements sender.
func (p *pacer) write(piece []byte, until time.Time) error {
	_ = p.timer.SetWriteDeadline(until) // a server that has no deadlines has its own way
	_, err := p.w.Write(piece)
	return err
}

// flush implements sender.
func (p *pacer) flush(until time.Time) error {
	_ = p.timer.SetWriteDeadline(until)
	return p.timer.Flush()
}

// document writes an answer that ends: its reader has a time limit for every piece, and
// for all of it too.
type document struct {
	*pacer
	limit time.Duration // for a piece
	begun time.Time
	taken int
}

func (q *request) document() *document {
	d := &document{pacer: q.pacer(), limit: q.site.cfg.WriteTimeout, begun: time.Now()}
	_ = d.timer.SetReadDeadline(time.Time{}) // else the request ends in the middle of a long one
	return d
}

// send writes b and sees that it is on its way. The error says that the reader has
// gone, or is too slow.
func (d *document) send(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), pieceBytes)
		if err := d.write(b[:n], d.until()); err != nil {
			return err
		}
		b = b[n:]
		d.taken += n
	}
	return d.flush(d.until())
}

// until is the time limit of the next piece.
func (d *document) until() time.Time {
	piece, all := time.Now().Add(d.limit), d.begun.Add(2*d.limit+time.Duration(d.taken/leastRate)*time.Second)
	if all.Before(piece) {
		return all
	}
	return piece
}
