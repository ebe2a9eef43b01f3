package capability

// The reach of a ref: its rights in the sessions below its own, those that are there and those that come.

import (
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// ChildRights are the rights that a ref can have in children: all but those that make and end refs, which
// would be refs of the child and not of the session above.
const ChildRights = OwnerRights &^ (Share | Revoke)

// Reaching returns the grant under which the holder of a session's ref acts in a child of the session, at any
// depth: one of the child, with the ref's rights in children and its id, methods, expiry, redemptions, seal and
// actor. g is the ref's row, narrow the limits of its live capability, nil if it has none, epoch that of the
// ref's session. The grant is of a session's first epoch, or of none if the ref is of an earlier one of its own
// session: the child's owner ends it by beginning another. The
// error is that of CheckLive, or MissingRight without a grant if the ref does not reach; for a dead ref the
// grant is returned too, so that its holder can be informed of it. Whether the session is a child the caller
// checks.
func Reaching(g, narrow *Grant, epoch uint64, child string, now int64) (*Grant, *fault.Error) {
	if g == nil {
		return nil, Check(nil, epoch, now, 0, "")
	}
	acting, err := CheckLive(g, narrow, epoch, now, 0, "")
	if g.Children == 0 || narrow != nil && narrow.Children == 0 {
		return nil, fault.MissingRight.With("the ref does not reach the session's children: ask for one that does")
	}
	as := &Grant{ID: acting.ID, Target: child, Parent: acting.Parent, Hash: acting.Hash, Epoch: 1, Rights: acting.Children, Children: acting.Children,
		Methods: childMethods(acting), AskKinds: acting.AskKinds, AnswerKinds: acting.AnswerKinds, Expires: acting.Expires, MaxRedemptions: acting.MaxRedemptions, Redemptions: acting.Redemptions, Seal: acting.Seal,
		Label: acting.Label, Actor: acting.Actor, Created: acting.Created,
		Revoked: acting.Revoked, RevokedBy: acting.RevokedBy}
	switch {
	case acting.Revoked != 0: // its cut is a cursor of another session
		return as, Check(as, as.Epoch, now, 0, "")
	case err != nil && err.Code == fault.StaleEpoch:
		as.Epoch = 0
	}
	return as, err
}

func childMethods(g *Grant) []string {
	if g.Children.Has(Append) {
		return g.Methods
	}
	return nil
}

// CheckChildren checks the rights in children that the ref is to have, as far as possible without its parent.
// The error is BadArgument.
func (m *MintRequest) CheckChildren() *fault.Error {
	switch {
	case m.Children == 0:
		return nil
	case IsSpace(Target(m.ID)):
		return fault.BadArgument.With("children: only the ref of a session reaches its children; a space's ref with manage acts in all its sessions")
	case !ChildRights.Has(m.Children):
		return fault.BadArgument.With("children: %s is not a right that a ref can have in children: there are %s", m.Children&^ChildRights, ChildRights)
	case m.Rights != 0 && !m.Rights.Has(m.Children):
		return fault.BadArgument.With("children: in children the ref would carry %s, which it does not carry itself: add it to its rights, or leave it out", m.Children&^m.Rights)
	}
	if limits := m.sightLimits(); limits != nil {
		return errReachLimited(limits)
	}
	return nil
}

// sightLimits returns the names of the limits that a ref cannot have if it reaches children, as far as m has
// them: what they name is of one session.
func (m *MintRequest) sightLimits() []string {
	return limitNames(m.Message, m.VisibleFrom, m.ReadKeys, m.WriteKeys)
}

func limitNames(message string, from uint64, read, write []string) (names []string) {
	for _, l := range []struct {
		name string
		set  bool
	}{{"message", message != ""}, {"from", from > 1}, {"read_keys", read != nil}, {"write_keys", write != nil}} {
		if l.set {
			names = append(names, l.name)
		}
	}
	return names
}

func errReachLimited(limits []string) *fault.Error {
	return fault.BadArgument.With("children and %s exclude each other: what these name is of one session alone", strings.Join(limits, ", "))
}

// checkReach checks the rights in children of a minted ref, which inherits limits.
func checkReach(g *Grant) *fault.Error {
	if g.Children == 0 {
		return nil
	}
	m := MintRequest{ID: g.ID, Rights: g.Rights, Children: g.Children, Message: g.Message, VisibleFrom: g.VisibleFrom, ReadKeys: g.ReadKeys, WriteKeys: g.WriteKeys}
	return m.CheckChildren()
}

// givesInChildren are the rights in children that a ref may give on: an owner's ref has none there itself, and
// gives all.
func (g *Grant) givesInChildren() Rights {
	if g.Owner {
		return ChildRights
	}
	return g.Children
}
