//go:build crash

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// The whole program, in its smallest form, against the real binary.
func TestEveryPartGivesItsLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		db    string
		args  string
		lines []string
	}{
		{"sqlite", "--at-once 2", []string{`\| sqlite \| 2 \| 3 \| 1 \| \d+ `, `\| sqlite \| 2 \| 3 \| 2 \| \d+ `}},
		{"postgres", "--in-process", []string{`\| postgres \| 2 \| 3 \| 1 \| \d+ `}},
	} {
		t.Run(test.db, func(t *testing.T) {
			t.Parallel()
			var out, progress bytes.Buffer
			args := "--quick --writers 2 --batches 3 --seconds 0.02 --appends 5 --queued 30 --deleted 20 --deleting 7 --reverted 40 --opened 6 --keys 2000 --followed 100 --runners 3 --db " + test.db + " " + test.args
			if err := run(t.Context(), strings.Fields(args), &out, &progress); err != nil {
				t.Fatalf("%v\n%s", err, progress.String())
			}
			lines := append(test.lines, `\| `+test.db+` \| p50 \| \d+\.\d+ `, `\| `+test.db+` \| p99 \| \d+\.\d+ `, `\| `+test.db+` \| 30 \| 3 \| `,
				`\| `+test.db+` \| 1 \| \d+ \|\n`, `\| `+test.db+` \| 7 \| \d+ \|\n`, `\| `+test.db+` \| by age \| \d+ \|\n`,
				`\| `+test.db+` \| reverts of 40 keys \| \d+\.\d+ \| \d+\.\d+ \| \d+\.\d+ \| 1\.5 \| \d+\.\d+ \| – \|`, `\| `+test.db+` \| the removal of 40 keys of a settled revert \| .* \| 1\.5 \| `,
				`\| `+test.db+` \| the deletion of 20 sessions by their age \| .* \| – \| \d+\.\d+ \| – \|`, `\| `+test.db+` \| the revocation of a ref that opened 6 sessions \| .* \| – \| \d+\.\d+ \| 1 \|`, `\| `+test.db+` \| the revocation of a ref that reaches 6 sessions below \| .* \| – \| \d+\.\d+ \| 1 \|`)
			for _, work := range keysWorks() {
				lines = append(lines, `\| `+test.db+` \| `+work.what+` \| \d+\.\d+ \| \d+\.\d+ \| \d+\.\d+ \| [13]`)
			}
			if !strings.Contains(test.args, "--in-process") {
				lines = append(lines, `\| `+test.db+` \| all \| .*\d \| \d+ \| 1\.00 \| 1\.1 \|`, `\| a prefix that has all events \| `, `\| a prefix that has one event of ten \| `,
					`\| the writer sends \| \d{3} \| \d{3} \| \d+\.\d+ \| 2 \|`, `\| a follower receives \| \d{3} \| \d{3} \| `, `\| payloads in the log \| \d+ \| \d+ \| `,
					`\| the database grows, vacuumed \| \d+ \| \d+ \| `, `\| the database writes \| \d+ \| \d+ \| \d+\.\d+ \| 2 \|`,
					`\| the database writes, another member each time \| \d+ \| \d+ \| \d+\.\d+ \| – \|`,
					`\| p50 of a prompt \| \d+\.\d+ \| \d+\.\d+ \| \d+\.\d+ \| 10 \|`, `\| each of 3 runners \| – \| -?\d+\.\d+ \| – \| 64 \|`,
					`\| p50 of a task \| \d+\.\d+ \| \d+\.\d+ \| \d+\.\d+ \| 1\.5 \|`)
			}
			for _, line := range lines {
				if n := len(regexp.MustCompile(line).FindAllString(out.String(), -1)); n != 1 {
					t.Errorf("%d lines like %s in\n%s", n, line, out.String())
				}
			}
			if !strings.Contains(progress.String(), "round 1 of 1") {
				t.Errorf("no progress:\n%s", progress.String())
			}
		})
	}
}
