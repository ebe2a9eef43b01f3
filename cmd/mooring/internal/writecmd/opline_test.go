package writecmd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestOpLinesAreTakenApart(t *testing.T) {
	t.Parallel()
	text := `{"method":"begin","message":"msg_1","payload":{ "role":"assistant" },"as":"turn","batch":"a"}

{"method":"appendText","key":"part/msg_1/p","text":"x","refs":{"offset":{"op":"turn","path":"cursor"}},"depends_on":["turn"],"batch":"a"}
{"method":"put","key":"session","payload":{},"expected_cursor":{"op":"turn","path":"cursor"},"atomic":true,"op_id":"01JABCDEFGHJKMNPQRSTVWXYZ0"}
{"method":"put","key":"session","payload":{},"expected_cursor":7}`
	lines, err := readOpLines(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		s := fmt.Sprintf("%d %s %s %s %v", l.Line, l.Method, l.As, l.Batch, l.Atomic)
		for _, a := range l.Args {
			s += " " + a.Name + "=" + value(&a.opValue)
		}
		if l.Expected != nil {
			s += " expect " + value(l.Expected)
		}
		got = append(got, s)
	}
	want := []string{
		`1 begin turn a false message="msg_1" payload={ "role":"assistant" }`,
		`3 appendText  a false key="part/msg_1/p" offset=<turn.cursor> text="x"`,
		`4 put   true key="session" payload={} expect <turn.cursor>`,
		`5 put   false key="session" payload={} expect 7`,
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
	groups := batchesOf(lines, ledger.DefaultLimits())
	if len(groups) != 2 || len(groups[0]) != 2 || len(groups[1]) != 2 {
		t.Errorf("%d batches, want a and the lines without a name", len(groups))
	}
}

func value(v *opValue) string {
	if v.Ref != nil {
		return "<" + v.Ref.Op + "." + v.Ref.Path + ">"
	}
	return string(v.JSON)
}

func TestLinesWithoutABatchAreCutAtTheLimits(t *testing.T) {
	t.Parallel()
	var lines []opLine
	for i := range 25 {
		lines = append(lines, opLine{Line: i + 1, Args: []opArg{{Name: "payload", opValue: opValue{JSON: []byte("12345")}}}})
	}
	sizes := func(lim ledger.Limits) (s string) {
		for _, g := range batchesOf(lines, lim) {
			s += fmt.Sprint(len(g), " ")
		}
		return s
	}
	if got := sizes(ledger.Limits{BatchOps: 10, BatchBytes: 1000}); got != "10 10 5 " {
		t.Errorf("by ops: %s", got)
	}
	if got := sizes(ledger.Limits{BatchOps: 100, BatchBytes: 44}); got != "8 8 8 1 " {
		t.Errorf("by bytes: %s", got)
	}
}

func TestBadOpLinesNameTheirLine(t *testing.T) {
	t.Parallel()
	good := `{"method":"put","key":"session","payload":{}}` + "\n"
	for _, c := range []struct{ text, want string }{
		{"", "no op lines"},
		{good + `{"method":"put",`, "line 2: not a JSON object"},
		{good + "\n\n[1]", "line 4: not a JSON object"},
		{`{"key":"session"}`, "line 1: no method"},
		{`{"method":7}`, "line 1: method must be a text"},
		{`{"method":"put","refs":[]}`, "line 1: refs must be"},
		{`{"method":"put","refs":{"payload":{"op":"nobody"}}}`, `"nobody" is neither`},
		{`{"method":"put","refs":{"payload":{"path":"x"}}}`, "names no op"},
		{`{"method":"put","payload":{},"as":"x","refs":{"payload":{"op":"x"}}}`, "as a value and as a reference"},
		{`{"method":"put","depends_on":["nobody"]}`, `"nobody" is neither`},
		{`{"method":"put","depends_on":"x"}`, "depends_on must be"},
		{`{"method":"put","expected_cursor":"soon"}`, "expected_cursor must be"},
		{`{"method":"put","expected_cursor":-1}`, "expected_cursor must be"},
		{`{"method":"put","op_id":"short"}`, "op_id must be a ULID"},
		{`{"method":"put","as":"x"}` + "\n" + `{"method":"put","as":"x"}`, `line 2: the label "x" is taken`},
	} {
		_, err := readOpLines(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.CodeOf(err) != fault.Malformed {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzReadOpLines(f *testing.F) {
	f.Add(`{"method":"put","key":"session","payload":{},"as":"a"}` + "\n" + `{"method":"put","refs":{"key":{"op":"a"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := readOpLines(strings.NewReader(text))
		if err == nil && len(batchesOf(lines, ledger.DefaultLimits())) == 0 {
			t.Error("lines without a batch")
		}
	})
}

// An input that is kept whole is bounded.
func TestAppendsInputIsBounded(t *testing.T) {
	t.Parallel()
	in := &boundedInput{Reader: strings.NewReader("xx"), n: maxInput - 1}
	if _, err := in.Read(make([]byte, 2)); fault.CodeOf(err) != fault.TooLarge {
		t.Errorf("an input beyond its bound: %v", err)
	}
}
