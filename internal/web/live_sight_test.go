//go:build unix

package web

// What a stream shows of a session to whom not all of it is shown, and what is gone.

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

// What a ref does not show is in no frame, and its reader is caught up all the same.
func TestNarrowRefs(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	for name, limits := range map[string]capability.MintRequest{
		"one message":  {Message: "one"},
		"some keys":    {ReadKeys: []string{"message/one", "part/one/"}},
		"keys of ours": {ReadKeys: []string{"todo/1"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := r.create()
			m.do(put("message/one", `{"role":"user"}`), put("part/one/p", `{"type":"text","text":"shown"}`), put("message/two", `{"role":"user"}`), put("part/two/p", `{"type":"text","text":"kept"}`),
				put("todo/1", `{"shown":1}`), put("todo/two", `["kept"]`))
			ref := m.share(limits)
			b := newBrowser(t)
			if got := b.open(r.url("/s/"+ref.ID), fmt.Sprintf(`{"secret":%q}`, ref.Secret.RevealText())); got.StatusCode != http.StatusOK {
				t.Fatal(got.StatusCode, got.body)
			}
			at := m.do(put("part/two/q", `{"type":"text","text":"kept too"}`), put("todo/two", `{"n":"kept"}`))
			if html := b.get(r.url("/s/" + ref.ID)).body; !strings.Contains(html, "shown") || strings.Contains(html, "kept") || strings.Contains(html, "two") {
				t.Errorf("the page is %s", html)
			}
			s := listen(t, b, r.url("/s/"+ref.ID+"/live?after=0"), "")
			for {
				got, err := s.next()
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(got.data, "kept") || strings.Contains(got.data, "two") {
					t.Errorf("the stream has %v", got)
				}
				if got.event == "caught" && strings.HasPrefix(got.data, fmt.Sprintf(`{"cursor":%d,`, at)) {
					break
				}
			}
			for _, key := range []string{"part/two/p", "todo/two"} {
				if got := b.send(http.MethodGet, r.url("/s/"+ref.ID+"/block?key="+key), ""); got.StatusCode != http.StatusNotFound {
					t.Errorf("a block that is not shown, %s: %d", key, got.StatusCode)
				}
			}
		})
	}
}

// Under a first cursor, a key that was put before it and is put anew stands on an open page
// where a page that is loaded shows it.
func TestPlacesUnderAFirstCursor(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		text := func(key, text string) ledger.Intent { return put(key, fmt.Sprintf(`{"type":"text","text":%q}`, text)) }
		from := m.do(put("message/a", `{"role":"user"}`), text("part/a/1", "old"), text("part/a/2", "old"), put("message/b", `{"role":"user"}`)) + 1
		ref := m.share(capability.MintRequest{VisibleFrom: from})
		b := newBrowser(t)
		if got := b.open(r.url("/s/"+ref.ID), fmt.Sprintf(`{"secret":%q}`, ref.Secret.RevealText())); got.StatusCode != http.StatusOK {
			t.Fatal(got.StatusCode, got.body)
		}
		s := listen(t, b, fmt.Sprintf("%s/live?after=%d", r.url("/s/"+ref.ID), from), "")
		s.until("caught")
		m.do(put("message/c", `{"role":"user"}`), text("part/a/3", "new"))
		w := m.write()
		w.do(op("begin", arg("message", `"b"`), arg("payload", `{"role":"assistant"}`)))
		w.do(op("finalize", arg("message", `"b"`), arg("status", `"completed"`), arg("parts", `[{"id":"1","payload":{"type":"text","text":"whole"}}]`)))
		m.do(put("message/gone", `{"role":"user"}`))
		m.do(op("remove", arg("key", `"message/gone"`)))
		at := m.do(text("part/a/2", "anew"), put("message/a", `{"role":"user","again":true}`))
		places := map[string]string{}
		for got := (message{}); got.id != fmt.Sprint(at); {
			var err error
			if got, err = s.next(); err != nil {
				t.Fatal(err)
			}
			var block struct{ Key, HTML string }
			if got.event == "block" && json.Unmarshal([]byte(got.data), &block) == nil {
				places[block.Key] = placed.FindStringSubmatch(block.HTML)[2]
			}
		}
		delete(places, "message/gone")
		loaded := map[string]string{}
		for _, found := range placed.FindAllStringSubmatch(b.get(r.url("/s/"+ref.ID)).body, -1) {
			loaded[found[1]] = found[2]
		}
		if len(loaded) != 6 || !maps.Equal(places, loaded) {
			t.Errorf("the open page has places %v, one that is loaded %v", places, loaded)
		}
	})
}

var placed = regexp.MustCompile(`data-key="([^"]+)"[^>]* data-ord="([0-9.]+)"`)

// What was purged out of the middle of an event is sent to nobody any more, whoever
// was sent the event before.
func TestPurgedEntries(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	w := m.write()
	w.do(op("begin", arg("message", `"m"`), arg("payload", `{"role":"assistant"}`)))
	at := w.do(op("finalize", arg("message", `"m"`), arg("status", `"completed"`),
		arg("parts", `[{"id":"p","payload":{"type":"text","text":"kept"}},{"id":"q","payload":{"type":"text","text":"hunter2"}}]`)))
	live := r.url("/share/" + m.publish().ID + "/live?after=0")
	sent := func(at uint64) (all string) {
		s := listen(t, newBrowser(t), live, "")
		for {
			got, err := s.next()
			if err != nil {
				t.Fatal(err)
			}
			if all += got.data; got.event == "caught" && strings.HasPrefix(got.data, fmt.Sprintf(`{"cursor":%d,`, at)) {
				return all
			}
		}
	}
	if got := sent(at + 2); !strings.Contains(got, "kept") || !strings.Contains(got, "hunter2") { // the share's two refs make events
		t.Errorf("before: %s", got)
	}
	if got := sent(w.do(op("purge", arg("key", `"part/m/q"`)))); !strings.Contains(got, "kept") || strings.Contains(got, "hunter2") {
		t.Errorf("after: %s", got)
	}
}
