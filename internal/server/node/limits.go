// Limits that can be changed while the server runs.

package node

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// liveConfig is the Config with the current limits. A connection takes its limits from it when it
// begins, and keeps them.
type liveConfig = atomic.Pointer[Config]

// SetLimits applies the limits of cfg from now on: on connections, peers' memory, wrong tries, the
// commit queue and quotas, and, for new connections, the limits of one connection. It takes
// nothing away that exceeds a new limit already. All other fields of cfg are ignored, among them
// HandshakeTimeout, WriteTimeout, BatchTimeout and MessageBytes, which clients, or net/http, are
// given once.
func (s *Server) SetLimits(cfg Config) {
	cfg = cfg.withDefaults()
	now := s.cfg
	now.RPC = cfg.RPC
	now.RPC.HandshakeTimeout, now.RPC.WriteTimeout, now.RPC.MessageBytes = s.cfg.RPC.HandshakeTimeout, s.cfg.RPC.WriteTimeout, s.cfg.RPC.MessageBytes
	now.Subscriptions, now.BatchesInFlight, now.QueueOps = cfg.Subscriptions, cfg.BatchesInFlight, cfg.QueueOps
	quota := &cfg.Session.Limits
	now.Session.Limits.SessionBytes, now.Session.Limits.RefBytes = quota.SessionBytes, quota.RefBytes
	s.liveConfig.Store(&now)
	s.committer.SetLimits(now.QueueOps, now.Session)
	s.objects.SetConnLimits(connLimits(&now))
	s.connections.SetLimits(cfg.Connections, cfg.ConnectionsPerAddress)
	s.handshakes.SetLimits(cfg.Handshakes, cfg.ConnectionsPerAddress)
	s.intake.Strangers.SetLimits(int64(cfg.StrangerBytes), int64(cfg.StrangerBytes/2))
	s.intake.Known.SetLimits(int64(cfg.KnownBytes), int64(cfg.RefBytes))
	s.authThrottle.SetLimits(cfg.WrongTries, cfg.WrongTryInterval)
	s.operator.SetQuotas(quota.SessionBytes, quota.AccountBytes)
}

// connLimits returns the limits of one connection.
func connLimits(cfg *Config) objects.ConnLimits {
	return objects.ConnLimits{InFlight: cfg.RPC.QueuedBytes / 2, Subscriptions: cfg.Subscriptions, Snapshots: cfg.Snapshots / 2, Batches: cfg.BatchesInFlight}
}
