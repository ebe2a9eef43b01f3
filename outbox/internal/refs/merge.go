package refs

// The merge rules of a ref's row: changes by callers, which store refs, and by servers,
// which answer calls made with them. A statement is about the stored ref if the id, the secret and
// the address are the stored ones; about the same ref, moved, if only the address differs.
//
//	by                   about                       if it is          stored then
//	a caller (Put)       no stored ref               -                 the ref
//	                     a ref of a rotation         -                 nothing
//	                     the stored secret           -                 all but its status, unless it has one
//	                     another secret              not confirmed     the ref
//	                     another secret              confirmed         nothing: AlreadyExists
//	a server, accepting  no stored ref, or a ref of a rotation         nothing
//	  (StatusFrom,       the stored ref              confirmed, lives  nothing, if nothing is new (but for Renew)
//	  MergeConfirmed)    the stored ref, moved       -                 address, time, description
//	                     another secret              not confirmed     the ref, time, description
//	                     another secret, same place  confirmed         the ref, time, description
//	                     another secret, elsewhere   confirmed         nothing: AlreadyExists, since any server may accept any secret
//	a server, refusing   the stored ref              -                 that it is dead, and the time
//	  (a deadly code)    another secret, or moved    -                 nothing
//	a server that does   the stored ref              confirmed         that it is dead
//	  not know the ref   the stored ref              not confirmed     nothing: it may be mistyped, or not be known yet
//	                     another secret, or moved    -                 nothing
//	an answered batch    the ref it went through     unchanged since   as above, by its outcomes (Cache.Updates)
//	                     the ref of its session      created           time, all rights of a session
//	                     the ref of its session      not created       that it is dead

import (
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// NewRow returns the row of a ref that is stored at a time.
func NewRow(ref capability.Ref, meta RefMeta, at time.Time) (Row, error) {
	switch {
	case ref.Target() == "" || ref.Secret.IsZero():
		return Row{}, fault.BadRefText.With("an address alone, or a ref without a secret, cannot be sent through")
	case len(ref.Hosts) == 0:
		return Row{}, fault.BadRefText.With("the ref names no host, so there is nowhere to send to")
	case meta.Role == "" && capability.IsSpace(ref.Target()):
		meta.Role = SpaceOwner
	case meta.Role == "":
		meta.Role = Shared
	}
	text := ref.Text()
	if again, err := capability.ParseRef(text); err != nil || again.Text() != text {
		return Row{}, fault.BadRefText.Because(err, "the ref's address cannot be read again, so it cannot be kept: make refs with ParseRef or ParseAddress")
	}
	row := Row{ID: ref.ID, Text: text, Role: meta.Role, External: meta.External, Label: meta.Label,
		Redemption: ulid.Make().String(), Saved: at.UnixMilli()}
	row.setStatus(meta.RefStatus)
	return row, nil
}

// MergePut returns the row after a caller has stored a ref.
func MergePut(old, put Row) (Row, error) {
	if !old.Exists() {
		return put, nil
	}
	if old.Role == RoleRotated || old.Role == RoleRotating {
		return old, nil
	}
	put.Redemption, put.Saved = old.Redemption, old.Saved
	if sameSecret(old, put) {
		if put.status() == (RefStatus{}) {
			put.setStatus(old.status())
		}
	} else if old.Confirmed != 0 {
		return old, fault.AlreadyExists.With("another secret is stored for ref %s, and a server has accepted that one: drop it first", fault.Clip(put.ID))
	}
	return put, nil
}

// sameSecret reports whether two rows of one ref have the same secret; an unreadable row has
// none.
func sameSecret(a, b Row) bool {
	x, errX := a.Ref()
	y, errY := b.Ref()
	return errX == nil && errY == nil && x.Secret.Equal(y.Secret)
}

// MergeConfirmed returns the row after a server's answer. A time in update says that the server has
// accepted the row's secret at that address: both are stored then, replacing others. Rights and
// external, if they are empty, stay as they were.
func MergeConfirmed(old, update Row, address string) (Row, error) {
	if !old.Exists() || old.Role == RoleRotated || old.Role == RoleRotating {
		return old, nil
	}
	now := old
	same := sameSecret(old, update)
	switch {
	case update.Confirmed == 0 && !same:
		return old, nil // it is about another secret
	case update.Confirmed == 0:
		now.Dead = update.Dead
		return now, nil
	case !same && old.Confirmed != 0:
		if was, err := old.Ref(); err != nil || was.Address() != address {
			return old, fault.AlreadyExists.With("another secret is stored for ref %s, and its server has accepted that one: drop it first, if it is the wrong one", fault.Clip(old.ID))
		}
	}
	now.Text, now.Confirmed, now.Dead = update.Text, update.Confirmed, update.Dead
	if update.Rights != 0 || !same {
		now.Rights, now.Restricted = update.Rights, update.Restricted
	}
	if update.External != "" {
		now.External = update.External
	}
	return now, nil
}

// Answer is a server's answer to a call that was made with a ref.
type Answer struct {
	Code fault.Code // of the call's error; None if there was none

	// A description of the ref brings more. Dead is why it will never be accepted again.
	Described  bool
	Rights     capability.Rights
	Restricted bool
	Dead       fault.Code
	External   string
	Renew      bool // the time is stored though nothing else is new: of equal refs the last confirmed is used
}

// Tells reports whether an answer says anything of the ref's secret.
func Tells(a *Answer) bool { return a.accepts() || a.Code == fault.UnknownRef || MeansDead(a.Code) }

// accepts reports whether the server has taken the secret.
func (a *Answer) accepts() bool {
	return a.Code == fault.None || a.Code == fault.MissingRight || a.Code == fault.NotAnOwner
}

// StatusFrom returns what an answer to a call with ref says of the stored ref with its id. news
// reports that it is to be stored, with MergeConfirmed; settled that no later answer that accepts
// the ref tells more.
func StatusFrom(a *Answer, stored *SavedRef, ref capability.Ref, at time.Time) (s RefStatus, news, settled bool) {
	same := stored.Secret.Equal(ref.Secret) && stored.Address() == ref.Address()
	confirmed := !stored.Confirmed.IsZero()
	switch {
	case a.Described:
		s = RefStatus{Confirmed: at, Rights: a.Rights, Restricted: a.Restricted, Dead: a.Dead}
		known := stored.RefStatus
		known.Confirmed = at
		same = same && (a.External == "" || stored.External == a.External)
		return s, a.Renew || !same || !confirmed || known != s, s.Dead == fault.None
	case a.accepts():
		return RefStatus{Confirmed: at}, !same || !confirmed || stored.Dead != fault.None, true
	case !same || stored.Dead == a.Code:
		return s, false, false
	case a.Code == fault.UnknownRef:
		return RefStatus{Dead: a.Code}, confirmed, false
	case MeansDead(a.Code):
		return RefStatus{Confirmed: at, Dead: a.Code}, true, false
	}
	return s, false, false
}
