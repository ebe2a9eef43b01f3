// How servers are found, kept and given up, on a clock of the test's own.

package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// revoking answers hello, and every other call with Revoked: so it is known to have answered.
type revoking struct{}

func (revoking) Serve(call *rpc.Call) {
	if call.Method().ID != methods.GatewayHello.ID {
		call.Fail(rpc.Failedf("%s", fault.Revoked.With("on request").Reason()))
		return
	}
	call.Return(capnp.ObjectSize{DataSize: 16, PointerCount: 2}, func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Gateway_hello_Results(s).SetVersion(1)
		return nil
	})
}

// mute takes calls and answers none.
type mute struct{}

func (mute) Serve(*rpc.Call) {}

func serve(ctx context.Context, o rpc.Object) (rpc.Transport, error) {
	near, far := rpc.Pipe()
	conn := rpc.NewConn(far, rpc.Config{Bootstrap: o})
	go func() { _ = conn.Run(context.WithoutCancel(ctx)) }() // ends with the client's side
	return near, nil
}

// hosts dials what is served at each host; nil is nobody. Dialling one that is not
// there takes as long as the caller lets it.
type hosts map[string]rpc.Object

func (h hosts) dial(ctx context.Context, url string) (rpc.Transport, error) {
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "ws://"), "/")
	o, there := h[host]
	switch {
	case !there:
		<-ctx.Done()
		return nil, ctx.Err()
	case o == nil:
		return nil, errors.New("connection refused")
	}
	return serve(ctx, o)
}

// sessionAt is a session at these hosts.
func sessionAt(c *Client, at ...string) *Session {
	return &Session{client: c, id: testSession, saved: outbox.SavedRef{Ref: capability.Ref{Hosts: at}.New(testSession)}}
}

// A first host that is of no use costs a moment, whatever is wrong with it.
func TestAGoodHostIsFoundBehindOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		bad    rpc.Object
		there  bool
		within time.Duration
	}{
		"it refuses":            {nil, true, time.Millisecond},
		"it does not answer":    {nil, false, time.Second},
		"it is mute":            {mute{}, true, time.Second},
		"it is of another time": {&helloServer{version: 99}, true, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := hosts{"127.0.0.9:9": revoking{}}
			if tc.there {
				h["127.0.0.1:1"], h["127.0.0.2:2"] = tc.bad, tc.bad
			}
			c := linkClient(t, Config{RetryTimeout: time.Second, dial: h.dial})
			defer func() { _ = c.Close() }()
			began := time.Now()
			_, err := sessionAt(c, "127.0.0.1:1", "127.0.0.2:2", "127.0.0.9:9").Describe(t.Context())
			if took := time.Since(began); !errors.Is(err, fault.Revoked) || took > tc.within {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		})
	}
}

// A call looks for a server for as long as patience lasts, or its last try, and one that
// answers is waited for. The last try may begin with the pause between two rounds.
func TestPatienceIsForFindingAServer(t *testing.T) {
	for name, tc := range map[string]struct {
		o      rpc.Object
		within time.Duration
	}{"it refuses": {nil, time.Second}, "it is mute": {mute{}, 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			c := linkClient(t, Config{RetryTimeout: time.Second, dial: hosts{"127.0.0.1:1": tc.o}.dial})
			defer func() { _ = c.Close() }()
			for range 3 {
				began := time.Now()
				_, err := sessionAt(c, "127.0.0.1:1").Describe(t.Context())
				if took := time.Since(began); !errors.Is(err, fault.Unavailable) || took > tc.within+c.cfg.Reconnect.Initial {
					t.Errorf("%s: %v after %s", name, err, took)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a slow one is not one that is not there
		h := hosts{"127.0.0.1:1": revoking{}}
		c := linkClient(t, Config{RetryTimeout: time.Second, dial: func(ctx context.Context, url string) (rpc.Transport, error) {
			time.Sleep(4 * time.Second) // 5 are what a host may take
			return h.dial(ctx, url)
		}})
		defer func() { _ = c.Close() }()
		if _, err := sessionAt(c, "127.0.0.1:1").Describe(t.Context()); !errors.Is(err, fault.Revoked) {
			t.Errorf("a slow link: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := linkClient(t, Config{RetryTimeout: time.Second, dial: hosts{"127.0.0.1:1": &helloServer{version: 1}}.dial})
		defer func() { _ = c.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := sessionAt(c, "127.0.0.1:1").Describe(ctx) // it greets, and takes its time for the rest
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Minute {
			t.Errorf("a server at work: %v after %s", err, took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // one try, which ends by itself
		c := linkClient(t, Config{RetryTimeout: -1, dial: hosts{"127.0.0.1:1": mute{}}.dial})
		defer func() { _ = c.Close() }()
		began := time.Now()
		_, err := sessionAt(c, "127.0.0.1:1").Describe(t.Context())
		if took := time.Since(began); !errors.Is(err, fault.Unavailable) || took != 10*time.Second {
			t.Errorf("one try: %v after %s", err, took)
		}
	})
}

// What a server said is told, not that the next attempt had no time left.
func TestReachedLimitsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialled atomic.Int32
		c := linkClient(t, Config{RetryTimeout: time.Second, dial: func(ctx context.Context, _ string) (rpc.Transport, error) {
			if dialled.Add(1) == 1 {
				return nil, errors.New("the certificate is of another server")
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		defer func() { _ = c.Close() }()
		s := sessionAt(c, "127.0.0.1:1")
		if _, err := c.serverFor(s.saved.Ref); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the first attempt is over before its caller looks
		if _, err := s.Describe(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("after %d attempts: %v", dialled.Load(), err)
		}
	})
}

// A call that its caller has given up says so, and what it met until then.
func TestACallThatWasGivenUpSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := linkClient(t, Config{dial: hosts{"127.0.0.1:1": nil}.dial})
		defer func() { _ = c.Close() }()
		s := sessionAt(c, "127.0.0.1:1")
		for range 3 { // at whatever stage it is
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := s.Describe(ctx)
			cancel()
			if fault.CodeOf(err) != fault.Canceled || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fault.Unavailable) || strings.Count(err.Error(), "canceled") != 1 {
				t.Errorf("a deadline: %v", err)
			}
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(200*time.Millisecond, cancel)
			if _, err := s.Snapshot(ctx); !errors.Is(err, fault.Canceled) || !errors.Is(err, context.Canceled) {
				t.Errorf("canceled: %v", err)
			}
		}
		closing := make(chan error)
		go func() {
			_, err := s.Describe(context.Background())
			closing <- err
		}()
		synctest.Wait()
		_ = c.Close()
		if err := <-closing; !errors.Is(err, fault.Canceled) || errors.Is(err, fault.Unavailable) {
			t.Errorf("closed: %v", err)
		}
	})
}

// However many want a server that is down, it is dialled at a pace.
func TestAServerThatIsDownIsDialledAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		c := linkClient(t, Config{dial: func(context.Context, string) (rpc.Transport, error) {
			dials.Add(1)
			return nil, errors.New("connection refused")
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				_ = sessionAt(c, "127.0.0.1:1").Subscribe(ctx, SubscribeOptions{}, func(Event) error { return nil })
			})
		}
		time.Sleep(time.Minute)
		if n := dials.Load(); n > 601 || n < 12 {
			t.Errorf("dialled %d times in a minute, with waits of at least %s", n, c.cfg.Reconnect.Initial)
		}
		cancel()
		all.Wait()
		_ = c.Close()
	})
}

// A server that nobody wants any more is not dialled for ever, and found again.
func TestAServerThatNobodyUsesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hosts{"127.0.0.1:1": nil}
		var dials atomic.Int64
		c := linkClient(t, Config{RetryTimeout: -1, dial: func(ctx context.Context, url string) (rpc.Transport, error) {
			dials.Add(1)
			return h.dial(ctx, url)
		}})
		defer func() { _ = c.Close() }()
		s := sessionAt(c, "127.0.0.1:1")
		if _, err := s.Describe(t.Context()); !errors.Is(err, fault.Unavailable) || c.ConnErr() == nil {
			t.Errorf("%v, %v", err, c.ConnErr())
		}
		time.Sleep(time.Minute + 10*time.Second)
		before := dials.Load()
		time.Sleep(time.Hour)
		if n := dials.Load() - before; n > 0 || c.ConnErr() != nil {
			t.Errorf("dialled %d times more, %v", n, c.ConnErr())
		}
		h["127.0.0.1:1"] = revoking{}
		if _, err := s.Describe(t.Context()); !errors.Is(err, fault.Revoked) {
			t.Errorf("used again: %v", err)
		}
		time.Sleep(time.Hour) // a connection that stands is kept
		before = dials.Load()
		if _, err := s.Describe(t.Context()); !errors.Is(err, fault.Revoked) || dials.Load() != before {
			t.Errorf("later: %v, dialled %d times more", err, dials.Load()-before)
		}
	})
}

// A ref that names no host is refused; it ended the process.
func TestARefWithoutHostsIsRefused(t *testing.T) {
	t.Parallel()
	s := sessionAt(linkClient(t, Config{RetryTimeout: -1}))
	if _, err := s.Describe(t.Context()); !errors.Is(err, fault.BadRefText) {
		t.Errorf("described: %v", err)
	}
	if err := s.Subscribe(t.Context(), SubscribeOptions{}, func(Event) error { return nil }); !errors.Is(err, fault.BadRefText) {
		t.Errorf("subscribed: %v", err)
	}
	if _, err := (link{s.client}).OpenStream(t.Context(), outbox.StreamRequest{Session: testSession, Ref: s.saved.Ref}); !errors.Is(err, fault.BadRefText) {
		t.Errorf("a stream: %v", err)
	}
}
