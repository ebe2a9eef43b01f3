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
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
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
	if err := space.Create(r.t.Context(), m.id, m.owner.ID, nil, arg("ref", quoted(m.owner.ID)), arg("hash", quoted(hashText(m.owner.Secret))),
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
		if strings.Contains(got.body, "More goes on with it") {
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
		b := r.signedIn(t)
		inIDs := make([]string, n)
		for i, title := range order {
			inIDs[i] = fmt.Sprintf("title-%03d", title)
		}
		for again, last := 0, ""; last != inIDs[0]; again++ { // in a later millisecond than the others
			first.do(put("message/late", fmt.Sprintf(`{"role":"user","n":%d}`, again)))
			list, _ := titles(b.get(r.url("/sessions")).body)
			last = list[0]
		}
		var tens, all []string // the last of a title that was made comes first
		for _, title := range slices.Backward(inIDs) {
			if all = append(all, title); title >= "title-010" && title < "title-020" {
				tens = append(tens, title)
			}
		}
		changed := append([]string{inIDs[0]}, all[:n-1]...)
		for path, want := range map[string][]string{
			"/sessions?order=oldest":                           inIDs,
			"/sessions?order=title":                            slices.Sorted(slices.Values(inIDs)),
			"/sessions?order=newest":                           all,
			"/sessions?order=changed":                          changed,
			"/sessions":                                        changed,
			"/sessions?order=upside-down&sort=title":           changed,
			"/sessions?q=TITLE-01&order=newest":                tens,
			"/sessions?q=ext_title-01&order=newest":            tens,
			"/sessions?q=nothing":                              nil,
			"/sessions?q=%22%3E%3Cscript%3E":                   nil,
			"/sessions?q=" + strings.ToUpper(first.id[5:]):     {inIDs[0]},
			"/sessions?order=newest&deleted=1&q=title-0&page=": all,
		} {
			if got, notes := r.pages(b, path); !slices.Equal(got, want) || notes != "" {
				t.Errorf("%s: %s\n%v\nwant\n%v", path, notes, got, want)
			}
		}
		body := b.get(r.url("/sessions?q=" + inIDs[0])).body
		if !strings.Contains(body, `"/share/`+public.ID+`"`) {
			t.Errorf("no way to the public share: %s", body)
		}
		if strings.Contains(body, "<script>alert") {
			t.Error("the search is echoed")
		}
		for path, want := range map[string]int{"/sessions?q=" + strings.Repeat("x", 300): 400, "/sessions?q=%ff": 400, "/sessions?order=oldest&after=x": 400, "/sessions?after=" + first.id: 400} {
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

// crowd fills the space with sessions that changed before now and have no title, and
// gives the id of the one that is deleted.
func (r *rig) crowd(n int, now int64) string {
	r.t.Helper()
	rows, ids := make([]*session.Row, n), make([]string, n)
	for i := range rows {
		ids[i] = capability.SessionPrefix + ulid.Make().String()
		rows[i] = &session.Row{ID: ids[i], Space: r.owner.Target(), Life: session.Live, Cursor: 1, Epoch: 1, AuthGen: 1, Created: now, Updated: now - int64(i)*10}
	}
	rows[n/2].Life = session.Deleted
	if err := r.st.Update(r.t.Context(), func(tx session.Tx) error {
		if _, err := tx.Load(r.t.Context(), &session.ReadSet{Sessions: slices.Sorted(slices.Values(ids))}); err != nil {
			return err
		}
		return tx.Save(r.t.Context(), &session.Changes{Sessions: rows})
	}); err != nil {
		r.t.Fatal(err)
	}
	return ids[n/2]
}

// A ref that has ended shows no list.
func TestAListThatEnds(t *testing.T) {
	t.Parallel()
	st := teststore.SQLite(t)
	r := start(t, st, nil)
	ref := r.owner.New(r.owner.Target())
	if _, err := st.MintUnderRoot(t.Context(), capability.MintRequest{ID: ref.ID, Hash: ref.Secret.Hash(), Rights: capability.List,
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

// The holder of a ref that may manage sees what goes on in each session, and opens it; one that only lists sees that it
// is there.
func TestWhatGoesOnInTheList(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m, still := r.titled("title-001", time.Now()), r.titled("title-002", time.Now())
		w := m.write()
		w.do(op(session.MethodBegin, arg("message", `"msg_1"`), arg("payload", `{"role":"assistant"}`)))
		page := r.signedIn(t).get(r.url("/sessions?order=title")).body
		rows := strings.Split(page, "<li>")[1:]
		if len(rows) != 2 {
			t.Fatal(page)
		}
		for i, want := range []string{m.id, still.id} {
			if running := strings.Contains(rows[i], ">writing<"); !strings.Contains(rows[i], `<a href="/sessions/`+want+`">`) || running != (i == 0) || !strings.Contains(rows[i], "by <bdi>owner</bdi>") || !strings.Contains(rows[i], `class="size"`) {
				t.Errorf("row %d is %s", i, rows[i])
			}
		}
		if !strings.Contains(page, `href="/sessions/access"`) {
			t.Error("no way to who has access")
		}
		w.do(op(session.MethodFinalize, arg("message", `"msg_1"`), arg("status", `"completed"`)))
		if got := r.signedIn(t).get(r.url("/sessions")).body; strings.Contains(got, ">writing<") {
			t.Errorf("after its end: %s", got)
		}
		lister := r.owner.New(r.owner.Target())
		if err := r.me().Assume(r.owner.ID).Share(t.Context(), capability.MintRequest{ID: lister.ID, Hash: lister.Secret.Hash(), Rights: capability.List}); err != nil {
			t.Fatal(err)
		}
		b := newBrowser(t)
		b.open(r.url("/sessions"), fmt.Sprintf(`{"ref":%q}`, lister.Text()))
		if got := b.get(r.url("/sessions")).body; strings.Contains(got, "<bdi>") || strings.Contains(got, "/sessions/ses_") || strings.Contains(got, "/access") {
			t.Errorf("one that only lists sees %s", got)
		}
		if _, err := r.me().Assume(lister.ID).List(t.Context(), session.ListQuery{Limit: 10, Activity: true}); fault.CodeOf(err) != fault.MissingRight {
			t.Errorf("what goes on is listed to it: %v", err)
		}
	})
}
