// Answers over HTTP that last: server-sent events. Their connections count as the
// WebSockets do, and no longer among those that have yet to become something.

package server

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/socket"
)

// connKey is a connection of newHTTPServer's server in the context of its requests.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// MaxUnsentBytes is how much the system is to take in of an answer that lasts beyond what
// it can send: its reader may read very slowly, and there may be thousands.
const MaxUnsentBytes = 32 << 10

// AdmitStream is Admit for a request whose answer lasts. It takes the request's
// connection out of the count of handshakes and lifts the time limits of requests
// that are answered at once, so the face must set a write deadline of its own for
// everything it writes (http.ResponseController). Before the answer's head is
// written; over HTTP/1.1 the connection serves no request after it. A request with a body is
// refused (BadArgument): once its time limit is lifted, net/http would wait for what
// is left of that without an end.
func (s *Server) AdmitStream(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
		return nil, fault.BadArgument.With("a stream's request has no body")
	}
	done, err = s.Admit(r.RemoteAddr)
	if err != nil {
		return nil, err
	}
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	switch {
	case r.ProtoMajor == 1:
		w.Header().Set("Connection", "close")
		s.handshakes.remove(c)
		socket.LimitUnsent(c, MaxUnsentBytes)
	case c != nil: // the connection goes on with others
		admitted, over := done, s.handshakes.beginStream(c)
		done = func() {
			over()
			admitted()
		}
	}
	timer := http.NewResponseController(w) // a server that has no deadlines needs none lifted
	_ = timer.SetReadDeadline(time.Time{})
	_ = timer.SetWriteDeadline(time.Time{})
	return done, nil
}
