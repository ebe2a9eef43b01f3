package ledger_test

// The digest: fixed for ever, and different for different intents.

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/ledger"
)

func sample() ledger.Intent {
	return ledger.Intent{
		OpID: "01J00000000000000000000001", BatchID: "01J00000000000000000000002", Seq: 7,
		DependsOn: []string{"01J00000000000000000000003"}, Expected: ledger.Expect{Set: true, Cursor: 41},
		Session: sessionID, Method: "put", Atomic: true,
		Args: []ledger.Arg{val("key", `"message/m"`), val("payload", `{"text":"é\u00e9" }`),
			{Name: "x", Ref: &ledger.Ref{Op: "01J00000000000000000000004", Path: "ref.id"}}},
	}
}

// These were computed by another program from the description alone. A change
// here makes every outbox in the field diverge.
func TestDigestGolden(t *testing.T) {
	t.Parallel()
	in := sample()
	for want, in := range map[string]*ledger.Intent{
		"0b9c927185f160fc041c9d767faab82775a12cffbe164c66e2809a30de2ff653": &in,
		"946df75e6f9bbb52934ea6a15b6dc219fe47ca742e426dfafc28b293d9a5b736": {},
	} {
		if d := in.Digest(); hex.EncodeToString(d[:]) != want {
			t.Errorf("digest %x, want %s", d, want)
		}
	}
}

func TestDigestTellsNeighboursApart(t *testing.T) {
	t.Parallel()
	seen := map[ledger.Digest]string{}
	add := func(name string, change func(*ledger.Intent)) {
		in := sample()
		change(&in)
		d := in.Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have one digest", name, other)
		}
		seen[d] = name
	}
	add("as it is", func(*ledger.Intent) {})
	add("op", func(in *ledger.Intent) { in.OpID = "01J00000000000000000000009" })
	add("batch", func(in *ledger.Intent) { in.BatchID = "01J00000000000000000000009" })
	add("op and batch swapped", func(in *ledger.Intent) { in.OpID, in.BatchID = in.BatchID, in.OpID })
	add("seq", func(in *ledger.Intent) { in.Seq++ })
	add("session", func(in *ledger.Intent) { in.Session = "ses_01J0000000000000000000000C" })
	add("a byte from session to method", func(in *ledger.Intent) { in.Session, in.Method = in.Session+"p", "ut" })
	add("not atomic", func(in *ledger.Intent) { in.Atomic = false })
	add("no depends_on", func(in *ledger.Intent) { in.DependsOn = nil })
	add("one more depends_on", func(in *ledger.Intent) { in.DependsOn = append(in.DependsOn, "") })
	add("depends_on split", func(in *ledger.Intent) { in.DependsOn = []string{"01J0000000000", "0000000000003"} })
	add("expects nothing", func(in *ledger.Intent) { in.Expected = ledger.Expect{} })
	add("expects 0", func(in *ledger.Intent) { in.Expected = ledger.Expect{Set: true} })
	add("expects a reference", func(in *ledger.Intent) { in.Expected = ledger.Expect{Set: true, Ref: &ledger.Ref{}} })
	add("args swapped", func(in *ledger.Intent) { in.Args[0], in.Args[1] = in.Args[1], in.Args[0] })
	add("no args", func(in *ledger.Intent) { in.Args = nil })
	add("one blank in a payload", func(in *ledger.Intent) { in.Args[1].JSON = []byte(`{"text":"é\u00e9"}`) })
	add("a byte from name to value", func(in *ledger.Intent) { in.Args[0] = val(`key"`, `message/m"`) })
	add("a reference's path", func(in *ledger.Intent) { in.Args[2].Ref.Path = "ref.i" })
	add("a byte from op to path", func(in *ledger.Intent) {
		in.Args[2].Ref = &ledger.Ref{Op: "01J0000000000000000000000", Path: "4ref.id"}
	})
	add("a reference written as a value", func(in *ledger.Intent) { in.Args[2] = val("x", `{"op":"01J00000000000000000000004","path":"ref.id"}`) })
	add("a reference gone", func(in *ledger.Intent) { in.Args[2].Ref = nil })
}

// anyIntent draws from few short values, so that boundaries move a lot.
func anyIntent(t *rapid.T, label string) *ledger.Intent {
	text := func(name string) string {
		return rapid.SampledFrom([]string{"", "a", "b", "aa", "ab", "\x00"}).Draw(t, label+name)
	}
	ref := func(name string) *ledger.Ref {
		if rapid.Bool().Draw(t, label+name) {
			return nil
		}
		return &ledger.Ref{Op: text(name + " op"), Path: text(name + " path")}
	}
	in := &ledger.Intent{OpID: text("op"), BatchID: text("batch"), Seq: rapid.Uint64Range(0, 2).Draw(t, label+"seq"),
		Session: text("session"), Method: text("method"), Atomic: rapid.Bool().Draw(t, label+"atomic")}
	in.Expected = ledger.Expect{Set: rapid.Bool().Draw(t, label+"set"), Cursor: rapid.Uint64Range(0, 1).Draw(t, label+"cursor"), Ref: ref("expected")}
	for i := range rapid.IntRange(0, 2).Draw(t, label+"deps") {
		in.DependsOn = append(in.DependsOn, text(fmt.Sprint("dep", i)))
	}
	for i := range rapid.IntRange(0, 2).Draw(t, label+"args") {
		in.Args = append(in.Args, ledger.Arg{Name: text(fmt.Sprint("name", i)), JSON: []byte(text(fmt.Sprint("json", i))), Ref: ref(fmt.Sprint("ref", i))})
	}
	return in
}

func TestDigestIsInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := anyIntent(t, "a ")
		b := anyIntent(t, "b ")
		if rapid.Bool().Draw(t, "near") { // differ in one field at most
			c := *a
			switch rapid.IntRange(0, 3).Draw(t, "field") {
			case 0:
				c.Args = b.Args
			case 1:
				c.Expected = b.Expected
			case 2:
				c.DependsOn = b.DependsOn
			default:
				c.Session, c.Method = b.Session, b.Method
			}
			b = &c
		}
		if same := reflect.DeepEqual(a, b); same != (a.Digest() == b.Digest()) {
			t.Fatalf("equal %v, equal digests %v:\n%+v\n%+v", same, !same, a, b)
		}
	})
}

func TestReferences(t *testing.T) {
	t.Parallel()
	in := sample()
	in.Expected = ledger.Expect{Set: true, Ref: &ledger.Ref{Op: id(9), Path: "cursor"}}
	want := []ledger.Ref{{Op: "01J00000000000000000000004", Path: "ref.id"}, {Op: id(9), Path: "cursor"}}
	if got := in.References(); !reflect.DeepEqual(got, want) {
		t.Errorf("references %v, want %v", got, want)
	}
}

// A server that does not know a hint has the op without it, and the same digest.
func TestHintsAreInNoDigest(t *testing.T) {
	t.Parallel()
	share := func(args ...ledger.Arg) ledger.Intent { return ledger.Intent{OpID: "o", Method: "share", Args: args} }
	at, in, hash := ledger.Arg{Name: "expires_at", JSON: []byte("5")}, ledger.Arg{Name: "expires_in", JSON: []byte("6")}, ledger.Arg{Name: "at_hash", JSON: []byte(`"00"`)}
	create := func(args ...ledger.Arg) ledger.Intent { return ledger.Intent{OpID: "o", Method: "create", Args: args} }
	order := ledger.Arg{Name: "order", JSON: []byte(`"time"`)}
	origin, cursor, message := ledger.Arg{Name: "origin", JSON: []byte(`"ses_x"`)}, ledger.Arg{Name: "origin_at", JSON: []byte("7")}, ledger.Arg{Name: "origin_message", JSON: []byte(`"m"`)}
	later := ledger.Arg{Name: "at_hash", Ref: &ledger.Ref{Op: "o"}}
	for name, c := range map[string]struct {
		with, without ledger.Intent
		hints         int
	}{
		"a lifetime beside a time": {share(at, in), share(at), 1},
		"before it":                {share(in, at), share(at), 1},
		"a lifetime alone":         {share(in), share(), 0},
		"a hash":                   {share(hash), share(), 1},
		"a hash yet to come":       {share(later), share(), 0},
		"a session's order":        {create(at, order), create(at), 1},
		"another op's order":       {share(at, order), share(at), 0},
		"a session's origin":       {create(at, origin, cursor, message), create(at), 3},
		"another op's origin":      {share(at, cursor), share(at), 0},
		"all":                      {share(hash, at, in), share(at), 2},
	} {
		if n := c.with.HintCount(); n != c.hints {
			t.Errorf("%s: %d hints, want %d", name, n, c.hints)
		}
		if same := c.with.Digest() == c.without.Digest(); same != (c.hints > 0) {
			t.Errorf("%s: the digest is the same: %t", name, same)
		}
	}
}
