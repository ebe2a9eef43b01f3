//go:build !race

// Tests of sizes, which the race detector multiplies: make test-slow runs them without it.

package share

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// A first sync that is far larger than all that may be held of bodies is taken in; of
// one that breaks off, what was taken in before stays.
func TestLargeSyncs(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) {
		c.server.RefBytes, c.share.MessageBytes, c.share.CommitLimits = 4<<20, 1<<20, opencode.Limits{Ops: 1000, Bytes: 1 << 20, Payload: 1 << 20}
	})
	c := r.create("ses_vast")
	const messages, each = 100, 60 << 10
	text := strings.Repeat("x", each)
	send := func(n int, end string) reply {
		t.Helper()
		pr, pw := io.Pipe()
		go func() {
			_, err := fmt.Fprintf(pw, `{"secret":%q,"data":[{"type":"session","data":{"id":"ses_vast","title":"vast"}}`, c.Secret)
			for i := 0; i < n && err == nil; i++ {
				_, err = fmt.Fprintf(pw, `,{"type":"message","data":{"id":"msg_%03d"}},{"type":"part","data":{"id":"prt_%03d","messageID":"msg_%03d","type":"text","text":%q}}`, i, i, i, text)
			}
			if err == nil {
				_, err = io.WriteString(pw, end)
			}
			_ = pw.CloseWithError(err)
		}()
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr+"/api/share/"+c.ID+"/sync", pr)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply{res.StatusCode, res.Header, string(data)}
	}
	if got := send(messages/2, "x"); got.status != 400 {
		t.Errorf("one that breaks off: %d %s", got.status, got.body)
	}
	cut := len(r.data(c))
	if cut == 0 || cut >= messages {
		t.Errorf("%d values of one that broke off are there", cut)
	}
	before := r.cursor(c)
	got := r.want(200, send(messages, "]}"))
	if got.body != fmt.Sprintf(`{"success":true,"syncCount":%d}`+"\n", 2*messages+1) {
		t.Errorf("the reply is %s", got.body)
	}
	if made := r.cursor(c) - before; made != uint64(2*messages+1-cut) {
		t.Errorf("%d events for what was not there yet, of %d and %d", made, 2*messages+1, cut)
	}
	if n := len(r.data(c)); n != 2*messages+1 {
		t.Errorf("%d of %d values are there", n, 2*messages+1)
	}
}

// A body costs a server little more than its bytes before it is known whose it is,
// and what is no item is refused as soon as it is looked at.
func TestManyItems(t *testing.T) { // alone: it counts what is allocated
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_items")
	body := func(items int, secret string) string {
		return fmt.Sprintf(`{"data":[%s1],"secret":%q}`, strings.Repeat("1,", items), secret)
	}
	for _, q := range []struct {
		secret string
		status int
	}{{"another", 403}, {c.Secret, 400}} {
		sent := body(2_000_000, q.secret)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := r.request("POST", "/api/share/"+c.ID+"/sync", sent)
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; got.status != q.status || n > 1_000_000 {
			t.Errorf("%.10s: %d %s after %d allocations", q.secret, got.status, got.body, n)
		}
	}
}
