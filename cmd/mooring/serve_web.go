// The HTML pages of mooring serve.

package main

import (
	"log/slog"
	"net"
	"net/netip"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/web"
)

// mountWeb mounts the pages on srv, which is reached at address.
func (o *serveOptions) mountWeb(srv *objects.Server, log *slog.Logger, address capability.Ref, tokens web.Tokens, shares web.Shares) {
	cfg := web.Config{Log: log, Prefix: address.Prefix, Hosts: address.Hosts, TLS: address.TLS, TokenLife: o.pageLife, Lease: o.lease}
	web.New(cfg, srv, tokens, shares).Mount()
}

// localOnly reports whether a listener accepts connections from this machine only.
func localOnly(addr net.Addr) bool {
	ap, err := netip.ParseAddrPort(addr.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
