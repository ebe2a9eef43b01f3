package opargs

// The table of methods, and the decoding of an op by its row.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Op is a decoded op: a pointer to the typed arguments of its method, *Create to *Delete.
type Op any

// Method is a row of the table of methods.
type Method struct {
	Need   capability.Rights // right on the session; create and fork: on the space
	Owner  bool              // for owner refs only
	decode func(r *Decoder) Op
}

// table has the methods by name.
var table = map[string]Method{
	session.MethodCreate:     {Need: capability.Create, decode: decodeCreate},
	session.MethodFork:       {Need: capability.Create, decode: decodeFork},
	session.MethodPut:        {Need: capability.Append, decode: decodePut},
	session.MethodRemove:     {Need: capability.Append, decode: decodeRemove},
	session.MethodPatch:      {Need: capability.Append, decode: decodePatch},
	session.MethodAdd:        {Need: capability.Append, decode: decodeAdd},
	session.MethodClaim:      {Need: capability.Append, decode: decodeClaim},
	session.MethodRelease:    {Need: capability.Append, decode: decodeRelease},
	session.MethodAsk:        {Need: capability.Ask, decode: decodeAsk},
	session.MethodAnswer:     {Need: capability.Answer, decode: decodeAnswer},
	session.MethodWithdraw:   {Need: capability.Ask, decode: decodeWithdraw},
	session.MethodBegin:      {Need: capability.Append, decode: decodeBegin},
	session.MethodAppendText: {Need: capability.Append, decode: decodeAppendText},
	session.MethodFinalize:   {Need: capability.Append, decode: decodeFinalize},
	session.MethodShare:      {Need: capability.Share, decode: decodeShare},
	session.MethodRevoke:     {Need: capability.Revoke, decode: decodeRevoke},
	session.MethodBumpEpoch:  {Need: capability.Revoke, decode: decodeBumpEpoch},
	session.MethodRevert:     {Need: capability.Revert, decode: decodeRevert},
	session.MethodUnrevert:   {Need: capability.Revert, decode: decodeUnrevert},
	session.MethodCompact:    {Need: capability.Compact, decode: decodeCompact},
	session.MethodPurge:      {Owner: true, decode: decodePurge},
	session.MethodDelete:     {Owner: true, decode: decodeDelete},
}

// Methods returns the names of all methods of ops, without void, sorted.
func Methods() []string {
	names := make([]string, 0, len(table))
	for n := range table {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// MethodOf returns the row of a method, and whether there is such a method.
func MethodOf(name string) (m Method, known bool) {
	m, known = table[name]
	return m, known
}

// Decode decodes an op's arguments; errors are UnknownMethod, BadArgument, BadKey, BadPayload or
// TooLarge. The bytes of payloads are shared with in. The op belongs to r and is valid until the
// next call.
func (r *Decoder) Decode(in *ledger.Intent, lim session.Limits) (Op, *fault.Error) {
	m, ok := table[in.Method]
	if !ok {
		return nil, fault.UnknownMethod.With("there is no method %q: use one of %s", fault.Clip(in.Method), strings.Join(Methods(), ", "))
	}
	r.read(in, lim)
	o := m.decode(r)
	if err := r.finish(); err != nil {
		return nil, err
	}
	return o, nil
}

// CheckOps checks whether ops could ever apply, as far as their methods and resolved arguments
// show: a client refuses other ops in Commit. at is the index of the first invalid one. It checks
// that every argument is JSON text in UTF-8, except a void's, which can always apply.
// ledger.CheckIntent checks whether an op can be sent.
func CheckOps(ops []ledger.Intent, lim session.Limits) (at int, err *fault.Error) {
	r := new(Decoder)
	for i := range ops {
		if ops[i].Method == ledger.MethodVoid {
			continue
		}
		if _, err := r.Decode(&ops[i], lim); err != nil {
			return i, err
		}
	}
	return 0, nil
}
