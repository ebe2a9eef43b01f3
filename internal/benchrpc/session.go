package main

// A real server with real sessions: mooring serve on SQLite, and connections
// that hold a live session of it each. As a contender it has no server of this
// program; its address is a ref.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/measure"
	"github.com/mooring-rpc/mooring/rpc"
)

var sessionContender = contender{
	name:  "session",
	label: "mooring serve, a live session",
	serve: func(net.Listener) error { return errors.New("mooring serve is a program of its own") },
	dial:  dialSession,
}

var (
	methodHello    = rpc.Method{Interface: wire.Gateway_TypeID, ID: 0, Name: "Gateway.hello"}
	methodRestore  = rpc.Method{Interface: wire.Gateway_TypeID, ID: 1, Name: "Gateway.restore"}
	methodDescribe = rpc.Method{Interface: wire.Session_TypeID, ID: 0, Name: "Session.describe"}
)

// sessionLink is a connection with a live session.
type sessionLink struct {
	*vatLink
	session *rpc.Ref
}

// dialSession says hello and restores the ref, as the client package does.
func dialSession(ctx context.Context, text string) (link, error) {
	ref, err := capability.ParseRef(text)
	if err != nil {
		return nil, err
	}
	t, err := rpc.Dial(ctx, ref.URLs()[0], rpc.DialOptions{})
	if err != nil {
		return nil, err
	}
	l := &sessionLink{vatLink: newVatLink(ctx, t)}
	hello := l.boot.Call(ctx, methodHello, capnp.ObjectSize{DataSize: 8, PointerCount: 1},
		func(s capnp.Struct, _ *rpc.CapTable) error {
			p := wire.Gateway_hello_Params(s)
			p.SetVersion(wire.ProtocolVersion)
			return p.SetAgent("benchrpc")
		})
	defer hello.Release()
	restored := l.boot.Call(ctx, methodRestore, capnp.ObjectSize{PointerCount: 2},
		func(s capnp.Struct, _ *rpc.CapTable) error {
			sturdy, err := wire.Gateway_restore_Params(s).NewRef()
			if err != nil {
				return err
			}
			if err := sturdy.SetId(ref.ID); err != nil {
				return err
			}
			return sturdy.SetSecret(ref.Secret.Reveal())
		})
	defer restored.Release()
	l.session = restored.Cap(0)
	for _, answer := range []*rpc.Promise{hello, restored} {
		if _, _, err := answer.Wait(ctx); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	return l, nil
}

// echo has the session describe itself.
func (l *sessionLink) echo() error {
	answer := l.session.Call(context.Background(), methodDescribe, capnp.ObjectSize{}, nil)
	defer answer.Release()
	_, _, err := answer.Wait(context.Background())
	return err
}

func (l *sessionLink) close() error {
	l.session.Release()
	return l.vatLink.close()
}

// mooringServe is the real server.
type mooringServe struct {
	*measure.Serve
	ref string // of a session on it
}

// startServe builds the server and runs it, with one session on it.
func (b *bench) startServe(ctx context.Context) (s *mooringServe, err error) {
	binary := filepath.Join(b.dir, "mooring")
	if err := buildServe(ctx, binary); err != nil {
		return nil, err
	}
	var args []string
	help, err := exec.CommandContext(ctx, binary, "serve", "--help").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("serve --help: %w", err)
	}
	for _, limit := range []string{"--max-connections", "--max-connections-per-address"} {
		if strings.Contains(string(help), limit+" ") {
			args = append(args, limit, strconv.Itoa(2*b.opts.connections+warmConnections))
		}
	}
	server, err := measure.StartServe(ctx, binary, filepath.Join(b.dir, "data"), args...)
	if err != nil {
		return nil, err
	}
	s = &mooringServe{Serve: server}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	s.ref, err = b.newSession(ctx, server.Owner)
	return s, err
}

// buildServe makes the binary, in the module that this one is part of.
func buildServe(ctx context.Context, binary string) error {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/mooring-rpc/mooring").Output()
	if err != nil {
		return fmt.Errorf("go list (run this in internal/benchrpc): %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/mooring")
	build.Dir = strings.TrimSpace(string(dir))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// newSession creates a session with the owner's ref and gives the ref of that.
func (b *bench) newSession(ctx context.Context, owner string) (text string, err error) {
	ref, err := capability.ParseRef(owner)
	if err != nil {
		return "", err
	}
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(filepath.Join(b.dir, "home"))})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	space, err := c.Space(ctx, ref)
	if err != nil {
		return "", err
	}
	session, batch := space.Create(client.CreateOptions{Label: "benchrpc"})
	batch.Put("message/msg_1", json.RawMessage(`{"role":"user","text":"hello"}`))
	ticket, err := batch.Commit(ctx)
	if err != nil {
		return "", err
	}
	results, err := ticket.Wait(ctx)
	if err != nil {
		return "", err
	}
	return session.Ref().Text(), results.Err()
}

func (s *mooringServe) resident() (int64, error) {
	return residentBytes(strconv.Itoa(s.PID()))
}

// settled waits until the server's memory changes no more, for a while at most,
// and gives it: Go returns memory to the system slowly.
func (s *mooringServe) settled(ctx context.Context) (rss int64, err error) {
	const look, still, most = 500 * time.Millisecond, 4 * time.Second, 20 * time.Second
	start := time.Now()
	changed := start
	for time.Since(changed) < still && time.Since(start) < most {
		now, err := s.resident()
		if err != nil {
			return 0, err
		}
		if d := now - rss; d > rss/200 || d < -rss/200 {
			rss, changed = now, time.Now()
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return s.resident()
}
