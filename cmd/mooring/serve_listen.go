// Listeners of mooring serve besides HTTP's: byte streams for peers that speak
// Cap'n Proto without WebSockets, and metrics for a monitor.

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// streamAddress splits tcp://HOST:PORT or unix:PATH.
func streamAddress(text string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
		return "unix", path, nil
	}
	if host, ok := strings.CutPrefix(text, "tcp://"); ok {
		if _, port, err := net.SplitHostPort(host); err == nil && isPort(port) {
			return "tcp", host, nil
		}
	}
	return "", "", fault.Usage.With("--capnp-listen %q is neither tcp://HOST:PORT nor unix:PATH", text)
}

// checkListen refuses what can be no address to listen at. A port may have a service's
// name.
func checkListen(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fault.Usage.With("%s %q is not HOST:PORT", flag, address)
	}
	if !isPort(port) {
		return fault.Usage.With("%s %q: %q is no port: give a number from 0 to 65535", flag, address, port)
	}
	return nil
}

func isPort(text string) bool {
	_, err := net.LookupPort("tcp", text)
	return err == nil
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
			return lns, listenError("--capnp-listen", text, err)
		}
		lns = append(lns, ln)
		if tcp, ok := ln.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
			log.Warn("a byte stream has no TLS: secrets of refs cross the network in clear", "listener", ln.Addr())
		}
	}
	return lns, nil
}

// listenTCP listens where a flag says.
func listenTCP(ctx context.Context, flag, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, listenError(flag, address, err)
	}
	return ln, nil
}

// listenError says why nobody can listen at an address, and what to do.
func listenError(flag, address string, err error) error {
	switch what := ""; {
	case errors.Is(err, syscall.EADDRINUSE) && strings.HasPrefix(address, "unix:"):
		what = "the file is there already"
		if _, detail, ok := strings.Cut(err.Error(), ": "+syscall.EADDRINUSE.Error()+": "); ok {
			what += ": " + detail
		}
		return fault.InUse.Because(err, "%s %s: %s", flag, address, what)
	case errors.Is(err, syscall.EADDRINUSE):
		return fault.InUse.Because(err, "%s %s: another program listens there: stop that, or take another port (port 0 takes a free one)", flag, address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s %s: this user may not listen there (%w): take a port above 1023, or let a proxy stand before the server", flag, address, syscall.EACCES)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s %s: this machine has no such address (%w): take one of its own, or 0.0.0.0 for all", flag, address, syscall.EADDRNOTAVAIL)
	default:
		return fmt.Errorf("%s %s: %w", flag, address, err)
	}
}

// listenStream listens; a Unix socket that a server left behind is replaced.
func listenStream(ctx context.Context, network, address string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, network, address)
	if network != "unix" || !errors.Is(err, syscall.EADDRINUSE) {
		return ln, err
	}
	if info, e := os.Lstat(address); e != nil || info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%w: it is no socket", err)
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

// audiences are the HOST:PORTs at which clients may say they reach this server:
// where refs lead, and where it listens.
func audiences(advertised []string, listen string, web net.Listener, streams []net.Listener) []string {
	own := slices.Clone(advertised)
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		if _, port, err := net.SplitHostPort(web.Addr().String()); err == nil {
			own = append(own, net.JoinHostPort(host, port)) // a name, say, where the listener knows its address
		}
	}
	for _, ln := range append([]net.Listener{web}, streams...) {
		at, err := netip.ParseAddrPort(reachableAt(ln.Addr()))
		if err != nil { // a Unix socket: its clients say where their ref leads
			continue
		}
		own = append(own, at.String())
		if at.Addr().IsLoopback() {
			own = append(own, net.JoinHostPort("localhost", strconv.Itoa(int(at.Port()))))
		}
	}
	return own
}

// ownHosts are the hosts by which this machine's own clients call the server: where
// they reach it, and this machine's name, which may lead to loopback.
func ownHosts(audiences []string) []string {
	own := slices.Clone(audiences)
	if name, err := os.Hostname(); err == nil && name != "" {
		own = append(own, name)
	}
	return own
}

// streamName is how a listener is told to people: as its flag would name it.
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
