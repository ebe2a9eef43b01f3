//go:build unix

package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
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
		if one := []bool{false, true}[i]; (err != nil) != one || one && !strings.Contains(err.Error(), "the maximum") {
			t.Errorf("a second subscription, and that one may be is %v: %v", one, err)
		}
	}

	set(func(c *Config) {
		c.Connections, c.ConnectionsPerAddress = 2, 1
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

// fixedFields are the numbers of a Config that SetLimits leaves as they were at the start.
var fixedFields = strings.Fields(`RPC.HandshakeTimeout RPC.WriteTimeout RPC.MessageBytes BatchTimeout
	PollInterval KeepLog KeepDeleted Transactions GroupOps GroupBytes QueueBytes ReadOnlyStreams WindowBytes MaxWindowBytes Snapshots FoldBytes
	CommitTimeout ReadTimeout StallTimeout SweepInterval DrainTimeout DrainDelay MeasureInterval CountInterval AuditWindow Session.Lease
	Session.Limits.BatchOps Session.Limits.BatchBytes Session.Limits.PayloadBytes Session.Limits.EventBytes Session.Limits.ForkBytes Session.Limits.TextBytes
	Session.Limits.LabelBytes Session.Limits.UnackedOps`)

// TestSetLimitsReachesAll changes each number of a Config alone while a server runs: what enforces it has the new one then,
// or it is a fixed one.
func TestSetLimitsReachesAll(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	s := r.server
	p := r.dial()
	m := r.create(p)
	reader := p.share(m, "rights", []string{"read"})
	alone := func() { until.True(t, "no peer is left", func() bool { return s.connections.Count() == 0 }) }
	p.leave()
	alone()

	const limit = 8 // of each number: that many, MiB or seconds
	perKey := func(b *membudget.Budget) (n int) {
		account := b.Open("key")
		defer account.Close()
		for account.TryGrow(1 << 20) {
			n++
		}
		return n
	}
	admitted := func(address string) (n int) { // beyond limit it does not try
		for ; n <= limit; n++ {
			done, refused := s.connections.Admit(fmt.Sprintf(address, n))
			if refused != nil {
				return n
			}
			defer done()
		}
		return n
	}
	handshakes := func() int {
		for range limit + 2 {
			c, far := net.Pipe()
			defer far.Close()
			s.handshakes.Track(c, http.StateNew)
			defer s.handshakes.Track(c, http.StateClosed)
		}
		return s.handshakes.Count()
	}
	subscriptions := func() (n int) {
		p := r.dial()
		defer alone()
		defer p.leave()
		for sess := p.restore(reader); n <= limit; n++ {
			promise := p.subscribing(sess, newRecorder(), 0, 0, false)
			if _, _, err := promise.Wait(within(t)); err != nil {
				return n
			}
		}
		return n
	}
	hello := func() int {
		w := r.dialWeb()
		defer alone()
		defer w.leave()
		return int(w.give(w.main, "hello", 1).(object)["limits"].(object)["batchesInFlight"].(float64))
	}
	strangers, known := s.MemoryBudgets()
	quota := func(account bool) int {
		perSession, perAccount := s.operator.Quotas()
		if account {
			return int(perAccount >> 20)
		}
		return int(perSession >> 20)
	}
	addresses := 0
	tries := func(beyond int) *triesPeer { // shows wrong refs from a new address, so many that are not answered at once
		addresses++
		peer := &triesPeer{address: fmt.Sprintf("198.51.100.%d:1", addresses)}
		defer s.authThrottle.DropConn(peer)
		for shown := 0; peer.refused == nil && shown < peer.answered+beyond; shown++ {
			s.authThrottle.Respond(peer, func() { peer.answered++ })
		}
		return peer
	}
	enforced := map[string]func() []int{
		"Connections":                 func() []int { return []int{admitted("192.0.2.%d:1")} },
		"ConnectionsPerAddress":       func() []int { return []int{admitted("192.0.2.1:%d"), handshakes()} },
		"Handshakes":                  func() []int { return []int{handshakes()} },
		"Subscriptions":               func() []int { return []int{subscriptions()} },
		"BatchesInFlight":             func() []int { return []int{hello()} },
		"StrangerBytes":               func() []int { return []int{int(strangers.Stats().Total >> 20), 2 * perKey(strangers)} },
		"KnownBytes":                  func() []int { return []int{int(known.Stats().Total >> 20)} },
		"RefBytes":                    func() []int { return []int{perKey(known)} },
		"WrongTries":                  func() []int { return []int{tries(1).answered} },
		"WrongTryInterval":            func() []int { return []int{int(tries(1000).wait().Seconds()) / 64} },
		"QueueOps":                    func() []int { return []int{s.committer.Stats().QueueOps} },
		"Session.Limits.SessionBytes": func() []int { return []int{quota(false)} }, // TestSetLimits shows what a commit makes of it, and of RefBytes
		"Session.Limits.RefBytes":     func() []int { return []int{s.liveConfig.Load().Session.Limits.RefBytes >> 20} },
		"Session.Limits.AccountBytes": func() []int { return []int{quota(true)} },
	}
	for i := range reflect.TypeFor[rpc.Limits]().NumField() {
		field := reflect.TypeFor[rpc.Limits]().Field(i)
		enforced["RPC."+field.Name] = func() []int { // connections get these whole
			n := int(reflect.ValueOf(s.liveConfig.Load().RPC).Field(i).Int())
			if field.Type == reflect.TypeFor[time.Duration]() {
				n /= int(time.Second)
			} else if strings.HasSuffix(field.Name, "Bytes") {
				n >>= 20
			}
			return []int{n}
		}
	}
	var try func(name string, of func(*Config) reflect.Value)
	try = func(name string, of func(*Config) reflect.Value) {
		cfg := DefaultConfig()
		value := of(&cfg)
		switch {
		case value.Kind() == reflect.Struct:
			for i := range value.NumField() {
				inner := name
				if field := value.Type().Field(i); !field.IsExported() {
					continue
				} else if !field.Anonymous {
					inner = strings.TrimPrefix(name+"."+field.Name, ".")
				}
				try(inner, func(c *Config) reflect.Value { return of(c).Field(i) })
			}
			return
		case !value.CanInt() || slices.Contains(fixedFields, name):
			return
		case enforced[name] == nil:
			t.Errorf("%s is neither fixed, nor is it known here what enforces it", name)
			return
		case value.Type() == reflect.TypeFor[time.Duration]():
			value.SetInt(int64(limit * time.Second))
		case strings.HasSuffix(name, "Bytes"):
			value.SetInt(limit << 20)
		default:
			value.SetInt(limit)
		}
		s.SetLimits(cfg)
		for i, n := range enforced[name]() {
			if n != limit {
				t.Errorf("%s is %d, set to %d (%d)", name, n, limit, i)
			}
		}
	}
	try("", func(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() })
}

// triesPeer is a peer that shows wrong refs.
type triesPeer struct {
	address  string
	answered int // at once
	refused  error
}

func (p *triesPeer) RemoteAddr() string    { return p.address }
func (p *triesPeer) Done() <-chan struct{} { return nil }
func (p *triesPeer) Abort(why error)       { p.refused = why }

// wait returns what the refusal says that the peer has to wait.
func (p *triesPeer) wait() time.Duration {
	_, text, _ := strings.Cut(fmt.Sprint(p.refused), "wait ")
	text, _, _ = strings.Cut(text, " ")
	d, _ := time.ParseDuration(text)
	return d
}
