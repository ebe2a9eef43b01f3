package breach

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

// failures is a test that only counts.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

func TestCheck(t *testing.T) {
	t.Parallel()
	secret := capability.NewSecret().RevealText()
	for body, fails := range map[string]bool{
		`{"token":"ses_1.abc.` + secret + `"}`:    true,
		"mooring://host/ses_1.abc#" + secret:      true,
		"see /share/PUBLIC-ID for more":           true,
		"the other":                               true,
		"x" + secret:                              false, // longer: a hash, say
		"ses_1.abc, and what else the page shows": false,
	} {
		for _, compressed := range []bool{true, false} {
			var f failures
			Check(&f, &http.Response{Uncompressed: compressed, Request: &http.Request{Method: "GET", URL: &url.URL{Path: "/prefix/share/PUBLIC-ID/block"}}}, body, "other")
			if (f.n > 0) != (fails && compressed) {
				t.Errorf("%s, compressed: %t: %d failures", body, compressed, f.n)
			}
		}
	}
}
