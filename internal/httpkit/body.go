// Bodies of requests.

package httpkit

import (
	"io"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
)

// ReadBody reads a body whole. Its buffer has first bytes at first and then doubles; grow is called
// with the bytes that it is about to grow by, and may refuse. The bound of the body is its
// reader's (http.MaxBytesReader).
func ReadBody(body io.Reader, first int, grow func(n int) error) (text []byte, err error) {
	for {
		if len(text) == cap(text) {
			size := max(2*cap(text), first)
			if err := grow(size - cap(text)); err != nil {
				return nil, err
			}
			text = append(make([]byte, 0, size), text...)
		}
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch err {
		case nil:
		case io.EOF:
			return text, nil
		default:
			return nil, err
		}
	}
}

// RefuseBody refuses the body of a request that takes none, and has its connection closed:
// net/http would wait for the body before it answers, without limit where the answer has no
// deadline.
func RefuseBody(w http.ResponseWriter, r *http.Request) *fault.Error {
	if r.ContentLength == 0 {
		return nil
	}
	w.Header().Set("Connection", "close")
	return fault.BadArgument.With("a request that reads has no body")
}
