//go:build unix

package jsschema

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/rpc"
)

// unnamed returns a method as it comes over a wire.
func unnamed(m rpc.Method) rpc.Method { return rpc.Method{Interface: m.Interface, ID: m.ID} }

// failCall answers c with a fault.
func failCall(c *rpc.Call, f *fault.Error) { c.Fail(admission.NewException(f)) }

// arrived is an object that refuses every call that comes to it whole.
type arrived struct{}

func (arrived) Serve(c *rpc.Call) {
	s, _ := c.Params()
	switch unnamed(c.Method()) { // what the server reads of it can be read
	case unnamed(methods.StreamApply.Method):
		from, err := wire.Stream_apply_Params(s).Batch()
		if err == nil {
			_, _, refused := codec.DecodeBatch(from, "ses_", "obx_", 1, 1<<20)
			if refused != nil && refused.Code == fault.Malformed {
				failCall(c, refused)
				return
			}
		}
	case unnamed(methods.GatewayRestore.Method):
		if _, refused := codec.DecodeRestore(wire.Gateway_restore_Params(s)); refused != nil && refused.Code == fault.Malformed {
			failCall(c, refused)
			return
		}
	}
	failCall(c, fault.Gap.With("it has arrived"))
}

// FuzzWebCalls calls every method with arbitrary JSON values: each call arrives
// in a form that can be read, or is refused by a TypeError or a fault of its own.
func FuzzWebCalls(f *testing.F) {
	for _, seed := range []string{`[]`, `[null,1,"x",[],{}]`, `[{"id":"x","secret":"AAEC"}]`, `["mooring://h/spc_1#x"]`, `["obx",[0],1]`, `[{"outbox":"o","secret":"","incarnation":1}]`,
		`[{"id":"b","atomic":true,"ops":[{"id":"o","seq":1,"method":"put","args":[{"name":"k","json":"1"},{"name":"r","ref":{"op":"x"}}],"dependsOn":["y"],"expected":{"cursor":3}}]},[]]`,
		`[{"rights":["read"],"methods":["put"],"expires":-1,"from":3}]`, `[{"from":1,"snapshot":true,"windowBytes":9}]`, `[{"limits":{"rights":["share"]},"hash":"AA"}]`, `["x",true]`, `[9007199254740993]`} {
		f.Add([]byte(seed))
	}
	type method struct {
		of   uint64
		name string
	}
	var methods []method
	for of, names := range map[uint64][]string{
		wire.Gateway_TypeID: {"hello", "restore", "challenge"},
		wire.Space_TypeID:   {"create", "list", "info", "attenuate", "share", "revoke", "refs", "audit", "rotate", "save"},
		wire.Session_TypeID: {"info", "openStream", "snapshot", "subscribe", "revoke", "events", "attenuate", "refs", "audit", "rotate", "share", "save"},
		wire.Stream_TypeID:  {"apply", "acknowledge"},
	} {
		for _, name := range names {
			methods = append(methods, method{of, name})
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var args []any
		if json.Unmarshal(text, &args) != nil {
			return
		}
		side := Bridge().Conn(1 << 20)
		for _, m := range methods {
			object := capnweb.NewStub(side.Object(rpc.NewLocal(arrived{}), m.of))
			p := object.Call(context.Background(), m.name, args...)
			_, err := p.Await(context.Background())
			var e *capnweb.Error
			if !errors.As(err, &e) {
				t.Fatalf("%s: %v", m.name, err)
			}
			code, refused := fault.ParseReason(e.Message)
			if e.Name != "TypeError" && (!refused || code.Code == fault.Malformed || code.Code == fault.Internal) {
				t.Fatalf("%s: %v", m.name, err)
			}
			p.Release()
			object.Release()
		}
		side.Wait()
	})
}
