// Access: who has it, giving it, taking it back, and removing what a key had.

package console

import (
	"context"
	"fmt"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// share mints a ref, and returns its link as text and as a QR code.
func share(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	made, err := r.newRef(on.On.Target())
	if err != nil {
		return nil, err
	}
	rights, err := capability.RightsNamed(r.Rights)
	if err != nil {
		return nil, err
	}
	var children capability.Rights
	if len(r.Children) > 0 {
		if children, err = capability.RightsNamed(r.Children); err != nil {
			return nil, err
		}
	}
	m := capability.MintRequest{ID: made.ID, Hash: made.Secret.Hash(), Rights: rights, Children: children, Lifetime: r.ExpiresIn, MaxRedemptions: r.Redemptions,
		Message: r.Message, ReadKeys: r.ReadKeys, WriteKeys: r.WriteKeys, AskKinds: r.AskKinds, AnswerKinds: r.AnswerKinds, Label: r.Label, Actor: r.Actor}
	if err := on.On.Share(ctx, m); err != nil {
		return nil, err
	}
	return on.minted(&Answer{Said: "The ref is made."}, made, rights.Has(capability.Read) || rights.Has(capability.List))
}

// minted adds a new ref to an answer: its text, and, if it opens a page, the page's link.
func (on *Page) minted(a *Answer, made capability.Ref, opens bool) (*Answer, error) {
	at, err := capability.ParseAddress(on.Address)
	if err != nil {
		return nil, err
	}
	a.Ref = at.With(made.ID, made.Secret).Text()
	if opens {
		a.Link = on.Address + page.RefPath(made)
		a.QR, err = qrCode(a.Link)
	}
	return a, err
}

// maxCuts bounds the refs that are shown before they are revoked.
const maxCuts = 100

// maxCutPages bounds the pages in which they are looked for, among refs that have ended before.
const maxCutPages = 20

// cuts returns the first refs that live, of those that a revoke would end: the ref and all below it. Without a ref it returns
// those of all that the page's ref shows, of which the script knows what a new epoch and a rotation end.
func cuts(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	a := &Answer{Cuts: []Cut{}}
	q := session.TreeQuery{Under: r.Ref}
	for range maxCutPages {
		tree, err := on.On.Refs(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range tree.Rows {
			row := &tree.Rows[i]
			switch g := row.Grant; {
			case capability.Check(g, row.Epoch, tree.Now, 0, "") != nil:
			case len(a.Cuts) == maxCuts:
				a.More = true
				return a, nil
			default:
				a.Cuts = append(a.Cuts, Cut{Ref: g.ID, Label: g.Label, Actor: g.Actor, Rights: g.Rights.String(), Owner: g.Owner, Uses: row.Uses, LastUsed: row.LastUsed})
			}
		}
		if q.After = tree.Next; q.After == "" {
			return a, nil
		}
	}
	a.More = true
	return a, nil
}

// revoke ends a ref and all below it.
func revoke(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	if on.On.IsSpace() {
		died, err := on.On.RevokeInSpace(ctx, r.Ref)
		if err != nil {
			return nil, err
		}
		return &Answer{Said: fmt.Sprintf("Revoked: %d refs have ended.", died)}, nil
	}
	done, err := on.On.Revoke(ctx, r.Ref, r.TakeOver)
	if err != nil {
		return nil, err
	}
	said := fmt.Sprintf("Revoked at cut %d: nothing under it commits after that.", done.Cut)
	if done.ChildrenCount > 0 {
		said += fmt.Sprintf(" It has ended in %d sessions below, too.", done.ChildrenCount)
	}
	return &Answer{Said: said}, nil
}

// bumpEpoch ends every share of a session.
func bumpEpoch(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	var got struct {
		Cut   uint64 `json:"cut"`
		Epoch uint64 `json:"epoch"`
	}
	if err := on.send(ctx, r, &got, session.MethodBumpEpoch); err != nil {
		return nil, err
	}
	return &Answer{Said: fmt.Sprintf("Every share is revoked at cut %d. Epoch %d begins.", got.Cut, got.Epoch)}, nil
}

// rotate puts a new ref in the place of the owner's, or of the space's root ref.
func rotate(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	made, err := r.newRef(on.On.Target())
	if err != nil {
		return nil, err
	}
	cut, err := on.On.Rotate(ctx, decide.Rotation{ID: made.ID, Hash: made.Secret.Hash()}, r.TakeOver)
	if err != nil {
		return nil, err
	}
	said := "The old ref has ended. A file with it, as the server's owner.ref may be, holds a dead one now."
	if !on.On.IsSpace() {
		said = fmt.Sprintf("The old ref has ended at cut %d. What was made from it lives on, below the new one.", cut)
	}
	return on.minted(&Answer{Said: said}, made, true)
}

// purge removes every payload that a key ever had.
func purge(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	if on.On.IsSpace() {
		return nil, fault.BadArgument.With("a key is purged in its session")
	}
	var got struct {
		Unchanged bool `json:"unchanged"`
		Events    int  `json:"events"`
	}
	if err := on.send(ctx, r, &got, session.MethodPurge, arg("key", r.Key)); err != nil {
		return nil, err
	}
	if got.Unchanged {
		return &Answer{Said: "There was nothing of it any more."}, nil
	}
	return &Answer{Said: fmt.Sprintf("Removed from %d events and from the state.", got.Events)}, nil
}
