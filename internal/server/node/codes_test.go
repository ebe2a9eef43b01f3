//go:build unix

// What clients are told, and what stays, when a statement of the store fails with each of the codes that databases fail with.

package node

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/stmtfault"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// failing is a server on a database whose statements can be told to fail.
type failing struct {
	*rig
	*stmtfault.Statements
	log *lockbuf.Buffer
}

// onFailing runs a test on both databases.
func onFailing(t *testing.T, f func(t *testing.T, d failing)) {
	t.Parallel()
	teststore.OnFailing(t, func(t *testing.T, st *store.Store, s *stmtfault.Statements) {
		d := failing{Statements: s, log: new(lockbuf.Buffer)}
		d.rig = start(t, st, func(c *Config) {
			logInto(d.log)(c)
			c.probe = operator.ProbeConfig{Interval: time.Hour, SlowCommit: time.Hour} // probes are statements that nobody asked for
		})
		f(t, d)
		if text := d.log.String(); strings.Contains(text, "unexpected error") {
			t.Errorf("logged %s", text)
		}
	})
}

// failingVerb is something that is asked of a server, and may be asked again.
type failingVerb struct {
	prepare func()       // what ask needs; nil for nothing
	ask     func() error // gives the error that the caller is told
}

// failingVerbs are what clients ask of a server, and what it does by itself.
func (d failing) failingVerbs(t *testing.T) map[string]failingVerb {
	p := d.dial()
	m, old := d.create(p), d.create(p)
	web := httpOf(t, d.rig)
	// applying sends a batch, and the same one until it is taken: once.
	applying := func(next func() (*made, *ledger.Batch)) failingVerb {
		var to *made
		var pending *ledger.Batch
		return failingVerb{
			prepare: func() {
				if pending == nil {
					to, pending = next()
				}
			},
			ask: func() error {
				r := p.apply(to.stream, pending)
				if r.refusal != nil {
					return r.refusal
				}
				if r.applied+r.duplicates != 1 {
					t.Errorf("%+v", r)
				}
				pending = nil
				return nil
			},
		}
	}
	follow := func(snapshot bool) error {
		// Else the next one's first page may be read for this one, and what follows it may be what fails until somebody gives up.
		defer until.True(t, "the subscription is over", func() bool { n, _, _, _ := d.server.hub.Followers(); return n == 0 })
		k := newRecorder()
		promise := p.subscribing(m.sess, k, 0, 0, snapshot)
		defer promise.Release()
		if _, _, err := promise.Wait(within(t)); err != nil {
			return asFault(err)
		}
		defer promise.Cap(0).Release()
		var ended *fault.Error
		k.until(t, "an event, the state, or the end", func() bool {
			ended = k.ended
			return len(k.cursors) > 0 || k.last || ended != nil
		})
		if ended != nil {
			return ended
		}
		return nil
	}
	n := 0
	verbs := map[string]failingVerb{
		"apply": applying(func() (*made, *ledger.Batch) { n++; return m, m.batch(put(n)) }),
		"share": applying(func() (*made, *ledger.Batch) {
			ref := m.owner.New(m.id)
			return m, m.batch(op("share", "ref", ref.ID, "hash", hashText(ref.Secret), "rights", []string{"read"}))
		}),
		"purge": applying(func() (*made, *ledger.Batch) {
			p.must(m.stream, m.batch(op("put", "key", "message/purged", "payload", map[string]int{"n": n})))
			return m, m.batch(op("purge", "key", "message/purged"))
		}),
		"delete": applying(func() (*made, *ledger.Batch) {
			gone := d.create(p)
			return gone, gone.batch(op("delete"))
		}),
		"trim": {
			prepare: func() { n++; p.must(old.stream, old.batch(put(n))) },
			ask: func() error {
				_, err := d.server.cfg.Store.Trim(within(t), old.id, 1, 500, 4<<20)
				return err
			},
		},
	}
	for name, ask := range map[string]func() error{
		"hello": func() error {
			_, promise, err := call(t, p.gateway, methods.GatewayHello.Method, methods.GatewayHello.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
				wire.Gateway_hello_Params(s).SetVersion(1)
				return nil
			})
			promise.Release()
			return err
		},
		"open a stream": func() error {
			promise := p.opening(m.sess, newBox())
			defer promise.Release()
			_, _, err := promise.Wait(within(t))
			return asFault(err)
		},
		"restore":  func() error { return p.restoreErr(m.owner, "") },
		"follow":   func() error { return follow(false) },
		"snapshot": func() error { return follow(true) },
		"readyz": func() error {
			switch status, text := get(t, web+"/readyz"); status {
			case http.StatusOK:
				return nil
			case http.StatusServiceUnavailable:
				return errNotReady
			default:
				return fmt.Errorf("%d: %s", status, text)
			}
		},
		"due for trimming":   func() error { _, _, err := d.server.cfg.Store.Trimmable(within(t), 1, "", 500); return err },
		"due for forgetting": func() error { _, _, err := d.server.cfg.Store.TrimmableDeleted(within(t), 1, "", 500); return err },
		"expiry":             func() error { _, err := d.server.cfg.Store.AuditExpired(within(t), 100); return err },
		"lapse":              func() error { _, err := d.server.cfg.Store.Lapsed(within(t), 1, "", 100); return err },
		"measure":            func() error { _, err := d.server.cfg.Store.Measure(within(t), m.id); return err },
	} {
		verbs[name] = failingVerb{ask: ask}
	}
	return verbs
}

// errNotReady is what readyz says, whatever the reason.
var errNotReady = errors.New("not ready")

func asFault(err error) error {
	if f, ok := fault.ParseReason(reasonOf(err)); ok {
		return f
	}
	return err
}

// checkFailing has a verb's at-th statement, and all after it, fail, and then none. It says whether there was one.
func (d failing) checkFailing(t *testing.T, name string, verb failingVerb, at int, f stmtfault.Failure) (met bool) {
	t.Helper()
	if verb.prepare != nil {
		verb.prepare()
	}
	failed, err := d.During(at, f, verb.ask)
	if len(failed) == 0 {
		if err != nil {
			t.Errorf("%s, which no statement fails: %v", name, err)
		}
		return false
	}
	label := fmt.Sprintf("%s, %s at %d, %.60q", name, f, at, failed[0])
	if want := f.Cause().Code(); err != nil && fault.CodeOf(err) != want && err != errNotReady || err == nil && at == 1 && name == "apply" {
		t.Errorf("%s: %v, want %s", label, err, want)
	}
	if err != nil {
		if err := verb.ask(); err != nil {
			t.Errorf("%s, then again: %v", label, err)
		}
	}
	return true
}

// TestCodesAtStatements gives each code at each statement of appending, and each verb some at its statements: clients are
// told what the table says, and who asks again is answered; nothing is applied twice or lost, and no line says that it was
// unexpected.
func TestCodesAtStatements(t *testing.T) {
	onFailing(t, func(t *testing.T, d failing) {
		verbs, met := d.failingVerbs(t), map[string]bool{}
		names := slices.Sorted(maps.Keys(verbs))
		for i, f := range d.Failures {
			for at := 1; at <= 8 && d.checkFailing(t, "apply", verbs["apply"], at, f); at++ {
			}
			for j, name := range names {
				if (i+j)%3 == 0 && d.checkFailing(t, name, verbs[name], 1+i/3%3, f) {
					met[name] = true
				}
			}
		}
		for _, name := range names {
			if !met[name] && name != "hello" { // which needs no database
				t.Errorf("no statement of %s has failed", name)
			}
		}
	})
}
