//go:build unix

package web

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// What a session's page consists of is compressed for who accepts that, and says so for caches; nothing else is: that each
// compressed body has no secret is checked of every answer in this package (browser.send).
func TestWhatIsCompressed(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	m.do(put("message/m", `{"role":"user"}`), put("part/m/1", fmt.Sprintf(`{"type":"text","text":%q}`, strings.Repeat("Said again. ", 2000))))
	ref, public := m.share(capability.MintRequest{Rights: capability.Read | capability.Share | capability.Revoke}), m.publish()
	b := newBrowser(t)
	b.client.Transport.(*http.Transport).DisableCompression = true // what comes is looked at as it is
	opened := b.open(r.url("/s/"+ref.ID), secretOf(ref), "Accept-Encoding: gzip")
	list := b.open(r.url("/sessions"), fmt.Sprintf(`{"ref":%q}`, r.owner.Text()), "Accept-Encoding: gzip")
	made := b.post(r.url("/s/"+ref.ID+"/do"), `{"id":"`+ulid.Make().String()+`","do":"share","rights":["read"],"secret":"`+capability.NewSecret().RevealText()+`"}`, "Accept-Encoding: gzip")
	for name, got := range map[string]*answer{"a token": opened, "a space's": list, "a ref that was made": made} {
		if got.StatusCode != http.StatusOK || got.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %d %v %s", name, got.StatusCode, got.Header, got.body)
		}
	}
	for path, compressed := range map[string]bool{
		"/share/" + public.ID:                            true,
		"/share/" + public.ID + "/block?key=part/m/1":    true,
		"/s/" + ref.ID:                                   true,
		"/s/" + ref.ID + "/block?key=part/m/1":           true,
		"/sessions/" + m.id:                              true,
		"/share/" + public.ID + "?q=said":                false, // it links to the share
		"/s/" + ref.ID + "/access":                       false,
		"/sessions":                                      false, // it links to shares
		"/sessions/access":                               false,
		"/share/" + public.ID + "/block?key=part/m/none": false,
	} {
		whole := b.send(http.MethodGet, r.url(path), "", "Accept: text/html", "Accept-Encoding: gzip;q=0, br")
		if whole.Header.Get("Content-Encoding") != "" || (whole.Header.Get("Vary") == "Accept-Encoding") != compressed {
			t.Errorf("%s: %v", path, whole.Header)
		}
		got := b.send(http.MethodGet, r.url(path), "", "Accept: text/html", "Accept-Encoding: br, gzip;q=0.1")
		if (got.Header.Get("Content-Encoding") == "gzip") != compressed || got.Header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s: %v", path, got.Header)
		}
		head := b.send(http.MethodHead, r.url(path), "", "Accept: text/html", "Accept-Encoding: gzip")
		if head.body != "" || head.StatusCode != got.StatusCode || head.Header.Get("Content-Encoding") != got.Header.Get("Content-Encoding") || head.Header.Get("Vary") != got.Header.Get("Vary") {
			t.Errorf("HEAD %s: %d %v", path, head.StatusCode, head.Header)
		}
		if !compressed {
			continue
		}
		z, err := gzip.NewReader(strings.NewReader(got.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		since := regexp.MustCompile(`data-silence="\d+"`)
		if since.ReplaceAllString(string(text), "") != since.ReplaceAllString(whole.body, "") || err != nil || !strings.Contains(whole.body, "Said again.") || 3*len(got.body) > len(whole.body) {
			t.Errorf("%s: %d bytes as %d, %v", path, len(text), len(got.body), err)
		}
	}
}
