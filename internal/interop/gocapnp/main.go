// Package gocapnp is go-capnp's own vat (its packages rpc and server) as a peer in the tests of package interop: a
// server and a client over WebSocket, with the generated stubs and nothing of ours but the schema.
package gocapnp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"capnproto.org/go/capnp/v3/rpc/transport"
	"github.com/coder/websocket"

	wire "github.com/mooring-rpc/mooring/internal/testschema/interop"
)

// Main runs a peer and gives its exit code: "server SUBPROTOCOL" or "client SUBPROTOCOL URL".
func Main(args []string) int {
	var err error
	if args[0] == "server" {
		err = serve(args[1])
	} else {
		err = follow(args[1], args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gocapnp:", err)
		return 1
	}
	return 0
}

// serve serves a Peer until the input ends.
func serve(subprotocol string) error {
	h := new(sharedState)
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("listening ws://%s/\n", ln.Addr())
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}})
		if err != nil {
			fmt.Fprintln(os.Stderr, "gocapnp: accept:", err)
			return
		}
		conn := rpc.NewConn(newTransport(ws), &rpc.Options{BootstrapClient: capnp.Client(wire.Peer_ServerToClient(&peer{h}))})
		<-conn.Done()
	})}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = srv.Close()
	}()
	if err := srv.Serve(ln); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// follow runs the scenarios that the input names, each over a connection that stands until the next one is named.
func follow(subprotocol, url string) error {
	var last func()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if last != nil {
			last()
		}
		ctx := context.Background()
		ws, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{subprotocol}})
		if err != nil {
			return err
		}
		if got := ws.Subprotocol(); got != subprotocol {
			return fmt.Errorf("the subprotocol is %q", got)
		}
		conn := rpc.NewConn(newTransport(ws), nil)
		last = func() { _ = conn.Close() } // it may be closed already
		runScenario(in.Text(), conn)
	}
	return in.Err()
}

// codec has each Cap'n Proto message be one WebSocket message, and understands several in one.
type codec struct {
	ws *websocket.Conn
	*capnp.Decoder
}

func newTransport(ws *websocket.Conn) rpc.Transport {
	return transport.New(codec{ws, capnp.NewDecoder(websocket.NetConn(context.Background(), ws, websocket.MessageBinary))})
}

// Encode implements transport.Codec.
func (c codec) Encode(m *capnp.Message) error {
	b, err := m.Marshal()
	if err != nil {
		return err
	}
	return c.ws.Write(context.Background(), websocket.MessageBinary, b)
}

// Close implements transport.Codec.
func (c codec) Close() error { return c.ws.CloseNow() }
