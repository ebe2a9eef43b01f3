//go:build unix

package httpapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/teststore"
)

// Reads of a session's content are compressed, and nothing else; that no compressed answer has a secret is checked of
// every one in this package (rig.do).
func TestWhatIsCompressed(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	r.put(m, 60)
	at := "/sessions/" + m.id
	for path, compressed := range map[string]bool{
		at + "/snapshot": true, at + "/events?after=0": true, at + "/state?values=true": true, "/openapi.json": true,
		at + "/state?key=message/m4": false, // it is small
		at + "/refs":                 false, at + "/audit": false, at: false, "/nothing" + strings.Repeat("-", 2000): false,
	} {
		ref := m.owner.Text()
		got := r.ask("GET", path, ref, nil)
		if small := got.header.Get("Content-Length") != ""; compressed && (small || !slices.Contains(got.header.Values("Vary"), "Accept-Encoding")) || !compressed && !small {
			t.Errorf("%s: %v", path, got.header) // Go's client decompresses, and then knows no length
		}
		req := r.request("GET", path, ref, nil)
		req.Header.Set("Accept-Encoding", "gzip;q=0")
		if whole := r.do(req); whole.status != got.status || compressed && string(whole.text) != string(got.text) || whole.header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %d, without compression %d", path, got.status, whole.status)
		}
	}
}
