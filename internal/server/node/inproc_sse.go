// Long answers over HTTP: server-sent events. Their connections count like WebSockets, and no
// longer as handshakes.

package node

import (
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// AdmitStream is Admit for a request with a long answer. It removes the request's connection
// from the handshakes and lifts the request's time limits, so the face must set a write deadline
// for each of its writes (http.ResponseController). It is called before the answer's head is
// written. Over HTTP/1.1 the connection serves no request after it. A request with a body is
// refused (BadArgument): once its time limit is lifted, net/http would wait for the rest of the
// body without end.
func (s *Server) AdmitStream(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
		return nil, fault.BadArgument.With("a stream's request has no body")
	}
	done, err = s.Admit(r.RemoteAddr)
	if err != nil {
		return nil, err
	}
	admitted, over := done, s.handshakes.BeginStream(w, r)
	done = func() {
		over()
		admitted()
	}
	timer := http.NewResponseController(w) // a server that has no deadlines needs none lifted
	_ = timer.SetReadDeadline(time.Time{})
	_ = timer.SetWriteDeadline(time.Time{})
	return done, nil
}
