package session

// Features: extensions of what sessions hold. A server of the previous version does not know them, so
// ops that need one are decided only while every replica knows it; a reader of the previous version
// would misread its events, so a session's row says which ones its log needs.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Features is a set of features.
type Features uint32

// The features. FeatureKeys is state of any kind: keys of its users' kinds with any JSON value, patch,
// add, claim and release, and the arguments expect and claim. FeatureSearch is the index of words, from
// which every server removes what is purged; no op and no event needs it. FeatureFork is fork's argument
// message, FeatureChildren create's argument parent; no event needs either. FeatureManage is the right
// manage, whose end an older server would not make a cut in the sessions that were opened by it.
// FeatureRevert is revert and unrevert, and the right for them; FeatureCompact is compact, the right for it and
// the compacted view. FeatureReach is the rights of a ref in children, whose end an older server would not
// make a cut in them. FeatureLargeForks is forks in pieces, for which every server keeps what it changes in their
// sources; no op and no event needs it. FeatureRequests is requests, the rights for them, and the kinds that
// these are limited to. FeatureSync is what syncs of opencode need as ops of an outbox: the argument
// sync of put and remove, share's public and create's shared_external; no event needs it.
const (
	FeatureKeys Features = 1 << iota
	FeatureSearch
	FeatureFork
	FeatureChildren
	FeatureManage
	FeatureRevert
	FeatureCompact
	FeatureReach
	FeatureLargeForks
	FeatureRequests
	FeatureSync
)

// AllFeatures is the set of the features that this version knows.
const AllFeatures = FeatureKeys | FeatureSearch | FeatureFork | FeatureChildren | FeatureManage | FeatureRevert | FeatureCompact | FeatureReach | FeatureLargeForks | FeatureRequests | FeatureSync

var featureNames = []struct {
	feature Features
	name    string
}{{FeatureKeys, "keys"}, {FeatureSearch, "search"}, {FeatureFork, "fork"}, {FeatureChildren, "children"}, {FeatureManage, "manage"}, {FeatureRevert, "revert"}, {FeatureCompact, "compact"}, {FeatureReach, "reach"}, {FeatureLargeForks, "large_forks"}, {FeatureRequests, "requests"}, {FeatureSync, "sync"}}

// FeaturesNamed returns the features with the given names; others have no effect.
func FeaturesNamed(names []string) (f Features) {
	for _, n := range featureNames {
		if slices.Contains(names, n.name) {
			f |= n.feature
		}
	}
	return f
}

// Names returns the features' names.
func (f Features) Names() (names []string) {
	for _, n := range featureNames {
		if f&n.feature != 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// FeaturesOf returns the features that ops need. A reference in place of a key counts as needing
// none: the server decides it when its value is known.
func FeaturesOf(ops []ledger.Intent) (f Features) {
	for i := range ops {
		f |= featuresOf(&ops[i])
	}
	return f
}

func featuresOf(op *ledger.Intent) (f Features) {
	if aboutRequest(op) {
		return FeatureRequests
	}
	if slices.Contains(keyMethods, op.Method) {
		return FeatureKeys
	}
	switch op.Method {
	case MethodPut, MethodRemove, MethodPurge:
		if op.Method != MethodPurge && hasArgument(op, "sync") {
			f = FeatureSync
		}
		if hasArgument(op, "expect") || hasArgument(op, "claim") || mayBeOwnKey(op) && isOwn(argText(op, "key")) {
			f |= FeatureKeys
		}
	case MethodCreate:
		if hasArgument(op, "parent") {
			f = FeatureChildren
		}
		if hasArgument(op, "shared_external") {
			f |= FeatureSync
		}
	case MethodFork:
		if hasArgument(op, "message") {
			return FeatureFork
		}
	case MethodRevert, MethodUnrevert:
		return FeatureRevert
	case MethodCompact:
		return FeatureCompact
	case MethodAsk, MethodAnswer, MethodWithdraw:
		return FeatureRequests
	case MethodShare:
		rights, _ := capability.RightsNamed(argNames(op, "rights"))
		f = MintFeatures(&capability.MintRequest{Rights: rights, Methods: argNames(op, "methods")})
		if hasArgument(op, "read_keys") || hasArgument(op, "write_keys") {
			f |= FeatureKeys
		}
		if hasArgument(op, "children") {
			f |= FeatureReach
		}
		if hasArgument(op, "ask") || hasArgument(op, "answer") {
			f |= FeatureRequests
		}
		if hasArgument(op, "public") {
			f |= FeatureSync
		}
		return f
	}
	return f
}

// MintFeatures returns the features that a ref or a live capability with the limits of m needs: limits,
// rights and methods that a server of the version before does not know.
func MintFeatures(m *capability.MintRequest) (f Features) {
	if m.Rights.Has(capability.Manage) {
		f = FeatureManage
	}
	if m.ReadKeys != nil || m.WriteKeys != nil || m.Rights&(capability.Break|capability.Schema) != 0 ||
		slices.ContainsFunc(m.Methods, func(name string) bool { return slices.Contains(keyMethods, name) }) {
		f |= FeatureKeys
	}
	if m.Rights.Has(capability.Revert) {
		f |= FeatureRevert
	}
	if m.Rights.Has(capability.Compact) {
		f |= FeatureCompact
	}
	if m.Children != 0 {
		f |= FeatureReach
	}
	if m.Rights&(capability.Ask|capability.Answer) != 0 || m.AskKinds != nil || m.AnswerKinds != nil {
		f |= FeatureRequests
	}
	return f
}

// keyMethods are the methods that need FeatureKeys whatever their arguments are.
var keyMethods = []string{MethodPatch, MethodAdd, MethodClaim, MethodRelease}

func hasArgument(op *ledger.Intent, name string) bool {
	return slices.ContainsFunc(op.Args, func(a ledger.Arg) bool { return a.Name == name })
}

// argNames returns a list argument's names, none if it is no list.
func argNames(op *ledger.Intent, name string) []string {
	if !hasArgument(op, name) {
		return nil
	}
	r := argReader{}
	r.read(op, DefaultLimits())
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

// EventFeatures returns the features that a reader of an event needs.
func EventFeatures(e *Event) Features {
	switch e.Method {
	case MethodPatch, MethodAdd, MethodClaim, MethodRelease, MethodLapse:
		return FeatureKeys
	case MethodPut, MethodRemove, MethodPurge:
		if isOwn(e.Key) {
			return FeatureKeys
		}
		if KindOf(e.Key) == requestKind {
			return FeatureRequests
		}
	case MethodRevert, MethodUnrevert, MethodSettle:
		return FeatureRevert
	case MethodCompact: // of readers who verify a log that is not shown whole: CheckReader
		return FeatureCompact
	}
	return 0
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
	return CheckFeatures(need, c.Features())
}

// inUse reports whether every replica knows a feature.
func (c *Config) inUse(f Features) bool { return c.Features == nil || c.Features()&f == f }

// CheckFeatures returns the reason that something cannot be done yet: some replica does not know a
// feature that it needs.
func CheckFeatures(need, inUse Features) *fault.Error {
	missing := need &^ inUse
	if missing == 0 {
		return nil
	}
	return fault.Unsupported.With("this needs %s, which is not in use here yet: some server of this database is of an earlier version, or was until the upgrade; what an outbox has is kept and sent again (mooring admin upgrade finish, once all are replaced)", strings.Join(missing.Names(), ", "))
}

// CheckReader returns the reason that a reader who understands some features must not be shown the
// session's state and events under g: it would misread them.
func (r *Row) CheckReader(g *capability.Grant, understands Features) *fault.Error {
	missing := r.Needs &^ understands
	if g.Message != "" {
		missing &= FeatureRevert // a message and its parts need no other
	}
	if g.VisibleFrom <= 1 { // nothing of a compact event is cut off, or its hash is masked
		missing &^= FeatureCompact
	}
	if missing == 0 {
		return nil
	}
	return fault.Incompatible.With("this session has values that this client would misread (%s): update the client", strings.Join(missing.Names(), ", "))
}
