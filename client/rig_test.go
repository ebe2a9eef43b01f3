// A real server on SQLite in this process, for the tests and examples.

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
)

// rig is a server that can be stopped and started again on its data.
type rig struct {
	dir   string
	url   string            // of its Postgres; "": it keeps SQLite in dir
	proxy *faultproxy.Proxy // where the server is, whatever port it got
	here  string            // HOST:PORT of the server itself
	owner capability.Ref
	stop  func() error // drains; nil while it does not run

	change []func(*node.Config)
}

// newRig makes a data folder and runs a server on it.
func newRig(change ...func(*node.Config)) (*rig, error) {
	dir, err := os.MkdirTemp("", "mooring-client-test-")
	if err != nil {
		return nil, err
	}
	proxy, err := faultproxy.Listen("127.0.0.1:1")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir, proxy: proxy, change: change}
	return r, r.start()
}

// start runs the server, at the same address each time.
func (r *rig) start() error {
	ctx := context.Background()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.here = ln.Addr().String()
	r.proxy.SetTarget(r.here)
	st, err := r.store(ctx)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	address := capability.Ref{Hosts: []string{r.proxy.Addr()}}
	if _, err := operator.Bootstrap(ctx, st, filepath.Join(r.dir, "data"), address, true); err != nil {
		return errors.Join(err, ln.Close(), st.Close())
	}
	if r.owner, err = capability.ReadRefFile(filepath.Join(r.dir, "data", operator.OwnerFile)); err != nil {
		return errors.Join(err, ln.Close(), st.Close())
	}
	cfg := node.DefaultConfig()
	cfg.Store, cfg.SoleServer, cfg.PollInterval, cfg.Transactions = st, r.url == "", 0, 1
	cfg.Audiences, cfg.Webhooks = address.Hosts, &node.WebhookConfig{}
	for _, f := range r.change {
		f(&cfg)
	}
	run, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- node.New(cfg).Run(run, ln) }()
	r.stop = func() error {
		r.stop = nil
		cancel()
		return errors.Join(<-ended, st.Close())
	}
	return nil
}

func (r *rig) store(ctx context.Context) (*store.Store, error) {
	if r.url != "" {
		return postgres.Open(ctx, postgres.Config{URL: r.url, AllowUnsafe: true, Log: slog.New(slog.DiscardHandler)})
	}
	return sqlite.Open(ctx, sqlite.Config{Dir: filepath.Join(r.dir, "data")})
}

// close stops the server and removes its data.
func (r *rig) close() error {
	var err error
	if r.stop != nil {
		err = r.stop()
	}
	return errors.Join(err, r.proxy.Close(), os.RemoveAll(r.dir))
}

// home is a folder for a client's outbox.
func (r *rig) home(name string) string { return filepath.Join(r.dir, "home-"+name) }

// testRig is newRig for a test.
func testRig(t *testing.T, change ...func(*node.Config)) *rig {
	t.Helper()
	r, err := newRig(change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Errorf("stop the server: %v", err)
		}
	})
	return r
}

// open opens a client with a home of that name, closed when the test ends.
func (r *rig) open(t *testing.T, name string, change ...func(*client.Config)) *client.Client {
	t.Helper()
	c, err := client.Open(t.Context(), r.config(name, change...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

// config is a client's with a home of that name.
func (r *rig) config(name string, change ...func(*client.Config)) client.Config {
	cfg := client.Config{OpenOutbox: sqliteclient.Outbox(r.home(name))}
	cfg.Reconnect.Initial, cfg.Reconnect.Max = 5*time.Millisecond, 50*time.Millisecond
	cfg.OutboxConfig.Backoff.Initial, cfg.OutboxConfig.Backoff.Max = 5*time.Millisecond, 50*time.Millisecond
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

// space is the server's space, under its owner's ref.
func (r *rig) space(t *testing.T, c *client.Client) *client.Space {
	t.Helper()
	sp, err := c.Space(t.Context(), r.owner)
	if err != nil {
		t.Fatal(err)
	}
	return sp
}

// newSession creates a session and waits until it is real.
func (r *rig) newSession(t *testing.T, c *client.Client) *client.Session {
	t.Helper()
	s, b := r.space(t, c).Create(client.CreateOptions{})
	applied(t, b)
	return s
}

// applied commits a batch and waits until every op has applied.
func applied(t *testing.T, b *client.Batch) client.Results {
	t.Helper()
	results := outcomes(t, b)
	if err := results.Err(); err != nil {
		t.Fatalf("an op did not apply: %v", err)
	}
	return results
}

// outcomes commits a batch and waits for its outcomes.
func outcomes(t *testing.T, b *client.Batch) client.Results {
	t.Helper()
	ticket, err := b.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return waited(t, ticket)
}

func waited(t *testing.T, ticket client.Ticket) client.Results {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results, err := ticket.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// brief is outcomes as text.
func brief(results client.Results) string {
	var words []string
	for i := range results {
		o := &results[i]
		s := string(o.Status)
		if o.Status != client.Applied {
			s += "/" + o.Reason.String()
		}
		words = append(words, s)
	}
	return strings.Join(words, " ")
}

// message is the text of a message's number.
func message(n int) string { return fmt.Sprintf("message/msg_%04d", n) }
