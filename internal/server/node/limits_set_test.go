//go:build unix

package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/until"
)

// Limits change while the server runs: those of all for everybody, those of one connection
// for connections that come.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	set := func(change func(*Config)) {
		cfg := DefaultConfig()
		change(&cfg)
		r.server.SetLimits(cfg)
	}
	set(func(c *Config) { c.Session.Limits.SessionBytes = 1000 })
	waits := m.batch(large("message/a", 2000))
	wantRefusal(t, "beyond the new quota of a session", p.apply(m.stream, waits), fault.QuotaExceeded, 0)
	set(func(*Config) {})
	if ack := p.must(m.stream, waits); ack.applied != 1 {
		t.Fatalf("%+v", ack.outcomes)
	}
	b := newBox()
	guest := p.open(p.restore(p.share(m, "rights", []string{"read", "append"})), b)
	set(func(c *Config) { c.Session.Limits.RefBytes = 1000 })
	wantRefusal(t, "beyond the new quota of a ref", p.apply(guest, b.batch(m.id, large("message/b", 2000))), fault.QuotaExceeded, 0)

	set(func(c *Config) { c.Subscriptions = 1 })
	narrow, whole := r.dial(), p.share(m, "rights", []string{"read"})
	for i, at := range []*peer{p, narrow} {
		sess := at.restore(whole)
		at.subscribe(sess, newRecorder(), 0)
		promise := at.subscribing(sess, newRecorder(), 0, 0, false)
		_, _, err := promise.Wait(within(t))
		promise.Release()
		if one := []bool{false, true}[i]; (err != nil) != one || one && !strings.Contains(err.Error(), "the most it may") {
			t.Errorf("a second subscription, and that one may be is %v: %v", one, err)
		}
	}

	set(func(c *Config) {
		c.Connections, c.ConnectionsPerAddress, c.Handshakes = 2, 1, 1
		c.StrangerBytes, c.KnownBytes, c.RefBytes = 64<<20, 65<<20, 66<<20
		c.WrongTries, c.WrongTryInterval, c.Session.Limits.AccountBytes = 3, time.Hour, 9
		c.QueueOps, c.BatchesInFlight, c.RPC.QueuedBytes = 5, 6, 800
		c.RPC.MessageBytes, c.RPC.HandshakeTimeout, c.RPC.WriteTimeout = 1, 1, 1
	})
	s, was := r.server, DefaultConfig()
	if _, refused := s.connections.Admit("elsewhere"); refused == nil || !strings.Contains(refused.Message, "no more connections now") {
		t.Errorf("a third connection where two may be: %v", refused)
	}
	strangers, known := s.MemoryBudgets()
	if strangers.Stats().Total != 64<<20 || known.Stats().Total != 65<<20 {
		t.Errorf("the budgets have %d and %d", strangers.Stats().Total, known.Stats().Total)
	}
	guess := func(ctx context.Context) error { return s.Caller(ctx, "192.0.2.1:1").ThrottleFailure() }
	for range 3 {
		if err := guess(t.Context()); err != nil {
			t.Errorf("one of three tries: %v", err)
		}
	}
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- guess(leaving) }()
	until.True(t, "a fourth try waits", func() bool { return s.authThrottle.Waiting("192.0.2.1") == 1 })
	leave()
	<-left
	if _, account := s.operator.Quotas(); account != 9 {
		t.Errorf("%d for an account", account)
	}
	if n, conn := s.committer.Stats().QueueOps, connLimits(s.liveConfig.Load()); n != 5 || conn.Batches != 6 || conn.InFlight != 400 || s.capnwebLimits().QueuedBytes != 800 {
		t.Errorf("%d ops in line, %+v for a connection", n, conn)
	}
	if l := s.liveConfig.Load().RPC; l.MessageBytes != was.RPC.MessageBytes || l.HandshakeTimeout != was.RPC.HandshakeTimeout || l.WriteTimeout != was.RPC.WriteTimeout {
		t.Errorf("%+v: what was promised once has changed", l)
	}
}
