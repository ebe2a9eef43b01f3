// The pages for people of mooring serve.

package main

import (
	"log/slog"
	"net"
	"net/netip"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/web"
)

// mountWeb puts the pages into srv, which is reached at address.
func mountWeb(srv *server.Server, log *slog.Logger, address capability.Ref, shares web.Shares) {
	web.New(web.Config{Log: log, Prefix: address.Prefix, Hosts: address.Hosts, TLS: address.TLS}, srv, shares).Mount()
}

// localOnly says whether a listener takes connections from this machine alone.
func localOnly(addr net.Addr) bool {
	ap, err := netip.ParseAddrPort(addr.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
