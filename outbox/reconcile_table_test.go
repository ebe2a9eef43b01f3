package outbox

// Plans as a table, for the outbox of the JavaScript client, which has to make the same.

import (
	"bytes"
	"encoding/json"
	goflag "flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

var updateTable = goflag.Bool("update", false, "write testdata/reconcile.json anew")

// Rows, logs and plans as the table has them.
type (
	tableRef struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}
	tableArg struct {
		Name string    `json:"name"`
		JSON string    `json:"json,omitempty"`
		Ref  *tableRef `json:"ref,omitempty"`
	}
	tableExpect struct {
		Cursor uint64    `json:"cursor,omitempty"`
		Ref    *tableRef `json:"ref,omitempty"`
	}
	tableOp struct {
		ID        string       `json:"id"`
		Method    string       `json:"method"`
		Args      []tableArg   `json:"args"`
		DependsOn []string     `json:"dependsOn,omitempty"`
		Expected  *tableExpect `json:"expected,omitempty"`
		Void      bool         `json:"void,omitempty"`
		Retries   string       `json:"retries,omitempty"`
	}
	tableOutcome struct {
		Op      string `json:"op"`
		Status  string `json:"status"`
		Cursor  uint64 `json:"cursor"`
		Result  string `json:"result"`
		Message string `json:"message"`
	}
	tableRow struct {
		ID       string         `json:"id"`
		Atomic   bool           `json:"atomic"`
		First    int64          `json:"first"`
		Slim     bool           `json:"slim,omitempty"`
		Ops      []tableOp      `json:"ops"`
		Outcomes []tableOutcome `json:"outcomes"`
	}
	tableOfOps struct {
		ID  string    `json:"id"`
		Ops []tableOp `json:"ops"`
	}
	tableFate struct {
		Op     string `json:"op"`
		Batch  string `json:"batch"`
		Method string `json:"method"`
		Key    string `json:"key"`
		Fate   string `json:"fate"`
		As     string `json:"as"`
		In     string `json:"in"`
		Why    string `json:"why"`
	}
	tablePlan struct {
		Name      string            `json:"name"`
		Expecting bool              `json:"expecting"`
		Log       map[string]uint64 `json:"log"`
		Base      uint64            `json:"base"`
		Agrees    bool              `json:"agrees"`
		Last      uint64            `json:"last"`
		Retried   map[string]string `json:"retried"`
		Rows      []tableRow        `json:"rows"`
		Fates     []tableFate       `json:"fates"`
		Again     []tableOfOps      `json:"again"`
		Recorded  [][]tableOutcome  `json:"recorded"` // of each row without outcomes; null: it waits
	}
)

func refIn(r *ledger.Ref) *tableRef {
	if r == nil {
		return nil
	}
	return &tableRef{r.Op, r.Path}
}

func opsIn(ops []intent.Op) (all []tableOp) {
	for _, op := range ops {
		o := tableOp{ID: op.ID, Method: op.Method, Args: []tableArg{}, DependsOn: op.Deps, Void: op.Void, Retries: op.Retries}
		for _, a := range op.Args {
			o.Args = append(o.Args, tableArg{a.Name, string(a.JSON), refIn(a.Ref)})
		}
		if op.Expected.Set || op.Expected.Ref != nil {
			o.Expected = &tableExpect{op.Expected.Cursor, refIn(op.Expected.Ref)}
		}
		all = append(all, o)
	}
	return all
}

func outcomesIn(outs []ledger.Outcome) (all []tableOutcome) {
	for _, o := range outs {
		all = append(all, tableOutcome{o.OpID, o.Status.String(), o.Cursor, string(o.Result), o.Message})
	}
	return all
}

// tabled has a plan made and writes it down.
func (p *planned) tabled(t *testing.T, name string, log *sessionLog, expecting bool, next map[string]string) tablePlan {
	t.Helper()
	pl := p.plan(t, log, ReconcileOptions{WithExpectations: expecting}, next)
	out := tablePlan{Name: name, Expecting: expecting, Log: log.Ops, Base: log.Base, Agrees: log.streamMatches, Last: log.lastSeq, Retried: next}
	for _, r := range p.rows {
		bd, err := r.Decode()
		if err != nil {
			t.Fatal(err)
		}
		row := tableRow{ID: r.ID, Atomic: bd.Atomic, Slim: bd.Compacted, Ops: opsIn(bd.Ops)}
		if r.Sequenced() {
			row.First = *r.FirstSeq
		}
		if r.State == sqlstore.RowFinished {
			outs, err := r.ReadOutcomes(bd)
			if err != nil {
				t.Fatal(err)
			}
			row.Outcomes = outcomesIn(outs)
		}
		out.Rows = append(out.Rows, row)
	}
	for _, c := range pl.ops {
		out.Fates = append(out.Fates, tableFate{c.Op, c.Batch, c.Method, c.Key, c.Fate.String(), c.NewOp, c.NewBatch, c.Reason})
	}
	for _, a := range pl.resend {
		out.Again = append(out.Again, tableOfOps{a.id, opsIn(a.body.Ops)})
	}
	for _, pr := range pl.pending {
		out.Recorded = append(out.Recorded, outcomesIn(pr.recorded))
	}
	return out
}

// fixed gives batch ids that are the same each time.
func fixed() func() string {
	n := byte(0)
	return func() string {
		n++
		id := ulid.ULID{1, 0x8b, 0xcf, 0xe5, 0x68, n, 7: n, 13: n}
		return id.String()
	}
}

func TestPlansAreTheTables(t *testing.T) {
	t.Parallel()
	keyed := func(method, key string, more ...ledger.Arg) intent.Op {
		return intent.Op{Method: method, Args: append([]ledger.Arg{{Name: "key", JSON: []byte(`"` + key + `"`)}}, more...)}
	}
	p := &planned{outs: map[string]*ledger.Outcome{}, id: fixed()}
	a := p.add(false, keyed("put", "message/a"), keyed("put", "message/b"))
	c := p.add(false, keyed("put", "message/c"), intent.Op{Method: "refused"}, intent.Op{Method: "unchanged"}, intent.Op{Method: "put", Args: refTo(a[0], "cursor")})
	e := p.add(false, intent.Op{Method: "put", Deps: []string{c[0], a[1]}, Args: refTo(c[3], "cursor")}, intent.Op{Method: "expecting", Expected: ledger.Expect{Set: true, Cursor: 4}},
		intent.Op{Method: "following", Expected: ledger.Expect{Set: true, Ref: &ledger.Ref{Op: c[0], Path: "cursor"}}}, intent.Op{Method: "knowing", Expected: ledger.Expect{Set: true, Ref: &ledger.Ref{Op: a[0], Path: "cursor"}}})
	offset := p.add(true, intent.Op{Method: "put"}, intent.Op{Method: "appendText", Args: []ledger.Arg{{Name: "offset", JSON: []byte("3")}}})
	needs := p.add(false, intent.Op{Method: "put", Deps: []string{e[1]}}, intent.Op{Method: "put", Args: refTo(offset[0], "cursor")}, intent.Op{Method: "put", Args: refTo(a[0], "none")}, keyed("begin", "message/i"))
	keys := p.add(false, keyed("put", "todo/1", ledger.Arg{Name: "expect", JSON: []byte("0")}), keyed("patch", "todo/1", ledger.Arg{Name: "patch", JSON: []byte(`{"n":1}`)}))
	claimed := p.add(false, intent.Op{Method: "claim", Args: []ledger.Arg{{Name: "key", JSON: []byte(`"todo/1"`)}, {Name: "lease", JSON: []byte("60000")}}})
	p.add(false, keyed("patch", "todo/1", ledger.Arg{Name: "claim", Ref: &ledger.Ref{Op: claimed[0], Path: "claim"}}), keyed("release", "todo/1", ledger.Arg{Name: "claim", JSON: []byte("7")}))
	p.add(false, keyed("add", "todo/1", ledger.Arg{Name: "expect", Ref: &ledger.Ref{Op: keys[1], Path: "cursor"}}), intent.Op{Method: "put", Deps: []string{keys[0]}})
	log := func() *sessionLog { return &sessionLog{Ops: map[string]uint64{a[0]: 1, a[1]: 2}} }
	var plans []tablePlan
	add := func(name string, p *planned, log *sessionLog, expecting bool, next map[string]string) {
		plans = append(plans, p.tabled(t, name, log, expecting, next))
	}
	add("the log has the beginning", p, log(), false, nil)
	add("with expectations", p, log(), true, nil)
	add("some were committed again before", p, log(), false, map[string]string{c[0]: resentID(c[0]), c[3]: resentID(c[3]), e[0]: resentID(e[0])})
	copied := log()
	copied.Ops[resentID(c[0])], copied.Ops[resentID(resentID(c[3]))] = 3, 4
	add("a copy committed some again", p, copied, false, nil)
	add("the log has lost its beginning", p, &sessionLog{Ops: map[string]uint64{}, Base: 4}, false, nil)

	p = &planned{outs: map[string]*ledger.Outcome{}, id: fixed()}
	first := func(n int64, ids []string) []string {
		p.rows[len(p.rows)-1].FirstSeq = &n
		return ids
	}
	first(1, p.add(false, keyed("put", "message/a"), intent.Op{Method: "put"}))
	x := first(3, p.add(false, intent.Op{Method: "refused"}, intent.Op{Method: "put"}))
	waits := func(n int64, ops ...intent.Op) []string {
		ids := p.add(false, ops...)
		r := p.rows[len(p.rows)-1]
		if r.State, r.Outcomes = sqlstore.RowPending, nil; n > 0 {
			r.State, r.FirstSeq = sqlstore.RowInFlight, &n
		}
		return ids
	}
	sent := waits(5, intent.Op{Method: "put"}, intent.Op{Method: "refused"})
	waits(7, keyed("put", "message/c"), intent.Op{Method: "put", Void: true})
	late := waits(0, intent.Op{Method: "put"}, intent.Op{Method: "expecting", Expected: ledger.Expect{Set: true}}, intent.Op{Method: "put"})
	waits(0, intent.Op{Method: "put", Deps: []string{late[1]}})
	all := func() map[string]uint64 { return map[string]uint64{sent[0]: 3} }
	add("what was sent is in the log", p, &sessionLog{Ops: all()}, false, nil)
	add("the server has nothing of the stream", p, &sessionLog{Ops: map[string]uint64{}, Base: 100, streamMatches: true}, false, nil)
	add("it has what was not answered", p, &sessionLog{Ops: map[string]uint64{}, Base: 100, streamMatches: true, lastSeq: 6}, false, nil)
	add("it has a part", p, &sessionLog{Ops: map[string]uint64{}, streamMatches: true, lastSeq: 2}, true, nil)
	add("a copy committed again what the stream lacks", p, &sessionLog{Ops: map[string]uint64{resentID(x[1]): 9}, streamMatches: true, lastSeq: 2}, false, nil)
	add("it disagrees", p, &sessionLog{Ops: map[string]uint64{x[1]: 4}, lastSeq: 6}, false, nil)

	p = &planned{outs: map[string]*ledger.Outcome{}, id: fixed()}
	slim := p.add(false, keyed("put", "message/a"))
	p.add(false, intent.Op{Method: "put", Deps: []string{slim[0]}}, intent.Op{Method: "put"})
	bd, err := p.rows[0].Decode()
	if err != nil {
		t.Fatal(err)
	}
	bd.Compacted = true
	p.rows[0].Body = bd.Encode("ses_1", p.rows[0].ID)
	add("arguments that were not kept", p, &sessionLog{Ops: map[string]uint64{}}, false, nil)

	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	ids := [][2]string{{a[0], resentID(a[0])}, {needs[3], resentID(needs[3])}, {resentID(a[0]), resentID(resentID(a[0]))}}
	batches := [][3]string{{opid.BatchOf(a[0]), a[0], resentBatchID(opid.BatchOf(a[0]), a[0])}, {opid.BatchOf(e[0]), e[1], resentBatchID(opid.BatchOf(e[0]), e[1])}}
	if err := enc.Encode(map[string]any{"plans": plans, "again": ids, "batches": batches}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "testdata", "reconcile.json")
	if *updateTable {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(kept, text.Bytes()) {
		t.Errorf("testdata/reconcile.json is not what is planned (%v): go test ./outbox -run TestPlansAreTheTables -update", err)
	}
}
