package main

// The contenders: each serves an echo and calls it.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// contender is one way to make a call.
type contender struct {
	name  string
	label string
	// serve answers calls until ln fails.
	serve func(ln net.Listener) error
	dial  func(ctx context.Context, address string) (link, error)
}

// link is a client's connection.
type link interface {
	// echo makes one call and checks the answer. Any goroutine may call it.
	echo() error
	close() error
}

// flooder is a link of one goroutine, with a way of its own to have many calls
// in flight.
type flooder interface {
	// flood keeps so many calls in flight until the clock says that it is over.
	flood(flight int, c *clock) error
}

const (
	contenderRaw     = "raw"
	contenderMooring = "mooring"
	contenderGoCapnp = "go-capnp"
	contenderGRPC    = "grpc"
)

var everyContender = []contender{
	{contenderRaw, "raw WebSocket, one frame a call", serveWebSocket(rawServe), dialRaw},
	{contenderMooring, "Mooring, WebSocket", serveWebSocket(vatServe), dialVat("mooring.capnp.v1")},
	{"mooring-plain", "Mooring, WebSocket, one message a frame", serveWebSocket(vatServe), dialVat("capnp")},
	{"mooring-stream", "Mooring, TCP", serveVatStream, dialVatStream},
	{contenderGoCapnp, "go-capnp, WebSocket", serveWebSocket(goCapnpServe()), dialGoCapnp},
	{contenderGRPC, "gRPC", serveGRPC, dialGRPC},
}

func names(list []contender) []string {
	var n []string
	for _, c := range list {
		n = append(n, c.name)
	}
	return n
}

// contenderByName also knows the one that needs mooring serve.
func contenderByName(name string) (contender, error) {
	for _, c := range append(everyContender, sessionContender) {
		if c.name == name {
			return c, nil
		}
	}
	return contender{}, fmt.Errorf("%q is none of %s", name, strings.Join(names(everyContender), ", "))
}

// message is what every call carries, there and back.
var message = bytes.Repeat([]byte("0123456789"), 30)

var errWrongAnswer = errors.New("the answer is not what was sent")

// checked says whether an answer is right.
func checked(answer []byte) error {
	if !bytes.Equal(answer, message) {
		return errWrongAnswer
	}
	return nil
}
