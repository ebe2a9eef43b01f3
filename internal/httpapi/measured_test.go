//go:build unix

package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/scrape"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// Requests are in the histogram of calls when they are answered, streams are not.
func TestRequestsAreMeasured(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	has := func(n string) bool {
		return scrape.Of(r.server.Metrics())[`mooring_call_duration_seconds_count{object="api"}`] == n
	}
	until.True(t, "the create is measured", func() bool { return has("1") })
	r.must(200, "GET", "/sessions/"+m.id, m.owner.Text(), nil)
	r.must(200, "GET", "/sessions/"+m.id+"/snapshot", m.owner.Text(), nil)
	until.True(t, "the read is measured", func() bool { return has("2") })
	wrong := m.owner
	wrong.Secret = capability.NewSecret()
	if got := r.ask("GET", "/sessions/"+m.id, wrong.Text(), nil); got.code() != "unknown_ref" {
		t.Fatalf("%d: %s", got.status, bytes.TrimSpace(got.text))
	}
	until.True(t, "the refusal is measured", func() bool { return has("3") })
}

// TestUnexpectedErrors: what no rule foresaw is logged with the request that met it.
func TestUnexpectedErrors(t *testing.T) {
	t.Parallel()
	var log lockbuf.Buffer
	var st *odd
	r := start(t, teststore.SQLite(t), func(c *node.Config, _ *Config) {
		st = &odd{Store: c.Store}
		c.Store, c.Log = st, slog.New(slog.NewTextHandler(&log, nil))
	})
	m := r.create()
	b := m.box.batch(m.id, op("put", "key", "message/m", "payload", json.RawMessage(`{}`)))
	st.now.Store(true)
	for _, c := range []struct {
		method, path string
		body         any
		says         string
	}{
		{"GET", "", nil, `doing="describe the session"`},
		{"GET", "/events", nil, `doing="read the log"`},
		{"POST", "/batches", m.box.json(b), "batch=" + b.BatchID},
	} {
		got := r.ask(c.method, "/sessions/"+m.id+c.path, m.owner.Text(), c.body)
		line := ""
		for l := range strings.Lines(log.String()) {
			if strings.Contains(l, "unexpected error") {
				line = l
			}
		}
		if got.code() != "internal" || !strings.Contains(line, "request="+got.header.Get(node.RequestHeader)) || !strings.Contains(line, c.says) {
			t.Errorf("%s %s: %d %s, and the log has %s", c.method, c.path, got.status, got.text, line)
		}
	}
	if f := toFault(slog.New(slog.NewTextHandler(&log, nil)), "ID", errOdd); f.Code != fault.Internal || !strings.Contains(log.String(), "request=ID") {
		t.Errorf("%v, and the log has %s", f, log.String())
	}
}

// odd is a database that fails in a way nobody has foreseen.
type odd struct {
	node.Store
	now atomic.Bool
}

var errOdd = errors.New("odd")

func (s *odd) Describe(context.Context, string, []string) (*session.Unscoped[*session.Description], error) {
	return nil, errOdd
}

func (s *odd) ReadLog(context.Context, string, uint64, int, int, []string, ...uint64) (*session.Unscoped[*session.LogPage], error) {
	return nil, errOdd
}

func (s *odd) Update(ctx context.Context, decide func(session.Tx) error) error {
	if s.now.Load() {
		return errOdd
	}
	return s.Store.Update(ctx, decide)
}
