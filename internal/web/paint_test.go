//go:build unix

package web

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func readRef(t testing.TB, file string) capability.Ref {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := capability.ParseRef(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// keysOf are the keys of a page's blocks, in their order.
func keysOf(html string) (keys []string) {
	for _, m := range regexp.MustCompile(`data-key="([^"]*)"`).FindAllStringSubmatch(html, -1) {
		keys = append(keys, m[1])
	}
	return keys
}

// record puts a recording of opencode's traffic into the session and gives the keys
// that there are then, of messages and parts.
func (m *made) record(name string) (messages, parts []string) {
	m.r.t.Helper()
	file, err := os.Open(filepath.Join(recordings, name+".jsonl"))
	if err != nil {
		m.r.t.Fatal(err)
	}
	defer file.Close()
	rec, err := opencode.ReadRecording(file, opencode.Limits{Ops: 1000, Bytes: 8 << 20, Payload: 4 << 20})
	if err != nil {
		m.r.t.Fatal(err)
	}
	for _, b := range rec.Batches {
		var ops []ledger.Intent
		for _, p := range b.Puts {
			ops = append(ops, put(p.Key, string(p.Payload)))
			if strings.HasPrefix(p.Key, "message/") && !slices.Contains(messages, p.Key) {
				messages = append(messages, p.Key)
			}
			if strings.HasPrefix(p.Key, "part/") && !slices.Contains(parts, p.Key) {
				parts = append(parts, p.Key)
			}
		}
		m.do(ops...)
	}
	slices.Sort(messages)
	slices.Sort(parts)
	return messages, parts
}

// The recordings are painted whole: every message and part, in byte order of their
// ids, each part within its message.
func TestFirstPaint(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, func(_ *node.Config, c *Config) { c.PageBytes = 4 << 10 }) // many pieces
		for _, name := range []string{"a-edit-1.18.33", "b-long-1.18.33"} {
			m := r.create()
			messages, parts := m.record(name)
			got := newBrowser(t).get(r.url("/share/" + m.publish().ID + "?all"))
			if got.StatusCode != http.StatusOK || !strings.HasSuffix(strings.TrimSpace(got.body), "</html>") {
				t.Fatalf("%s: %d, ends with %q", name, got.StatusCode, got.body[max(len(got.body)-100, 0):])
			}
			var want []string
			hidden, _ := opencodetest.Hidden(t, name)
			for _, message := range messages {
				if message == "message/"+hidden {
					break // this, and what comes after it, is hidden
				}
				want = append(want, message)
				of := "part/" + strings.TrimPrefix(message, "message/") + "/"
				for _, p := range parts {
					if strings.HasPrefix(p, of) {
						want = append(want, p)
					}
				}
			}
			got1 := keysOf(got.body)
			got1 = slices.DeleteFunc(got1, func(k string) bool { return !strings.HasPrefix(k, "message/") && !strings.HasPrefix(k, "part/") })
			if !slices.Equal(got1, want) {
				t.Errorf("%s: the blocks are\n%v\nwant\n%v", name, got1, want)
			}
		}
	})
}

// Ids say nothing of the order: a page has that of the first puts, of parts too.
func TestPaintInTheOrderOfTheLog(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.PageBytes = 300 }) // many pieces
	m := r.create()
	var want []string
	for _, message := range []string{"msg_1", "msg_2", "msg_3", "msg_9", "msg_10", "msg_11"} {
		want = append(want, "message/"+message)
		m.do(put("message/"+message, `{"role":"user"}`))
		for _, part := range []string{"prt_2", "prt_10", "prt_1"} {
			want = append(want, "part/"+message+"/"+part)
			m.do(put("part/"+message+"/"+part, `{"type":"text","text":"x"}`))
		}
	}
	m.do(put("message/msg_1", `{"role":"user","again":1}`))
	got := keysOf(newBrowser(t).get(r.url("/share/" + m.publish().ID)).body)
	got = slices.DeleteFunc(got, func(k string) bool { return !strings.Contains(k, "/") })
	if !slices.Equal(got, want) {
		t.Errorf("painted are %v, want %v", got, want)
	}
}

// A session of more than a page holds says so, and where the rest is.
func TestMoreThanAPage(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.PageBlocks = 3 })
	m := r.create()
	url := r.url("/share/" + m.publish().ID)
	m.do(put("message/a", `{"role":"user"}`), put("part/a/1", `{"type":"text","text":"one"}`), put("part/a/2", `{"type":"text","text":"two"}`))
	if html := newBrowser(t).get(url).body; strings.Contains(html, "Too large") || !strings.Contains(html, "two") {
		t.Errorf("as much as it holds: %s", html)
	}
	m.do(put("part/b/1", `{"type":"text","text":"three"}`))
	if html := newBrowser(t).get(url).body; !strings.Contains(html, "<strong>Too large</strong><p>a page has at most 3 messages and parts") || !strings.Contains(html, "session export") {
		t.Errorf("more than it holds: %s", html)
	}
}

// Parts find their messages also where the order of keys is another than that of
// messages, and parts of no message are shown too.
func TestPartsFindTheirMessages(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.PageBytes = 1 })
	m := r.create()
	var ops []ledger.Intent
	want := map[string][]string{}
	for _, id := range []string{"a", "a-b", "a.c", "a-", "ab", "b", "b+1", "b:1", "c"} {
		ops = append(ops, put("message/"+id, `{"role":"assistant"}`))
		for i := range 3 {
			key := fmt.Sprintf("part/%s/p%d", id, i)
			want["message/"+id] = append(want["message/"+id], key)
			ops = append(ops, put(key, `{"type":"text","text":"x"}`))
		}
	}
	for _, orphan := range []string{"0", "aa", "zz"} {
		want["message/"+orphan] = []string{"part/" + orphan + "/p"}
		ops = append(ops, put("part/"+orphan+"/p", `{"type":"text","text":"x"}`))
	}
	m.do(ops...)
	html := newBrowser(t).get(r.url("/share/" + m.publish().ID)).body
	got, at := map[string][]string{}, ""
	for _, k := range keysOf(html) {
		switch {
		case strings.HasPrefix(k, "message/"):
			at = k
		case strings.HasPrefix(k, "part/"):
			got[at] = append(got[at], k)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// long puts a session of so many messages, and parts of so many bytes in each. What
// is longer than markdown may be costs little to render.
func (m *made) long(messages, parts, bytes int) {
	m.r.t.Helper()
	text := strings.Repeat("lorem ipsum dolor ", bytes/18+1)
	var ops []ledger.Intent
	size := 0
	for i := range messages {
		ops = append(ops, put(fmt.Sprintf("message/msg_%05d", i), `{"role":"assistant"}`))
		for j := range parts {
			ops = append(ops, put(fmt.Sprintf("part/msg_%05d/prt_%03d", i, j), fmt.Sprintf(`{"type":"text","text":%q}`, text)))
			size += bytes
		}
		if len(ops)+parts >= 1000 || size > 6<<20 || i == messages-1 {
			m.do(ops...)
			ops, size = nil, 0
		}
	}
}

// begin asks for a page and gives its body, of which little is on its way yet.
func begin(t *testing.T, url string) *bufio.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return bufio.NewReaderSize(res.Body, 64<<10)
}

// held is the memory in use once nothing goes on any more: who paints waits for the
// reader then, and what it made before is no garbage that nobody has collected yet.
func held() uint64 {
	var now runtime.MemStats
	for was := uint64(0); ; was = now.TotalAlloc {
		runtime.GC()
		runtime.ReadMemStats(&now)
		if now.TotalAlloc-was < 64<<10 {
			return now.HeapAlloc
		}
	}
}

// A share that is revoked while its page is on its way ends the page, and it says why.
func TestRevokedInTheMiddleOfAPaint(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	m.long(60, 1, 200<<10) // more than sockets hold
	public := m.publish()
	body := begin(t, r.url("/share/"+public.ID))
	var head strings.Builder
	for !strings.Contains(head.String(), `data-key="part/msg_00000`) { // the rest waits for us, but for what the sockets hold
		piece, err := body.ReadString('>')
		if err != nil {
			t.Fatal(err)
		}
		head.WriteString(piece)
	}
	m.revoke(public.Share)
	html, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(html)
	if strings.Contains(text, "msg_00059") {
		t.Errorf("the page is not cut: %d bytes", len(text))
	}
	if end := text[max(strings.Index(text, `id="ended"`), 0):]; len(end) == len(text) || !strings.Contains(end, "revoked") || !strings.HasSuffix(strings.TrimSpace(end), "</html>") {
		t.Errorf("it ends with %q", text[max(len(text)-2000, 0):])
	}
}

// What is answered to HEAD is what GET answers, without a body.
func TestHead(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	m.do(put("session", `{"title":"Head"}`), put("message/m", `{"role":"user"}`))
	id := m.publish().ID
	b := newBrowser(t)
	for _, path := range []string{"/share/" + id, "/share/" + id + "/block?key=message/m", "/share/" + id + "/live?after=0", "/share/none",
		"/s/" + m.owner.ID, "/sessions", "/share/" + id + "/block?key=message/none"} {
		head := b.send(http.MethodHead, r.url(path), "", "Accept: text/html")
		if head.body != "" {
			t.Errorf("%s: HEAD has a body of %d bytes", path, len(head.body))
		}
		if strings.Contains(path, "/live") {
			continue // a GET of it does not end
		}
		get := b.get(r.url(path))
		if head.StatusCode != get.StatusCode || head.Header.Get("Content-Type") != get.Header.Get("Content-Type") || get.body == "" {
			t.Errorf("%s: HEAD %d %s, GET %d %s", path, head.StatusCode, head.Header.Get("Content-Type"), get.StatusCode, get.Header.Get("Content-Type"))
		}
	}
}

// One block at a time, and no other's.
func TestBlock(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		m.do(op("put", arg("key", `"session"`), arg("payload", `{"title":"T"}`)), put("message/m", `{"role":"user"}`), put("message/m-1", `{"role":"user"}`),
			put("part/m/p", `{"type":"text","text":"one"}`), put("part/m/p0", `{"type":"text","text":"two"}`), put("model/a/b", `{"name":"big"}`), put("session_diff", `{"diff":[]}`))
		base := r.url("/share/" + m.publish().ID + "/block?key=")
		b := newBrowser(t)
		for _, key := range []string{"session", "message/m", "message/m-1", "part/m/p", "part/m/p0", "model/a/b", "session_diff"} {
			got := b.send(http.MethodGet, base+key, "")
			if got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "text/html; charset=utf-8" {
				t.Errorf("%s: %d %s", key, got.StatusCode, got.body)
			}
			if keys := keysOf(got.body); len(keys) > 1 || len(keys) == 1 && keys[0] != key {
				t.Errorf("%s gives %v", key, keys)
			}
		}
		if got := b.send(http.MethodGet, base+"part/m/p", ""); !strings.Contains(got.body, "one") || strings.Contains(got.body, "two") {
			t.Errorf("the part is %s", got.body)
		}
		for key, want := range map[string]int{"part/m/q": 404, "part/m/": 400, "": 400, "..%2f..%2fetc": 400, "message/m%00": 400, "message/%ff": 400,
			"message/" + strings.Repeat("x", 300): 400} {
			got := b.send(http.MethodGet, base+key, "")
			var answer struct{ Code, Message string }
			if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.StatusCode != want || answer.Message == "" {
				t.Errorf("%q: %d %s, want %d", key, got.StatusCode, got.body, want)
			}
		}
	})
}
