package opargs

// put, remove, patch, add, claim, release and purge: methods of keys.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/valueschema"
)

// Put has the arguments of put.
type Put struct {
	Key     session.Key
	KeyText string // text of key
	Payload []byte
	Schema  uint32
	Guard   Guard
	Sync    bool // it is of a sync of opencode's (decide/syncrevert.go)
}

func decodePut(r *Decoder) Op {
	o := &r.put
	o.Key, o.KeyText = r.writtenKey("key")
	switch o.Key.Kind {
	case session.KeyOwn:
		o.Payload = r.value("payload")
	case session.KeySchema:
		o.Payload = r.valueSchema("payload")
	default:
		o.Payload = r.object("payload", required)
	}
	o.Schema, o.Guard, o.Sync = r.schema("schema_version"), r.guard(), r.set("sync")
	return o
}

// Remove has the arguments of remove.
type Remove struct {
	Key   session.Key
	Guard Guard
	Sync  bool // as of Put
}

func decodeRemove(r *Decoder) Op {
	key, _ := r.writtenKey("key")
	return &Remove{Key: key, Guard: r.guard(), Sync: r.set("sync")}
}

// Patch changes members of a value, by RFC 7396.
type Patch struct {
	Key    string
	Patch  []byte
	Schema uint32 // 0: the value's stays
	Guard  Guard
}

func decodePatch(r *Decoder) Op {
	o := &Patch{}
	_, o.Key = r.ownKey("key")
	o.Patch, o.Schema, o.Guard = r.value("patch"), r.schemaOr("schema_version", 0), r.guard()
	return o
}

// Add adds to a number in a value.
type Add struct {
	Key    string
	Member string
	By     int64
	Guard  Guard
}

func decodeAdd(r *Decoder) Op {
	o := &Add{}
	_, o.Key = r.ownKey("key")
	o.Member, o.By, o.Guard = r.member("member"), r.integer("by"), r.guard()
	return o
}

// Claim claims a key, or the first free one below a prefix, or a request.
type Claim struct {
	Key, Prefix, Request string // one of them
	Lease                int64  // milliseconds
	Worker               string
}

func decodeClaim(r *Decoder) Op {
	o := &Claim{}
	_, o.Key = r.ownKeyIf("key", optional)
	o.Prefix, o.Request = r.ownPrefix("prefix"), r.id("request", r.has("request"))
	lease, _ := r.number("lease", required)
	o.Lease, o.Worker = int64(lease), r.text("worker", optional)
	switch {
	case r.err != nil:
	case !r.has("key") && !r.has("prefix") && !r.has("request"):
		r.needs("key or prefix or request")
	case !r.oneOf("key", "prefix", "request"):
		r.fail(fault.BadArgument.With("claim takes a key, a prefix for the first free key below it, or a request, and one of them alone"))
	case !r.unresolved("lease") && (o.Lease < minLease || o.Lease > maxLease):
		r.fail(fault.BadArgument.With("lease is from %d to %d milliseconds", minLease, maxLease))
	case len(o.Worker) > maxWorkerBytes:
		r.fail(fault.TooLarge.With("worker has %d bytes, the limit is %d", len(o.Worker), maxWorkerBytes))
	}
	return o
}

// Release ends a claim of a key or a request: its owner's own, or, with the right break, another's.
type Release struct {
	Key, Request string // one of them
	Claim        Condition
}

func decodeRelease(r *Decoder) Op {
	o := &Release{Request: r.id("request", r.has("request"))}
	_, o.Key = r.ownKeyIf("key", !r.has("request"))
	if r.has("key") && r.has("request") {
		r.fail(fault.BadArgument.With("release takes a key or a request, and not both"))
	}
	o.Claim.Cursor, o.Claim.Set = r.number("claim", required)
	return o
}

// Purge has the arguments of purge.
type Purge struct{ Key session.Key }

func decodePurge(r *Decoder) Op { return &Purge{Key: r.key("key")} }

// Guard is the conditions that an op may name on its key.
type Guard struct {
	Expect Condition // that its value was last changed at this cursor; 0 that there is none
	Claim  Condition // that it is claimed at this cursor, by the op's stream
}

// Condition is a cursor that was named, or not.
type Condition struct {
	Cursor uint64
	Set    bool
}

func (r *Decoder) guard() (g Guard) {
	g.Expect.Cursor, g.Expect.Set = r.number("expect", optional)
	g.Claim.Cursor, g.Claim.Set = r.number("claim", optional)
	return g
}

// Bounds of a lease, in milliseconds, and of a worker's name.
const (
	minLease       = 1000
	maxLease       = 3_600_000
	maxWorkerBytes = 64
)

// valueSchema is value for the schema of a kind, which has to compile.
func (r *Decoder) valueSchema(name string) []byte {
	text := r.value(name)
	if text != nil && r.err == nil {
		if _, err := Schemas.Get(session.SumOf(text), text); err != nil {
			r.fail(err)
		}
	}
	return text
}

// Schemas are the compiled schemas of all sessions of the process.
var Schemas valueschema.Cache
