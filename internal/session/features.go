package session

// Features: extensions of what sessions hold. A server of the previous version does not know them, so
// ops that need one are decided only while every replica knows it; a reader of the previous version
// would misread its events, so a session's row says which ones its log needs.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
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

// EventFeatures returns the features that a reader of an event needs.
func EventFeatures(e *Event) Features {
	switch e.Method {
	case MethodPatch, MethodAdd, MethodClaim, MethodRelease, MethodLapse:
		return FeatureKeys
	case MethodPut, MethodRemove, MethodPurge:
		if IsOwn(e.Key) {
			return FeatureKeys
		}
		if KindOf(e.Key) == RequestKind {
			return FeatureRequests
		}
	case MethodRevert, MethodUnrevert, MethodSettle:
		return FeatureRevert
	case MethodCompact: // of readers who verify a log that is not shown whole: CheckReader
		return FeatureCompact
	}
	return 0
}

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
