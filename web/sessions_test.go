//go:build unix

package web

import (
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/store"
)

// titled makes a session with a title, whose id says that it is of a time.
func (r *rig) titled(title string, at time.Time) *made {
	r.t.Helper()
	id := capability.SessionPrefix + ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String()
	m := &made{r: r, id: id, owner: r.owner.New(id)}
	space, err := r.me().Restore(r.owner, "")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := space.Create(r.t.Context(), m.id, m.owner.ID, arg("ref", quoted(m.owner.ID)), arg("hash", quoted(hashText(m.owner.Secret))),
		arg("external", quoted("ext_"+title))); err != nil {
		r.t.Fatal(err)
	}
	m.do(put("session", fmt.Sprintf(`{"title":%q}`, title)))
	return m
}

// signedIn is a browser that may list the rig's sessions.
func (r *rig) signedIn(t testing.TB) *browser {
	t.Helper()
	b := newBrowser(t)
	if got := b.open(r.url("/sessions"), fmt.Sprintf(`{"ref":%q}`, r.owner.Text())); got.StatusCode != http.StatusOK {
		t.Fatal(got.StatusCode, got.body)
	}
	return b
}

var (
	titlesIn = regexp.MustCompile(`title-\d{3}`)
	nextIn   = regexp.MustCompile(`href="(/sessions\?[^"]*)"[^>]*rel="next"|rel="next"[^>]*href="(/sessions\?[^"]*)"`)
)

// titles are those of a list, in order and once each, and next is its next page.
func titles(body string) (all []string, next string) {
	for _, title := range titlesIn.FindAllString(body, -1) {
		if !slices.Contains(all, title) {
			all = append(all, title)
		}
	}
	if m := nextIn.FindStringSubmatch(body); m != nil {
		next = html.UnescapeString(m[1] + m[2])
	}
	return all, next
}

// pages reads a list through all its pages.
func (r *rig) pages(b *browser, path string) (all []string, notes string) {
	r.t.Helper()
	for n := 0; path != ""; n++ {
		got := b.get(r.url(path))
		if got.StatusCode != http.StatusOK || n > 100 {
			r.t.Fatalf("%s: %d %s", path, got.StatusCode, got.body)
		}
		if strings.Contains(got.body, "sessions: these are of the newest") || strings.Contains(got.body, "were searched on this page") {
			notes += "noted "
		}
		var page []string
		page, path = titles(got.body)
		all = append(all, page...)
	}
	return all, notes
}

func TestSessions(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		const n = 60
		now := time.Now()
		order := rand.Perm(n)
		var public capability.PublicShare
		var first *made
		for i := range n { // title-000 is not the first by anything else
			m := r.titled(fmt.Sprintf("title-%03d", order[i]), now.Add(time.Duration(i-n)*time.Minute))
			if i == 0 {
				public, first = m.publish(), m
			}
		}
		first.do(put("message/late", `{"role":"user"}`))
		b := r.signedIn(t)
		inIDs := make([]string, n)
		for i, title := range order {
			inIDs[i] = fmt.Sprintf("title-%03d", title)
		}
		sorted := slices.Sorted(slices.Values(inIDs))
		reversed := func(s []string) []string { s = slices.Clone(s); slices.Reverse(s); return s }
		for path, want := range map[string][]string{
			"/sessions?sort=created&order=asc":         inIDs,
			"/sessions?sort=title&order=asc":           sorted,
			"/sessions?sort=title":                     sorted,
			"/sessions?sort=title&order=desc":          reversed(sorted),
			"/sessions?q=TITLE-01&sort=title":          sorted[10:20],
			"/sessions?q=ext_title-01&sort=title":      sorted[10:20],
			"/sessions?q=nothing":                      nil,
			"/sessions?q=%22%3E%3Cscript%3E":           nil,
			"/sessions?sort=title&page=-1":             sorted,
			"/sessions?sort=title&page=99999999999999": sorted,
		} {
			if got, notes := r.pages(b, path); !slices.Equal(got, want) || notes != "" {
				t.Errorf("%s: %s\n%v\nwant\n%v", path, notes, got, want)
			}
		}
		got, _ := r.pages(b, "/sessions?sort=created")
		if !slices.Equal(got, reversed(inIDs)) {
			t.Errorf("the newest first: %v", got)
		}
		got, _ = r.pages(b, "/sessions") // the last changed first
		if len(got) != n || got[0] != inIDs[0] {
			t.Errorf("by the last change: %v", got)
		}
		body := b.get(r.url("/sessions?q=" + inIDs[0])).body
		if !strings.Contains(body, `"/share/`+public.ID+`"`) {
			t.Errorf("no way to the public share: %s", body)
		}
		if strings.Contains(body, "<script>alert") {
			t.Error("the search is echoed")
		}
		for path, want := range map[string]int{"/sessions?q=" + strings.Repeat("x", 300): 400, "/sessions?q=%ff": 400, "/sessions?sort=created&order=asc&after=x": 400} {
			if got := b.get(r.url(path)); got.StatusCode != want {
				t.Errorf("%s: %d", path, got.StatusCode)
			}
		}
		if got := b.post(r.url("/sessions/close"), ""); got.StatusCode != http.StatusNoContent {
			t.Error(got.StatusCode)
		}
		if got := b.send(http.MethodGet, r.url("/sessions"), ""); got.StatusCode != http.StatusUnauthorized || got.codeOf() != "unknown_ref" {
			t.Errorf("after signing out: %d %s", got.StatusCode, got.body)
		}
	})
}

// Where there are more sessions than a list looks at, the newest are looked at, the
// page says so, and the way through all of them is there still.
func TestManySessions(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *server.Config, c *Config) { c.SessionsLimit = 20 })
	now := time.Now()
	var all []string
	for i := range 45 { // the older half over months, the newer in the last hour
		at := now.Add(-time.Duration(45-i) * 24 * time.Hour)
		if i >= 30 {
			at = now.Add(-time.Duration(45-i) * time.Minute)
		}
		r.titled(fmt.Sprintf("title-%03d", i), at)
		all = append(all, fmt.Sprintf("title-%03d", i))
	}
	b := r.signedIn(t)
	got, notes := r.pages(b, "/sessions?sort=created")
	if len(got) != 20 || notes == "" {
		t.Errorf("%d sessions, %q: %v", len(got), notes, got)
	}
	for _, newest := range all[30:] {
		if !slices.Contains(got, newest) {
			t.Errorf("%s is not among the newest", newest)
		}
	}
	if got, notes := r.pages(b, "/sessions?sort=created&order=asc"); !slices.Equal(got, all) || notes != "" {
		t.Errorf("all: %d sessions %s", len(got), notes)
	}
	if got, notes := r.pages(b, "/sessions?sort=created&order=asc&q=title-04"); !slices.Equal(got, all[40:45]) || notes == "" {
		t.Errorf("searched: %v %s", got, notes)
	}
}

// A ref that has ended shows no list.
func TestAListThatEnds(t *testing.T) {
	t.Parallel()
	st := teststore.SQLite(t)
	r := start(t, st, nil)
	ref := r.owner.New(r.owner.Target())
	if _, err := st.MintUnderRoot(t.Context(), capability.Minting{ID: ref.ID, Hash: ref.Secret.Hash(), Rights: capability.List,
		Expires: time.Now().Add(5 * time.Second).UnixMilli()}); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	if got := b.open(r.url("/sessions"), fmt.Sprintf(`{"ref":%q}`, ref.Text())); got.StatusCode != http.StatusOK {
		t.Fatal(got.StatusCode, got.body)
	}
	if got := b.get(r.url("/sessions?q=" + strings.Repeat("x", 300))); got.StatusCode != http.StatusBadRequest {
		t.Errorf("a bad search: %d %s", got.StatusCode, got.body)
	}
	until.True(t, "the ref has ended", func() bool {
		got := b.send(http.MethodGet, r.url("/sessions"), "")
		return got.StatusCode == http.StatusForbidden && got.codeOf() == "expired"
	})
}
