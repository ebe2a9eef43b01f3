//go:build unix && !race

// Tests of sizes, which the race detector multiplies: make test-slow runs them without it.

package web

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// A long session begins at once, and is never held whole. It runs beside no other
// test, whose memory it would measure.
func TestALongSessionStreams(t *testing.T) {
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	m.long(500, 20, 60)
	wide := r.create()
	wide.long(60, 1, 240<<10)
	for name, c := range map[string]struct {
		of    *made
		parts int
		bytes int
	}{"10,000 parts": {m, 10_000, 3 << 20}, "large parts": {wide, 60, 14 << 20}} {
		page := r.url("/share/" + c.of.publish().ID + "?all")
		before := held()
		begun := time.Now()
		body := begin(t, page)
		if _, err := body.Peek(1); err != nil {
			t.Fatal(err)
		}
		early := time.Since(begun)
		parts, bytes, peak, looked := 0, 0, uint64(0), 0
		for {
			piece, err := body.ReadSlice('<')
			bytes += len(piece)
			if strings.Contains(string(piece), `data-key="part/`) {
				parts++
			}
			if bytes-looked > c.bytes/8 {
				looked = bytes
				peak = max(peak, held())
			}
			if err == io.EOF {
				break
			}
			if err != nil && err != bufio.ErrBufferFull {
				t.Fatal(err)
			}
		}
		all, grown := time.Since(begun), int64(peak)-int64(before)
		t.Logf("%s: %d bytes, the first after %v of %v, %d KiB more memory", name, bytes, early, all, grown>>10)
		if parts != c.parts || bytes < c.bytes {
			t.Errorf("%s: %d parts in %d bytes", name, parts, bytes)
		}
		if early > all/2 {
			t.Errorf("%s: the first byte came after %v of %v", name, early, all)
		}
		if grown > 3<<20 { // some pieces of a quarter of one, read, rendered and on their way
			t.Errorf("%s: %d KiB more are held while it streams", name, grown>>10)
		}
	}
}

// Who takes nothing of a page is cut off, and keeps nobody else from it for longer.
func TestASlowPaint(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.PaintsPerAddr, c.WriteTimeout = 1, 4*time.Second })
	m := r.create()
	m.long(60, 1, 200<<10) // more than sockets hold
	page := r.url("/share/" + m.publish().ID + "?all")
	slow := begin(t, page)
	if _, err := slow.Peek(1); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	if got := b.send(http.MethodHead, page, ""); got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" {
		t.Errorf("a second at once: %d", got.StatusCode)
	}
	until.True(t, "its place is free", func() bool { return b.send(http.MethodHead, page, "").StatusCode == http.StatusOK })
	if text, err := io.ReadAll(slow); err == nil || strings.Contains(string(text), "</html>") {
		t.Errorf("the slow one got all %d bytes: %v", len(text), err)
	}
}

// How much a page begins with does not grow with its session, but for an element of each message.
func TestAFirstPaintIsBounded(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	b := newBrowser(t)
	var elements, bytes []int
	for _, messages := range []int{50, 500} {
		m := r.create()
		m.long(messages, 20, 600)
		html := b.get(r.url("/share/" + m.publish().ID)).body
		if n := strings.Count(html, `<section class="part`); n > 120 {
			t.Errorf("of %d messages of 20 parts: %d parts", messages, n)
		}
		elements, bytes = append(elements, strings.Count(html, "</")), append(bytes, len(html))
	}
	t.Logf("of 1,000 and 10,000 parts: %d elements, %d bytes", elements, bytes)
	if elements[1] > elements[0]+460 || bytes[1] > bytes[0]+460*160 {
		t.Errorf("of 1,000 and 10,000 parts: %d elements, %d bytes", elements, bytes)
	}
}

// A session that changed last comes first, however old it is and however many there are;
// a search goes through all of them; deleted ones are shown when they are asked for.
func TestManySessions(t *testing.T) {
	t.Parallel()
	st := teststore.SQLite(t)
	r := start(t, st, func(_ *node.Config, c *Config) { c.ListReads = 2 })
	const many = 12_000
	now := time.Now().UnixMilli()
	old := r.titled("title-001", time.Now().AddDate(-1, 0, 0))
	gone := r.crowd(many, now)
	old.do(put("message/late", `{"role":"user"}`))
	b := r.signedIn(t)
	if got, _ := titles(b.get(r.url("/sessions")).body); !slices.Equal(got, []string{"title-001"}) {
		t.Errorf("the last change is of %v", got)
	}
	if got, notes := r.pages(b, "/sessions?order=newest&q=title-0"); !slices.Equal(got, []string{"title-001"}) || notes == "" {
		t.Errorf("searched: %v %q", got, notes)
	}
	for path, shown := range map[string]bool{"/sessions?q=" + gone: false, "/sessions?deleted=1&order=newest&q=" + gone: true} {
		found := false
		for n := 0; path != "" && n < 10; n++ {
			body := b.get(r.url(path)).body
			found = found || strings.Contains(body, `<span class="tag">deleted</span>`) && strings.Contains(body, `<code class="id">`+gone)
			_, path = titles(body)
		}
		if found != shown {
			t.Errorf("deleted and shown: %v, not %v", found, shown)
		}
	}
}
