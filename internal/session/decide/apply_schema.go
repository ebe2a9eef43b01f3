package decide

// Schemas of values: schema/KIND has a JSON Schema, and from that put on every put, patch and add of a
// key of that kind must leave a value that is valid by it. Values that are there already stay. The
// log has only what was accepted, so readers and folds need no schema.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/valueschema"
	"github.com/mooring-rpc/mooring/ledger"
)

// schemas are the compiled schemas of all sessions of the process.
var schemas valueschema.Cache

// changesSchema reports whether an op needs the right schema, as far as its key can be read. What this
// misses, mayChangeSchema finds.
func changesSchema(op *ledger.Intent) bool {
	if op.Method != session.MethodPut && op.Method != session.MethodRemove || !mayBeOwnKey(op) {
		return false
	}
	k, err := session.ParseKey(argText(op, "key"))
	return err == nil && k.Kind == session.KeySchema
}

// mayChangeSchema returns an error if op changes a schema and the current grant does not carry that
// right: append does not include it.
func (a *applier) mayChangeSchema(do op) *fault.Error {
	var key session.Key
	switch o := do.(type) {
	case *opPut:
		key = o.key
	case *opRemove:
		key = o.key
	}
	if key.Kind == session.KeySchema && !a.grant.Rights.Has(capability.Schema) {
		return fault.MissingRight.With("this needs %s, the ref carries %s: ask for a ref that has it", capability.Schema, a.grant.Rights)
	}
	return nil
}

// checkValue returns an error if a key of the users' kinds must not have a value, by the schema of its
// kind. It has nothing of the value, or outcomes would.
func (a *applier) checkValue(key string, value []byte) *fault.Error {
	name := session.SchemaKey(key)
	slot, err := a.v.EntryMeta(a.s, name)
	if err != nil || slot.Entry == nil {
		return err
	}
	schema := schemas.Find(slot.Entry.Sum)
	if schema == nil {
		e, err := a.v.Value(a.s, name)
		if err != nil {
			return err
		}
		if schema, err = schemas.Get(e.Sum, e.Payload); err != nil {
			return fault.BadPayload.With("%s cannot be checked, as this server cannot compile %s: put it anew or remove it", fault.Clip(key), name)
		}
	}
	return schema.Check(value, key, name)
}
