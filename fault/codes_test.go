package fault

// The list is append-only: this is how it stood at its first release, and no
// later version may answer otherwise.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

const released = `
0 none
1 skipped
2 denied
3 conflict
4 rejected
5 voided
6 batch_aborted
20 fenced
21 server_behind
22 outbox_diverged
23 gap
24 overloaded
25 not_yet_known
26 unavailable
27 disconnected
28 draining
29 quota_exceeded
40 unknown_ref
41 revoked
42 stale_epoch
43 expired
44 missing_right
45 exhausted
46 wrong_outbox
47 not_an_owner
48 sealed
60 malformed
61 unknown_method
62 bad_key
63 bad_payload
64 too_large
65 not_found
66 already_exists
67 wrong_offset
68 turn_ended
69 turn_open
70 not_your_turn
71 bad_reference
72 session_deleted
73 widening
74 bad_argument
90 cursor_expired
91 pruned
92 bad_ref_text
93 plaintext
94 incompatible
95 usage
96 outbox_full
97 disk_full
98 in_use
99 unsafe_store
100 canceled
101 internal
102 slow_consumer
103 ambiguous
104 outbox_damaged
`

func TestReleasedCodesKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, line := range strings.Split(strings.TrimSpace(released), "\n") {
		var number Code
		var name string
		if _, err := fmt.Sscan(line, &number, &name); err != nil {
			t.Fatal(line, err)
		}
		if number.String() != name {
			t.Errorf("code %d is now %s, it was %s", number, number, name)
		}
		if c, ok := ParseCode(name); !ok || c != number {
			t.Errorf("%s is now %d, it was %d", name, c, number)
		}
		seen++
	}
	if seen > len(names) {
		t.Errorf("%d codes of %d are left", len(names), seen)
	}
}

func TestNamesAreDistinct(t *testing.T) {
	t.Parallel()
	by := map[string]Code{}
	for c, n := range names {
		if other, ok := by[n]; ok || n == "" || strings.ContainsAny(n, " :@") {
			t.Errorf("%d and %d share the name %q, or it cannot travel", c, other, n)
		}
		by[n] = c
	}
	if got := Code(9999).String(); got != "code_9999" {
		t.Errorf("a later version's code prints as %s", got)
	}
	if _, ok := ParseCode("code_9999"); ok {
		t.Error("a later version's code has a name")
	}
}

func TestErrorsMatch(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("apply: %w", Revoked.Because(io.EOF, "cut at %d", 7).Pos(7))
	var e *Error
	if !errors.Is(err, Revoked) || !errors.Is(err, &Error{Code: Revoked}) || !errors.Is(err, io.EOF) || !errors.As(err, &e) || e.At != 7 {
		t.Errorf("%v does not match what it is", err)
	}
	if errors.Is(err, Expired) || errors.Is(err, &Error{Code: Expired}) || errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v matches what it is not", err)
	}
	if err.Error() != "apply: revoked: cut at 7" || (&Error{Code: Gap}).Error() != "gap" {
		t.Errorf("it says %q", err)
	}
	for want, err := range map[Code]error{None: nil, Revoked: err, Gap: fmt.Errorf("x: %w", Gap), Internal: io.EOF} {
		if got := CodeOf(err); got != want {
			t.Errorf("%v has code %s, want %s", err, got, want)
		}
	}
}

func TestCallersThatGaveUp(t *testing.T) {
	t.Parallel()
	for why, want := range map[error]Code{context.Canceled: Canceled, io.EOF: Canceled, context.DeadlineExceeded: Unavailable} {
		// What the work came to may be about any of the contexts it had.
		err := ContextError(why, errors.Join(io.ErrClosedPipe, context.DeadlineExceeded))
		if err.Code != want || !errors.Is(err, why) || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v is %v, want %s", why, err, want)
		}
	}
}

func TestTransientCodesAreCallLevel(t *testing.T) {
	t.Parallel()
	transient := 0
	for c := range names {
		if c.Transient() {
			transient++
			if c < Fenced || c >= UnknownRef {
				t.Errorf("%s is retried for ever, though it can be recorded", c)
			}
		}
	}
	if transient != 8 {
		t.Errorf("%d codes are transient", transient)
	}
	for _, c := range []Code{Fenced, ServerBehind, OutboxDiverged} {
		if c.Transient() {
			t.Errorf("%s is retried for ever, though nothing will change", c)
		}
	}
}

// What a message echoes is text, whatever was sent, and is not cut within a character.
func TestClip(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"": "", "short": "short", strings.Repeat("x", 64): strings.Repeat("x", 64), strings.Repeat("x", 65): strings.Repeat("x", 64) + "…",
		"x" + strings.Repeat("é", 60): "x" + strings.Repeat("é", 31) + "…", "a\xffb": "a\uFFFDb", "é\xc3": "é\uFFFD",
	} {
		if got := Clip(s); got != want {
			t.Errorf("%q is told as %q, want %q", s, got, want)
		}
	}
}
