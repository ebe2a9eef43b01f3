//go:build unix

package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/scrape"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

// What is read has the digests of what was written, however its arguments are spelt.
func TestDigestsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b, session := newBox(), capability.SessionPrefix+ulid.Make().String()
		want := anyBatch(rt, b, session, []string{ulid.Make().String()})
		text := b.jsonWith(want, func(ledger.Arg) bool { return rapid.Bool().Draw(rt, "inline") })
		var got sentBatch
		if !ledger.IsJSON(text) {
			rt.Fatalf("no JSON: %s", text)
		}
		if refused := parseBatch(nil, gjson.ParseBytes(text), &got); refused != nil {
			rt.Fatalf("%v: %s", refused, text)
		}
		for i := range want.Ops {
			g, w := got.batch.Ops[i], want.Ops[i]
			g.Session, w.Session, g.BatchID, w.BatchID = "", "", "", ""
			if g.Digest() != w.Digest() {
				rt.Fatalf("%+v\nwas\n%+v\nin %s", g, w, text)
			}
		}
	})
}

func asValues(ledger.Arg) bool { return true }

// Several batches in one request come in order, each with its own answer, and refer to each other.
func TestBatchesInOneRequest(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		path, owner := "/sessions/"+m.id+"/batches", m.owner.Text()
		put := func(key string, more ...any) ledger.Intent {
			return op("put", append([]any{"key", key, "payload", obj{}}, more...)...)
		}
		show := func(answers any) (shown []string) {
			for _, a := range answers.([]any) {
				a := a.(obj)
				if e, refused := a["error"].(obj); refused {
					shown = append(shown, fmt.Sprint(e["code"], " ", e["at"]))
				} else {
					shown = append(shown, fmt.Sprintf("%s: %s %s %s", a["cursor"], a["applied"], a["duplicates"], a["rejected"]))
				}
			}
			return shown
		}
		send := func(batches ...*ledger.Batch) string {
			t.Helper()
			return strings.Join(show(r.must(200, "POST", path, owner, m.box.jsonAll(asValues, batches...))["answers"]), ", ")
		}
		begun := op("begin", "message", "m", "payload", obj{})
		text := op("appendText", "key", "part/m/p", "text", "one", "offset", 0)
		further := op("appendText", "key", "part/m/p", "text", "two")
		further.Args = append(further.Args, ledger.Arg{Name: "offset", Ref: &ledger.Ref{Op: text.OpID, Path: "length"}})
		late := put("message/x")
		late.Expected = ledger.Expect{Set: true, Cursor: 1}
		first := []*ledger.Batch{m.box.batch(m.id, begun, op("put", "key", "part/m/p", "payload", obj{"type": "text", "text": ""})), m.box.batch(m.id, text), m.box.batch(m.id, further, late), m.box.batch(m.id, put("message/y"))}
		if got, want := send(first...), "3: 2 0 0, 4: 1 0 0, 5: 1 0 1, 6: 1 0 0"; got != want {
			t.Fatalf("answered with %s, want %s", got, want)
		}
		if got, want := send(first...), "6: 0 2 0, 6: 0 1 0, 6: 0 2 0, 6: 0 1 0"; got != want {
			t.Errorf("again: %s, want %s", got, want)
		}
		ack := r.must(200, "POST", path, owner, m.box.json(first[2])) // alone, as it was among others
		if last := ack["outcomes"].([]any)[1].(obj); ack["duplicates"] != json.Number("2") || last["status"] != "conflict" {
			t.Errorf("one of them alone: %v", ack)
		}

		// What does not follow is refused, and what was recorded before stays.
		good, lost, after := m.box.batch(m.id, put("message/z")), m.box.batch(m.id, put("message/lost")), m.box.batch(m.id, put("message/after"))
		before := scrape.Refusals(r.server.Metrics())["gap"]
		if got, want := send(good, after), "7: 1 0 0, gap 9"; got != want {
			t.Errorf("with one missing: %s, want %s", got, want)
		}
		if n := scrape.Refusals(r.server.Metrics())["gap"] - before; n != 1 {
			t.Errorf("%d refusals were counted", n)
		}
		if got := r.ask("POST", path, owner, m.box.jsonAll(asValues, after, after)); got.status != 409 || got.code() != "gap" || got.json["error"].(obj)["at"] != json.Number("9") {
			t.Errorf("of which none is recorded: %d %s", got.status, got.text)
		}
		if got, want := send(good, lost, after), "7: 0 1 0, 8: 1 0 0, 9: 1 0 0"; got != want {
			t.Errorf("and then all: %s, want %s", got, want)
		}
	})
}

// Several batches are bounded as they are on a stream, and are malformed in ways of their own; nothing is recorded then.
func TestTooManyBatches(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *node.Config, _ *Config) { c.BatchesInFlight = 3 })
	m, b := r.create(), newBox()
	path, owner := "/sessions/"+m.id+"/batches", m.owner.Text()
	batches := func(n, ops int) (all []*ledger.Batch) {
		for range n {
			list := make([]ledger.Intent, ops)
			for i := range list {
				list[i] = op("nonsense")
			}
			all = append(all, b.batch(m.id, list...))
		}
		return all
	}
	sender := obj{"outbox": b.id, "secret": b.acknowledgement(0)["secret"], "incarnation": 1}
	with := func(more obj) obj { more = maps.Clone(more); maps.Copy(more, sender); return more }
	one := obj{"batch_id": ulid.Make().String(), "ops": []any{obj{"op_id": ulid.Make().String(), "seq": 1, "method": "remove", "args": obj{"key": "message/x"}}}}
	for i, c := range []struct {
		body any
		code fault.Code
		says string
	}{
		{b.jsonAll(asValues, batches(4, 1)...), fault.TooLarge, "the limit is 3"},
		{b.jsonAll(asValues, batches(2, ledger.MaxFrameOps/2+1)...), fault.TooLarge, "batches[1].ops"},
		{with(obj{"batches": make([]obj, maxListLen+1)}), fault.Malformed, "batches[0]: want an object"},
		{with(obj{"batches": []any{one}, "with": []string{owner}}), fault.Malformed, "beside batches"},
		{with(obj{"batches": []any{obj{"with": []string{owner}}}}), fault.Malformed, `there is no "with" in batches[0]`},
		{with(obj{"batches": []any{}}), fault.Malformed, "batches is empty"},
		{with(obj{"batches": one}), fault.Malformed, "batches: want an array"},
		{with(obj{"batches": []any{one, 7}}), fault.Malformed, "batches[1]: want an object"},
		{with(obj{"batches": []any{with(one)}}), fault.Malformed, "in batches[0]"},
		{with(obj{"batches": []any{one}, "ops": []any{}}), fault.Malformed, "beside batches"},
		{with(obj{"batches": []any{one}, "atomic": false}), fault.Malformed, "beside batches"},
		{with(obj{"batches": []any{one}, "batch_id": one["batch_id"]}), fault.Malformed, "beside batches"},
		{obj{"batches": []any{one}, "outbox": "x", "incarnation": 1}, fault.Malformed, "secret is missing"},
		{with(obj{"batches": []any{obj{"batch_id": one["batch_id"], "ops": []any{obj{"seq": "x"}}}}}), fault.Malformed, "batches[0].ops[0].seq"},
		{with(obj{"batches": []any{obj{"batch_id": one["batch_id"]}}}), fault.Malformed, ""},
	} {
		if got := r.ask(http.MethodPost, path, owner, c.body); got.status != c.code.HTTPStatus() || got.code() != c.code.String() || !strings.Contains(got.message(), c.says) {
			t.Errorf("%d: %d %.400s, want %s, %q", i, got.status, got.text, c.code, c.says)
		}
	}
	b.seq = 0
	if got := r.must(200, "POST", path, owner, b.jsonAll(asValues, batches(3, 1)...)); len(got["answers"].([]any)) != 3 {
		t.Errorf("as many as there may be: %v", got)
	}
}
