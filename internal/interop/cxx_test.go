//go:build interop

// Our vat and the C++ implementation, over byte streams.

package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/rpc"
)

// cxxPeer compiles the C++ program, once, and gives its path.
var cxxPeer = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mooring-interop-")
	if err != nil {
		return "", err
	}
	atExit = append(atExit, func() { _ = os.RemoveAll(dir) }) // what cannot be removed stays in the temporary folder
	std, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/std", "capnproto.org/go/capnp/v3").Output()
	if err != nil {
		return "", fmt.Errorf("where go-capnp is: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "-s", "-j2", "-C", "cxx", "OUT="+dir, "STD="+strings.TrimSpace(string(std)))
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the C++ program: %w\n%s", err, said)
	}
	return filepath.Join(dir, "peer"), nil
})

// cxx is the C++ program as a process.
func cxx(t *testing.T, args ...string) *process {
	t.Helper()
	path, err := cxxPeer()
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, exec.Command(path, args...))
}

// streams are the kinds of byte streams.
var streams = []string{"tcp", "unix"}

// listenAddress is where a server of the C++ program is to listen.
func listenAddress(t *testing.T, network string) string {
	if network == "unix" {
		return "unix:" + filepath.Join(t.TempDir(), "s")
	}
	return "127.0.0.1:0"
}

func TestCxxServer(t *testing.T) {
	for _, network := range streams {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			start := func(t *testing.T) *process { return cxx(t, "server", listenAddress(t, network)) }
			dial := func(t *testing.T, address string) rpc.Transport {
				c, err := new(net.Dialer).DialContext(context.Background(), network, strings.TrimPrefix(address, "unix:"))
				if err != nil {
					t.Fatal(err)
				}
				return rpc.NewStreamTransport(c)
			}
			asClient(t, start, dial, false)
		})
	}
}

// listenStream is a host for byte streams.
func listenStream(t *testing.T, network, at string) *host {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), network, at)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{address: ln.Addr().String(), shared: new(sharedState), accepted: make(chan *served, 10)}
	if network == "unix" {
		h.address = "unix:" + h.address
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			} else if err != nil {
				t.Error(err)
				return
			}
			go h.serve(rpc.NewStreamTransport(c), c)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return h
}

func TestCxxClient(t *testing.T) {
	for _, network := range streams {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			start := func(t *testing.T, address string) *process { return cxx(t, "client", address) }
			listen := func(t *testing.T) *host {
				return listenStream(t, network, strings.TrimPrefix(listenAddress(t, network), "unix:"))
			}
			asServer(t, start, listen)
			t.Run("EzRpcClient", func(t *testing.T) {
				h := listen(t)
				p := cxx(t, "ez", h.address)
				s := h.connection(t)
				p.expect(t, "ok ez")
				h.checkLeft(t, s)
				p.finish(t)
				s.ended(t)
			})
		})
	}
}

func TestCxxRestores(t *testing.T) {
	b, owner := serveMooring(t, "--capnp-listen", "tcp://127.0.0.1:0", "--capnp-listen", listenAddress(t, "unix"))
	if len(b.Capnp) != len(streams) {
		t.Fatalf("the server listens at %q", b.Capnp)
	}
	for i, network := range streams {
		t.Run(network, func(t *testing.T) {
			restores(t, cxx(t, "client", strings.TrimPrefix(b.Capnp[i], "tcp://")), owner, "from C++")
		})
	}
}

func TestCxxSaves(t *testing.T) {
	for _, network := range streams {
		t.Run(network, func(t *testing.T) {
			at := "tcp://127.0.0.1:0"
			if network == "unix" {
				at = listenAddress(t, "unix")
			}
			b, owner := serveMooring(t, "--capnp-listen", at)
			saves(t, cxx(t, "client", strings.TrimPrefix(b.Capnp[0], "tcp://")), owner)
		})
	}
}
