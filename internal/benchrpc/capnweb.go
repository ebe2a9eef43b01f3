package main

// Package capnweb, and the npm package of the same name on Node.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"

	"github.com/mooring-rpc/mooring/capnweb"
)

// text is the message of the Cap'n Web contenders: what is natural there is text.
var text = string(message)

// npmContenders are what is compared over Cap'n Web: client → server, on Node or ours.
var npmContenders = []contender{
	{name: contenderNpm, label: "Node → Node (capnweb 0.12.0)", nodeServer: true, nodeClient: true},
	{name: "npm-ceiling", label: "Node (capnweb 0.12.0) → answers made beforehand", serve: serveWebSocket(ceilingServe), nodeClient: true},
	{name: contenderNpmOurs, label: "Node (capnweb 0.12.0) → Mooring", serve: serveWebSocket(webServe), nodeClient: true},
	{name: contenderOursNpm, label: "Mooring → Node (capnweb 0.12.0)", nodeServer: true, dial: dialWeb},
	webContender,
}

// webContender is package capnweb on both sides.
var webContender = contender{name: contenderWeb, label: "Mooring → Mooring, Cap'n Web", serve: serveWebSocket(webServe), dial: dialWeb}

// installNode installs the npm packages of js/package-lock.json.
func installNode(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = "js"
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, said)
	}
	return nil
}

func webServe(w http.ResponseWriter, r *http.Request) {
	t, err := capnweb.Accept(w, r, capnweb.AcceptOptions{})
	if err != nil {
		return
	}
	main := capnweb.NewMethods(map[string]any{"echo": func(text string) string { return text }})
	_ = capnweb.NewConn(t, capnweb.Config{Main: main}).Run(context.Background()) // until the peer has gone
}

// webLink is a connection of ours and the peer's object.
type webLink struct {
	conn  *capnweb.Conn
	ended chan error
	main  *capnweb.Stub
}

func dialWeb(ctx context.Context, address string) (link, error) {
	t, err := capnweb.Dial(ctx, "ws://"+address, capnweb.DialOptions{HTTPClient: oneShot})
	if err != nil {
		return nil, err
	}
	l := &webLink{conn: capnweb.NewConn(t, capnweb.Config{}), ended: make(chan error, 1)}
	go func() { l.ended <- l.conn.Run(context.Background()) }()
	l.main = l.conn.Main()
	return l, nil
}

func (l *webLink) echo() error {
	answer := l.main.Call(context.Background(), "echo", text)
	defer answer.Release()
	v, err := answer.Await(context.Background())
	if err != nil {
		return err
	}
	if v != text {
		return errWrongAnswer
	}
	return nil
}

func (l *webLink) close() error {
	l.main.Release()
	l.conn.Close("done")
	err := <-l.ended
	if _, ok := errors.AsType[*capnweb.BrokenError](err); ok {
		return nil // the peer was quicker
	}
	return err
}
