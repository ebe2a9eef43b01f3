package decide

// The scope of an op: the keys that the current grant writes, and what it must have been shown to copy.

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// salt returns a text for the payload of the event at a cursor that readers of the session cannot
// guess: the same for each decision on the current op, and another for each op and event. An event
// that some readers are shown only a part of has one in its payload, which the part lacks:
// otherwise, knowing the rest of the event, they could test guesses at a short value by the event's
// hash.
func (a *applier) salt(cursor uint64) string {
	secret := [32]byte{}
	if st := a.v.Streams[session.StreamKey{Session: a.s.Row.ID, Outbox: a.outbox}]; st != nil {
		secret = st.Row.SecretHash
	} else { // a direct call: of its ref
		secret = a.grant.Hash
	}
	mac := hmac.New(sha256.New, secret[:])
	fmt.Fprintf(mac, "salt %s %d %d", a.s.Row.ID, a.s.Row.Cursor+1, cursor)
	return base32.StdEncoding.EncodeToString(mac.Sum(nil))[:26]
}

// inScope returns an error if the current grant does not cover the keys that op writes. A turn's end
// writes the message and all of its parts, so a ref that begins or ends one covers both. Refs are
// minted and revoked within the scope of their own ref, so those ops have no key.
func (a *applier) inScope(do opargs.Op) *fault.Error {
	if a.grant.ShowsAllKeys() && a.grant.WriteKeys == nil {
		return nil
	}
	about, turn := "", ""
	switch o := do.(type) {
	case *opargs.Share:
		return nil
	case *opargs.Revoke:
		if slot := a.v.Grants[a.grant.ID]; slot == nil || !session.AttenuatedToKeys(slot.Grant, a.sub.Attenuated) {
			return nil
		}
	case *opargs.Put:
		about = o.Key.String()
	case *opargs.Remove:
		about = o.Key.String()
	case *opargs.Patch:
		about = o.Key
	case *opargs.Add:
		about = o.Key
	case *opargs.Claim:
		switch {
		case o.Prefix != "":
			about = o.Prefix
		case o.Request != "":
			about = session.RequestKey(o.Request)
		default:
			about = o.Key
		}
	case *opargs.Release:
		if about = o.Key; o.Request != "" {
			about = session.RequestKey(o.Request)
		}
	case *opargs.Ask:
		about = session.RequestKey(o.ID)
	case *opargs.Answer:
		about = session.RequestKey(o.Request)
	case *opargs.Withdraw:
		about = session.RequestKey(o.Request)
	case *opargs.AppendText:
		about = o.Key.String()
	case *opargs.Begin:
		about, turn = session.MessageKey(o.Message), o.Message
	case *opargs.Finalize:
		about, turn = session.MessageKey(o.Message), o.Message
	default: // bumpEpoch: about the refs of all keys
		if a.grant.Message == "" && a.grant.WriteKeys == nil {
			return nil
		}
	}
	switch {
	case a.grant.Message != "":
		if about == "" || !session.Writes(a.grant, about) {
			return fault.MissingRight.With("the ref is for message %s only: ask for one that covers more", a.grant.Message)
		}
	case about == "":
		return fault.MissingRight.With("the ref is limited to some keys, and this is about all: ask for one that covers more")
	case !session.Writes(a.grant, about):
		return a.errNotWritten(about)
	case turn != "" && !capability.CoversKey(a.grant.WriteKeys, session.PartPrefix(turn)):
		return a.errNotWritten(session.PartPrefix(turn))
	}
	return nil
}

// errNotWritten refuses an op that writes a key, or the keys below a prefix.
func (a *applier) errNotWritten(key string) *fault.Error {
	return fault.MissingRight.With("the ref does not write %s, it is limited to %s: ask for one that covers it", fault.Clip(key), fault.Clip(capability.KeysText(a.grant.WriteKeys)))
}

// predatesRef reports whether a key's value is from before the current grant's first visible
// cursor. An op must not copy it into an event, which the ref's holder would be shown.
func (a *applier) predatesRef(e *session.Entry) bool {
	return a.grant.VisibleFrom > 1 && e.Since < a.grant.VisibleFrom
}

func (a *applier) errNotShown(key string) *fault.Error {
	return fault.MissingRight.With("%s is from before cursor %d, the first that the ref shows: give its value whole, or ask for a ref that shows it", key, a.grant.VisibleFrom)
}
