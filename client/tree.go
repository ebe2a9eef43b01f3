// Trees of refs of sessions and spaces: listing, and for spaces sharing and revoking.

package client

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/rpc"
)

// RefInfo is a ref of a tree.
type RefInfo struct {
	GrantInfo
	Parent    string // the ref it was minted from
	Created   time.Time
	LastUsed  time.Time // zero: never
	Uses      uint64    // calls and ops under it
	Revoked   time.Time // zero: not revoked
	RevokedBy string    // the ref it was revoked under, or the one that replaced it
}

// refsPage is how many refs are requested at once.
const refsPage = 500

// Refs yields the tree of refs below one ("": the session's own ref here), depth first: that ref,
// then the refs minted from it in order of creation, each with its subtree. It takes the right to
// revoke; unless the session's ref is an owner's, the ref must be that one or below it.
//
// The server sends a page at a time. Refs minted during the iteration are included if their
// position has not been passed; revoked ones keep their position. The iteration ends after an
// error: Conflict if a rotation has moved refs at the list's position.
func (s *Session) Refs(ctx context.Context, under string) iter.Seq2[RefInfo, error] {
	return s.client.refs(ctx, s.refFor(ctx, capability.Revoke), methods.SessionRefs, under)
}

// Refs is Session.Refs for a space's ref. The tree includes the refs of sessions made under it.
func (sp *Space) Refs(ctx context.Context, under string) iter.Seq2[RefInfo, error] {
	return sp.client.refs(ctx, sp.access(), methods.SpaceRefs, under)
}

func (c *Client) refs(ctx context.Context, ref access, method methods.Method, under string) iter.Seq2[RefInfo, error] {
	return func(yield func(RefInfo, error) bool) {
		var level []RefInfo // an older server's refs, by depth, over all pages
		for after, more := "", true; more; {
			var page []RefInfo
			next := ""
			err := c.call(ctx, ref, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
				return callRefs(ctx, live, method, under, after)
			}, func(results capnp.Struct) (err error) {
				r := wire.Session_refs_Results(results)
				more = r.More()
				t := calls.Texts{}
				next = t.Get(r.Next())
				list, err := r.Refs()
				page = page[:0]
				for i := 0; err == nil && i < list.Len(); i++ {
					var info RefInfo
					info, err = decodeRefInfo(list.At(i))
					page = append(page, info)
				}
				if err == nil {
					err = t.Err
				}
				return err
			})
			if err != nil {
				yield(RefInfo{}, err)
				return
			}
			more = more && len(page) > 0
			switch {
			case more && next == "":
				level, after = append(level, page...), page[len(page)-1].Ref
				continue
			case level != nil || after == "" && !more:
				page = depthFirst(append(level, page...))
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			after = next
		}
	}
}

func callRefs(ctx context.Context, live *rpc.Ref, method methods.Method, under, after string) *rpc.Promise {
	return calls.Make(ctx, live, method, func(s capnp.Struct, _ *rpc.CapTable) error {
		q, err := wire.Session_refs_Params(s).NewQuery()
		if err != nil {
			return err
		}
		q.SetLimit(refsPage)
		if err := q.SetUnder(under); err != nil {
			return err
		}
		return q.SetAfter(after)
	})
}

// depthFirst sorts a whole tree, whose first ref is its root, into the order of Refs.
func depthFirst(tree []RefInfo) []RefInfo {
	below := map[string][]RefInfo{}
	for _, r := range tree {
		below[r.Ref] = nil
	}
	var pending []RefInfo // a stack
	for i, r := range slices.Backward(tree) {
		if _, known := below[r.Parent]; known && i > 0 {
			below[r.Parent] = append(below[r.Parent], r)
		} else {
			pending = append(pending, r)
		}
	}
	ordered := make([]RefInfo, 0, len(tree))
	for len(pending) > 0 {
		r := pending[len(pending)-1]
		children := below[r.Ref]
		slices.SortFunc(children, func(a, b RefInfo) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Ref, a.Ref)) })
		ordered, pending = append(ordered, r), append(pending[:len(pending)-1], children...)
		delete(below, r.Ref)
	}
	return ordered
}

func decodeRefInfo(w wire.RefInfo) (RefInfo, error) {
	t := calls.Texts{}
	info := RefInfo{Parent: t.Get(w.Parent()), Created: timeOf(w.Created()), LastUsed: timeOf(w.LastUsed()), Uses: w.Uses(),
		Revoked: timeOf(w.Revoked()), RevokedBy: t.Get(w.RevokedBy())}
	grant, err := w.Grant()
	if err == nil {
		info.GrantInfo, err = decodeGrantInfo(grant)
	}
	if err == nil {
		err = t.Err
	}
	return info, err
}

// Share mints a ref of the space, which allows at most what this one does and dies with it.
// Unlike Session.Share it goes to the server directly, without the outbox: the ref works when
// this returns.
func (sp *Space) Share(ctx context.Context, o ShareOptions) (capability.Ref, error) {
	if err := o.check(); err != nil {
		return capability.Ref{}, err
	}
	ref := o.newRef(sp.saved.Ref, sp.id)
	err := sp.client.call(ctx, sp.access(), func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return callShare(ctx, live, methods.SpaceShare, ref, o)
	}, readShared)
	if err != nil {
		return capability.Ref{}, err
	}
	return ref, nil
}

// callShare mints ref from a session or space, whose calls are laid out alike.
func callShare(ctx context.Context, live *rpc.Ref, method methods.Method, ref capability.Ref, o ShareOptions) *rpc.Promise {
	return calls.Make(ctx, live, method, func(s capnp.Struct, _ *rpc.CapTable) error {
		w, err := wire.Space_share_Params(s).NewRef()
		if err != nil {
			return err
		}
		return encodeNewRef(w, ref, o)
	})
}

func readShared(results capnp.Struct) error {
	r := wire.Space_share_Results(results)
	return calls.RefusalErr(r.Refusal())
}

func encodeNewRef(to wire.NewRef, ref capability.Ref, o ShareOptions) error {
	to.SetRedemptions(o.Redemptions)
	if err := to.SetId(ref.ID); err != nil {
		return err
	}
	hash := ref.Secret.Hash()
	if err := to.SetHash(hash[:]); err != nil {
		return err
	}
	if err := to.SetSeal(o.Seal); err != nil {
		return err
	}
	limits, err := to.NewLimits()
	if err != nil {
		return err
	}
	return encodeAttenuation(limits, AttenuateOptions{Rights: o.Rights, Children: o.Children, Methods: o.Methods, Lifetime: o.Lifetime, Expires: o.Expires,
		From: o.From, Message: o.Message, ReadKeys: o.ReadKeys, WriteKeys: o.WriteKeys, AskKinds: o.AskKinds, AnswerKinds: o.AnswerKinds, Label: o.Label, Actor: o.Actor})
}

// Revoke revokes a ref minted under this one, or this one itself, with its subtree: another ref
// of the space, or one of a session made under it. Sessions whose owner's ref dies with it stay,
// but cannot be reached. It returns how many refs died by this call. They are dead when it
// returns, whatever the number: a repeat returns 0, as may a call whose first answer was lost.
func (sp *Space) Revoke(ctx context.Context, refID string) (refs uint64, err error) {
	err = sp.client.call(ctx, sp.access(), func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, methods.SpaceRevoke, func(s capnp.Struct, _ *rpc.CapTable) error {
			return wire.Space_revoke_Params(s).SetRef(refID)
		})
	}, func(results capnp.Struct) error {
		r := wire.Space_revoke_Results(results)
		refs = r.Refs()
		return calls.RefusalErr(r.Refusal())
	})
	return refs, err
}
