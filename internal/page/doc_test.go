package page_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/session"
)

// meter counts what is written to it, and the largest write.
type meter struct{ total, largest, writes int }

func (m *meter) Write(p []byte) (int, error) {
	m.total += len(p)
	m.writes++
	m.largest = max(m.largest, len(p))
	return len(p), nil
}

func entry(key, payload string) *session.Entry {
	return &session.Entry{Key: key, Payload: []byte(payload)}
}

// long writes a session of n parts, ten a message.
func long(w io.Writer, n int, each func()) error {
	d := page.Start(w, page.Head{Title: "Long", ID: "long", Live: "/s/x/live"})
	for i := range n {
		if i%10 == 0 {
			role := "assistant"
			if i%50 == 0 {
				role = "user"
			}
			d.Message(entry(fmt.Sprintf("message/m%05d", i), fmt.Sprintf(`{"role":%q,"tokens":{"input":10,"output":5},"cost":0.01}`, role)), nil)
		}
		text := fmt.Sprintf("Part **%d** says `something`.", i)
		if i%10 == 3 {
			text += fmt.Sprintf("\n\n```go\nx := %d\n```\n\n- a\n- b\n", i)
		}
		d.Part(entry(fmt.Sprintf("part/m%05d/p%05d", i/10*10, i), fmt.Sprintf(`{"type":"text","text":%q}`, text)))
		each()
	}
	return d.End()
}

// 10,000 parts are written as they come: what a page holds is one block and the
// contents, however long the session is.
func TestLongSessionsAreStreamed(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const parts = 10_000
	var m meter
	var early, late uint64
	n, written := 0, 0
	err := long(&m, parts, func() {
		if n++; m.total <= written {
			t.Fatalf("part %d was held back", n)
		}
		written = m.total
		switch n {
		case parts / 10:
			early = heap()
		case parts:
			late = heap()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.writes < parts || m.total < 250*parts {
		t.Errorf("%d bytes in %d writes", m.total, m.writes)
	}
	if m.largest > 64<<10 {
		t.Errorf("%d bytes were held", m.largest)
	}
	if late > early+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", early, late)
	}
}

// Contents are bounded, and say what they leave out.
func TestContentsAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	d := page.Start(&b, page.Head{ID: "x"})
	for i := range 2100 {
		d.Message(entry(fmt.Sprintf("message/m%05d", i), `{"role":"user"}`), nil)
		d.Part(entry(fmt.Sprintf("part/m%05d/p", i), `{"type":"text","text":"`+strings.Repeat("wörd ", 30)+`"}`))
	}
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "<li><a "); n != 2000 {
		t.Errorf("%d entries", n)
	}
	if !strings.Contains(b.String(), "and 100 more turns") {
		t.Error("it does not say what is left out")
	}
}

// Parts without their message, entries out of order and unknown keys have a place.
func TestOddOrders(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	d := page.Start(&b, page.Head{ID: "x", Title: "Odd"})
	d.Part(entry("part/lost/p1", `{"type":"text","text":"orphan one"}`))
	d.Part(entry("part/lost/p2", `{"type":"text","text":"orphan two"}`))
	d.Message(entry("message/m", `{"role":"user"}`), nil)
	d.Part(entry("part/other/p", `{"type":"text","text":"orphan three"}`))
	d.Rest([]*session.EntryInfo{{Entry: entry("session_diff", `{"diff":[]}`)}, {Entry: entry("session", `{}`)}})
	d.Rest([]*session.EntryInfo{{Entry: entry("later/kind", `{"x":1}`)}})
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	soundPage(t, "odd", b.String())
	for _, want := range []string{`<article class="msg orphan" id="m-lost"`, "<p>orphan one", "<p>orphan two", `<article class="msg orphan" id="m-other"`, "<p>orphan three", `data-key="later/kind"`} {
		if strings.Count(b.String(), want) != 1 {
			t.Errorf("%d of %q", strings.Count(b.String(), want), want)
		}
	}
}

// A page of nothing, and one that is over, say so; the one that is over has no
// stream to follow.
func TestHeads(t *testing.T) {
	t.Parallel()
	kids := []*session.Listing{{Row: session.Row{ID: "ses_1", Created: 1, Parent: session.Parent{Key: "part/msg_1/prt_1"}}}}
	for want, h := range map[string]page.Head{
		"<title>Untitled session · Mooring</title>":                            {},
		"<title>From info · Mooring</title>":                                   {Info: entry("session", `{"title":"From info"}`)},
		`data-base="/at" data-live data-cursor="18446744073709551615"`:         {Base: "/at", Live: "/s/x/live", Cursor: 1<<64 - 1},
		`href="/at/assets/page-`:                                               {Base: "/at"},
		`data-may="revert fork" data-own="" data-script="/at/assets/console-`:  {Base: "/at", May: []string{"revert", "fork"}},
		`href="#m-msg_2">this message</a>: <a href="#m-msg_9">its summary</a>`: {State: page.State{Compaction: session.Compaction{Upto: "message/msg_2", Summary: "message/msg_9"}}},
		`<button type="button" class="button script" data-act="unrevert">`:     {May: []string{"revert"}, State: page.State{Revert: session.Revert{To: "message/msg_2", Actor: "owner", At: 1}}},
		`by <bdi>owner</bdi>`:                                                  {State: page.State{Revert: session.Revert{To: "message/msg_2", Actor: "owner", At: 1}}},
		`data-part="part/msg_1/prt_1"><a href="/at/sessions/ses_1">`:           {Base: "/at", State: page.State{Children: kids, Opens: "/sessions/"}},
		`data-part="part/msg_1/prt_1"><code class="id">ses_1</code>`:           {Base: "/at", State: page.State{Children: kids}},
		`<a href="#p-msg_1/prt_1">by this message</a>`:                         {State: page.State{Children: kids}},
		`data-state="over"><span id="state" role="status">Revoked: it was so`:  {Live: "/s/x/live", Over: fault.Revoked.With("it was so")},
		`role="status">Deleted</span>`:                                         {Over: &fault.Error{Code: fault.SessionDeleted}},
	} {
		var b strings.Builder
		if err := page.Start(&b, h).End(); err != nil {
			t.Fatal(err)
		}
		soundPage(t, want, b.String())
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %s", want, b.String())
		}
		if h.May == nil && strings.Contains(b.String(), "data-act") {
			t.Error("a page of a ref that may do nothing has a button")
		}
		if h.Over != nil && strings.Contains(b.String(), "data-live") {
			t.Error("a page that is over follows a stream")
		}
	}
}

type broken struct{ left int }

var errBroken = errors.New("gone")

func (b *broken) Write(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

// The first error of a write is what End returns, and nothing is written after it.
func TestBrokenWriter(t *testing.T) {
	t.Parallel()
	w := &broken{left: 3}
	if err := long(w, 100, func() {}); !errors.Is(err, errBroken) || w.left != -1 {
		t.Errorf("%v, %d writes more", err, -w.left)
	}
	for name, write := range map[string]func(io.Writer) error{
		"unlock": func(w io.Writer) error { return page.Unlock(w, "", "x") }, "signin": func(w io.Writer) error { return page.SignIn(w, "") },
		"sessions": func(w io.Writer) error { return page.Sessions(w, page.List{}) }, "failure": func(w io.Writer) error { return page.Failure(w, "", 500, fault.Internal.With("x")) },
	} {
		if err := write(&broken{}); !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkSession(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if err := long(io.Discard, 1000, func() {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "µs/part")
}

func BenchmarkDelta(b *testing.B) {
	e := &session.Event{Method: session.MethodAppendText, Key: "part/m/p", Payload: []byte(`{"offset":1000000,"text":"a few words "}`)}
	var sink bytes.Buffer
	for b.Loop() {
		sink.Reset()
		sink.Write(page.Frames(e, session.ByLog.NewOrd)[0].Data)
	}
}

// A session that ends while it is painted says so.
func TestOverWithinThePaint(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	d := page.Start(&b, page.Head{Title: "x", Live: "/s/x/live"})
	d.Message(entry("message/m", `{"role":"user"}`), nil)
	d.Over(fault.Revoked.With("the ref was <revoked>"))
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	soundPage(t, "over", b.String())
	if !strings.Contains(b.String(), `id="ended" role="alert"><strong>Revoked</strong><p>the ref was &lt;revoked&gt;</p>`) || !strings.Contains(b.String(), `data-close="/s/x/close"`) {
		t.Error(b.String())
	}
}
