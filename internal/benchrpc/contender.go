package main

// The contenders: each serves an echo and calls it.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// contender is one way to make a call.
type contender struct {
	name  string
	label string
	// serve answers calls until ln fails.
	serve func(ln net.Listener) error
	dial  func(ctx context.Context, address string) (link, error)
	// nodeServer and nodeClient have a program on Node take that side.
	nodeServer, nodeClient bool
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

	contenderNpm     = "npm"
	contenderNpmOurs = "npm-ours"
	contenderOursNpm = "ours-npm"
	contenderWeb     = "capnweb"
)

var everyContender = []contender{
	{name: contenderRaw, label: "raw WebSocket, one frame a call", serve: serveWebSocket(rawServe), dial: dialRaw},
	{name: contenderMooring, label: "Mooring, WebSocket", serve: serveWebSocket(vatServe), dial: dialVat("mooring.capnp.v1")},
	{name: "mooring-plain", label: "Mooring, WebSocket, one message a frame", serve: serveWebSocket(vatServe), dial: dialVat("capnp")},
	{name: "mooring-stream", label: "Mooring, TCP", serve: serveVatStream, dial: dialVatStream},
	{name: contenderGoCapnp, label: "go-capnp, WebSocket", serve: serveWebSocket(goCapnpServe()), dial: dialGoCapnp},
	{name: contenderGRPC, label: "gRPC", serve: serveGRPC, dial: dialGRPC},
}

func names(list []contender) []string {
	var n []string
	for _, c := range list {
		n = append(n, c.name)
	}
	return n
}

// contenderByName also knows those over Cap'n Web, and the one that needs mooring serve.
func contenderByName(name string) (contender, error) {
	for _, c := range slices.Concat(everyContender, npmContenders, []contender{sessionContender}) {
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
