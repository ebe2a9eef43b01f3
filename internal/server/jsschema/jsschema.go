// The bridge, its rules, and the errors that peers are sent.

package jsschema

import (
	"errors"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"sync"

	"capnproto.org/go/capnp/v3/schemas"
	"capnproto.org/go/capnp/v3/std/capnp/persistent"

	"github.com/mooring-rpc/mooring/bridge"
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// Bridge returns the bridge of the schema, compiled once. It panics if the schema does not
// compile, which depends on nothing but the program.
var Bridge = sync.OnceValue(func() *bridge.Bridge {
	reg := new(schemas.Registry)
	wire.RegisterSchema(reg)
	persistent.RegisterSchema(reg)
	b, err := bridge.New(bridge.Config{
		Schema:       reg,
		Interfaces:   []uint64{wire.Gateway_TypeID, wire.Space_TypeID, wire.Session_TypeID},
		Ordered:      []uint64{wire.Stream_TypeID}, // a batch may wait for sessions that come with it
		Rules:        rules(),
		TypeOf:       objects.InterfaceOf,
		MapException: func(ex *rpc.Exception) error { return capnwebError(admission.ExceptionFault(ex)) },
		TooLarge: func(limit int) error {
			return capnwebError(fault.TooLarge.With("the call has more than the %d bytes that a call may have", limit))
		},
	})
	if err != nil {
		panic(err)
	}
	return b
})

// rules say where the schema is shown differently from package bridge's defaults.
func rules() bridge.Rules {
	rights := bridge.FieldRule{In: rightsNamed, Out: func(v any) (any, error) { return anySlice(capability.Rights(uintOf(v)).Names()), nil }}
	code := bridge.FieldRule{Out: func(v any) (any, error) { return codeOf(v), nil }}
	named := func(name func(n uint64) string) bridge.FieldRule {
		return bridge.FieldRule{Out: func(v any) (any, error) { return name(uintOf(v)), nil }}
	}
	return bridge.Rules{
		Structs: map[uint64]bridge.StructRule{
			wire.SturdyRef_TypeID:        {In: refOf},
			wire.SubscribeOptions_TypeID: {In: optionsOf},
			wire.Refusal_TypeID:          {Out: refusalShown},
			wire.ApplyReply_TypeID: {Out: func(reply map[string]any) (any, error) {
				return reply["ack"], refusalIn(reply)
			}},
		},
		Fields: map[bridge.FieldKey]bridge.FieldRule{
			{Struct: wire.Attenuation_TypeID, Field: "rights"}:   rights,
			{Struct: wire.GrantInfo_TypeID, Field: "rights"}:     rights,
			{Struct: wire.Attenuation_TypeID, Field: "children"}: rights,
			{Struct: wire.GrantInfo_TypeID, Field: "children"}:   rights,
			{Struct: wire.GrantInfo_TypeID, Field: "dead"}:       code,
			{Struct: wire.AuditRow_TypeID, Field: "reason"}:      code,
			{Struct: wire.Outcome_TypeID, Field: "reason"}:       code,
			{Struct: wire.AuditRow_TypeID, Field: "act"}:         named(func(n uint64) string { return capability.AuditAct(n).String() }),
			{Struct: wire.Outcome_TypeID, Field: "status"}:       named(func(n uint64) string { return ledger.Status(n).String() }),
			{Struct: wire.Turn_TypeID, Field: "status"}:          named(func(n uint64) string { return session.TurnStatus(n).String() }),
		},
		Methods: map[bridge.MethodKey]bridge.MethodRule{
			{Interface: wire.Space_TypeID, Method: "describe"}:     {Name: "info", Alias: "describe"},
			{Interface: wire.Session_TypeID, Method: "describe"}:   {Name: "info", Alias: "describe"},
			{Interface: wire.Session_TypeID, Method: "snapshot"}:   {Args: gatherSnapshot},
			{Interface: wire.Session_TypeID, Method: "openStream"}: {Results: streamOpened},
		},
		Results: refusalIn,
	}
}

// uintOf returns a number read from a message, 0 for anything else.
func uintOf(v any) uint64 {
	switch v := v.(type) {
	case uint64:
		return v
	case *big.Int:
		return v.Uint64()
	}
	return 0
}

// rightsNamed converts an array of names of rights to bits.
func rightsNamed(v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, bridge.TypeError("want an array of the names of rights")
	}
	names := make([]string, len(list))
	for i := range list {
		if names[i], ok = list[i].(string); !ok {
			return nil, bridge.TypeError("want an array of the names of rights")
		}
	}
	set, err := capability.RightsNamed(names)
	if err != nil {
		return nil, capnwebError(fault.From(nil, err, "read the rights"))
	}
	return uint64(set), nil
}

func anySlice(names []string) []any {
	list := make([]any, len(names))
	for i, n := range names {
		list[i] = n
	}
	return list
}

// codeOf converts a fault's code to an object with code and name; nil for none.
func codeOf(v any) any {
	code := fault.Code(uintOf(v))
	if code == fault.None {
		return nil
	}
	return map[string]any{"code": uint64(code), "name": code.String()}
}

// refOf accepts a ref's text in place of the struct.
func refOf(v any) (any, error) {
	text, ok := v.(string)
	if !ok {
		return v, nil
	}
	ref, err := capability.ParseRef(strings.TrimSpace(text))
	if err != nil {
		return nil, capnwebError(fault.From(nil, err, "read the ref"))
	}
	return map[string]any{"id": ref.ID, "secret": ref.Secret.Reveal()}, nil
}

// optionsOf accepts the cursor alone in place of the options of a subscription.
func optionsOf(v any) (any, error) {
	switch v.(type) {
	case float64, *big.Int:
		return map[string]any{"from": v}, nil
	}
	return v, nil
}

// refusalShown converts a refusal that is part of a larger result.
func refusalShown(from map[string]any) (any, error) {
	code := fault.Code(uintOf(from["code"]))
	return map[string]any{"code": uint64(code), "name": code.String(), "message": from["message"], "at": from["at"]}, nil
}

// refusalIn removes the refusal from the results of a method, and returns it as an error; nil if
// there is none.
func refusalIn(results map[string]any) error {
	shown, _ := results["refusal"].(map[string]any)
	delete(results, "refusal")
	if shown == nil || uintOf(shown["code"]) == 0 {
		return nil
	}
	message, _ := shown["message"].(string)
	return capnwebError(&fault.Error{Code: fault.Code(uintOf(shown["code"])), Message: message, At: uintOf(shown["at"])})
}

// streamOpened converts the results of openStream to the stream, with the others as properties.
func streamOpened(results map[string]any) (any, error) {
	stream := results["stream"].(*bridge.Object)
	delete(results, "stream")
	stream.SetProperties(results)
	return stream, nil
}

// gatherSnapshot makes snapshot return the whole state if the caller passes no callback for its
// pieces.
func gatherSnapshot(args []any) (changed []any, done func(any, error) (any, error), err error) {
	const sink = 1
	if args[sink] != nil {
		return args, nil, nil
	}
	g := &snapshotGatherer{entries: []any{}, turns: []any{}, leftOut: []any{}}
	args = slices.Clone(args)
	args[sink] = bridge.Func(g.addPiece)
	return args, g.finish, nil
}

// maxGatherBytes bounds a state that is returned at once: as JSON it may be twice as large, and
// the limit of every client's messages is above that.
const maxGatherBytes = 8 << 20

// snapshotGatherer collects the pieces of a state, which arrive one by one.
type snapshotGatherer struct {
	entries, turns []any
	leftOut        []any
	compacted      any // of each piece
	hash           any // the last piece's
	bytes          int
	tooLarge       bool
}

func (g *snapshotGatherer) addPiece(call any) (any, error) {
	piece, _ := call.(map[string]any)["state"].(map[string]any)
	entries, _ := piece["entries"].([]any)
	turns, _ := piece["turns"].([]any)
	left, _ := piece["leftOut"].([]any)
	for _, id := range left {
		g.bytes += len(id.(string))
	}
	for _, e := range entries {
		entry := e.(map[string]any)
		g.bytes += len(entry["key"].(string)) + len(entry["payload"].(string)) + 64
	}
	g.bytes += 256 * len(turns)
	if g.bytes > maxGatherBytes {
		g.tooLarge = true
		return nil, fault.TooLarge
	}
	g.entries, g.turns, g.hash = append(g.entries, entries...), append(g.turns, turns...), piece["hash"]
	g.leftOut, g.compacted = append(g.leftOut, left...), piece["compacted"]
	return nil, nil
}

func (g *snapshotGatherer) finish(cursor any, err error) (any, error) {
	switch {
	case g.tooLarge:
		return nil, capnwebError(fault.TooLarge.With("the state is larger than the %d bytes that are sent at once: give snapshot a callback, which gets it in pieces", maxGatherBytes))
	case err != nil:
		return nil, err
	}
	return map[string]any{"cursor": cursor, "hash": g.hash, "entries": g.entries, "turns": g.turns, "compacted": g.compacted, "leftOut": g.leftOut}, nil
}

// capnwebError converts a fault to a JavaScript error. Its message begins with the code's name,
// for clients that do not see properties.
func capnwebError(f *fault.Error) *capnweb.Error {
	props := map[string]any{"code": uint64(f.Code), "codeName": f.Code.String()}
	if f.At != 0 {
		props["at"] = jsNumber(f.At)
	}
	return &capnweb.Error{Name: "Error", Message: f.Error(), Props: props}
}

// jsNumber returns n as a type that JavaScript represents exactly.
func jsNumber(n uint64) any {
	if n > 1<<53 {
		return new(big.Int).SetUint64(n)
	}
	return n
}

// Redact returns the error that a peer is sent for err: a fault as it is, anything else as
// Internal.
func Redact(log *slog.Logger, err error) *capnweb.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return capnwebError(f)
	}
	return capnwebError(fault.From(log, err, "answer the call"))
}
