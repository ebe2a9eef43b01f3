package opargs

// share, revoke and bumpEpoch.

import (
	"math"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Share has the arguments of share.
type Share struct {
	Mint       capability.MintRequest
	Idempotent bool // a repetition changes nothing: no ledger recognizes it
	Public     bool // who knows its public id acts under the ref, without its secret
}

func decodeShare(r *Decoder) Op {
	o := &Share{Mint: capability.MintRequest{
		ID:          r.newRef("ref"),
		Hash:        r.hash("hash"),
		Methods:     r.names("methods", optional),
		Message:     r.text("message", optional),
		ReadKeys:    r.names("read_keys", optional),
		WriteKeys:   r.names("write_keys", optional),
		AskKinds:    r.names("ask", optional),
		AnswerKinds: r.names("answer", optional),
		Label:       r.text("label", optional),
		Actor:       r.text("actor", optional),
	}}
	o.Public = r.set("public")
	names, children := r.names("rights", required), r.names("children", optional)
	o.Mint.Seal = r.sealKey("seal")
	expires, _ := r.number("expires_at", optional)
	o.Mint.Lifetime, _ = r.number(ledger.HintLifetime, optional)
	redemptions, _ := r.number("redemptions", optional)
	o.Mint.VisibleFrom, _ = r.number("from", optional)
	o.Mint.Expires, o.Mint.MaxRedemptions = int64(expires), uint32(min(redemptions, math.MaxUint32))
	if r.err != nil || r.unresolved("rights") {
		return o
	}
	rights, err := capability.RightsNamed(names)
	o.Mint.Rights = rights
	if err != nil {
		r.fail(fault.BadArgument.With("rights: name some of %s", strings.Join(capability.OwnerRights.Names(), ", ")))
		return o
	}
	if r.has("children") && !r.unresolved("children") {
		if o.Mint.Children, err = capability.RightsNamed(children); err != nil || !capability.ChildRights.Has(o.Mint.Children) {
			r.fail(fault.BadArgument.With("children: name some of %s", strings.Join(capability.ChildRights.Names(), ", ")))
			return o
		}
	}
	if err := CheckShare(&o.Mint); err != nil {
		r.fail(err)
	}
	if o.Public && (o.Mint.Rights != capability.Read || o.Mint.Seal != nil || o.Mint.MaxRedemptions != 0) {
		r.fail(fault.BadArgument.With("a public ref carries read and nothing else, is sealed to no key and has no limit of redemptions: a reader does not redeem it"))
	}
	return o
}

// CheckShare checks a ref to be minted, as far as possible without its parent.
func CheckShare(m *capability.MintRequest) *fault.Error {
	switch {
	case m.MaxRedemptions > 1<<31:
		return fault.BadArgument.With("redemptions is at most %d", uint64(1<<31))
	case m.Message != "" && !session.ValidID(m.Message, false):
		return fault.BadArgument.With("message: %q is not a message's id", fault.Clip(m.Message))
	case m.Methods != nil && !knownMethods(m.Methods):
		return fault.BadArgument.With("methods: name some of those that append needs: %s", strings.Join(appendMethods, ", "))
	}
	if err := m.CheckChildren(); err != nil {
		return err
	}
	if err := m.CheckRequestKinds(); err != nil {
		return err
	}
	return m.CheckKeyLimits()
}

// appendMethods are the methods of the append right, which a ref may be limited to.
var appendMethods = []string{session.MethodAdd, session.MethodAppendText, session.MethodBegin, session.MethodClaim, session.MethodFinalize, session.MethodPatch, session.MethodPut, session.MethodRelease, session.MethodRemove}

func knownMethods(names []string) bool {
	if len(names) == 0 {
		return false
	}
	for _, n := range names {
		if !slices.Contains(appendMethods, n) {
			return false
		}
	}
	return true
}

// Revoke has the arguments of revoke.
type Revoke struct {
	Ref      string
	TakeOver bool // under the right manage, also the session's owner's; of a direct call alone
}

func decodeRevoke(r *Decoder) Op { return &Revoke{Ref: r.refID("ref")} }

// BumpEpoch is for bumpEpoch, which has no arguments.
type BumpEpoch struct{}

func decodeBumpEpoch(*Decoder) Op { return &BumpEpoch{} }
