package refs

// A stored ref, as callers see it.

import (
	"cmp"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// Role is what a stored ref is for.
type Role string

// Roles.
const (
	SpaceOwner   Role = "space"   // a space's: creates and lists sessions
	SessionOwner Role = "session" // the owner ref of a session created here
	Shared       Role = "share"   // received from someone, or created here to give away

	RoleRotating Role = "rotating" // a new ref that is to replace another, whose id is its label
	RoleRotated  Role = "rotated"  // an old ref's id, replaced by the ref whose id is in label
	RoleGone     Role = "gone"     // a dropped ref: its id is kept for processes that cache the ref
)

// RefMeta is what an outbox stores with a ref's text.
type RefMeta struct {
	Role     Role
	External string // id by which another system knows the session
	Label    string
	RefStatus
}

// RefStatus is a server's answer about a ref. A ref is confirmed once a server has accepted its
// secret. Until then it may be mistyped, or its server may not know it yet; only the owner's
// ref of a session created here needs no confirmation.
type RefStatus struct {
	Confirmed  time.Time         // when a server last accepted the secret; zero if none has
	Rights     capability.Rights // the ref's rights; 0 if they are not known
	Restricted bool              // the ref is limited to some methods, one message, or a part of the log
	Dead       fault.Code        // why it will never be accepted again; None as far as is known
}

// SavedRef is a stored ref, with its secret.
type SavedRef struct {
	capability.Ref
	RefMeta
	Redemption string // redemption id to restore it with, always the same
	Saved      time.Time

	// Rotated says that it was made here by a rotation: nobody else need have it.
	Rotated bool

	replaced  []replacedRef   // refs that it has replaced
	Successor *capability.Ref // the ref that is about to replace it
}

// replacedRef is a ref that another has replaced.
type replacedRef struct {
	id   string
	hash string // hash of its secret, as text; "" if not stored
}

// keys returns the keys of byKey for a ref.
func (r *SavedRef) keys() []string {
	keys := []string{r.ID, r.Target()}
	for _, was := range r.replaced {
		keys = append(keys, was.id)
	}
	if r.External != "" && r.External != r.Target() {
		keys = append(keys, r.External)
	}
	if capability.IsSpace(r.Target()) {
		keys = append(keys, "")
	}
	return keys
}

// CompareByAge orders refs by when they were stored; refs that one process stored within a
// millisecond by their redemption ids, which ascend.
func CompareByAge(a, b *SavedRef) int {
	return cmp.Or(a.Saved.Compare(b.Saved), strings.Compare(a.Redemption, b.Redemption), strings.Compare(a.ID, b.ID))
}

// hasSecret reports whether secret is the ref's, or that of the ref with that id which it has
// replaced.
func (r *SavedRef) hasSecret(id string, secret capability.Secret) bool {
	if r.ID == id {
		return r.Secret.Equal(secret)
	}
	for _, was := range r.replaced {
		if was.id == id {
			return was.hash == "" || was.hash == secret.HashText()
		}
	}
	return false
}
