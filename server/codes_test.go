//go:build unix

// What clients are told, and what stays, when a statement of the store fails with each of the codes that databases fail with.

package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgfault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/sqlitefault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/store/sqlite"
)

// failing is a server on a database whose statements can be told to fail.
type failing struct {
	*rig
	log      *lockbuf.Buffer
	failures []codeFailure
	fail     func(at int, onwards bool, f codeFailure)
	failed   func() []string
}

// codeFailure is one of the codes that a database fails with.
type codeFailure struct {
	name     string
	code     fault.Code // that clients are told
	postgres pgfault.Failure
	sqlite   sqlitefault.Failure
}

// aside are statements that no request waits for.
func aside(sql string) bool {
	return strings.Contains(sql, "pg_notify") || strings.Contains(sql, "LISTEN") || sql == "rollback"
}

// onFailing runs a test on both databases.
func onFailing(t *testing.T, f func(t *testing.T, d failing)) {
	t.Parallel()
	begin := func(t *testing.T, st Store) failing {
		d := failing{log: new(lockbuf.Buffer)}
		d.rig = start(t, st, func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(d.log, nil))
			c.probing = probing{interval: time.Hour, slow: time.Hour} // probes are statements that nobody asked for
		})
		return d
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		proxy := pgfault.New(t, pgtest.URL(t), aside)
		d := begin(t, postgresStore(t, proxy.URL()))
		d.failed = proxy.Failed
		d.fail = func(at int, onwards bool, f codeFailure) { proxy.Fail(at, onwards, f.postgres) }
		for _, pf := range pgfault.Failures() {
			d.failures = append(d.failures, codeFailure{name: pf.String(), code: pf.Cause().Code(), postgres: pf})
		}
		f(t, d)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		driver := sqlitefault.New(t, aside)
		st, err := sqlite.Open(t.Context(), sqlite.Config{Dir: t.TempDir(), Driver: driver.Name()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		d := begin(t, st)
		d.failed = driver.Failed
		d.fail = func(at int, onwards bool, f codeFailure) { driver.Fail(at, onwards, f.sqlite) }
		for _, sf := range sqlitefault.Failures() {
			d.failures = append(d.failures, codeFailure{name: sf.String(), code: sf.Cause().Code(), sqlite: sf})
		}
		f(t, d)
	})
}

// failingVerbs are what a client asks of a server. Each gives the error that it is told, and may be asked again.
func (d failing) failingVerbs(t *testing.T) map[string]func() error {
	p := d.dial()
	m := d.create(p)
	web := httpOf(t, d.rig)
	told := func(r *reply) error {
		if r.refusal != nil {
			return r.refusal
		}
		return nil
	}
	// apply sends a batch, and the same one until it is taken: once.
	pending := map[string]*ledger.Batch{}
	apply := func(verb string, o func() *ledger.Batch) error {
		if pending[verb] == nil {
			pending[verb] = o()
		}
		r := p.apply(m.stream, pending[verb])
		if r.refusal == nil {
			delete(pending, verb)
			if r.applied+r.duplicates != 1 {
				t.Errorf("%s: %+v", verb, r)
			}
		}
		return told(r)
	}
	follow := func(snapshot bool) error {
		k := newRecorder()
		promise := p.subscribing(m.sess, k, 0, 0, snapshot)
		defer promise.Release()
		if _, _, err := promise.Wait(within(t)); err != nil {
			return asFault(err)
		}
		defer promise.Cap(0).Release()
		k.until(t, "an event, the state, or the end", func() bool { return len(k.cursors) > 0 || k.last || k.ended != nil })
		if k.ended != nil {
			return k.ended
		}
		return nil
	}
	n := 0
	return map[string]func() error{
		"apply": func() error { return apply("apply", func() *ledger.Batch { n++; return m.batch(put(n)) }) },
		"share": func() error {
			return apply("share", func() *ledger.Batch {
				ref := m.owner.New(m.id)
				return m.batch(op("share", "ref", ref.ID, "hash", hashText(ref.Secret), "rights", []string{"read"}))
			})
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
	}
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
func (d failing) checkFailing(t *testing.T, name string, verb func() error, at int, f codeFailure) (met bool) {
	t.Helper()
	d.fail(at, true, f)
	err := verb()
	failed := d.failed()
	d.fail(0, false, codeFailure{})
	if len(failed) == 0 {
		return false
	}
	what := fmt.Sprintf("%s, %s at %d, %.60q", name, f.name, at, failed[0])
	if err != nil && fault.CodeOf(err) != f.code && err != errNotReady || err == nil && at == 1 && name == "apply" {
		t.Errorf("%s: %v, want %s", what, err, f.code)
	}
	if err := verb(); err != nil {
		t.Errorf("%s, then again: %v", what, err)
	}
	return true
}

// TestCodesAtStatements gives each code at each statement of appending, and each verb some at each of its statements: clients are
// told what the table says, and who asks again is answered; nothing is applied twice or lost, and no line says that it was
// unexpected.
func TestCodesAtStatements(t *testing.T) {
	onFailing(t, func(t *testing.T, d failing) {
		verbs := d.failingVerbs(t)
		for i, f := range d.failures {
			for at := 1; at <= 8 && d.checkFailing(t, "apply", verbs["apply"], at, f); at++ {
			}
			for name, verb := range verbs {
				d.checkFailing(t, name, verb, 1+i%3, f)
			}
		}
		if text := d.log.String(); strings.Contains(text, "unexpected error") {
			t.Errorf("logged %s", text)
		}
	})
}
