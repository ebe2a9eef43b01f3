// Limits that change while the server runs.

package server

import "sync/atomic"

// liveConfig is the Config whose limits hold now. Those of one connection are taken of it at its
// beginning, and hold for it as long as it lasts.
type liveConfig = atomic.Pointer[Config]

// SetLimits has other limits of cfg hold from now on: those on connections, on what peers hold
// of the server's memory, on wrong tries, on what waits to be committed and the quotas for all,
// those of one connection for connections that come. Nothing that there is already is taken
// away where it is more than may be now. What else stands in cfg changes nothing:
// HandshakeTimeout, WriteTimeout, BatchTimeout and MessageBytes least of all, which are
// promised to clients, or to net/http, once.
func (s *Server) SetLimits(cfg Config) {
	cfg = cfg.withDefaults()
	now := s.cfg
	now.RPC = cfg.RPC
	now.RPC.HandshakeTimeout, now.RPC.WriteTimeout, now.RPC.MessageBytes = s.cfg.RPC.HandshakeTimeout, s.cfg.RPC.WriteTimeout, s.cfg.RPC.MessageBytes
	now.Subscriptions, now.BatchesInFlight, now.QueueOps = cfg.Subscriptions, cfg.BatchesInFlight, cfg.QueueOps
	quota := &cfg.Session.Limits
	now.Session.Limits.SessionBytes, now.Session.Limits.RefBytes = quota.SessionBytes, quota.RefBytes
	s.liveConfig.Store(&now)
	s.connections.SetLimits(cfg.Connections, cfg.ConnectionsPerAddress)
	s.handshakes.limiter.SetLimits(cfg.Handshakes, cfg.ConnectionsPerAddress)
	s.intake.Strangers.SetLimits(int64(cfg.StrangerBytes), int64(cfg.StrangerBytes/2))
	s.intake.Known.SetLimits(int64(cfg.KnownBytes), int64(cfg.RefBytes))
	s.authThrottle.setLimits(cfg.WrongTries, cfg.WrongTryInterval)
	s.accountQuotas.setQuota(quota.AccountBytes)
}
