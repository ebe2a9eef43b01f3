package main

// go-capnp's own rpc package, over WebSocket.

import (
	"bytes"
	"context"
	"net/http"

	"github.com/coder/websocket"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"capnproto.org/go/capnp/v3/server"
)

var goCapnpMethod = capnp.Method{InterfaceID: echoInterface, MethodID: echoMethodID}

func goCapnpEcho(_ context.Context, call *server.Call) error {
	p, err := call.Args().Ptr(0)
	if err != nil {
		return err
	}
	results, err := call.AllocResults(echoSize)
	if err != nil {
		return err
	}
	return results.SetData(0, p.Data())
}

func goCapnpServe() http.HandlerFunc {
	object := capnp.NewClient(server.New([]server.Method{{Method: goCapnpMethod, Impl: goCapnpEcho}}, nil, nil))
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := acceptWebSocket(w, r)
		if err != nil {
			return
		}
		<-goCapnpConn(c, object.AddRef()).Done()
	}
}

// goCapnpConn is a connection with one message a frame, which costs go-capnp
// less than its stream transport on the WebSocket taken as a byte stream.
func goCapnpConn(c *websocket.Conn, boot capnp.Client) *rpc.Conn {
	codec := &frameCodec{c: c, read: make([]byte, frameBytes)}
	codec.encoder = capnp.NewEncoder(&codec.write)
	return rpc.NewConn(rpc.NewTransport(codec), &rpc.Options{BootstrapClient: boot})
}

// frameCodec has a message in each frame. It implements rpc.Codec.
type frameCodec struct {
	c       *websocket.Conn
	read    []byte
	write   bytes.Buffer
	encoder *capnp.Encoder // into write
}

// Encode sends a message.
func (f *frameCodec) Encode(m *capnp.Message) error {
	f.write.Reset()
	if err := f.encoder.Encode(m); err != nil {
		return err
	}
	return f.c.Write(context.Background(), websocket.MessageBinary, f.write.Bytes())
}

// Decode receives a message, which has its memory to itself.
func (f *frameCodec) Decode() (*capnp.Message, error) {
	n, err := readFrame(f.c, f.read)
	if err != nil {
		return nil, err
	}
	return capnp.Unmarshal(bytes.Clone(f.read[:n]))
}

// Close ends the connection without a handshake.
func (f *frameCodec) Close() error { return f.c.CloseNow() }

type goCapnpLink struct {
	conn *rpc.Conn
	boot capnp.Client
}

func dialGoCapnp(ctx context.Context, address string) (link, error) {
	c, err := dialWebSocket(ctx, address)
	if err != nil {
		return nil, err
	}
	conn := goCapnpConn(c, capnp.Client{})
	l := &goCapnpLink{conn, conn.Bootstrap(context.Background())}
	return l, l.boot.Resolve(ctx)
}

func (l *goCapnpLink) echo() error {
	answer, release := l.boot.SendCall(context.Background(), capnp.Send{
		Method:    goCapnpMethod,
		ArgsSize:  echoSize,
		PlaceArgs: func(params capnp.Struct) error { return params.SetData(0, message) },
	})
	defer release()
	results, err := answer.Struct()
	if err != nil {
		return err
	}
	p, err := results.Ptr(0)
	if err != nil {
		return err
	}
	return checked(p.Data())
}

func (l *goCapnpLink) close() error {
	l.boot.Release()
	return l.conn.Close()
}
