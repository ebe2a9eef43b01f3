package main

// Package rpc, over WebSocket and over a byte stream.

import (
	"context"
	"errors"
	"net"
	"net/http"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/rpc"
)

// The interface that both vats and go-capnp speak: one method with one Data there and one back.
const (
	echoInterface = 0xa1c5f0b7d9e3428f
	echoMethodID  = 0
)

var (
	echoMethod = rpc.Method{Interface: echoInterface, ID: echoMethodID, Name: "echo"}
	echoSize   = capnp.ObjectSize{PointerCount: 1}
)

// vatObject answers at once with what it got.
type vatObject struct{}

// Serve implements rpc.Object.
func (vatObject) Serve(call *rpc.Call) {
	params, _ := call.Params()
	p, err := params.Ptr(0)
	if err != nil {
		call.Fail(err)
		return
	}
	call.Return(echoSize, func(results capnp.Struct, _ *rpc.CapTable) error { return results.SetData(0, p.Data()) })
}

func vatServe(w http.ResponseWriter, r *http.Request) {
	t, err := rpc.Accept(w, r, rpc.AcceptOptions{})
	if err != nil {
		return
	}
	vatRun(t)
}

// vatRun serves a connection until the peer has gone, which is its normal end.
func vatRun(t rpc.Transport) {
	_ = rpc.NewConn(t, rpc.Config{Bootstrap: vatObject{}}).Run(context.Background())
}

func serveVatStream(ln net.Listener) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go vatRun(rpc.NewStreamTransport(c))
	}
}

// vatLink is a connection of ours and the peer's object.
type vatLink struct {
	conn  *rpc.Conn
	ended chan error
	boot  *rpc.Ref
}

func dialVat(subprotocol string) func(context.Context, string) (link, error) {
	return func(ctx context.Context, address string) (link, error) {
		t, err := rpc.Dial(ctx, "ws://"+address, rpc.DialOptions{Subprotocols: []string{subprotocol}})
		if err != nil {
			return nil, err
		}
		return newVatLink(ctx, t), nil
	}
}

func dialVatStream(ctx context.Context, address string) (link, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newVatLink(ctx, rpc.NewStreamTransport(c)), nil
}

func newVatLink(ctx context.Context, t rpc.Transport) *vatLink {
	l := &vatLink{conn: rpc.NewConn(t, rpc.Config{}), ended: make(chan error, 1)}
	go func() { l.ended <- l.conn.Run(context.Background()) }()
	l.boot = l.conn.Bootstrap(ctx)
	return l
}

func (l *vatLink) echo() error {
	answer := l.boot.Call(context.Background(), echoMethod, echoSize, placeMessage)
	defer answer.Release()
	results, _, err := answer.Wait(context.Background())
	if err != nil {
		return err
	}
	p, err := results.Ptr(0)
	if err != nil {
		return err
	}
	return checked(p.Data())
}

func placeMessage(params capnp.Struct, _ *rpc.CapTable) error { return params.SetData(0, message) }

func (l *vatLink) close() error {
	l.boot.Release()
	l.conn.Close("done")
	err := <-l.ended
	if ex, ok := errors.AsType[*rpc.Exception](err); ok && ex.Type == rpc.Disconnected {
		return nil // the peer was quicker
	}
	return err
}
