// Answers to readers who must keep up with them.

package httpkit

import (
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// Pace is how fast a reader must take an answer.
type Pace struct {
	PieceBytes int           // of one piece, at least 1
	PieceTime  time.Duration // in which a reader must take it, and the answer's head
	MinRate    int           // bytes a second of the whole answer, which has two PieceTimes more; 0 does not bound the whole
}

// PacedWriter writes an answer, and disconnects a reader who is slower than its pace. Errors of
// writes are faults: that the reader has gone is no defect of this server.
type PacedWriter struct {
	http.ResponseWriter
	pace      Pace
	control   *http.ResponseController
	startedAt time.Time
	written   int
	started   bool
}

// NewPacedWriter returns a writer whose answer begins now.
func NewPacedWriter(w http.ResponseWriter, pace Pace) *PacedWriter {
	return &PacedWriter{ResponseWriter: w, pace: pace, control: http.NewResponseController(w), startedAt: time.Now()}
}

// Started reports whether any of the answer was written: then it can only be cut off.
func (w *PacedWriter) Started() bool { return w.started }

// WriteHeader implements http.ResponseWriter.
func (w *PacedWriter) WriteHeader(status int) {
	w.started = true
	w.setDeadline(w.deadline())
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *PacedWriter) Write(b []byte) (n int, err error) {
	for {
		piece := b[n:min(n+max(w.pace.PieceBytes, 1), len(b))]
		m, err := w.write(piece, w.deadline())
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// Flush sends buffered bytes.
func (w *PacedWriter) Flush() error { return w.FlushUntil(w.deadline()) }

// WriteUntil is Write of one piece with the caller's deadline.
func (w *PacedWriter) WriteUntil(piece []byte, until time.Time) error {
	_, err := w.write(piece, until)
	return err
}

// FlushUntil is Flush with the caller's deadline.
func (w *PacedWriter) FlushUntil(until time.Time) error {
	w.setDeadline(until)
	return readerGone(w.control.Flush())
}

func (w *PacedWriter) write(piece []byte, until time.Time) (int, error) {
	w.started = true
	w.setDeadline(until)
	n, err := w.ResponseWriter.Write(piece)
	w.written += n
	return n, readerGone(err)
}

// deadline returns the deadline of the next piece.
func (w *PacedWriter) deadline() time.Time {
	piece := time.Now().Add(w.pace.PieceTime)
	if w.pace.MinRate > 0 {
		whole := w.startedAt.Add(2*w.pace.PieceTime + time.Duration(w.written/w.pace.MinRate)*time.Second)
		if whole.Before(piece) {
			return whole
		}
	}
	return piece
}

func (w *PacedWriter) setDeadline(until time.Time) {
	_ = w.control.SetWriteDeadline(until) // a server without support has limits of its own
}

// Unwrap is for http.ResponseController.
func (w *PacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// readerGone returns the error of a write.
func readerGone(err error) error {
	if err == nil {
		return nil
	}
	return fault.ContextError(err, nil)
}
