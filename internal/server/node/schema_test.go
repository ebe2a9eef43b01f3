//go:build unix

package node

// Schemas of values, over both wires.

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// TestSchemasOverBothWires: what is applied, denied and rejected is the same, with the same words.
func TestSchemasOverBothWires(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p, w := r.dial(), r.dialWeb()
		m := r.create(p)
		p.must(m.stream, m.batch(put(1)))
		guest, keeper := p.share(m, "rights", []string{"append"}), p.share(m, "rights", []string{"schema"})
		raw := func(text string) json.RawMessage { return json.RawMessage(text) }
		bomb := `{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["x"]},{"properties":{"a":{"$ref":"#"}},"required":["y"]}]}`
		for _, c := range []struct {
			name, key string
			value     json.RawMessage
			keeper    bool
			status    ledger.Status
			reason    fault.Code
			words     string
		}{
			{"append does not put a schema", "schema/todo", raw(`true`), false, ledger.Denied, fault.MissingRight, "this needs schema"},
			{"schema does not put a value", "todo/1", raw(`true`), true, ledger.Denied, fault.MissingRight, "this needs append"},
			{"no schema", "schema/todo", raw(`[]`), true, ledger.Rejected, fault.BadPayload, "a schema is a JSON object"},
			{"a wrong schema", "schema/todo", raw(`{"required":"x"}`), true, ledger.Rejected, fault.BadPayload, "at /required (type)"},
			{"a schema of elsewhere", "schema/todo", raw(`{"$ref":"https://example.org/todo"}`), true, ledger.Rejected, fault.BadPayload, "nothing is fetched"},
			{"a file", "schema/todo", raw(`{"$ref":"file:///etc/passwd"}`), true, ledger.Rejected, fault.BadPayload, "nothing is fetched"},
			{"a bad expression", "schema/todo", raw(`{"pattern":"(?=x)"}`), true, ledger.Rejected, fault.BadPayload, "at /pattern"},
			{"a long schema", "schema/todo", raw(`{"title":"` + strings.Repeat("x", 64<<10) + `"}`), true, ledger.Rejected, fault.TooLarge, "at most 65536 bytes"},
			{"a known kind", "schema/message", raw(`true`), false, ledger.Rejected, fault.BadKey, "schema/KIND"},
			{"a schema", "schema/todo", raw(`{"properties":{"n":{"maximum":3}}}`), true, ledger.Applied, fault.None, ""},
			{"a valid value", "todo/1", raw(`{"n":3}`), false, ledger.Applied, fault.None, ""},
			{"another one", "todo/1", raw(`{"n":4}`), false, ledger.Rejected, fault.BadPayload, "todo/1 breaks schema/todo at /n (maximum)"},
			{"a huge number", "todo/1", raw(`{"n":1e1000000}`), false, ledger.Rejected, fault.TooLarge, "costs more than a check may"},
			{"a costly schema", "schema/todo", raw(bomb), true, ledger.Applied, fault.None, ""},
			{"a costly value", "todo/1", raw(strings.Repeat(`{"a":`, 60) + `1` + strings.Repeat(`}`, 60)), false, ledger.Rejected, fault.TooLarge, "costs more than a check may"},
			{"no more", "schema/todo", nil, true, ledger.Applied, fault.None, ""},
			{"anything", "todo/1", raw(`7`), false, ledger.Applied, fault.None, ""},
		} {
			ref, in := guest, op("remove", "key", c.key)
			if c.keeper {
				ref = keeper
			}
			if c.value != nil {
				in = op("put", "key", c.key, "payload", c.value)
			}
			b, b2 := newBox(), newBox()
			plain := p.apply(p.open(p.restore(ref), b), b.batch(m.id, in)).outcomes[0]
			web := w.apply(w.open(w.restore(ref), b2), b2.batch(m.id, in)).outcomes[0]
			if plain.Status != c.status || plain.Reason != c.reason || !strings.Contains(plain.Message, c.words) {
				t.Errorf("%s: %+v", c.name, plain)
			}
			if web.Status != plain.Status || web.Reason != plain.Reason || web.Message != plain.Message {
				t.Errorf("%s: over Cap'n Web %+v, over Cap'n Proto %+v", c.name, web, plain)
			}
		}
	})
}
