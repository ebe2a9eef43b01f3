//go:build unix

package main

// The order in which messages and parts are exported.

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var word = regexp.MustCompile(`word(\d+)x`)

// wordsIn are the numbers of the words in a text, in their order.
func wordsIn(text string) string {
	var all []string
	for _, m := range word.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return strings.Join(all, " ")
}

// Ids of one's own say nothing of the order: it is that of the first puts, of parts too.
func TestExportIsInTheOrderOfFirstPuts(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_own")
	var lines strings.Builder
	put := func(key, payload string) {
		fmt.Fprintf(&lines, `{"method":"put","key":%q,"payload":%s}`+"\n", key, payload)
	}
	var want []string
	for i := 1; i <= 11; i++ {
		put(fmt.Sprintf("message/msg_%d", i), `{"role":"user"}`)
		for p := 9; p <= 11; p++ {
			want = append(want, fmt.Sprint(100*i+p))
			put(fmt.Sprintf("part/msg_%d/prt_%d", i, p), fmt.Sprintf(`{"type":"text","text":"word%dx"}`, 100*i+p))
		}
	}
	put("message/msg_1", `{"role":"user","n":2}`) // keeps its place
	r.okIn(lines.String(), "session", "append", id, "--wait")
	if got := wordsIn(r.ok("session", "export", id)); got != strings.Join(want, " ") {
		t.Errorf("exported as %s\nwant %s", got, strings.Join(want, " "))
	}
}

// opencode's ids begin anew every 2^36 ms; what was imported stands as opencode has it.
func TestImportOverTheEndOfOpencodesClock(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	const wrap = 26 << 36
	var items []string
	add := func(item string) { items = append(items, item) }
	add(`{"type":"session","data":{"id":"ses_wrap","title":"over the wrap"}}`)
	for n, at := range []int64{-3600_000, -1000, 1000, 60_000} {
		id := fmt.Sprintf("msg_%012xAAAAAAAAAAAAAA", ((wrap+at)<<12+int64(n))&(1<<48-1))
		part := fmt.Sprintf("prt_%012xAAAAAAAAAAAAAA", ((wrap+at+1)<<12+int64(n))&(1<<48-1))
		add(fmt.Sprintf(`{"type":"message","data":{"id":%q,"sessionID":"ses_wrap","role":"user","time":{"created":%d}}}`, id, wrap+at))
		add(fmt.Sprintf(`{"type":"part","data":{"id":%q,"messageID":%q,"sessionID":"ses_wrap","type":"text","text":"word%dx"}}`, part, id, n))
	}
	for name, order := range map[string][]int{"as they were": {0, 1, 2, 3, 4, 5, 6, 7, 8}, "as ids are sorted": {0, 5, 6, 7, 8, 1, 2, 3, 4}} {
		var in []string
		for _, i := range order {
			in = append(in, strings.ReplaceAll(items[i], "ses_wrap", "ses_"+strings.ReplaceAll(name, " ", "_")))
		}
		id := strings.TrimSpace(r.okIn("["+strings.Join(in, ",")+"]", "session", "import", "-", "--owner", r.owner()))
		if got := wordsIn(r.ok("session", "export", id)); got != "0 1 2 3" {
			t.Errorf("%s: exported as %s", name, got)
		}
		if out := r.ok("session", "verify", id); !strings.Contains(out, "intact") && strings.Contains(out, "differ") {
			t.Errorf("%s: %s", name, out)
		}
	}
}
