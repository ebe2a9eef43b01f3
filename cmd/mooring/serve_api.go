// The API over HTTP, at /api/v1.

package main

import (
	"log/slog"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// mountAPI mounts the API on srv, which was made with cfg. address is where clients reach it.
func mountAPI(srv *objects.Server, cfg objects.Config, log *slog.Logger, address capability.Ref) {
	srv.Mount(httpapi.Path, httpapi.New(httpapi.Config{
		Server: srv, Address: address, Origins: cfg.OriginPatterns, Log: log,
		BodyBytes: 2 * cfg.RPC.MessageBytes, // as for Cap'n Web: JSON is larger than the data it encodes
		Timeout:   cfg.BatchTimeout, StallTimeout: cfg.RPC.WriteTimeout,
	}))
}
