package opargs

// The features that ops and refs need.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// FeaturesOf returns the features that ops need. A reference in place of a key counts as needing
// none: the server decides it when its value is known.
func FeaturesOf(ops []ledger.Intent) (f session.Features) {
	for i := range ops {
		f |= Features(&ops[i])
	}
	return f
}

// Features returns the features that an op needs.
func Features(op *ledger.Intent) (f session.Features) {
	if aboutRequest(op) {
		return session.FeatureRequests
	}
	if slices.Contains(keyMethods, op.Method) {
		return session.FeatureKeys
	}
	switch op.Method {
	case session.MethodPut, session.MethodRemove, session.MethodPurge:
		if op.Method != session.MethodPurge && HasArgument(op, "sync") {
			f = session.FeatureSync
		}
		if HasArgument(op, "expect") || HasArgument(op, "claim") || mayBeOwnKey(op) && session.IsOwn(Text(op, "key")) {
			f |= session.FeatureKeys
		}
	case session.MethodCreate:
		if HasArgument(op, "parent") {
			f = session.FeatureChildren
		}
		if HasArgument(op, "shared_external") {
			f |= session.FeatureSync
		}
	case session.MethodFork:
		if HasArgument(op, "message") {
			return session.FeatureFork
		}
	case session.MethodRevert, session.MethodUnrevert:
		return session.FeatureRevert
	case session.MethodCompact:
		return session.FeatureCompact
	case session.MethodAsk, session.MethodAnswer, session.MethodWithdraw:
		return session.FeatureRequests
	case session.MethodShare:
		rights, _ := capability.RightsNamed(argNames(op, "rights"))
		f = MintFeatures(&capability.MintRequest{Rights: rights, Methods: argNames(op, "methods")})
		if HasArgument(op, "read_keys") || HasArgument(op, "write_keys") {
			f |= session.FeatureKeys
		}
		if HasArgument(op, "children") {
			f |= session.FeatureReach
		}
		if HasArgument(op, "ask") || HasArgument(op, "answer") {
			f |= session.FeatureRequests
		}
		if HasArgument(op, "public") {
			f |= session.FeatureSync
		}
		return f
	}
	return f
}

// MintFeatures returns the features that a ref or a live capability with the limits of m needs: limits,
// rights and methods that a server of the version before does not know.
func MintFeatures(m *capability.MintRequest) (f session.Features) {
	if m.Rights.Has(capability.Manage) {
		f = session.FeatureManage
	}
	if m.ReadKeys != nil || m.WriteKeys != nil || m.Rights&(capability.Break|capability.Schema) != 0 ||
		slices.ContainsFunc(m.Methods, func(name string) bool { return slices.Contains(keyMethods, name) }) {
		f |= session.FeatureKeys
	}
	if m.Rights.Has(capability.Revert) {
		f |= session.FeatureRevert
	}
	if m.Rights.Has(capability.Compact) {
		f |= session.FeatureCompact
	}
	if m.Children != 0 {
		f |= session.FeatureReach
	}
	if m.Rights&(capability.Ask|capability.Answer) != 0 || m.AskKinds != nil || m.AnswerKinds != nil {
		f |= session.FeatureRequests
	}
	return f
}

// keyMethods are the methods that need FeatureKeys whatever their arguments are.
var keyMethods = []string{session.MethodPatch, session.MethodAdd, session.MethodClaim, session.MethodRelease}
