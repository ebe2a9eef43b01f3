// Our vat as the server of a foreign client.

package interop

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

// serverScenarios are what a foreign client is told to run. What they do is in its program.
var serverScenarios = []string{"bootstrap", "calls", "pipelining", "capabilities", "order", "promises", "callbacks",
	"errors", "cancellation", "release", "unknown", "null", "streaming"}

// host is our vat, listening.
type host struct {
	address  string
	shared   *sharedState
	accepted chan *served
}

// served is one connection of a host.
type served struct {
	conn *rpc.Conn
	ran  chan struct{} // closed when Run has returned
	raw  net.Conn      // what is below
}

// serve serves a connection until it ends.
func (h *host) serve(tr rpc.Transport, raw net.Conn) {
	s := &served{conn: rpc.NewConn(tr, rpc.Config{Bootstrap: peer{h.shared}}), ran: make(chan struct{}), raw: raw}
	h.accepted <- s
	_ = s.conn.Run(context.Background()) // why it ended is Err's
	close(s.ran)
}

// connection gives the next connection.
func (h *host) connection(t *testing.T) *served {
	t.Helper()
	select {
	case s := <-h.accepted:
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("our side: %v, %+v", s.conn.Err(), s.conn.Stats())
			}
			s.conn.Close("the test is over")
			s.ended(t)
		})
		return s
	case <-time.After(patience):
		t.Fatal("no client has come")
		return nil
	}
}

// ended waits for the connection's end and looks at what it has left.
func (s *served) ended(t *testing.T) {
	t.Helper()
	select {
	case <-s.ran:
	case <-time.After(patience):
		t.Fatal("the connection's Run does not return")
	}
	checkEmpty(t, s.conn)
}

// cut ends the connection without a word.
func (s *served) cut() {
	if tcp, ok := s.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // with a reset, if it can be
	}
	_ = s.raw.Close() // it may have ended by itself
}

type rawKey struct{}

// listenWebSocket is a host for WebSockets.
func listenWebSocket(t *testing.T) *host {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{address: "ws://" + ln.Addr().String() + "/", shared: new(sharedState), accepted: make(chan *served, 10)}
	srv := &http.Server{
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, rawKey{}, c) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tr, err := rpc.Accept(w, r, rpc.AcceptOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			h.serve(tr, r.Context().Value(rawKey{}).(net.Conn))
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return h
}

// asServer has a foreign client run all scenarios, each with a process and a server of its own.
func asServer(t *testing.T, start func(t *testing.T, address string) *process, listen func(t *testing.T) *host) {
	for _, name := range serverScenarios {
		t.Run(name, func(t *testing.T) {
			h := listen(t)
			p := start(t, h.address)
			p.tell(t, name)
			s := h.connection(t)
			p.expect(t, "ok "+name)
			h.checkLeft(t, s)
			p.finish(t)
			s.ended(t)
		})
	}
	ends := map[string]func(*served, *process){
		"cut":    func(s *served, _ *process) { s.cut() },
		"closed": func(s *served, _ *process) { s.conn.Close("bye") },
		"killed": func(_ *served, p *process) { p.kill() },
	}
	for name, end := range ends {
		t.Run("disconnect/"+name, func(t *testing.T) {
			h := listen(t)
			p := start(t, h.address)
			p.tell(t, "disconnect")
			s := h.connection(t)
			p.expect(t, "ready disconnect")
			end(s, p)
			if name != "killed" {
				p.expect(t, "ok disconnect")
				p.finish(t)
			}
			s.ended(t)
			if err := s.conn.Err(); name != "closed" && !rpc.IsDisconnected(err) {
				t.Errorf("the connection ended with %v", err)
			}
			h.shared.settle(nil) // an answer nobody waits for any more
			h.shared.hold(nil)
			until.True(t, "our objects are gone", func() bool { alive, running, _ := h.shared.counts(); return alive+running == 0 })
			if _, _, cancelled := h.shared.counts(); cancelled != 2 {
				t.Errorf("%d calls were cancelled, want 2", cancelled)
			}
		})
	}
}

// checkLeft waits until neither side holds anything of the other, while the connection stands.
func (h *host) checkLeft(t *testing.T, s *served) {
	t.Helper()
	until.True(t, "our objects are gone", func() bool { alive, running, _ := h.shared.counts(); return alive+running == 0 })
	until.True(t, "the tables are empty", func() bool { return empty(s.conn) })
	if err := s.conn.Err(); err != nil {
		t.Errorf("the connection has ended: %v", err)
	}
}
