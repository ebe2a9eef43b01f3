// Trees of refs, and a space's own: who has been given what, made narrower and
// taken back.

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
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

var (
	methodRefs        = rpc.Method{Interface: wire.Session_TypeID, ID: 7, Name: "Session.refs"}
	methodShare       = rpc.Method{Interface: wire.Session_TypeID, ID: 10, Name: "Session.share"}
	methodSpaceShare  = rpc.Method{Interface: wire.Space_TypeID, ID: 4, Name: "Space.share"}
	methodSpaceRevoke = rpc.Method{Interface: wire.Space_TypeID, ID: 5, Name: "Space.revoke"}
	methodSpaceRefs   = rpc.Method{Interface: wire.Space_TypeID, ID: 6, Name: "Space.refs"}
)

// RefInfo is a ref of a tree.
type RefInfo struct {
	GrantInfo
	Parent    string // the ref it was minted from
	Created   time.Time
	LastUsed  time.Time // zero never
	Uses      uint64    // calls and ops under it
	Revoked   time.Time // zero not
	RevokedBy string    // the ref it was revoked under, or the one that took its place
}

// refsPage is how many refs are asked for at once.
const refsPage = 500

// Refs gives the tree of refs below one ("": the session's own ref here), depth first:
// that one, then what was minted from it in the order of its making, each with all that
// is below it. It takes the right to revoke, and but for an owner the ref must be the
// session's own or below it.
//
// The server gives a page at a time, however many there are. What is minted meanwhile is
// there if its place has not been passed; what is revoked stays in its place. After an
// error it ends: Conflict if a rotation has moved the refs among which the list stood.
func (s *Session) Refs(ctx context.Context, under string) iter.Seq2[RefInfo, error] {
	return s.client.refs(ctx, s.refFor(ctx, capability.Revoke), methodRefs, under)
}

// Refs is Session.Refs for a space's ref. The refs of the sessions that were made
// under it are in the tree.
func (sp *Space) Refs(ctx context.Context, under string) iter.Seq2[RefInfo, error] {
	return sp.client.refs(ctx, sp.saved, methodSpaceRefs, under)
}

func (c *Client) refs(ctx context.Context, ref outbox.SavedRef, method rpc.Method, under string) iter.Seq2[RefInfo, error] {
	return func(yield func(RefInfo, error) bool) {
		var level []RefInfo // what a server of before gives, by depth and as many as it takes
		for after, more := "", true; more; {
			var page []RefInfo
			next := ""
			err := c.call(ctx, ref, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
				return callRefs(ctx, live, method, under, after)
			}, func(results capnp.Struct) (err error) {
				r := wire.Session_refs_Results(results)
				more = r.More()
				t := textReader{}
				next = t.get(r.Next())
				list, err := r.Refs()
				page = page[:0]
				for i := 0; err == nil && i < list.Len(); i++ {
					var info RefInfo
					info, err = decodeRefInfo(list.At(i))
					page = append(page, info)
				}
				if err == nil {
					err = t.err
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

func callRefs(ctx context.Context, live *rpc.Ref, method rpc.Method, under, after string) *rpc.Promise {
	return live.Call(ctx, method, structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
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

// depthFirst puts a whole tree, whose first ref is its root, in the order of Refs.
func depthFirst(tree []RefInfo) []RefInfo {
	below := map[string][]RefInfo{}
	for _, r := range tree {
		below[r.Ref] = nil
	}
	var pending []RefInfo // its last is the next
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
	t := textReader{}
	info := RefInfo{Parent: t.get(w.Parent()), Created: timeOf(w.Created()), LastUsed: timeOf(w.LastUsed()), Uses: w.Uses(),
		Revoked: timeOf(w.Revoked()), RevokedBy: t.get(w.RevokedBy())}
	grant, err := w.Grant()
	if err == nil {
		info.GrantInfo, err = decodeGrantInfo(grant)
	}
	if err == nil {
		err = t.err
	}
	return info, err
}

// Share makes a new ref of the space, which allows at most what this one does and
// dies with it. Unlike a session's it goes to the server at once, without the
// outbox: the ref works when this returns.
func (sp *Space) Share(ctx context.Context, o ShareOptions) (capability.Ref, error) {
	if err := o.check(); err != nil {
		return capability.Ref{}, err
	}
	ref := o.newRef(sp.saved.Ref, sp.id)
	err := sp.client.call(ctx, sp.saved, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return callShare(ctx, live, methodSpaceShare, ref, o)
	}, readShared)
	if err != nil {
		return capability.Ref{}, err
	}
	return ref, nil
}

// callShare mints ref from a session or space, whose calls are the same.
func callShare(ctx context.Context, live *rpc.Ref, method rpc.Method, ref capability.Ref, o ShareOptions) *rpc.Promise {
	return live.Call(ctx, method, structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		w, err := wire.Space_share_Params(s).NewRef()
		if err != nil {
			return err
		}
		return encodeNewRef(w, ref, o)
	})
}

func readShared(results capnp.Struct) error {
	r := wire.Space_share_Results(results)
	return refusalErr(r.Refusal())
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
	return encodeAttenuation(limits, AttenuateOptions{Rights: o.Rights, Methods: o.Methods, Lifetime: o.Lifetime, Expires: o.Expires,
		From: o.From, Message: o.Message, Label: o.Label, Actor: o.Actor})
}

// Revoke revokes a ref that was made under this one, or this one itself, with all
// below it: another ref of the space, or one of a session that was made under it.
// Sessions whose owner's ref dies with it stay as they are, out of reach. It gives
// how many refs died by this call. They are dead when it returns, whatever the number
// is: the same again gives 0, and so may a call whose first answer was lost on the way.
func (sp *Space) Revoke(ctx context.Context, refID string) (refs uint64, err error) {
	err = sp.client.call(ctx, sp.saved, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return live.Call(ctx, methodSpaceRevoke, structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			return wire.Space_revoke_Params(s).SetRef(refID)
		})
	}, func(results capnp.Struct) error {
		r := wire.Space_revoke_Results(results)
		refs = r.Refs()
		return refusalErr(r.Refusal())
	})
	return refs, err
}

// refusalErr is an answer's refusal as an error, nil if there is none.
func refusalErr(w wire.Refusal, err error) error {
	if err != nil {
		return err
	}
	f, err := refusalOf(w)
	if err != nil {
		return err
	}
	if f != nil {
		return f
	}
	return nil
}
