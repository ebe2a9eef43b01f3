package opencode_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
)

// Which messages opencode sends to the model no more: as its own filter does, which goes back from the last message.
func TestCompactions(t *testing.T) {
	t.Parallel()
	const (
		u0, a0  = "u0 user", "a0 assistant u0"
		u1, a1  = "u1 user", "a1 assistant u1"
		ask     = "c user compaction"
		sum     = "s assistant c summary"
		u2, a2  = "u2 user", "a2 assistant u2"
		ask2    = "d user compaction"
		sum2    = "t assistant d summary"
		nothing = " "
	)
	for _, c := range []struct {
		what     string
		messages []string
		want     string // upto and summary
	}{
		{"no compaction", []string{u0, a0, u1, a1}, nothing},
		{"a summary", []string{u0, a0, u1, a1, ask, sum, u2}, "message/a1 message/s"},
		{"it is still written", []string{u0, a0, ask, "s assistant c summary unfinished"}, nothing},
		{"it has failed", []string{u0, a0, ask, "s assistant c summary error"}, nothing},
		{"it was written again", []string{u0, a0, ask, "s assistant c summary error", "r assistant c summary", u1}, "message/a0 message/r"},
		{"no summary was asked for", []string{u0, a0, u1, "s assistant u1 summary"}, nothing},
		{"asked for, and answered otherwise", []string{u0, a0, ask, "s assistant c"}, nothing},
		{"with the last turn", []string{u0, a0, u1, a1, "c user compaction tail=u1", sum, u2}, "message/a0 message/s"},
		{"with all turns", []string{u0, a0, "c user compaction tail=u0", sum}, nothing},
		{"with a turn that is not there", []string{u0, a0, "c user compaction tail=none", sum}, "message/a0 message/s"},
		{"the first message is the question", []string{ask, sum, u0}, nothing},
		{"a second one", []string{u0, a0, ask, sum, u2, a2, ask2, sum2}, "message/a2 message/t"},
		{"the second is not done", []string{u0, a0, ask, sum, u2, a2, ask2}, "message/a0 message/s"},
	} {
		var items []string
		for i, m := range c.messages {
			words := strings.Fields(m)
			info := fmt.Sprintf(`"id":%q,"role":%q,"time":{"created":%d}`, words[0], words[1], 1000+i)
			for _, w := range words[2:] {
				_, hasTail := strings.CutPrefix(w, "tail=")
				switch {
				case w == "compaction":
					part := fmt.Sprintf(`{"type":"part","data":{"id":"p%s","messageID":%q,"type":"compaction","auto":true`, words[0], words[0])
					if strings.Contains(m, "tail=") {
						part += fmt.Sprintf(`,"tail_start_id":%q`, m[strings.Index(m, "tail=")+5:])
					}
					items = append(items, part+"}}")
				case hasTail:
				case w == "summary":
					info += `,"summary":true`
				case w == "error":
					info += `,"error":{"name":"x"}`
				case w != "unfinished":
					info += fmt.Sprintf(`,"parentID":%q`, w)
				}
			}
			if words[1] == "assistant" && !strings.Contains(m, "unfinished") {
				info += `,"finish":"stop"`
			} else if words[1] == "user" {
				info += `,"summary":{"diffs":[]}`
			}
			items = append(items, `{"type":"message","data":{`+info+`}}`)
		}
		file := `[{"type":"session","data":{"id":"ses_x"}},` + strings.Join(items, ",") + `]`
		rec, err := opencode.ReadRecording(strings.NewReader(file), opencodetest.Limits)
		if err != nil {
			t.Fatal(err)
		}
		if got := rec.Compaction.Upto + " " + rec.Compaction.Summary; got != c.want {
			t.Errorf("%s: it is compacted to %q, want %q", c.what, got, c.want)
		}
	}
}

// An export that says up to where its session is compacted, and one that says it wrongly.
func TestExportedCompaction(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		`{"upto":"message/a","summary":"message/b"}`: "message/a message/b",
		`{"upto":"message/a","summary":"part/b/p"}`:  "not the key of a message",
		`{"upto":"message/a"}`:                       "not the key of a message",
		`7`:                                          "not the key of a message",
	} {
		rec, err := opencode.ReadRecording(strings.NewReader(`{"info":{"id":"ses_x"},"messages":[],"compacted":`+said+`}`), opencodetest.Limits)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = rec.Compaction.Upto + " " + rec.Compaction.Summary
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s is read as %s, want %s", said, got, want)
		}
	}
}
