//go:build unix

package httpapi

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// Requests are in the histogram of calls when they are answered, streams are not, and what a
// read is refused for is counted.
func TestRequestsAreMeasured(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	has := func(lines ...string) bool {
		w := httptest.NewRecorder()
		r.server.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, line := range lines {
			if !strings.Contains(w.Body.String(), "\n"+line+"\n") {
				return false
			}
		}
		return true
	}
	const requests = `mooring_call_duration_seconds_count{object="api"} `
	until.True(t, "the create is measured", func() bool { return has(requests + "1") })
	r.must(200, "GET", "/sessions/"+m.id, m.owner.Text(), nil)
	r.must(200, "GET", "/sessions/"+m.id+"/snapshot", m.owner.Text(), nil)
	until.True(t, "the read is measured", func() bool { return has(requests + "2") })
	wrong := m.owner
	wrong.Secret = capability.NewSecret()
	if got := r.ask("GET", "/sessions/"+m.id, wrong.Text(), nil); got.code() != "unknown_ref" {
		t.Fatalf("%d: %s", got.status, bytes.TrimSpace(got.text))
	}
	until.True(t, "the refusal is counted", func() bool { return has(requests+"3", `mooring_refusals_total{code="unknown_ref"} 1`) })
}
