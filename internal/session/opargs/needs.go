package opargs

// What an op needs, as far as its arguments can be read before they are decoded: the intent may be malformed, and its arguments
// references.

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Needed returns the row of an op's method, with the right that these arguments need, and another right that permits the op in
// place of that, 0 for none. The row is zero for a void and for an unknown method: the ref must be alive.
func Needed(op *ledger.Intent) (m Method, other capability.Rights) {
	m = table[op.Method]
	if changesSchema(op) {
		m.Need = capability.Schema
	}
	if aboutRequest(op) {
		m.Need = capability.Answer
	}
	if HasArgument(op, "sync") {
		m.Need |= capability.Revert
	}
	return m, otherRight(op)
}

// otherRight returns a right that permits an op in place of its method's, 0 for none: for the methods
// whose decision tells what it permits.
func otherRight(op *ledger.Intent) capability.Rights {
	switch {
	case AbortsTurn(op):
		return capability.Revoke
	case op.Method == session.MethodRelease:
		return capability.Break
	case op.Method == session.MethodWithdraw:
		return capability.Revoke
	}
	return 0
}

// aboutRequest reports whether an op claims or releases a request, and not a key.
func aboutRequest(op *ledger.Intent) bool {
	return (op.Method == session.MethodClaim || op.Method == session.MethodRelease) && HasArgument(op, "request")
}

// AbortsTurn reports whether op is a finalize with status aborted, which the revoke right permits
// too, if it does nothing else.
func AbortsTurn(op *ledger.Intent) bool {
	return op.Method == session.MethodFinalize && Text(op, "status") == "aborted"
}

// changesSchema reports whether an op needs the right schema, as far as its key can be read. What this
// misses, the decision finds (mayChangeSchema in package decide).
func changesSchema(op *ledger.Intent) bool {
	if op.Method != session.MethodPut && op.Method != session.MethodRemove || !mayBeOwnKey(op) {
		return false
	}
	k, err := session.ParseKey(Text(op, "key"))
	return err == nil && k.Kind == session.KeySchema
}

// HasArgument reports whether an op has an argument, of any value.
func HasArgument(op *ledger.Intent, name string) bool {
	return slices.ContainsFunc(op.Args, func(a ledger.Arg) bool { return a.Name == name })
}

// argNames returns a list argument's names, none if it is no list.
func argNames(op *ledger.Intent, name string) []string {
	if !HasArgument(op, name) {
		return nil
	}
	r := Decoder{}
	r.read(op, session.DefaultLimits())
	return r.names(name, optional)
}

// mayBeOwnKey reports whether an op's key may be of its users' kinds, by its first characters alone:
// most keys are message/… and part/….
func mayBeOwnKey(op *ledger.Intent) bool {
	for i := range op.Args {
		if a := &op.Args[i]; a.Name == "key" {
			text := string(a.JSON[:min(len(a.JSON), len(`"message/`))])
			return !strings.HasPrefix(text, `"message/`) && !strings.HasPrefix(text, `"part/`)
		}
	}
	return false
}

// MaxPeekBytes bounds the arguments that are read before an op is decoded.
const MaxPeekBytes = 4096

// Text returns a string argument's value, "" if there is none; the intent may be malformed. The
// result is valid UTF-8, which gjson does not ensure.
func Text(op *ledger.Intent, name string) string {
	for i := range op.Args {
		if a := &op.Args[i]; a.Name == name && a.Ref == nil && len(a.JSON) <= MaxPeekBytes && utf8.Valid(a.JSON) && ledger.IsJSON(a.JSON) {
			s, _ := stringOf(a.JSON)
			return s
		}
	}
	return ""
}
