package ledger_test

// Shapes: what refuses a call, and what one op is rejected for.

import (
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestCheckBatch(t *testing.T) {
	t.Parallel()
	good := func() *ledger.Batch { return batch(1, 5, op(11, "same"), op(12, "same"), op(13, "same")) }
	if err := ledger.CheckBatch(good()); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		spoil func(*ledger.Batch)
		code  fault.Code
	}{
		"no ops": {func(b *ledger.Batch) { b.Ops = nil }, fault.Malformed},
		"as many ops as may be": {func(b *ledger.Batch) {
			b.Ops = make([]ledger.Intent, 10_000)
			for i := range b.Ops {
				b.Ops[i].OpID = id(uint64(10_000 - i))
			}
			seal(b, 1)
		}, fault.None},
		"far too many ops":     {func(b *ledger.Batch) { b.Ops = make([]ledger.Intent, 10_001) }, fault.TooLarge},
		"no session":           {func(b *ledger.Batch) { b.Session = ""; seal(b, 5) }, fault.Malformed},
		"no outbox":            {func(b *ledger.Batch) { b.Outbox = "" }, fault.Malformed},
		"bad batch id":         {func(b *ledger.Batch) { b.BatchID = "x"; seal(b, 5) }, fault.Malformed},
		"bad op id":            {func(b *ledger.Batch) { b.Ops[1].OpID = strings.Repeat("U", 26) }, fault.Malformed},
		"lower case op id":     {func(b *ledger.Batch) { b.Ops[1].OpID = "01j00000000000000000000001" }, fault.Malformed},
		"op id out of range":   {func(b *ledger.Batch) { b.Ops[1].OpID = "81J00000000000000000000001" }, fault.Malformed},
		"seq 0":                {func(b *ledger.Batch) { seal(b, 0) }, fault.Malformed},
		"seqs run over":        {func(b *ledger.Batch) { seal(b, 1<<64-2) }, fault.Malformed},
		"a seq left out":       {func(b *ledger.Batch) { b.Ops[2].Seq++ }, fault.Malformed},
		"a seq twice":          {func(b *ledger.Batch) { b.Ops[2].Seq-- }, fault.Malformed},
		"another batch's op":   {func(b *ledger.Batch) { b.Ops[1].BatchID = id(99) }, fault.Malformed},
		"another session's op": {func(b *ledger.Batch) { b.Ops[1].Session = "ses_01J0000000000000000000000C" }, fault.Malformed},
		"atomic in part":       {func(b *ledger.Batch) { b.Ops[1].Atomic = true }, fault.Malformed},
		"an op twice in a row": {func(b *ledger.Batch) { b.Ops[2].OpID = b.Ops[1].OpID }, fault.Malformed},
		"an op twice":          {func(b *ledger.Batch) { b.Ops[2].OpID = b.Ops[0].OpID }, fault.Malformed},
	} {
		b := good()
		row.spoil(b)
		if err := ledger.CheckBatch(b); codeOf(err) != row.code {
			t.Errorf("%s: %v, want %s", name, err, row.code)
		}
	}
}

func TestCheckIntent(t *testing.T) {
	t.Parallel()
	lim := ledger.Limits{BatchOps: 1, BatchBytes: 100, PayloadBytes: 20}
	many := func(n int) (as []ledger.Arg) {
		for i := range n {
			as = append(as, val(strings.Repeat("x", i+1), "1"))
		}
		return as
	}
	for name, row := range map[string]struct {
		in   ledger.Intent
		code fault.Code
	}{
		"plain":                      {op(1, "put", val("a", `{"b": [1, 2]}`), ref("c", 2, "x.y")), fault.None},
		"no args":                    {op(1, "void"), fault.None},
		"as many args as may be":     {op(1, "put", many(64)...), fault.None},
		"expects":                    {expect(op(1, "put"), 0), fault.None},
		"expects by reference":       {expectRef(op(1, "put"), 2, "cursor"), fault.None},
		"names at their limit":       {op(1, strings.Repeat("x", 64), val(strings.Repeat("x", 64), "1"), ref("a", 2, strings.Repeat("x", 256))), fault.None},
		"as many depends_on":         {ledger.Intent{Method: "put", DependsOn: slices.Repeat([]string{id(2)}, 1000)}, fault.None},
		"name too long":              {op(1, "put", val(strings.Repeat("x", 65), "1")), fault.Malformed},
		"payload at the limit":       {op(1, "put", val("a", `"`+strings.Repeat("x", 18)+`"`)), fault.None},
		"no method":                  {op(1, ""), fault.Malformed},
		"method too long":            {op(1, strings.Repeat("x", 65)), fault.Malformed},
		"method not UTF-8":           {op(1, "\xff"), fault.Malformed},
		"no name":                    {op(1, "put", val("", "1")), fault.Malformed},
		"name not UTF-8":             {op(1, "put", val("\xff", "1")), fault.Malformed},
		"name twice":                 {op(1, "put", val("a", "1"), ref("a", 2, "")), fault.Malformed},
		"no value":                   {op(1, "put", val("a", "")), fault.Malformed},
		"two values":                 {op(1, "put", val("a", "1 2")), fault.Malformed},
		"value not UTF-8":            {op(1, "put", val("a", "\"\xff\"")), fault.Malformed},
		"value and reference":        {op(1, "put", ledger.Arg{Name: "a", JSON: []byte("1"), Ref: &ledger.Ref{Op: id(2)}}), fault.Malformed},
		"a cursor expected unset":    {ledger.Intent{Method: "put", Expected: ledger.Expect{Cursor: 3}}, fault.Malformed},
		"a reference expected unset": {ledger.Intent{Method: "put", Expected: ledger.Expect{Ref: &ledger.Ref{Op: id(2)}}}, fault.Malformed},
		"expects twice":              {ledger.Intent{Method: "put", Expected: ledger.Expect{Set: true, Cursor: 3, Ref: &ledger.Ref{Op: id(2)}}}, fault.Malformed},
		"payload too large":          {op(1, "put", val("a", `"`+strings.Repeat("x", 19)+`"`)), fault.TooLarge},
		"too many args":              {op(1, "put", many(65)...), fault.TooLarge},
		"too many depends_on":        {ledger.Intent{Method: "put", DependsOn: make([]string, 1001)}, fault.TooLarge},
		"depends_on no op":           {ledger.Intent{Method: "put", DependsOn: []string{"x"}}, fault.BadReference},
		"refers to no op":            {op(1, "put", ledger.Arg{Name: "a", Ref: &ledger.Ref{Op: "x"}}), fault.BadReference},
		"path too long":              {op(1, "put", ref("a", 2, strings.Repeat("x", 257))), fault.BadReference},
		"path not UTF-8":             {op(1, "put", ref("a", 2, "\xff")), fault.BadReference},
	} {
		if err := ledger.CheckIntent(&row.in, lim); codeOf(err) != row.code {
			t.Errorf("%s: %v, want %s", name, err, row.code)
		}
		if name == "no value" || name == "two values" || name == "value not UTF-8" {
			row.code = fault.None // all that CheckIntentSkipJSON does not look at
		}
		if err := ledger.CheckIntentSkipJSON(&row.in, lim); codeOf(err) != row.code {
			t.Errorf("%s, if its values are sound: %v, want %s", name, err, row.code)
		}
	}
}

func TestCheckSize(t *testing.T) {
	t.Parallel()
	refers := func(n uint64) []ledger.Intent {
		ops := []ledger.Intent{op(1, "a"), op(2, "a")}
		for i := range n - 2 {
			ops[i%2] = after(ops[i%2], 3+i, 3+i) // each twice: the same is looked for once
		}
		ops[0].Args = []ledger.Arg{ref("a", 1+n, "")}
		ops[1] = expectRef(ops[1], 2+n, "cursor")
		ops[1] = after(ops[1], 1) // its own are not looked for
		ops[1].DependsOn = append(ops[1].DependsOn, "x")
		return ops
	}
	lim := ledger.Limits{BatchOps: 2, BatchBytes: 10, PayloadBytes: 10}
	for name, row := range map[string]struct {
		ops  []ledger.Intent
		code fault.Code
	}{
		"at both limits":  {[]ledger.Intent{op(1, "a", val("a", "12345")), op(2, "a", val("a", "123"), val("b", "45"))}, fault.None},
		"too many ops":    {[]ledger.Intent{op(1, "a"), op(2, "a"), op(3, "a")}, fault.TooLarge},
		"as many others":  {refers(ledger.MaxExternalRefs), fault.None},
		"too many others": {refers(ledger.MaxExternalRefs + 1), fault.TooLarge},
		"too many bytes":  {[]ledger.Intent{op(1, "a", val("a", "12345")), op(2, "a", val("a", "123456"))}, fault.TooLarge},
	} {
		if err := ledger.CheckSize(row.ops, lim); codeOf(err) != row.code {
			t.Errorf("%s: %v, want %s", name, err, row.code)
		}
	}
}
