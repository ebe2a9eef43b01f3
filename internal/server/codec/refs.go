// Refs: what a client sends to redeem, limit, mint and rotate them, and what a server says of them.

package codec

import (
	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// maxRedemption is the maximum length of a client's redemption id, in bytes.
const maxRedemption = 64

// DecodeRestore decodes what is shown to redeem a ref.
func DecodeRestore(p wire.Gateway_restore_Params) (c authority.Credential, refused *fault.Error) {
	var r FieldReader
	ref, err := p.Ref()
	r.Fail(err)
	c.ID, c.Redemption = r.Text(ref.Id()), r.Text(p.Redemption())
	raw := r.Data(ref.Secret())
	proof, err := p.Proof()
	r.Fail(err)
	c.Proof = capability.Proof{Nonce: r.Data(proof.Nonce()), Audience: r.Text(proof.Audience()), Signature: r.Data(proof.Signature())}
	if refused = r.Fault("the sturdy ref"); refused != nil {
		return
	}
	if len(c.Redemption) > maxRedemption {
		refused = fault.BadArgument.With("the redemption id is longer than %d bytes", maxRedemption)
		return
	}
	c.Secret, err = capability.SecretFrom(raw)
	if err != nil {
		refused = fault.BadRefText.Because(err, "the ref's secret is not of 32 bytes: check that the ref was copied whole")
	}
	return
}

// maxMethods bounds the methods decoded. It is above the maximum of a grant, so that package
// capability refuses them.
const maxMethods = 256

// DecodeAttenuation decodes the limits of a new ref or object.
func DecodeAttenuation(from wire.Attenuation, err error) (m capability.MintRequest, refused *fault.Error) {
	var r FieldReader
	r.Fail(err)
	m.Expires, m.Lifetime, m.VisibleFrom = from.Expires(), from.Lifetime(), from.From()
	m.Message, m.Label, m.Actor = r.Text(from.Message_()), r.Text(from.Label()), r.Text(from.Actor())
	if bits := from.Rights() &^ wire.KeyLimits; capability.Rights(bits)&^(capability.OwnerRights|capability.SpaceRights) != 0 {
		return m, fault.BadArgument.With("the bits %#x are not rights", bits)
	} else {
		m.Rights = capability.Rights(bits)
	}
	if bits := capability.Rights(from.Children()); bits&^(capability.OwnerRights|capability.SpaceRights) != 0 {
		return m, fault.BadArgument.With("the bits %#x are not rights in children", uint16(bits))
	} else {
		m.Children = bits
	}
	methods, err := from.Methods()
	r.Fail(err)
	if n := methods.Len(); n > maxMethods {
		return m, fault.BadArgument.With("at most %d methods can be named", maxMethods)
	}
	if from.HasMethods() {
		m.Methods = []string{}
	}
	for i := range methods.Len() {
		m.Methods = append(m.Methods, r.Text(methods.At(i)))
	}
	m.ReadKeys, refused = r.Keys("read_keys", from.HasReadKeys(), from.ReadKeys)
	if refused == nil {
		m.WriteKeys, refused = r.Keys("write_keys", from.HasWriteKeys(), from.WriteKeys)
	}
	m.AskKinds, m.AnswerKinds = r.kinds(from.HasAsk(), from.Ask), r.kinds(from.HasAnswer(), from.Answer)
	if refused == nil && from.Rights()&wire.KeyLimits != 0 && m.ReadKeys == nil && m.WriteKeys == nil {
		refused = fault.BadArgument.With("the limits are said to be of keys and name none")
	}
	if broken := r.Fault("the limits"); broken != nil {
		refused = broken
	}
	return m, refused
}

// Keys decodes a list of keys, nil if it is not set. Its form is checked.
func (r *FieldReader) Keys(name string, set bool, read func() (capnp.TextList, error)) ([]string, *fault.Error) {
	if !set {
		return nil, nil
	}
	list, err := read()
	keys := append([]string{}, r.Texts(list, err, capability.MaxKeys)...)
	if r.err != nil {
		return nil, nil
	}
	return keys, capability.CheckKeys(name, keys)
}

// maxKinds bounds the kinds decoded. It is above the maximum of a grant, so that package capability refuses them.
const maxKinds = 64

// kinds decodes a list of kinds of requests, nil if it is not set.
func (r *FieldReader) kinds(set bool, read func() (capnp.TextList, error)) []string {
	if !set {
		return nil
	}
	list, err := read()
	return append([]string{}, r.Texts(list, err, maxKinds)...)
}

// DecodeNewRef decodes a request for a ref that a client has made.
func DecodeNewRef(w wire.NewRef, err error) (m capability.MintRequest, refused *fault.Error) {
	var r FieldReader
	r.Fail(err)
	m, refused = DecodeAttenuation(w.Limits())
	m.ID, m.MaxRedemptions, m.Seal = r.Text(w.Id()), w.Redemptions(), r.Data(w.Seal())
	hash := r.Data(w.Hash())
	copy(m.Hash[:], hash)
	if broken := r.Fault("the new ref"); broken != nil {
		refused = broken
	}
	switch {
	case refused != nil:
	case len(hash) != len(m.Hash):
		refused = fault.BadArgument.With("the hash of a ref's secret has %d bytes", len(m.Hash))
	}
	if refused == nil {
		refused = capability.CheckClientMade(m.ID)
	}
	if len(m.Seal) == 0 {
		m.Seal = nil
	}
	return m, refused
}

// DecodeRotation decodes the new ref's id and hash.
func DecodeRotation(id string, err error, hash []byte, hashErr error) (decide.Rotation, *fault.Error) {
	var r FieldReader
	to := decide.Rotation{ID: r.Text(id, err)}
	sum := r.Data(hash, hashErr)
	refused := r.Fault("the call")
	if refused == nil && len(sum) != len(to.Hash) {
		refused = fault.BadArgument.With("the hash of a ref's secret has %d bytes", len(to.Hash))
	}
	copy(to.Hash[:], sum)
	return to, refused
}

// EncodeGrantInfo encodes a grant and whether it is dead, at time now (Unix ms) and epoch.
func EncodeGrantInfo(to wire.GrantInfo, g *capability.Grant, epoch uint64, now int64) error {
	var w FieldWriter
	to.SetOwner(g.Owner)
	to.SetEpoch(g.Epoch)
	to.SetRights(uint16(g.Rights))
	to.SetChildren(uint16(g.Children))
	to.SetExpires(g.Expires)
	to.SetFrom(g.VisibleFrom)
	to.SetLimit(g.MaxRedemptions)
	to.SetUsed(g.Redemptions)
	to.SetCut(g.Cut)
	if dead := capability.Check(g, epoch, now, 0, ""); dead != nil {
		to.SetDead(uint16(dead.Code))
	}
	w.Text(to.SetId, g.ID)
	w.Text(to.SetTarget, g.Target)
	w.Text(to.SetMessage_, g.Message)
	w.Text(to.SetLabel, g.Label)
	w.Text(to.SetActor, g.Actor)
	w.Data(to.SetSeal, g.Seal)
	w.List(to.NewMethods, g.Methods)
	w.List(to.NewReadKeys, g.ReadKeys)
	w.List(to.NewWriteKeys, g.WriteKeys)
	w.List(to.NewAsk, g.AskKinds)
	w.List(to.NewAnswer, g.AnswerKinds)
	return w.err
}

// EncodeTreeRow encodes a ref of a tree, at time now (Unix ms).
func EncodeTreeRow(to wire.RefInfo, r *session.TreeRow, now int64) error {
	var w FieldWriter
	to.SetCreated(r.Grant.Created)
	to.SetLastUsed(r.LastUsed)
	to.SetUses(r.Uses)
	to.SetRevoked(r.Grant.Revoked)
	w.Text(to.SetParent, r.Grant.Parent)
	w.Text(to.SetRevokedBy, r.Grant.RevokedBy)
	info, err := to.NewGrant()
	w.Do(err)
	if w.err == nil {
		w.Do(EncodeGrantInfo(info, r.Grant, r.Epoch, now))
	}
	return w.err
}

// EncodeAuditPage encodes a page of an audit.
func EncodeAuditPage(to wire.AuditPage, page *session.AuditPage) error {
	to.SetSeq(page.Seq)
	if err := to.SetHead(page.Head[:]); err != nil {
		return err
	}
	return EncodeList(to.NewRows, page.Rows, encodeAuditRow)
}

func encodeAuditRow(to wire.AuditRow, row *capability.AuditRow) error {
	var w FieldWriter
	to.SetSeq(row.Seq)
	to.SetAt(row.At)
	to.SetAct(uint8(row.Act))
	to.SetReason(uint16(row.Reason))
	to.SetCursor(row.Cursor)
	to.SetCount(row.Count)
	w.Text(to.SetRef, row.Ref)
	w.Text(to.SetActor, row.Actor)
	w.Text(to.SetSubject, row.Subject)
	w.Text(to.SetOp, row.Op)
	w.Text(to.SetPeer, row.Peer)
	w.Data(to.SetHash, row.Hash[:])
	return w.err
}

// EncodeCuts encodes the cuts in children.
func EncodeCuts(cuts []decide.ChildCut, make func(int32) (wire.ChildCut_List, error)) error {
	if len(cuts) == 0 {
		return nil
	}
	return EncodeList(make, cuts, func(to wire.ChildCut, c decide.ChildCut) error {
		to.SetCut(c.Cut)
		return to.SetSession(c.Session)
	})
}
