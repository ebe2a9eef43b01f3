//go:build unix

package web

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

var (
	leftOut    = regexp.MustCompile(`<article class="msg [a-z]+ later" id="m-([a-z0-9_]+)"[^>]*></article>`)
	leftParts  = regexp.MustCompile(`<section class="later" data-from="([0-9.]+)" data-to="([0-9.]+)"[^>]*></section>`)
	anyMessage = regexp.MustCompile(`<article class="msg [a-z ]+" id="m-([a-z0-9_]+)"`)
)

// log returns the messages of a page.
func log(html string) string {
	_, html, _ = strings.Cut(html, `<div id="log">`)
	html, _, _ = strings.Cut(html, `<section id="rest"`)
	html, _, _ = strings.Cut(html, `<p class="note" id="all">`)
	html, _, _ = strings.Cut(html, `<p class="note warn" id="silent"`)
	return html
}

// complete puts into a page what it has left out, as its script does, and returns how many pieces that took.
func (b *browser) complete(page, html string) (whole string, pieces int) {
	b.t.Helper()
	bundle := regexp.MustCompile(`(?s)<div class="bundle"[^>]*>(.*?)</div>`) // of empty elements
	for html = bundle.ReplaceAllString(log(html), "$1"); ; pieces++ {
		asked := ""
		at := leftOut.FindStringSubmatchIndex(html)
		if at != nil {
			asked = "?message=" + html[at[2]:at[3]]
		} else if at = leftParts.FindStringSubmatchIndex(html); at != nil {
			of := anyMessage.FindAllStringSubmatch(html[:at[0]], -1)
			asked = fmt.Sprintf("?message=%s&from=%s&to=%s", of[len(of)-1][1], html[at[2]:at[3]], html[at[4]:at[5]])
		} else {
			return html, pieces
		}
		got := b.get(page + "/more" + asked)
		if got.StatusCode != http.StatusOK || strings.HasPrefix(got.body, html[at[0]:at[1]]) {
			b.t.Fatalf("%s: %d %s", asked, got.StatusCode, got.body)
		}
		if pieces > 2000 {
			b.t.Fatalf("%s: %.500s", asked, got.body)
		}
		html = html[:at[0]] + got.body + html[at[1]:]
	}
}

// A page has the first and the last of a long session, and each piece that it asks for then is what the page with
// everything has there.
func TestPiecesOfAPage(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, func(_ *node.Config, c *Config) { c.PageBytes = 8 << 10 })
		m := r.create()
		var ops []ledger.Intent
		add := func(message, role string, parts, size int) {
			if role != "" {
				ops = append(ops, put("message/"+message, fmt.Sprintf(`{"role":%q,"cost":0.5,"tokens":{"input":7},"time":{"created":1795000000000}}`, role)))
			}
			for i := range parts {
				text := fmt.Sprintf("%s says **%d**. %s", message, i, strings.Repeat("more ", size/5))
				ops = append(ops, put(fmt.Sprintf("part/%s/p%d", message, i), fmt.Sprintf(`{"type":"text","text":%q}`, text)))
			}
			if len(ops) > 500 {
				m.do(ops...)
				ops = nil
			}
		}
		for i := range 40 {
			add(fmt.Sprintf("z%02d", 40-i), []string{"user", "assistant"}[i%2], 1+i%4, 10)
		}
		add("long", "assistant", 260, 10) // three pieces of its own
		for i := range 150 {
			add(fmt.Sprintf("many%d", i), []string{"user", "assistant", "assistant"}[i%3], 1, 10)
		}
		add("orphan", "", 130, 10)
		add("wide", "assistant", 6, 40<<10) // each part is larger than a piece
		add("none", "user", 0, 0)
		add("last", "assistant", 150, 10) // its last parts are shown
		m.do(ops...)

		ref := m.share(capability.MintRequest{Rights: capability.Read, ReadKeys: []string{"message/", "part/long/", "part/many1/"}})
		b := newBrowser(t)
		b.open(r.url("/s/"+ref.ID), secretOf(ref))
		for _, path := range []string{"/share/" + m.publish().ID, "/s/" + ref.ID} {
			page := r.url(path)
			first, all := b.get(page).body, b.get(page+"?all").body
			if n := len(leftOut.FindAllString(all, -1)) + len(leftParts.FindAllString(all, -1)); n > 0 || strings.Contains(all, `id="all"`) {
				t.Errorf("%s: the page with everything leaves out %d", path, n)
			}
			if n := strings.Count(first, `<section class="part`); n < 50 || n > 130 || !strings.Contains(first, `<a href="?all">`) {
				t.Errorf("%s: a page begins with %d parts", path, n)
			}
			whole, pieces := b.complete(page, first)
			if want := log(all); whole != want || pieces < 50 {
				at := 0
				for at < min(len(whole), len(want)) && whole[at] == want[at] {
					at++
				}
				t.Errorf("%s: %d pieces; %d bytes, want %d; they differ at %.300q, which is %.300q", path, pieces, len(whole), len(want), whole[at:], want[at:])
			}
			// The totals and the contents are those of everything, but for what needs the parts.
			facts := func(html string) string {
				_, html, _ = strings.Cut(html, `<ol id="turns">`)
				return regexp.MustCompile(`<dt>Tool calls</dt><dd>.*?</dd>`).ReplaceAllString(html, "")
			}
			if facts(first) != facts(all) {
				t.Errorf("%s: the contents are\n%s\nwant\n%s", path, facts(first), facts(all))
			}
		}
	})
}

// A piece has as much as a first paint, and what is gone is not in it.
func TestMore(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	m.long(60, 5, 10)
	m.do(op(session.MethodRemove, arg("key", quoted("message/msg_00003"))))
	page := r.url("/share/" + m.publish().ID)
	b := newBrowser(t)
	var asked []string
	for i := range 50 {
		asked = append(asked, fmt.Sprintf("message=msg_%05d", i))
	}
	got := b.get(page + "/more?" + strings.Join(asked, "&"))
	if n := strings.Count(got.body, "</article>"); n != 17 || strings.Count(got.body, `<section class="part`) != 84 || len(leftParts.FindAllString(got.body, -1)) != 1 || !strings.HasPrefix(got.body, `<article class="msg assistant" id="m-msg_00000"`) {
		t.Errorf("%d messages: %.3000s", n, got.body)
	}
	for query, want := range map[string]string{"message=none": "", "message=msg_00001&from=1.0&to=2.0": ""} {
		if got := b.get(page + "/more?" + query); got.StatusCode != http.StatusOK || got.body != want {
			t.Errorf("%s: %d %s", query, got.StatusCode, got.body)
		}
	}
	if got := b.get(page + "/more?message=msg_00003"); !strings.Contains(got.body, `class="msg orphan" id="m-msg_00003"`) {
		t.Errorf("parts of a message that was removed: %s", got.body)
	}
	for _, query := range []string{"", "x=1", strings.Join(append(asked, "message=one-more"), "&"), "message=a&message=b&from=1.0&to=2.0", "message=a&from=1.0", "message=a&from=1&to=2", "message=a&from=1.0&to=x.0",
		"message=a&from=-1.0&to=2.0", "message=", "message=a/b", "message=%00"} {
		if got := b.get(page + "/more?" + query); got.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %d %s", query, got.StatusCode, got.body)
		}
	}
	ref := m.share(capability.MintRequest{Rights: capability.Read})
	if got := b.get(r.url("/s/" + ref.ID + "/more?message=msg_00001")); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", got.StatusCode, got.body)
	}
	b.open(r.url("/s/"+ref.ID), secretOf(ref))
	if got := b.get(r.url("/s/" + ref.ID + "/more?message=msg_00001")); got.StatusCode != http.StatusOK || !strings.Contains(got.body, "lorem") {
		t.Errorf("with a token: %d %s", got.StatusCode, got.body)
	}
	m.revoke(ref.ID)
	if got := b.get(r.url("/s/" + ref.ID + "/more?message=msg_00001")); got.StatusCode == http.StatusOK || strings.Contains(got.body, "lorem") {
		t.Errorf("after the revoke: %d %s", got.StatusCode, got.body)
	}
}
