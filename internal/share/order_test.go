package share

// A share is given out in opencode's order, whatever came first.

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/teststore"
)

// The clock in opencode's ids begins anew every 2^36 ms; what was created before that
// stands first all the same, however few are put in order at once.
func TestDataOverTheEndOfOpencodesClock(t *testing.T) {
	t.Parallel()
	for _, ordered := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(ordered), func(t *testing.T) {
			t.Parallel()
			testClocksEnd(t, start(t, teststore.SQLite(t), func(c *settings) { c.share.MaxOrdered = ordered }))
		})
	}
}

func testClocksEnd(t *testing.T, r *rig) {
	c := r.create("ses_wrap")
	const wrap = 26 << 36
	var items []string
	for n, at := range []int64{-3_600_000, -60_000, 1000, 60_000} {
		id := func(kind string, at int64) string {
			return fmt.Sprintf("%s_%012xAAAAAAAAAAAAAA", kind, ((wrap+at)<<12+int64(n))&(1<<48-1))
		}
		items = append(items, fmt.Sprintf(`{"type":"message","data":{"id":%q,"time":{"created":%d},"text":"message%d"}}`, id("msg", at), wrap+at, n),
			fmt.Sprintf(`{"type":"part","data":{"id":%q,"messageID":%q,"text":"part%d"}}`, id("prt", at+1), id("msg", at), n))
	}
	r.want(200, r.sync(c, items[4], items[5], items[2], items[3]))
	r.want(200, r.sync(c, items[0], items[1], items[6], items[7]))
	text := regexp.MustCompile(`(message|part)\d`)
	if got, want := strings.Join(text.FindAllString(strings.Join(r.data(c), " "), -1), " "), "message0 message1 message2 message3 part0 part1 part2 part3"; got != want {
		t.Errorf("the data is %s, want %s", got, want)
	}
}
