// Listeners of mooring serve besides HTTP's: byte streams for peers that speak Cap'n Proto
// without WebSockets, and metrics for monitoring.

package servercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
)

// streamAddress splits tcp://HOST:PORT or unix:PATH.
func streamAddress(text string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
		return "unix", path, nil
	}
	if host, ok := strings.CutPrefix(text, "tcp://"); ok {
		if _, port, err := net.SplitHostPort(host); err == nil && cli.IsPort(port) {
			return "tcp", host, nil
		}
	}
	return "", "", fault.Usage.With("--capnp-listen %q is neither tcp://HOST:PORT nor unix:PATH", text)
}

// listenStreams opens every listener, or none.
func listenStreams(ctx context.Context, log *slog.Logger, texts []string) (lns []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, ln := range lns {
				ln.Close()
			}
		}
	}()
	for _, text := range texts {
		network, address, err := streamAddress(text)
		if err != nil {
			return lns, err
		}
		ln, err := listenStream(ctx, network, address)
		if err != nil {
			return lns, cli.ListenError("--capnp-listen", text, err)
		}
		lns = append(lns, ln)
		if tcp, ok := ln.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
			log.Warn("a byte stream has no TLS: secrets of refs cross the network in clear", "listener", ln.Addr())
		}
	}
	return lns, nil
}

// listenStream listens; a Unix socket left behind by a server is replaced.
func listenStream(ctx context.Context, network, address string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, network, address)
	if network != "unix" || !errors.Is(err, syscall.EADDRINUSE) {
		return ln, err
	}
	if info, e := os.Lstat(address); e != nil || info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%w: it is not a socket", err)
	}
	c, e := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
	if e == nil {
		c.Close()
		return nil, fmt.Errorf("%w: somebody serves it", err)
	}
	if !errors.Is(e, syscall.ECONNREFUSED) {
		return nil, err
	}
	if e := os.Remove(address); e != nil {
		return nil, errors.Join(err, e)
	}
	return lc.Listen(ctx, network, address)
}

// listenNames returns the HOST:PORT of --listen with the port that is listened at: a name, for
// instance, of which the listener knows only the address.
func listenNames(listen string, at net.Addr) []string {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return nil
	}
	return []string{net.JoinHostPort(host, port)}
}

// streamName returns a listener's address as its flag would have it.
func streamName(ln net.Listener) string {
	if ln.Addr().Network() == "unix" {
		return "unix:" + ln.Addr().String()
	}
	return "tcp://" + ln.Addr().String()
}

// serveMetrics serves /metrics from ln until ctx ends.
func serveMetrics(ctx context.Context, ln net.Listener, metrics http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	web := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { web.Close() })
	defer stop()
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
