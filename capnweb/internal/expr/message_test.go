// Messages that need no parser, held against the parser.

package expr

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

var plainTexts = []string{`["pull",1]`, `["pull",-1]`, `["pull",0]`, `["pull",-0]`, `["pull",01]`, `["pull",123456789012345]`,
	`["pull",1234567890123456]`, `["pull",1.0]`, `["pull",1e3]`, `["pull", 1]`, `["pull",1] `, `["pull",1,2]`, `["pull","1"]`, `["pull",]`,
	`["pull",1`, `["pull",-]`, `["pull"]`, `["release",1,1]`, `["release",-5,20]`, `["release",1,]`, `["release",1]`, `["release",1,1,1]`,
	`["release",,1]`, `["release",1,1]]`, `["release",1,-1]`, `["pull",9`, `["pulls",1]`, `["release",1,999999999999999]`, ``, `[`}

func checkPlain(t *testing.T, msg []byte) {
	id, n, kind := PullOrRelease(msg)
	if kind == 0 {
		return
	}
	v, err := jsontext.Parse(msg, 8)
	if err != nil {
		t.Fatalf("%s: %v", msg, err)
	}
	m := v.([]any)
	a, ok := IDAt(m, 1)
	if !ok || a != id || kind == 'p' && (m[0] != "pull" || len(m) != 2) {
		t.Fatalf("%s: %d, %d, %c", msg, id, n, kind)
	}
	if b, ok := IDAt(m, 2); kind == 'r' && (!ok || b != n || m[0] != "release" || len(m) != 3) {
		t.Fatalf("%s: %d, %d, %c", msg, id, n, kind)
	}
}

func TestPlainMessages(t *testing.T) {
	for _, text := range plainTexts {
		checkPlain(t, []byte(text))
	}
	for text, want := range map[string]byte{`["pull",7]`: 'p', `["release",-7,1]`: 'r', `["release",7,123456789012345]`: 'r'} {
		if _, _, kind := PullOrRelease([]byte(text)); kind != want {
			t.Errorf("%s is not known", text)
		}
	}
	if _, _, kind := PullOrRelease([]byte(`["pull",` + strings.Repeat("1", 16) + `]`)); kind != 0 {
		t.Error("a number that may be rounded is known")
	}
}

func FuzzPlain(f *testing.F) {
	for _, text := range plainTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(checkPlain)
}
