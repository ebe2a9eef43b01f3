// How the schema looks to Cap'n Web peers where it does not look as package
// bridge would have it: docs/javascript.md.

package server

import (
	"math/big"
	"slices"
	"strings"
	"sync"

	"capnproto.org/go/capnp/v3/schemas"
	"capnproto.org/go/capnp/v3/std/capnp/persistent"

	"github.com/mooring-rpc/mooring/bridge"
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

// capnwebBridge is the schema, compiled once a process. That it compiles depends on
// nothing but the program.
var capnwebBridge = sync.OnceValue(func() *bridge.Bridge {
	reg := new(schemas.Registry)
	wire.RegisterSchema(reg)
	persistent.RegisterSchema(reg)
	b, err := bridge.New(bridge.Config{
		Schema:     reg,
		Interfaces: []uint64{wire.Gateway_TypeID, wire.Space_TypeID, wire.Session_TypeID},
		Ordered:    []uint64{wire.Stream_TypeID}, // a batch may wait for sessions that come with it
		Rules:      capnwebRules(),
		TypeOf: func(o rpc.Object) uint64 {
			switch o.(type) {
			case *sess:
				return wire.Session_TypeID
			case *space:
				return wire.Space_TypeID
			}
			return 0
		},
		MapException: func(ex *rpc.Exception) error { return capnwebError(exceptionFault(ex)) },
		TooLarge: func(limit int) error {
			return capnwebError(fault.TooLarge.With("the call takes more than the %d bytes that one may have", limit))
		},
	})
	if err != nil {
		panic(err)
	}
	return b
})

func capnwebRules() bridge.Rules {
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
			{Struct: wire.Attenuation_TypeID, Field: "rights"}: rights,
			{Struct: wire.GrantInfo_TypeID, Field: "rights"}:   rights,
			{Struct: wire.GrantInfo_TypeID, Field: "dead"}:     code,
			{Struct: wire.AuditRow_TypeID, Field: "reason"}:    code,
			{Struct: wire.Outcome_TypeID, Field: "reason"}:     code,
			{Struct: wire.AuditRow_TypeID, Field: "act"}:       named(func(n uint64) string { return capability.AuditAct(n).String() }),
			{Struct: wire.Outcome_TypeID, Field: "status"}:     named(func(n uint64) string { return ledger.Status(n).String() }),
			{Struct: wire.Turn_TypeID, Field: "status"}:        named(func(n uint64) string { return session.TurnStatus(n).String() }),
		},
		Methods: map[bridge.MethodKey]bridge.MethodRule{
			{Interface: wire.Space_TypeID, Method: "describe"}:     {Name: "info"},
			{Interface: wire.Session_TypeID, Method: "describe"}:   {Name: "info"},
			{Interface: wire.Session_TypeID, Method: "snapshot"}:   {Args: gatherSnapshot},
			{Interface: wire.Session_TypeID, Method: "openStream"}: {Results: streamOpened},
		},
		Results: refusalIn,
	}
}

// uintOf is a number that was read from a message.
func uintOf(v any) uint64 {
	switch v := v.(type) {
	case uint64:
		return v
	case *big.Int:
		return v.Uint64()
	}
	return 0
}

// rightsNamed are the bits of an array of names.
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
		return nil, capnwebError(toFault(nil, err, "read the rights"))
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

// codeOf shows a fault's code; nil for none.
func codeOf(v any) any {
	code := fault.Code(uintOf(v))
	if code == fault.None {
		return nil
	}
	return map[string]any{"code": uint64(code), "name": code.String()}
}

// refOf reads a ref's text where the struct is wanted.
func refOf(v any) (any, error) {
	text, ok := v.(string)
	if !ok {
		return v, nil
	}
	ref, err := capability.ParseRef(strings.TrimSpace(text))
	if err != nil {
		return nil, capnwebError(toFault(nil, err, "read the ref"))
	}
	return map[string]any{"id": ref.ID, "secret": ref.Secret.Reveal()}, nil
}

// optionsOf takes the cursor alone for the options of a subscription.
func optionsOf(v any) (any, error) {
	switch v.(type) {
	case float64, *big.Int:
		return map[string]any{"from": v}, nil
	}
	return v, nil
}

// refusalShown is a refusal that is a part of something longer.
func refusalShown(from map[string]any) (any, error) {
	code := fault.Code(uintOf(from["code"]))
	return map[string]any{"code": uint64(code), "name": code.String(), "message": from["message"], "at": from["at"]}, nil
}

// refusalIn takes the refusal out of what a method gives, as an error if there is one.
func refusalIn(results map[string]any) error {
	shown, _ := results["refusal"].(map[string]any)
	delete(results, "refusal")
	if shown == nil || uintOf(shown["code"]) == 0 {
		return nil
	}
	message, _ := shown["message"].(string)
	return capnwebError(&fault.Error{Code: fault.Code(uintOf(shown["code"])), Message: message, At: uintOf(shown["at"])})
}

// streamOpened is the stream, with what is known of it as properties.
func streamOpened(results map[string]any) (any, error) {
	stream := results["stream"].(*bridge.Object)
	delete(results, "stream")
	stream.SetProperties(results)
	return stream, nil
}

// gatherSnapshot has a snapshot gathered where no callback is given that would
// take it in pieces.
func gatherSnapshot(args []any) (changed []any, done func(any, error) (any, error), err error) {
	const sink = 1
	if args[sink] != nil {
		return args, nil, nil
	}
	g := &snapshotGatherer{entries: []any{}, turns: []any{}}
	args = slices.Clone(args)
	args[sink] = bridge.Func(g.addPiece)
	return args, g.finish, nil
}

// maxGatherBytes is the largest state that is given at once: as JSON it may take
// twice as much, and a message of no client's is bounded below that.
const maxGatherBytes = 8 << 20

// snapshotGatherer is a state that is being put together. Its pieces come one by one.
type snapshotGatherer struct {
	entries, turns []any
	hash           any // the last piece's
	bytes          int
	tooLarge       bool
}

func (g *snapshotGatherer) addPiece(call any) (any, error) {
	piece, _ := call.(map[string]any)["state"].(map[string]any)
	entries, _ := piece["entries"].([]any)
	turns, _ := piece["turns"].([]any)
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
	return nil, nil
}

func (g *snapshotGatherer) finish(cursor any, err error) (any, error) {
	switch {
	case g.tooLarge:
		return nil, capnwebError(fault.TooLarge.With("the state is larger than the %d bytes that are given at once: give snapshot a callback, which gets it in pieces", maxGatherBytes))
	case err != nil:
		return nil, err
	}
	return map[string]any{"cursor": cursor, "hash": g.hash, "entries": g.entries, "turns": g.turns}, nil
}
