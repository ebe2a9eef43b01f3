package refcmd

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/client"
)

// A large tree is drawn as it comes, in columns that stay where they are.
func TestALargeTreeIsDrawnInPieces(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	d := treePrinter{out: &out}
	const children = 2 * treeChunk
	add := func(id, parent string) {
		t.Helper()
		r := client.RefInfo{Parent: parent}
		r.Ref = id
		if err := d.add(r); err != nil {
			t.Fatal(err)
		}
		if printed, said := strings.Count(out.String(), "alive"), out.Len() > 0; said && printed%treeChunk != 0 {
			t.Fatalf("%d are printed at once", printed)
		}
	}
	add("root", "elsewhere")
	for i := range children {
		id := fmt.Sprintf("child-%04d", i)
		add(id, "root")
		if i%100 == 99 {
			add("only-"+id, id)
		}
	}
	if err := d.flush(true); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 1+1+children+children/100 || !strings.HasPrefix(lines[0], "REF ") || !strings.HasPrefix(lines[1], "root ") {
		t.Fatalf("%d lines, %q, %q", len(lines), lines[0], lines[1])
	}
	at := func(line, word string) int { return utf8.RuneCountInString(line[:strings.Index(line, word)]) }
	for i, line := range lines[2:] {
		want := "├─ child-"
		switch {
		case strings.Contains(line, "only-") && i == len(lines)-3:
			want = "   └─ only-"
		case strings.Contains(line, "only-"):
			want = "│  └─ only-"
		case i == len(lines)-4:
			want = "└─ child-"
		}
		if !strings.HasPrefix(line, want) {
			t.Errorf("line %d: %q, not %q", i, line, want)
		}
		if i > treeChunk && at(line, "alive") < at(lines[2], "alive") {
			t.Errorf("line %d is out of its columns: %q", i, line)
		}
	}
}
