package decide

// The features that ops and refs need.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// FeaturesOf returns the features that ops need. A reference in place of a key counts as needing
// none: the server decides it when its value is known.
func FeaturesOf(ops []ledger.Intent) (f session.Features) {
	for i := range ops {
		f |= featuresOf(&ops[i])
	}
	return f
}

func featuresOf(op *ledger.Intent) (f session.Features) {
	if aboutRequest(op) {
		return session.FeatureRequests
	}
	if slices.Contains(keyMethods, op.Method) {
		return session.FeatureKeys
	}
	switch op.Method {
	case session.MethodPut, session.MethodRemove, session.MethodPurge:
		if op.Method != session.MethodPurge && hasArgument(op, "sync") {
			f = session.FeatureSync
		}
		if hasArgument(op, "expect") || hasArgument(op, "claim") || mayBeOwnKey(op) && session.IsOwn(argText(op, "key")) {
			f |= session.FeatureKeys
		}
	case session.MethodCreate:
		if hasArgument(op, "parent") {
			f = session.FeatureChildren
		}
		if hasArgument(op, "shared_external") {
			f |= session.FeatureSync
		}
	case session.MethodFork:
		if hasArgument(op, "message") {
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
		if hasArgument(op, "read_keys") || hasArgument(op, "write_keys") {
			f |= session.FeatureKeys
		}
		if hasArgument(op, "children") {
			f |= session.FeatureReach
		}
		if hasArgument(op, "ask") || hasArgument(op, "answer") {
			f |= session.FeatureRequests
		}
		if hasArgument(op, "public") {
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

func hasArgument(op *ledger.Intent, name string) bool {
	return slices.ContainsFunc(op.Args, func(a ledger.Arg) bool { return a.Name == name })
}

// argNames returns a list argument's names, none if it is no list.
func argNames(op *ledger.Intent, name string) []string {
	if !hasArgument(op, name) {
		return nil
	}
	r := argReader{}
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

// checkFeatures returns the reason that an op cannot be decided yet: some replica does not know a
// feature that it needs.
func (c *Config) checkFeatures(op *ledger.Intent) *fault.Error {
	if c.Features == nil {
		return nil
	}
	need := featuresOf(op)
	if need == 0 {
		return nil
	}
	return session.CheckFeatures(need, c.Features())
}

// inUse reports whether every replica knows a feature.
func (c *Config) inUse(f session.Features) bool { return c.Features == nil || c.Features()&f == f }
