//go:build !race

package relay

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode/syncbody"
)

// What is too large to be read has no key by which the share could say that it lacks it, so that it is to be read from opencode. Reading
// so much byte by byte takes long under the race detector.
func TestAnItemTooLargeToBeRead(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := create(t, r.http.URL, "ses_x")
	large := partItem(1, 1, strings.Repeat("x", syncbody.MaxBuffered))
	want(t, http.StatusRequestEntityTooLarge, "POST", r.http.URL+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, large, messageItem(1)))
	if s := r.only(); s.misses != 1 {
		t.Errorf("it was missed %d times", s.misses)
	}
	r.drained()
	if got := r.data(c.ID); len(got) != 1 {
		t.Errorf("the share has %q", got)
	}
}
