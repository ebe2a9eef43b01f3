// Long answers over HTTP: server-sent events. Their connections count like WebSockets, and no
// longer as handshakes.

package objects

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/socket"
)

// connKey is the context key of a request's net.Conn, for newHTTPServer's server.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// MaxUnsentBytes is how much of a long answer the operating system buffers beyond what it can
// send: the reader may be very slow, and there may be thousands.
const MaxUnsentBytes = 32 << 10

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
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	switch {
	case r.ProtoMajor == 1:
		w.Header().Set("Connection", "close")
		s.handshakes.remove(c)
		socket.LimitUnsent(c, MaxUnsentBytes)
	case c != nil: // the connection serves other requests too
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
