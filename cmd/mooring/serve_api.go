// The API over HTTP, at /api/v1.

package main

import (
	"log/slog"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/httpapi"
	"github.com/mooring-rpc/mooring/server"
)

// mountAPI has srv, which was made of cfg, serve the API. address is where clients
// reach it.
func mountAPI(srv *server.Server, cfg server.Config, log *slog.Logger, address capability.Ref) {
	srv.Mount(httpapi.Path, httpapi.New(httpapi.Config{
		Server: srv, Address: address, Origins: cfg.OriginPatterns, Log: log,
		BodyBytes: 2 * cfg.RPC.MessageBytes, // as for Cap'n Web: JSON takes more room than what it stands for
		Timeout:   cfg.BatchTimeout, StallTimeout: cfg.RPC.WriteTimeout,
	}))
}
