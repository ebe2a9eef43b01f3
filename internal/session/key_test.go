package session_test

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// FuzzParseKey: a key has one text.
func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"session", "session_diff", "message/m", "part/m/p", "model/a/b", "message/", "part/m", "part/m/p/q", "model//", "", "message/é"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := session.ParseKey(text); err == nil && k.String() != text {
			t.Errorf("%q is printed as %q", text, k.String())
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	long, kind64 := strings.Repeat("x", 200), "k"+strings.Repeat("9", 63)
	for _, good := range []string{"session", "session_diff", "message/m", "message/A.b_c:@+-9", "part/m/p", "model/openai/gpt-4.1", "model/" + long, "part/" + long + "/" + long,
		"x", "plan", "todo/1", "a-b_9/A.b_c:@+-9", "sessions/x", "t/1/2/3/4/5/6", kind64, kind64 + "/" + long + "/" + long, "t/" + long + "/" + long + "/" + strings.Repeat("y", 108)} {
		k, err := session.ParseKey(good)
		if err != nil || k.String() != good {
			t.Errorf("%s: %v, %v", good, k, err)
		}
	}
	for _, bad := range []string{"", "Session", "message ", "1", "-a", "_a", "a b", "a/", "/a", "a//b", "ä", "a.b", "todo/ä", "todo/1/", "todo/" + long + "x", kind64 + "0", "t/1/2/3/4/5/6/7",
		"t/" + long + "/" + long + "/" + strings.Repeat("y", 109), "ref", "request", "request/", "request/a/b", "request/a/state/state", "schema", "schema/", "schema/part", "schema/a/b", "turn", "turn/x", "x\x00", "X", "session/", "session_diff/x", "message", "message/", "message/a/b", "message/ä", "message/a b", "message/" + long + "x",
		"model/a b", "model/ä", "model/" + long + "x", "part/m", "part/m/", "part//p", "part/m/p/q", "model", "model/", "ref/x", "message/\x00", "message/..\n"} {
		if k, err := session.ParseKey(bad); err == nil {
			t.Errorf("%q was taken as %v", bad, k)
		} else if err.Code != fault.BadKey {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
