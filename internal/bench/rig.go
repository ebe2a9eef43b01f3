package main

// The whole path: a server, as a process of the real binary, and clients with
// an outbox each in this process.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/pgclient"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
)

// build makes the server's binary.
func build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "mooring")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/mooring-rpc/mooring/cmd/mooring")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// rig is a server on fresh databases, and where its clients' outboxes go.
type rig struct {
	db    string
	dir   string
	pair  *pgPair // nil on SQLite
	owner capability.Ref
	stop  func() error
	made  int // writers so far
	pid   int // the server's process; 0: this one
}

// newRig starts a server on an empty database; name tells several at a time apart.
func (b *bench) newRig(ctx context.Context, db, name string) (_ *rig, err error) {
	r := &rig{db: db, stop: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.dir, err = os.MkdirTemp(b.dir, "path-"); err != nil {
		return nil, err
	}
	url := ""
	if db == "postgres" {
		if r.pair, err = b.pgPair(ctx, name); err != nil {
			return nil, err
		}
		url = r.pair.server
	}
	data := filepath.Join(r.dir, "server")
	if b.binary == "" {
		err = r.serveHere(ctx, data, url)
	} else {
		err = r.serve(ctx, b.binary, data, url)
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(data, operator.OwnerFile))
	if err != nil {
		return nil, err
	}
	r.owner, err = capability.ParseRef(strings.TrimSpace(string(text)))
	return r, err
}

// serve runs the binary until stop.
func (r *rig) serve(ctx context.Context, binary, data, url string) error {
	cmd := exec.CommandContext(ctx, binary, "serve", "--json", "--listen", "127.0.0.1:0", "--data", data, "--max-connections-per-address", "5000", "--a2a") // all clients are here
	cmd.Env = append(os.Environ(), "MOORING_DATABASE_URL="+url)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var banner struct {
		Listening string `json:"listening"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &banner)
	}
	if err != nil || banner.Listening == "" {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed: that is its error
		return fmt.Errorf("the server did not start: %s", log.String())
	}
	r.pid = cmd.Process.Pid
	r.stop = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("the server: %w: %s", err, log.String())
		}
		return nil
	}
	return nil
}

// serveHere runs the server in this process, as mooring serve wires it.
func (r *rig) serveHere(ctx context.Context, data, url string) error {
	var st *store.Store
	var err error
	cfg := node.DefaultConfig()
	if url == "" {
		st, err = sqlite.Open(ctx, sqlite.Config{Dir: data})
		cfg.SoleServer, cfg.PollInterval, cfg.Transactions = true, 0, 1
	} else if err = os.MkdirAll(data, 0o700); err == nil {
		st, err = postgres.Open(ctx, postgres.Config{URL: url, Log: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, st.Close())
	}
	address := capability.Ref{Hosts: []string{ln.Addr().String()}}
	if _, err := operator.Bootstrap(ctx, st, data, address, url == ""); err != nil {
		return errors.Join(err, ln.Close(), st.Close())
	}
	cfg.Store = st
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- node.New(cfg).Run(running, ln) }()
	r.stop = func() error {
		end()
		return errors.Join(<-ended, st.Close())
	}
	return nil
}

// close stops the server and removes what it and the clients have written.
func (r *rig) close() error { return errors.Join(r.stop(), os.RemoveAll(r.dir)) }

// writer is one outbox with its client and a session.
type writer struct {
	name    string
	config  client.Config
	client  *client.Client
	session *client.Session
	n       atomic.Uint64 // ops so far
}

// config is where a writer's outbox is. On Postgres all writers' outboxes are
// in one database, over one pool of connections.
func (r *rig) config(name string) client.Config {
	if r.pair == nil {
		return client.Config{OpenOutbox: sqliteclient.Outbox(filepath.Join(r.dir, name))}
	}
	sep := "?"
	if strings.Contains(r.pair.client, "?") {
		sep = "&"
	}
	return client.Config{OpenOutbox: pgclient.Outbox(r.pair.client+sep+"pool_max_conns="+strconv.Itoa(maxConns), name)}
}

// newWriter opens an outbox and creates a session from it.
func (r *rig) newWriter(ctx context.Context) (_ *writer, err error) {
	r.made++
	w := &writer{name: "writer" + strconv.Itoa(r.made)}
	w.config = r.config(w.name)
	if w.client, err = client.Open(ctx, w.config); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.client.Close())
		}
	}()
	space, err := w.client.Space(ctx, r.owner)
	if err != nil {
		return nil, err
	}
	s, b := space.Create(client.CreateOptions{Label: w.name})
	w.session = s
	t, err := b.Commit(ctx)
	if err != nil {
		return nil, err
	}
	return w, applied(ctx, t)
}

// reopen closes the writer's client and opens its outbox again.
func (w *writer) reopen(ctx context.Context, offline bool) error {
	if err := w.client.Close(); err != nil {
		return err
	}
	w.config.Offline = offline
	c, err := client.Open(ctx, w.config)
	if err != nil {
		return err
	}
	w.client = c
	w.session, err = c.SessionByID(ctx, w.session.ID())
	return err
}

// commit makes the next batch durable.
func (w *writer) commit(ctx context.Context, size int) (client.Ticket, error) {
	b := w.session.Batch()
	payload := make([]byte, 0, payloadBytes) // Put takes a copy
	for range size {
		n := w.n.Add(1) - 1
		payload = opPayload(payload[:0], n)
		b.Put(opKey(n), json.RawMessage(payload))
	}
	return b.Commit(ctx)
}

// applied waits until a batch is answered, and fails if an op was refused.
func applied(ctx context.Context, t client.Ticket) error {
	res, err := t.Wait(ctx)
	if err != nil {
		return err
	}
	return res.Err()
}

// settled fails unless all the writer has committed is applied, once.
func (w *writer) settled(ctx context.Context) error {
	if err := w.client.Drain(ctx, nil); err != nil {
		return err
	}
	st, err := w.client.Status(ctx)
	if err != nil {
		return err
	}
	info, err := w.session.Describe(ctx)
	if err != nil {
		return err
	}
	if all := int(w.n.Load()) + 1; st.Acked != all || info.Session.Cursor != uint64(all) {
		return fmt.Errorf("%s committed %d ops, but %d are acked and the session is at %d", w.name, all, st.Acked, info.Session.Cursor)
	}
	return nil
}
