package capability

// Delegation: a ref minted from another has at most its rights and limits.

import (
	"cmp"
	"crypto/ed25519"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/humantime"
)

// Bounds of a minted ref's fields.
const (
	maxLabel   = 256 // bytes
	maxActor   = 256 // bytes
	maxSegment = 64  // bytes of one segment of an actor
	maxMethods = 64

	maxMessageID = 200 // bytes
)

// DefaultOwnerActor is the actor of an owner ref that was created without one.
const DefaultOwnerActor = "owner"

// MintRequest describes a ref to be minted. Zero fields take the parent's value: methods, expiry,
// first visible cursor, limit, message, keys, kinds of requests and actor. MintOwner uses only ID, Hash, Expires, Seal,
// Label and Actor.
type MintRequest struct {
	ID       string // for the parent's target, or the new session for MintOwner
	Hash     [32]byte
	Rights   Rights   // required by Mint
	Children Rights   // in the session's children; 0: it does not reach them, whatever the parent does
	Methods  []string // not an empty list
	Expires  int64    // Unix ms; not past, by the database's clock
	// Lifetime takes precedence over Expires: ms from the time of minting.
	Lifetime       uint64
	VisibleFrom    uint64
	MaxRedemptions uint32
	Message        string // only this message
	ReadKeys       []string
	WriteKeys      []string
	AskKinds       []string // requests that it may ask, and answer; not empty lists
	AnswerKinds    []string
	Seal           []byte // Ed25519 public key; the id must be a sealed one. Required if the parent is sealed
	Label          string
	Actor          string
}

// Mint returns the grant that m asks for, within parent. epoch is the session's present one; now
// the database's clock or, for an existing ref, its time of creation, Unix ms. It does not check
// whether parent may share; see Check. Errors: BadArgument for a malformed request, Widening for
// one beyond the parent.
func Mint(parent *Grant, m MintRequest, epoch uint64, now int64) (*Grant, *fault.Error) {
	if Target(m.ID) != parent.Target {
		return nil, fault.BadArgument.With("the new ref's id is not one for %s", parent.Target)
	}
	if m.Methods != nil && len(m.Methods) == 0 {
		return nil, fault.BadArgument.With("the list of methods is empty, which could mean none or all: name some, or leave it out for all of its parent's")
	}
	if m.Rights == 0 {
		return nil, fault.BadArgument.With("a ref needs rights: name at least one of %s", parent.Rights)
	}
	if err := m.CheckKeyLimits(); err != nil {
		return nil, err
	}
	if err := m.CheckRequestKinds(); err != nil {
		return nil, err
	}
	expires, err := m.expiry(now)
	if err != nil {
		return nil, err
	}
	g := &Grant{ID: m.ID, Target: parent.Target, Parent: parent.ID, Hash: m.Hash, Epoch: epoch, Rights: m.Rights, Children: m.Children, Methods: slices.Clone(m.Methods),
		Expires: cmp.Or(expires, parent.Expires), VisibleFrom: cmp.Or(m.VisibleFrom, parent.VisibleFrom), MaxRedemptions: cmp.Or(m.MaxRedemptions, parent.MaxRedemptions),
		Message: cmp.Or(m.Message, parent.Message), ReadKeys: slices.Clone(m.ReadKeys), WriteKeys: slices.Clone(m.WriteKeys), AskKinds: slices.Clone(m.AskKinds), AnswerKinds: slices.Clone(m.AnswerKinds), Seal: slices.Clone(m.Seal), Label: m.Label, Actor: cmp.Or(m.Actor, parent.Actor), Created: now}
	if !IsSession(g.Target) {
		g.Epoch = 0
	}
	if g.Methods == nil && g.Rights.Has(Append) {
		g.Methods = slices.Clone(parent.Methods)
	}
	if g.ReadKeys == nil {
		g.ReadKeys = slices.Clone(parent.ReadKeys)
	}
	if g.WriteKeys == nil {
		g.WriteKeys = slices.Clone(parent.WriteKeys)
	}
	g.inheritRequestKinds(parent)
	if err := checkMinted(g); err != nil {
		return nil, err
	}
	if err := checkReach(g); err != nil {
		return nil, err
	}
	if err := CheckWithin(parent, g); err != nil {
		return nil, err
	}
	return g, nil
}

// CheckKeyLimits checks the keys that the ref is to be limited to, as far as possible without its
// parent. The error is BadArgument.
func (m *MintRequest) CheckKeyLimits() *fault.Error {
	for _, list := range []struct {
		name string
		keys []string
		need Rights // any of them
	}{{"read_keys", m.ReadKeys, Read}, {"write_keys", m.WriteKeys, Append | LaterRights}} {
		if err := CheckKeys(list.name, list.keys); err != nil {
			return err
		}
		switch {
		case list.keys == nil:
		case IsSpace(Target(m.ID)):
			return fault.BadArgument.With("%s: only the ref of a session can be limited to keys", list.name)
		case m.Rights&list.need == 0:
			return fault.BadArgument.With("%s limits the right %s, which the new ref does not carry: add it, or leave %s out", list.name, list.need&^LaterRights, list.name)
		case m.Message != "":
			return fault.BadArgument.With("%s and message exclude each other: message/ID and part/ID/ are the keys of a message", list.name)
		}
	}
	return nil
}

// maxLifetime bounds a ref's lifetime, in ms.
const maxLifetime = 1 << 53

// expiry returns the expiry of a ref minted now; 0 if m has none.
func (m *MintRequest) expiry(now int64) (int64, *fault.Error) {
	switch {
	case m.Lifetime > maxLifetime:
		return 0, fault.BadArgument.With("a lifetime is at most 2^53 ms")
	case m.Lifetime > 0:
		return now + int64(m.Lifetime), nil
	case m.Expires > 0 && m.Expires <= now:
		return 0, fault.BadArgument.With("the ref would have expired %s ago, by the server's clock: it is %s there", humantime.Duration(time.Duration(now-m.Expires)*time.Millisecond),
			time.UnixMilli(now).UTC().Format(time.RFC3339))
	}
	return m.Expires, nil
}

// CheckSameMint returns nil if there, the row of a ref, is the result of minting g, whatever has
// happened to it since: then minting it again changes nothing. The error is AlreadyExists.
func CheckSameMint(there, g *Grant) *fault.Error {
	was := *there
	was.Created, was.Epoch, was.Redemptions, was.Revoked, was.Cut, was.RevokedBy = g.Created, g.Epoch, 0, 0, 0, ""
	was.Bytes, was.ExemptBytes = 0, 0
	if reflect.DeepEqual(&was, g) {
		return nil
	}
	return fault.AlreadyExists.With("a ref with this id exists already")
}

// MintOwner returns the owner ref's grant of a new session, from the space ref that creates it:
// OwnerRights, no epoch, and no later expiry than the space ref's. It is bound to no key, also
// below a sealed space ref: a seal protects existing sessions against a thief of the space ref's
// text, and this ref, whose secret the key's holder creates together with the session, is for that
// session alone. Errors as for Mint, and MissingRight if space has no create right.
func MintOwner(space *Grant, m MintRequest, now int64) (*Grant, *fault.Error) {
	target := Target(m.ID)
	if !IsSession(target) {
		return nil, fault.BadArgument.With("the owner ref's id is not one for a session")
	}
	if !IsSpace(space.Target) || !space.Rights.Has(Create) {
		return nil, fault.MissingRight.With("creating a session needs a space ref with create, this one carries %s", space.Rights)
	}
	g := &Grant{ID: m.ID, Target: target, Parent: space.ID, Hash: m.Hash, Owner: true, Rights: OwnerRights, Expires: cmp.Or(m.Expires, space.Expires),
		Seal: slices.Clone(m.Seal), Label: m.Label, Actor: cmp.Or(m.Actor, joinActor(space.Actor, DefaultOwnerActor)), Created: now}
	if err := checkMinted(g); err != nil {
		return nil, err
	}
	if err := checkLimitsWithin(space, g); err != nil {
		return nil, err
	}
	return g, nil
}

// CheckWithin returns nil if child is within parent in every dimension: target, rights, rights in children, append's
// methods, epoch, expiry, first visible cursor, message, keys, kinds of requests, redemptions, seal, actor; and it is no
// owner ref. The error is Widening.
func CheckWithin(parent, child *Grant) *fault.Error {
	switch {
	case child.Parent != parent.ID || child.Target != parent.Target:
		return fault.Widening.With("the new ref is not minted from %s", parent.ID)
	case child.Owner:
		return fault.Widening.With("owner refs are made with their session and not by sharing")
	case !parent.Rights.Has(child.Rights):
		return fault.Widening.With("the new ref would carry %s, its parent carries %s", child.Rights, parent.Rights)
	case !parent.givesInChildren().Has(child.Children):
		return fault.Widening.With("the new ref would carry %s in children, its parent may give %s there", child.Children, parent.givesInChildren())
	case !parent.Owner && child.Epoch != parent.Epoch:
		return fault.Widening.With("the new ref would be of epoch %d, its parent is of epoch %d", child.Epoch, parent.Epoch)
	case child.Rights.Has(Append) && len(parent.Methods) > 0 && (len(child.Methods) == 0 || !subset(child.Methods, parent.Methods)):
		return fault.Widening.With("the new ref may append only what its parent may: %s", strings.Join(parent.Methods, ", "))
	case parent.VisibleFrom > 1 && child.VisibleFrom < parent.VisibleFrom:
		return fault.Widening.With("the new ref would show events from cursor %d, its parent shows them from %d", child.VisibleFrom, parent.VisibleFrom)
	case parent.MaxRedemptions != 0 && (child.MaxRedemptions == 0 || child.MaxRedemptions > parent.MaxRedemptions):
		return fault.Widening.With("the new ref would allow more redemptions than its parent's %d", parent.MaxRedemptions)
	case parent.Message != "" && child.Message != parent.Message:
		return fault.Widening.With("the new ref would be for more than its parent, which is for message %s only", fault.Clip(parent.Message))
	case !keysWithin(child.ReadKeys, parent.ReadKeys):
		return fault.Widening.With("the new ref would show more keys than its parent, which shows only %s", fault.Clip(KeysText(parent.ReadKeys)))
	case !keysWithin(child.WriteKeys, parent.WriteKeys):
		return fault.Widening.With("the new ref would write more keys than its parent, which writes only %s", fault.Clip(KeysText(parent.WriteKeys)))
	case child.Rights.Has(Ask) && !kindsWithin(child.AskKinds, parent.AskKinds):
		return fault.Widening.With("the new ref would ask more kinds of requests than its parent, which asks only %s", KindsText(parent.AskKinds))
	case child.Rights.Has(Answer) && !kindsWithin(child.AnswerKinds, parent.AnswerKinds):
		return fault.Widening.With("the new ref would answer more kinds of requests than its parent, which answers only %s", KindsText(parent.AnswerKinds))
	case len(parent.Seal) > 0 && len(child.Seal) == 0:
		return fault.Widening.With("its parent is sealed, so the new ref must be sealed too: give its key")
	}
	return checkLimitsWithin(parent, child)
}

// checkLimitsWithin checks the limits that apply between a space ref and an owner ref too.
func checkLimitsWithin(parent, child *Grant) *fault.Error {
	switch {
	case parent.Expires != 0 && (child.Expires == 0 || child.Expires > parent.Expires):
		return fault.Widening.With("the new ref would outlive its parent, which expires at %s", time.UnixMilli(parent.Expires).UTC().Format(time.RFC3339))
	case !isUnder(child.Actor, parent.Actor):
		return fault.Widening.With("the new ref's actor must be %s or a path under it", parent.Actor)
	}
	return nil
}

// checkMinted checks that a minted ref's fields are well formed.
func checkMinted(g *Grant) *fault.Error {
	all := OwnerRights
	if IsSpace(g.Target) {
		all = SpaceRights
	}
	switch {
	case !all.Has(g.Rights):
		return fault.BadArgument.With("%s is not for this kind of ref: there are %s", g.Rights&^all, all)
	case g.Hash == [32]byte{}:
		return fault.BadArgument.With("the new ref has no hash of its secret")
	case g.Expires < 0:
		return fault.BadArgument.With("expires_at is Unix milliseconds")
	case len(g.Label) > maxLabel || hasControl(g.Label):
		return fault.BadArgument.With("a label is at most %d bytes of text without control characters", maxLabel)
	case len(g.Message) > maxMessageID || hasControl(g.Message):
		return fault.BadArgument.With("a message's id is at most %d bytes of text without control characters", maxMessageID)
	case len(g.Methods) > maxMethods:
		return fault.BadArgument.With("at most %d methods can be named", maxMethods)
	case len(g.Seal) != 0 && len(g.Seal) != ed25519.PublicKeySize:
		return fault.BadArgument.With("a seal is an Ed25519 public key of %d bytes", ed25519.PublicKeySize)
	case Sealed(g.ID) != (len(g.Seal) > 0):
		return fault.BadArgument.With("only the id of a sealed ref may say that it is sealed")
	case g.Message != "" && !IsSession(g.Target):
		return fault.BadArgument.With("only the ref of a session can be for one message")
	case g.VisibleFrom != 0 && !IsSession(g.Target):
		return fault.BadArgument.With("only the ref of a session can be from a cursor on")
	case g.Message != "" && (g.ReadKeys != nil || g.WriteKeys != nil):
		return fault.BadArgument.With("a ref is for one message or limited to keys, not both, and the one that it is made from is so limited")
	case len(g.Methods) > 0 && !g.Rights.Has(Append):
		return fault.BadArgument.With("methods narrow the append right, which the new ref does not carry")
	case !actorPath(g.Actor):
		return fault.BadArgument.With("an actor is segments of letters, digits and _ . : @ + - with slashes between, at most %d bytes", maxActor)
	}
	for _, m := range g.Methods {
		if m == "" || len(m) > maxSegment || hasControl(m) {
			return fault.BadArgument.With("%q cannot be a method's name", fault.Clip(m))
		}
	}
	return nil
}

// isUnder reports whether path is root or below it; every path is below "".
func isUnder(path, root string) bool {
	return root == "" || path == root || strings.HasPrefix(path, root+"/")
}

func joinActor(root, name string) string {
	if root == "" {
		return name
	}
	return root + "/" + name
}

func actorPath(p string) bool {
	if p == "" {
		return true
	}
	if len(p) > maxActor {
		return false
	}
	for _, seg := range strings.Split(p, "/") {
		if seg == "" || seg == "." || seg == ".." || len(seg) > maxSegment {
			return false
		}
		for _, c := range []byte(seg) {
			if !alphanumeric(c) && !strings.ContainsRune("_.:@+-", rune(c)) {
				return false
			}
		}
	}
	return true
}

func subset(part, whole []string) bool {
	return !slices.ContainsFunc(part, func(m string) bool { return !slices.Contains(whole, m) })
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' })
}
