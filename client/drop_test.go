//go:build unix

// Ops that are given up while a server has them.

package client_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
)

// halting is a server's store. Once it is told to halt, the server's next commit waits
// until goOn is called, as on a machine that stands still.
type halting struct {
	node.Store
	halt            atomic.Bool
	goOn            func()
	begun, on, done chan struct{}
}

func newHalting(st node.Store) *halting {
	h := &halting{Store: st, begun: make(chan struct{}), on: make(chan struct{}), done: make(chan struct{})}
	h.goOn = sync.OnceFunc(func() { close(h.on) })
	return h
}

// Update implements node.Store.
func (h *halting) Update(ctx context.Context, fn func(session.Tx) error) error {
	if h.halt.CompareAndSwap(true, false) {
		close(h.begun)
		<-h.on
		defer close(h.done)
	}
	return h.Store.Update(ctx, fn)
}

// serve runs a server on a store until the test ends, and gives where it listens.
func serve(t *testing.T, st *halting) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := node.DefaultConfig()
	cfg.Store = st
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- node.New(cfg).Run(ctx, ln) }()
	t.Cleanup(func() {
		st.goOn()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stop the server: %v", err)
		}
	})
	return ln.Addr().String()
}

// openStores opens two stores on a new database, where there may be two.
func openStores(t *testing.T, db string) (one, two node.Store) {
	t.Helper()
	closed := func(st interface{ Close() error }) {
		t.Cleanup(func() {
			if err := st.Close(); err != nil {
				t.Errorf("close the store: %v", err)
			}
		})
	}
	if db == "sqlite" {
		st, err := sqlite.Open(t.Context(), sqlite.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		closed(st)
		return st, st
	}
	url := pgtest.URL(t)
	var both [2]node.Store
	for i := range both {
		st, err := postgres.Open(t.Context(), postgres.Config{URL: url, AllowUnsafe: true, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		closed(st)
		both[i] = st
	}
	return both[0], both[1]
}

// TestDropOfWhatAServerHas: a server stands still with a batch, and the client gives its ops up over another one. The
// first goes on when the other has said how far the stream is, before the voids are there: too late. What went on before
// that stands.
func TestDropOfWhatAServerHas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		making  bool // the batch makes its session
		earlier bool
	}{
		"an op":                   {},
		"a session":               {making: true},
		"an op that arrived":      {earlier: true},
		"a session that was made": {making: true, earlier: true},
	} {
		for _, db := range []string{"sqlite", "postgres"} {
			t.Run(name+"/"+db, func(t *testing.T) {
				t.Parallel()
				dropped(t, db, c.making, c.earlier)
			})
		}
	}
}

func dropped(t *testing.T, db string, making, earlier bool) {
	a, b := openStores(t, db)
	one, two := newHalting(a), newHalting(b)
	proxy, err := faultproxy.Listen(serve(t, one))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	other, data := serve(t, two), t.TempDir()
	if _, err := operator.Bootstrap(t.Context(), one, data, capability.Ref{Hosts: []string{proxy.Addr()}}, true); err != nil {
		t.Fatal(err)
	}
	owner, err := capability.ReadRefFile(filepath.Join(data, operator.OwnerFile))
	if err != nil {
		t.Fatal(err)
	}
	c := (&rig{dir: t.TempDir()}).open(t, "a")
	space, err := c.Space(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	s, batch := space.Create(client.CreateOptions{})
	var events, found uint64
	if !making {
		applied(t, batch)
		batch, events = s.Batch(), 1
	}
	batch.Put(message(1), map[string]int{})

	one.halt.Store(true)
	ticket, err := batch.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-one.begun
	proxy.Refuse(true)
	proxy.SetTarget(other)
	proxy.Cut()
	want := client.Voided
	if earlier {
		one.goOn()
		<-one.done
		want, events = client.Applied, events+uint64(len(ticket.Ops))
	}
	two.halt.Store(!earlier)
	for _, op := range ticket.Ops {
		if err := c.Outbox().Drop(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Refuse(false)
	if !earlier {
		<-two.begun
		one.goOn()
		<-one.done
		two.goOn()
	}
	for _, o := range waited(t, ticket) {
		if o.Status != want {
			t.Errorf("an op that was dropped is %s (%s), want %s", o.Status, o.Message, want)
		}
	}
	for info, err := range space.List(t.Context(), client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		found += info.Cursor
	}
	if found != events {
		t.Errorf("the session has %d events, want %d", found, events)
	}
}
