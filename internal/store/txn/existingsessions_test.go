package txn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func TestKnownSessions(t *testing.T) {
	t.Parallel()
	var k existingSessions
	if got := k.unknown([]string{"a", "b"}); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("before anything is known: %q", got)
	}
	k.add(map[string]PriorRow{"b": {}})
	if got := k.unknown([]string{"a", "b", "c"}); !slices.Equal(got, []string{"a", "c"}) {
		t.Fatalf("after b was seen: %q", got)
	}
	if err := k.verify([]string{"b"}, map[string]*session.Row{"b": {}}); err != nil {
		t.Fatal(err)
	}
	// Its row is gone, with the rest of a database that was put back.
	if err := k.verify([]string{"a", "b"}, map[string]*session.Row{"a": {}}); fault.CodeOf(err) != fault.Unavailable {
		t.Fatalf("a lost row: %v", err)
	}
	if got := k.unknown([]string{"b"}); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("after its row was lost: %q", got)
	}
}

func TestKnownSessionsAreBounded(t *testing.T) {
	t.Parallel()
	var k existingSessions
	for i := range 2*maxExistingSessions + 1 {
		k.add(map[string]PriorRow{fmt.Sprint(i): {}})
	}
	if len(k.ids) != 1 {
		t.Fatalf("%d ids are kept", len(k.ids))
	}
}
