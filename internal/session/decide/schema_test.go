package decide_test

// Schemas of values: who puts them, from when on they hold, and what they refuse.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

const todoSchema = `{"type":"object","required":["title"],"properties":{"title":{"type":"string"},"n":{"type":"integer","maximum":3}}}`

func putSchema(kind, schema string) anOp {
	return op("put", "key", "schema/"+kind, "payload", raw("%s", schema))
}

func putTodo(value string) anOp { return op("put", "key", "todo/1", "payload", raw("%s", value)) }

// TestSchemaHoldsFromItsPutOn: values from before stay, later ones must be valid, until it is removed.
func TestSchemaHoldsFromItsPutOn(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(putTodo(`"old"`))
	o.apply(op("put", "key", "plan", "payload", raw(`1`)))
	at := o.cursorOf(putSchema("todo", todoSchema))
	mustEqual(t, "from which cursor it holds", o.entryOf("schema/todo").Changed(), at)
	mustEqual(t, "what was there", o.valueOf("todo/1"), `"old"`)

	mustEqual(t, "the same again", o.apply(putTodo(`"old"`))["unchanged"], any(true))
	out := o.refuse(ledger.Rejected, fault.BadPayload, putTodo(`{"title":"hush","n":7}`))
	mustEqual(t, "the reason", out.Message, "todo/1 breaks schema/todo at /n (maximum)")
	o.refuse(ledger.Rejected, fault.BadPayload, op("patch", "key", "todo/1", "patch", raw(`{"n":1}`)))
	o.apply(op("patch", "key", "todo/1", "patch", raw(`{"title":"x"}`)))
	o.apply(op("patch", "key", "todo/1", "patch", raw(`{"n":1}`)))
	o.refuse(ledger.Rejected, fault.BadPayload, op("patch", "key", "todo/1", "patch", raw(`{"title":null}`)))
	o.apply(op("add", "key", "todo/1", "member", "n", "by", 2))
	o.refuse(ledger.Rejected, fault.BadPayload, op("add", "key", "todo/1", "member", "n", "by", 1))
	o.refuse(ledger.Rejected, fault.BadPayload, op("add", "key", "todo/2", "member", "n", "by", 1)) // a first put
	o.refuse(ledger.Rejected, fault.BadPayload, op("patch", "key", "todo", "patch", raw(`{}`)))     // the kind alone is of the kind
	mustEqual(t, "the value", o.valueOf("todo/1"), `{"title":"x","n":3}`)
	o.apply(op("put", "key", "todos/1", "payload", raw(`1`))) // another kind
	o.apply(op("put", "key", "plan", "payload", raw(`2`)))
	o.apply(op("put", "key", "message/m", "payload", raw(`{}`)))

	o.apply(putSchema("todo", `{"type":"string"}`))
	o.refuse(ledger.Rejected, fault.BadPayload, putTodo(`{"title":"x"}`))
	o.apply(putTodo(`"new"`))
	o.apply(op("remove", "key", "schema/todo"))
	o.apply(putTodo(`7`))
	o.apply(putSchema("todo", `false`))
	o.refuse(ledger.Rejected, fault.BadPayload, putTodo(`8`))
	o.apply(op("remove", "key", "todo/1"))
	o.apply(op("purge", "key", "schema/todo"))
	o.apply(putTodo(`8`))
}

// TestSchemaInItsOwnBatch: it holds for the ops after it, and not if its batch is undone.
func TestSchemaInItsOwnBatch(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	outs := o.try(putTodo(`1`), putSchema("todo", todoSchema), putTodo(`2`), op("patch", "key", "todo/1", "patch", raw(`{"title":"x"}`)))
	var got []ledger.Status
	for i := range outs {
		got = append(got, outs[i].Status)
	}
	mustEqual(t, "the outcomes", fmt.Sprint(got), fmt.Sprint([]ledger.Status{ledger.Applied, ledger.Applied, ledger.Rejected, ledger.Applied}))
	answers, _ := o.w.commit(o.batch(true, putSchema("todo", `false`), putTodo(`3`)))
	mustEqual(t, "an atomic batch that its own schema refuses", answers[0].Outcomes[0].Status, ledger.BatchAborted)
	o.apply(op("patch", "key", "todo/1", "patch", raw(`{"title":"y"}`)))
}

// TestSchemaIsARightOfItsOwn: append does not include it, an owner's ref does, methods do not limit it, keys do.
func TestSchemaIsARightOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	// As a server of the previous version made them.
	id, hash := newRef(o.session)
	w.store.AddGrant(capability.Grant{ID: id, Target: o.session, Parent: o.ref, Hash: hash, Epoch: 1, Rights: capability.SessionRights})
	space := strings.Repeat(" ", 5000)
	for name, guest := range map[string]*writer{
		"append":                     o.under(o.share([]string{"read", "append", "share", "revoke"})),
		"append, from before":        o.under(id),
		"append with methods":        o.under(o.share([]string{"append"}, "methods", []string{"put", "remove"})),
		"append of the schema's key": o.under(o.share([]string{"append"}, "write_keys", []string{"schema/"})),
		"schema of another kind":     o.under(o.share([]string{"schema"}, "write_keys", []string{"schema/plan", "todo/"})),
	} {
		for _, x := range []anOp{putSchema("todo", todoSchema), op("remove", "key", "schema/todo"), op("put", "key", raw(`"\u0073chema/todo"`), "payload", true),
			op("put", "key", raw("%s", space+`"schema/todo"`), "payload", true)} {
			if out := guest.try(x)[0]; out.Status != ledger.Denied || out.Reason != fault.MissingRight {
				t.Errorf("%s: %s: %+v", name, x.method, out)
			}
		}
	}
	o.under(o.share([]string{"schema"})).apply(putSchema("todo", todoSchema))
	o.under(o.share([]string{"append", "schema"}, "methods", []string{"begin"})).apply(op("remove", "key", "schema/todo"))
	alone := o.under(o.share([]string{"schema"}, "write_keys", []string{"schema/todo"}))
	alone.apply(putSchema("todo", todoSchema))
	alone.refuse(ledger.Denied, fault.MissingRight, putTodo(`{"title":"x"}`))
	alone.refuse(ledger.Denied, fault.MissingRight, op("patch", "key", "schema/todo", "patch", raw(`{}`)))
	o.under(o.share([]string{"append"}, "write_keys", []string{"todo/"})).refuse(ledger.Rejected, fault.BadPayload, putTodo(`7`)) // it binds who does not see it

	// A ref with append alone shares no more than it has.
	guest := o.under(o.share([]string{"read", "append", "share"}))
	more, _ := newRef(o.session)
	guest.refuse(ledger.Rejected, fault.Widening, op("share", "ref", more, "hash", sha(more), "rights", []string{"schema"}))
}

// TestForksHaveTheirSchemas: they hold there, for whom they bind, and values that were copied stay.
func TestForksHaveTheirSchemas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(putTodo(`"old"`))
	o.apply(putSchema("todo", todoSchema))
	f := w.newWriter()
	f.with = []string{o.ref}
	f.apply(op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)))
	mustEqual(t, "the schema", f.valueOf("schema/todo"), todoSchema)
	mustEqual(t, "the value", f.valueOf("todo/1"), `"old"`)
	mustEqual(t, "what its readers need", w.store.Session(f.session).Needs, session.FeatureKeys)
	f.refuse(ledger.Rejected, fault.BadPayload, putTodo(`7`))
	f.apply(op("remove", "key", "schema/todo"))
	f.apply(putTodo(`7`))
	o.refuse(ledger.Rejected, fault.BadPayload, putTodo(`7`))
}

// TestRefusedValuesLeaveNothing: the outcome, which is kept, has nothing of the value that was refused.
func TestRefusedValuesLeaveNothing(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(putSchema("todo", `{"additionalProperties":{"enum":["hush1"]},"propertyNames":{"maxLength":9}}`))
	for _, x := range []anOp{putTodo(`{"hush":"hush"}`), putTodo(`{"hushhushhush":"hush1"}`), putTodo(`{"x":["hush"]}`)} {
		out := o.refuse(ledger.Rejected, fault.BadPayload, x)
		if text := fmt.Sprintf("%+v", out); strings.Contains(text, "hush") {
			t.Errorf("the outcome is %s", text)
		}
	}
	o.apply(putSchema("todo", `{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["x"]},{"properties":{"a":{"$ref":"#"}}}]}`))
	out := o.refuse(ledger.Rejected, fault.TooLarge, putTodo(strings.Repeat(`{"a":`, 60)+`1`+strings.Repeat(`}`, 60)))
	if !strings.Contains(out.Message, "costs more than a check may") {
		t.Errorf("too costly: %s", out.Message)
	}
}

// TestSchemaCostsNoRead: whether a kind has one is read with the group's first rows.
func TestSchemaCostsNoRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(putTodo(`1`))
	for _, x := range []anOp{putTodo(`{"n":1}`), op("patch", "key", "todo/1", "patch", raw(`{"n":2}`)), op("add", "key", "todo/1", "member", "n", "by", 1)} {
		set := decide.ReadSetOf(o.batch(false, x))
		o.seq--
		if got := fmt.Sprint(set.EntryMeta[o.session]); got != "[schema/todo todo/1]" {
			t.Errorf("%s reads %s", x.method, got)
		}
	}
}
