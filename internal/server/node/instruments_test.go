//go:build unix

// What a monitor is told of speed, refusals and followers.

package node

import (
	"maps"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/scrape"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
)

// number is a metric's value.
func (r *rig) number(series string) float64 {
	r.t.Helper()
	n, err := strconv.ParseFloat(r.metric(series), 64)
	if err != nil {
		r.t.Fatalf("%s: %v", series, err)
	}
	return n
}

func TestMetricsOfWork(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.Name, c.CountInterval = "mooring/v1.2.3", time.Millisecond })
		p := r.dial()
		m := r.create(p)
		k := newRecorder()
		sub := p.subscribe(m.sess, k, 0)
		defer sub.Release()
		k.untilCursor(t, 1)
		commits, bytes := r.number("mooring_commit_duration_seconds_count"), r.number("mooring_committed_bytes_total")
		if ack := p.must(m.stream, m.batch(put(1))); ack.applied != 1 {
			t.Fatalf("%+v", ack)
		}
		k.untilCursor(t, 2)
		// Over any wire and in any way, a refusal is counted once.
		if err := p.restoreErr(m.owner, "x"); err != nil {
			t.Fatal(err)
		}
		wrong := m.owner
		wrong.ID = strings.Replace(wrong.ID, ".", ".x", 1)
		if err := p.restoreErr(wrong, "y"); err == nil {
			t.Fatal("a ref that is not there was restored")
		}
		until.True(t, "the follower's delivery is counted", func() bool { return r.number("mooring_delivery_duration_seconds_count") >= 2 })
		for series, want := range map[string]float64{
			"mooring_commit_duration_seconds_count":      commits + 1,
			`mooring_refusals_total{code="unknown_ref"}`: 1,
			"mooring_followers":                          1,
			"mooring_followed_sessions":                  1,
			"mooring_follower_lag_events":                0,
			"mooring_followers_behind_events":            0,
		} {
			if have := r.number(series); have != want {
				t.Errorf("%s is %v, want %v", series, have, want)
			}
		}
		if r.number("mooring_committed_bytes_total") <= bytes {
			t.Error("the batch had no bytes")
		}
		for _, series := range []string{`mooring_call_duration_seconds_count{object="gateway"}`, `mooring_call_duration_seconds_count{object="space"}`,
			`mooring_call_duration_seconds_count{object="session"}`, `mooring_call_duration_seconds_count{object="stream"}`} {
			if r.number(series) < 1 {
				t.Errorf("%s is 0", series)
			}
		}
		until.True(t, "the session is counted", func() bool {
			all := r.server.operator.Counted()
			return all != nil && all.Live > 0 && all.Bytes > 0 && all.Events >= 2
		})
		if r.number(`mooring_sessions{life="live"}`) < 1 || r.number(`mooring_sessions{life="deleted"}`) < 0 || r.number("mooring_session_bytes") < 1 ||
			r.number("mooring_session_events") < 2 {
			t.Error("what is counted is not told")
		}
		w := httptest.NewRecorder()
		r.server.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		text := w.Body.String()
		if !strings.Contains(text, `mooring_build_info{goversion="go`) || !strings.Contains(text, `version="v1.2.3"} 1`) {
			t.Error("what is running is not told")
		}
		for _, secret := range []string{m.id, m.owner.ID, "127.0.0.1"} {
			if strings.Contains(text, secret) {
				t.Errorf("the metrics name %s", secret)
			}
		}
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "mooring_") {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// What a follower lacks is known while it takes nothing.
func TestFollowersLagIsMeasured(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	k := newRecorder()
	k.hold = true
	sub := p.subscribing(m.sess, k, 0, fanout.MinWindow, false)
	defer sub.Release()
	large := map[string]string{"x": strings.Repeat("x", 64<<10)}
	for range 5 {
		p.must(m.stream, m.batch(op("put", "key", "session", "payload", large)))
	}
	until.True(t, "it lags", func() bool {
		return r.number("mooring_follower_lag_events") > 0 && r.number("mooring_followers_behind_events") >= r.number("mooring_follower_lag_events")
	})
}

// A refusal that is an op's outcome counts by its reason, and a repeat of it not again.
func TestRefusedOpsAreCountedOnce(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	bad := put(1)
	bad.Expected = ledger.Expect{Set: true, Cursor: 99}
	b := m.batch(bad, put(2))
	for range 2 {
		if ack := p.apply(m.stream, b); ack.refusal != nil {
			t.Fatalf("%+v", ack)
		}
	}
	if n := scrape.Refusals(r.server.Metrics()); !maps.Equal(n, map[string]int{"conflict": 1}) {
		t.Errorf("counted are %v", n)
	}
}

// What answers as a whole with a refusal is counted once, whether the committer refuses it or who decodes it.
func TestRefusedCallsAreCountedOnce(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m, space := r.create(p), p.restore(r.owner)
	reader := p.restore(p.share(m, "rights", []string{"read"}))
	gap := m.batch(put(1))
	gap.Ops[0].Seq += 7
	empty := m.batch()
	for label, ask := range map[string]func() *fault.Error{
		"a gap":       func() *fault.Error { return p.apply(m.stream, gap).refusal },
		"no ops":      func() *fault.Error { return p.apply(m.stream, empty).refusal },
		"acknowledge": func() *fault.Error { return acknowledge(t, m.stream, 99) },
		"share": func() *fault.Error {
			return sharingSession(t, reader, m.owner.New(m.id), capability.MintRequest{Rights: capability.Read})
		},
		"share elsewhere": func() *fault.Error {
			return sharingSession(t, reader, capability.Ref{ID: "x"}, capability.MintRequest{Rights: capability.Read})
		},
		"rotate": func() *fault.Error {
			_, f := rotating(t, reader, methods.SessionRotate.Method, m.owner.New(m.id))
			return f
		},
		"rotate elsewhere": func() *fault.Error {
			_, f := rotating(t, m.sess, methods.SessionRotate.Method, r.owner.New(r.owner.Target()))
			return f
		},
		"a space's share": func() *fault.Error { return sharing(t, space, capability.Ref{ID: "x"}, capability.List, "") },
		"a space's rotate": func() *fault.Error {
			_, f := rotating(t, space, methods.SpaceRotate.Method, m.owner.New(m.id))
			return f
		},
		"a space's revoke": func() *fault.Error { _, f := cutting(t, space, "x"); return f },
	} {
		counted := scrape.Refusals(r.server.Metrics())
		refused := ask()
		if refused == nil {
			t.Errorf("%s is not refused", label)
			continue
		}
		counted[refused.Code.String()]++
		if have := scrape.Refusals(r.server.Metrics()); !maps.Equal(have, counted) {
			t.Errorf("%s: %v: counted are %v, want %v", label, refused, have, counted)
		}
	}
}
