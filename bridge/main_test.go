// What the tests share: a bridge to every kind of type there is.

package bridge

import (
	"testing"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/schemas"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/testschema/kinds"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kindsConfig compiles internal/testschema/kinds.capnp.
func kindsConfig() Config {
	reg := new(schemas.Registry)
	kinds.RegisterSchema(reg)
	return Config{Schema: reg, Interfaces: []uint64{kinds.Server_TypeID},
		TypeOf: func(o rpc.Object) uint64 {
			if _, ok := o.(*service); ok {
				return kinds.Server_TypeID
			}
			return 0
		}}
}

func compiled(t testing.TB, cfg Config) *Bridge {
	t.Helper()
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// kindsPlan is the plan of struct Kinds.
func kindsPlan(b *Bridge) *structPlan {
	return b.interfaces[kinds.Server_TypeID].methods["echo"].params.fields[0].typ.of
}

// written writes v as a struct of the plan, in at most so many bytes.
func written(b *Bridge, p *structPlan, v any, limit int) (capnp.Struct, error) {
	msg, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		return capnp.Struct{}, err
	}
	msg.TraverseLimit = 1 << 40
	s, err := capnp.NewRootStruct(seg, p.size)
	if err != nil {
		return capnp.Struct{}, err
	}
	return s, b.Conn(limit).writer(new(rpc.CapTable)).object(p, s, v)
}

// readBack reads a struct of the plan.
func readBack(b *Bridge, p *structPlan, s capnp.Struct) (any, error) {
	r := reader{conn: b.Conn(0), caps: new(rpc.CapTable)}
	return r.value(p, s)
}
