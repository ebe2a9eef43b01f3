// Long answers over HTTP: server-sent events. Their connections count like WebSockets, and no
// longer as handshakes.

package node

import (
	"net/http"

	"github.com/mooring-rpc/mooring/internal/httpkit"
)

// AdmitStream is Admit for a request with a long answer. It removes the request's connection
// from the handshakes and lifts the request's time limits, so the handler must set a write deadline
// for each of its writes (http.ResponseController). It is called before the answer's head is
// written. Over HTTP/1.1 the connection serves no request after it. A request with a body is
// refused (BadArgument): once its time limit is lifted, net/http would wait for the rest of the
// body without end.
func (s *Server) AdmitStream(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	if refused := httpkit.RefuseBody(w, r); refused != nil {
		return nil, refused
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
	httpkit.LiftDeadlines(w)
	return done, nil
}
